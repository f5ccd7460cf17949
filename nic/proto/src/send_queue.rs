//! The send queue: work requests from post to completion, oldest first.

use alloc::collections::VecDeque;

use smallvec::SmallVec;
use urxe_wire::{Operation, Psn, Qpn, Reth, Srqn, Transport};

use crate::sge::Sge;
use crate::verbs::{Completion, Payload, SendData, SendOp, SendRequest, SendTarget, WcStatus};

/// Data of a work request while it is queued. The sizes keep the common cases free of allocation.
#[derive(Clone, Debug)]
pub(crate) enum WqeData {
    Sges(SmallVec<[Sge; 3]>),
    Inline(SmallVec<[u8; 48]>),
}

const _: () = assert!(
    size_of::<Wqe>() <= 128,
    "a larger one is copied by a call for every request"
);

/// What payloads are padded to (IBTA 9.2).
const WORD_BYTES: u32 = 4;
/// How far a work request has got, and, of an RDMA WRITE, how it goes: it is not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Queued,
    /// It has its PSNs; if it is local, it was carried out.
    Started,
    /// The same of a WRITE of which each packet is a message of its own.
    InPieces,
}

/// A queued send work request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) data: WqeData,
    /// Message length in bytes.
    pub(crate) length: u32,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    pub(crate) stage: Stage,
    /// First PSN, once started.
    pub(crate) first: Psn,
    /// PSNs that the message takes, for a fetch those of its responses. Zero until started,
    /// and of a local operation.
    pub(crate) packets: u32,
}

impl Wqe {
    #[inline]
    pub(crate) fn new(request: &SendRequest<'_>, length: u32) -> Self {
        let data = match request.data {
            SendData::Sges(sges) => WqeData::Sges(SmallVec::from_slice(sges)),
            SendData::Inline(bytes) => WqeData::Inline(SmallVec::from_slice(bytes)),
        };
        Self {
            wr_id: request.wr_id,
            op: request.op,
            data,
            length,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
            stage: Stage::Queued,
            first: Psn::new(0),
            packets: 0,
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.stage != Stage::Queued
    }

    pub(crate) fn is_in_pieces(&self) -> bool {
        self.stage == Stage::InPieces
    }

    /// One past the last PSN.
    pub(crate) fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    /// Gives the message its PSNs.
    pub(crate) fn start(&mut self, first: Psn, mtu_bytes: u32) {
        self.stage = Stage::Started;
        self.first = first;
        self.packets = if self.op.is_local() {
            0
        } else if self.op.is_atomic() {
            1
        } else {
            self.length.div_ceil(mtu_bytes).max(1)
        };
    }

    /// Whether the packet at `offset` packets may begin a [`Run`](crate::Run), which ends ahead of
    /// the last.
    #[inline]
    pub(crate) fn may_begin_run(&self, offset: u32) -> bool {
        (offset > 0 || self.is_in_pieces()) && offset + 1 < self.packets
    }

    /// What the packet at `offset` packets is.
    #[inline]
    pub(crate) fn packet_operation(&self, offset: u32) -> Operation {
        use Operation as O;
        let (first, middle, last, only) = match self.op {
            SendOp::Send => (O::SendFirst, O::SendMiddle, O::SendLast, O::SendOnly),
            SendOp::SendImm(_) => (O::SendFirst, O::SendMiddle, O::SendLastImm, O::SendOnlyImm),
            SendOp::SendInvalidate { .. } => (
                O::SendFirst,
                O::SendMiddle,
                O::SendLastInvalidate,
                O::SendOnlyInvalidate,
            ),
            SendOp::WriteImm { .. } => (
                O::WriteFirst,
                O::WriteMiddle,
                O::WriteLastImm,
                O::WriteOnlyImm,
            ),
            _ => (O::WriteFirst, O::WriteMiddle, O::WriteLast, O::WriteOnly),
        };
        match (offset == 0, offset + 1 == self.packets) {
            _ if self.is_in_pieces() => only,
            (true, true) => only,
            (true, false) => first,
            (false, true) => last,
            (false, false) => middle,
        }
    }

    /// Where a message that begins with the packet at `offset` packets is to be written.
    #[inline]
    pub(crate) fn reth(&self, offset: u32, mtu_bytes: u32) -> Option<Reth> {
        let (SendOp::Write { va, rkey } | SendOp::WriteImm { va, rkey, .. }) = self.op else {
            return None;
        };
        if self.is_in_pieces() {
            let va = va.wrapping_add(u64::from(self.bytes_before(offset, mtu_bytes)));
            let len = self.packet_len(offset, mtu_bytes);
            return Some(Reth { va, rkey, len });
        }
        let len = self.length;
        (offset == 0).then_some(Reth { va, rkey, len })
    }

    /// Makes each packet of an RDMA WRITE a message of its own.
    pub(crate) fn divide(&mut self) {
        self.stage = Stage::InPieces;
    }

    /// Bytes of the message before the packet at `offset` packets.
    pub(crate) fn bytes_before(&self, offset: u32, mtu_bytes: u32) -> u32 {
        offset * self.stride(mtu_bytes)
    }

    /// Bytes carried by each packet but the last.
    fn stride(&self, mtu_bytes: u32) -> u32 {
        if self.is_in_pieces() {
            self.length
                .div_ceil(self.packets)
                .next_multiple_of(WORD_BYTES)
        } else {
            mtu_bytes
        }
    }

    /// Bytes carried by the packet at `offset` packets.
    pub(crate) fn packet_len(&self, offset: u32, mtu_bytes: u32) -> u32 {
        let stride = self.stride(mtu_bytes);
        (self.length - offset * stride).min(stride)
    }

    /// Bytes carried by the response at `offset` packets.
    pub(crate) fn response_len(&self, offset: u32, mtu_bytes: u32) -> u32 {
        match self.op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 8,
            SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => 0,
            _ => self.packet_len(offset, mtu_bytes),
        }
    }

    /// Bytes that a request with a response carries.
    pub(crate) fn request_len(&self) -> u32 {
        match self.op {
            SendOp::AtomicWrite { .. } => self.length,
            _ => 0,
        }
    }

    /// The scatter/gather list; empty for inline data.
    pub(crate) fn sges(&self) -> &[Sge] {
        match &self.data {
            WqeData::Sges(sges) => sges,
            WqeData::Inline(_) => &[],
        }
    }

    /// `len` bytes of the message from byte `offset`.
    pub(crate) fn payload(&self, offset: u32, len: u32) -> Payload<'_> {
        if len == 0 {
            return Payload::Empty;
        }
        match &self.data {
            WqeData::Sges(sges) => Payload::Local { sges, offset, len },
            WqeData::Inline(bytes) => {
                Payload::Bytes(&bytes[offset as usize..(offset + len) as usize])
            }
        }
    }

    pub(crate) fn completion(&self, qp: Qpn, status: WcStatus) -> Completion {
        Completion::new(self.wr_id, status, self.op.kind(), self.length, qp)
    }
}

/// A queue of work requests with a position that survives the completion of older ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendQueue {
    wqes: VecDeque<Wqe>,
    /// Of an XRC initiator, the peer's shared receive queue for each request. Apart from the
    /// requests, which are as large as what the processor copies without a call.
    srqns: VecDeque<Srqn>,
    is_xrc: bool,
    /// How many were completed before the front one.
    completed: u64,
}

/// The position of a work request, counted since the queue pair was created.
pub(crate) type Position = u64;

impl SendQueue {
    /// An empty queue of a queue pair of this transport service.
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            is_xrc: transport == Transport::Xrc,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.wqes.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, wqe: Wqe, target: SendTarget) {
        if self.is_xrc {
            self.srqns.push_back(match target {
                SendTarget::XrcSrq(srqn) => srqn,
                _ => Srqn::default(),
            });
        }
        self.wqes.push_back(wqe);
    }

    /// The peer's shared receive queue that a request of an XRC initiator names.
    #[cold]
    pub(crate) fn srqn(&self, position: Position) -> Srqn {
        let srqn = self.srqns.get(self.index(position));
        srqn.copied().unwrap_or_default()
    }

    pub(crate) fn front(&self) -> Option<&Wqe> {
        self.wqes.front()
    }

    pub(crate) fn back(&self) -> Option<&Wqe> {
        self.wqes.back()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Wqe> {
        self.wqes.front_mut()
    }

    /// Position of the oldest request, or of the next one to be posted.
    pub(crate) const fn front_position(&self) -> Position {
        self.completed
    }

    pub(crate) fn pop_front(&mut self) -> Option<Wqe> {
        let wqe = self.wqes.pop_front()?;
        if self.is_xrc {
            self.srqns.pop_front();
        }
        self.completed += 1;
        Some(wqe)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the distance to the front is below len()"
    )]
    const fn index(&self, position: Position) -> usize {
        (position - self.completed) as usize
    }

    pub(crate) fn get(&self, position: Position) -> Option<&Wqe> {
        self.wqes.get(self.index(position))
    }

    pub(crate) fn get_mut(&mut self, position: Position) -> Option<&mut Wqe> {
        let index = self.index(position);
        self.wqes.get_mut(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Wqe> {
        self.wqes.iter()
    }
}
