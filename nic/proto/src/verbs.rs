//! What a program posts and gets back, as plain data: work requests, completions, and the packet
//! that a queue pair asks its caller to send.

use urxe_wire::{Gid, Grh, Header, Immediate, Qpn, Srqn, Transport};

use crate::memory::{Placement, Via, WindowBind};
use crate::sge::Sge;

/// The type of a queue pair, as `ibv_qp_type` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// The sending half of an extended reliable connection (`IBV_QPT_XRC_SEND`).
    XrcInitiator,
    /// The receiving half of an extended reliable connection (`IBV_QPT_XRC_RECV`).
    XrcTarget,
}

impl QpType {
    /// The transport service in its packets' opcodes.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Rc => Transport::Rc,
            Self::Uc => Transport::Uc,
            Self::Ud => Transport::Ud,
            Self::XrcInitiator | Self::XrcTarget => Transport::Xrc,
        }
    }

    /// Whether requests may be posted.
    #[must_use]
    pub const fn sends(self) -> bool {
        !matches!(self, Self::XrcTarget)
    }

    /// Whether receives may be posted, to the queue pair or a shared receive queue that it has.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::Ud)
    }
}

/// Where packets go: what `ibv_ah_attr` says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// Destination GID; of a multicast group, too.
    pub dest_gid: Gid,
    /// Source GID index.
    pub source_gid_index: u8,
    /// Traffic class, the IP ToS byte.
    pub traffic_class: u8,
    /// Hop limit, the IP TTL.
    pub hop_limit: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Service level.
    pub service_level: u8,
}

/// Where a send request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendTarget {
    /// The peer of the connection (RC, UC).
    #[default]
    Connection,
    /// A queue pair, or the members of a multicast group (UD).
    Datagram {
        /// Where it is.
        address: AddressVector,
        /// Its number; [`Qpn::MULTICAST`] for a group.
        qp: Qpn,
        /// The Q_Key to present; with the high bit set, the sender's own is presented (IBTA
        /// 10.2.5).
        qkey: u32,
    },
    /// A shared receive queue of the peer (XRC).
    XrcSrq(Srqn),
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(Immediate),
    /// SEND that invalidates the remote key `rkey` at the target.
    SendInvalidate {
        /// Key to invalidate.
        rkey: u32,
    },
    /// RDMA WRITE.
    Write {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: u32,
    },
    /// RDMA WRITE with immediate data.
    WriteImm {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate data.
        immediate: Immediate,
    },
    /// RDMA READ.
    Read {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Atomic compare and swap of 8 bytes.
    CompareSwap {
        /// Remote virtual address, a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Value to compare with.
        compare: u64,
        /// Value to store when equal.
        swap: u64,
    },
    /// Atomic fetch and add of 8 bytes.
    FetchAdd {
        /// Remote virtual address, a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Value to add.
        add: u64,
    },
    /// ATOMIC WRITE of 8 bytes: no reader sees a part of them (IBTA 1.5; Linux rxe since 6.2).
    AtomicWrite {
        /// Remote virtual address, a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: u32,
    },
    /// FLUSH: completes once what was written before is where `placement` says (IBTA 1.5; Linux rxe
    /// since 6.2).
    Flush {
        /// Remote virtual address of the range, unless all of the region is meant.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Bytes of the range; none stands for all that the key opens.
        len: Option<u32>,
        /// What is guaranteed.
        placement: Placement,
    },
    /// Makes a remote key of this host invalid. Nothing is sent.
    LocalInvalidate {
        /// Key of a memory window of type 2.
        rkey: u32,
    },
    /// Binds a memory window. Nothing is sent.
    BindWindow(WindowBind),
}

impl SendOp {
    /// Whether the data flows from the remote side (READ and atomics).
    #[must_use]
    pub const fn is_fetch(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. }
        )
    }

    /// Whether the peer answers it with a response of its own, not just an acknowledgement: READ,
    /// atomics, ATOMIC WRITE and FLUSH.
    #[must_use]
    pub const fn has_response(&self) -> bool {
        self.is_fetch() || matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// Whether it is carried out on this host, without a packet.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInvalidate { .. } | Self::BindWindow(_))
    }

    /// Whether this is an atomic.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// What a completion of this request calls itself.
    #[must_use]
    pub const fn kind(&self) -> CompletionKind {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInvalidate { .. } => CompletionKind::Send,
            Self::Write { .. } | Self::WriteImm { .. } => CompletionKind::Write,
            Self::Read { .. } => CompletionKind::Read,
            Self::CompareSwap { .. } => CompletionKind::CompareSwap,
            Self::FetchAdd { .. } => CompletionKind::FetchAdd,
            Self::AtomicWrite { .. } => CompletionKind::AtomicWrite,
            Self::Flush { .. } => CompletionKind::Flush,
            Self::LocalInvalidate { .. } => CompletionKind::LocalInvalidate,
            Self::BindWindow(_) => CompletionKind::BindWindow,
        }
    }
}

/// Where a send request's data is.
#[derive(Clone, Copy, Debug)]
pub enum SendData<'a> {
    /// In registered memory; for READ and atomics, where the result goes.
    Sges(&'a [Sge]),
    /// In these bytes, which are copied now (inline).
    Inline(&'a [u8]),
}

impl SendData<'_> {
    /// Bytes of it all.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Sges(sges) => sges.iter().map(|sge| u64::from(sge.len)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The program's own identifier, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// The data.
    pub data: SendData<'a>,
    /// Whether success makes a completion (an error always does).
    pub signaled: bool,
    /// Whether the receiver's completion is a solicited event.
    pub solicited: bool,
    /// Whether to wait for earlier READs and atomics to complete.
    pub fence: bool,
    /// Where it goes.
    pub target: SendTarget,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// The program's own identifier, returned in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// Completion status, named as `ibv_wc_status` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcStatus {
    /// Success.
    Success,
    /// The message was longer than the receive buffers, or longer than a message may be.
    LocalLength,
    /// The queue pair was in a state that does not allow the operation.
    LocalQpOperation,
    /// A local scatter/gather element was outside of its region or lacked the right.
    LocalProtection,
    /// The request was flushed because the queue pair is in the error state.
    WrFlush,
    /// A memory window could not be bound or invalidated.
    MwBind,
    /// A packet arrived that does not fit the request it answers.
    BadResponse,
    /// A protection error on the responder's side of this host.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer could not complete the request.
    RemoteOperation,
    /// The peer did not answer within the retries.
    RetryExceeded,
    /// The peer had no receive request posted within the RNR retries.
    RnrRetryExceeded,
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A SEND request.
    Send,
    /// An RDMA WRITE request.
    Write,
    /// An RDMA READ request.
    Read,
    /// A compare and swap request.
    CompareSwap,
    /// A fetch and add request.
    FetchAdd,
    /// An ATOMIC WRITE request.
    AtomicWrite,
    /// A FLUSH request.
    Flush,
    /// A local invalidation.
    LocalInvalidate,
    /// The binding of a memory window.
    BindWindow,
    /// A receive, by a SEND of the peer.
    Recv,
    /// A receive, by an RDMA WRITE with immediate of the peer.
    RecvWriteImm,
}

/// Which of the two work queues a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSide {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

/// A completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The identifier given with the work request.
    pub wr_id: u64,
    /// The outcome. On failure, only `wr_id`, `qp` and `status` have a meaning.
    pub status: WcStatus,
    /// What completed.
    pub kind: CompletionKind,
    /// Bytes received or fetched.
    pub byte_len: u32,
    /// The queue pair on which it completed.
    pub qp: Qpn,
    /// Immediate data of a receive.
    pub immediate: Option<Immediate>,
    /// Remote key that a receive invalidated.
    pub invalidated_rkey: Option<u32>,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
    /// Of a datagram that was received, the queue pair that sent it. Its first 40 bytes, which
    /// `byte_len` counts, are the global route header.
    pub source_qp: Option<Qpn>,
    /// Which header a datagram came behind.
    pub header: DatagramHeader,
}

/// Which header came before a datagram, and stands in the first 40 bytes of its receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DatagramHeader {
    /// The global route header of RoCE v1.
    RoceV1,
    /// An IPv6 header.
    #[default]
    Ipv6,
    /// An IPv4 header, in the last 20 bytes.
    Ipv4,
}

impl DatagramHeader {
    /// Which one this is.
    pub(crate) const fn of(grh: &[u8; Grh::LEN]) -> Self {
        match (grh[0] >> 4, grh[6]) {
            (6, Grh::NEXT_HEADER) => Self::RoceV1,
            (6, _) => Self::Ipv6,
            _ => Self::Ipv4,
        }
    }
}

impl Completion {
    /// One that says nothing of what came.
    #[inline]
    pub(crate) const fn new(
        wr_id: u64,
        status: WcStatus,
        kind: CompletionKind,
        byte_len: u32,
        qp: Qpn,
    ) -> Self {
        Self {
            wr_id,
            status,
            kind,
            byte_len,
            qp,
            immediate: None,
            invalidated_rkey: None,
            solicited: false,
            source_qp: None,
            header: DatagramHeader::Ipv6,
        }
    }

    /// The work queue that it belongs to.
    #[must_use]
    pub const fn side(&self) -> QueueSide {
        match self.kind {
            CompletionKind::Recv | CompletionKind::RecvWriteImm => QueueSide::Recv,
            _ => QueueSide::Send,
        }
    }
}

/// Where the payload of a packet is to be taken from.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// No payload.
    Empty,
    /// `len` bytes, `offset` bytes into the list, of memory registered by this process.
    Local {
        /// The whole list of the work request.
        sges: &'a [Sge],
        /// Bytes of the list to skip.
        offset: u32,
        /// Bytes to take.
        len: u32,
    },
    /// These bytes.
    Bytes(&'a [u8]),
    /// These words, in network byte order.
    Words([u64; 3]),
    /// A range that the peer may read: the answer to an RDMA READ. It may change while it is sent.
    Remote {
        /// The queue pair that answers.
        via: Via,
        /// Remote key that the peer presented.
        rkey: u32,
        /// Virtual address.
        va: u64,
        /// Bytes to take.
        len: u32,
    },
}

impl Payload<'_> {
    /// Length in bytes.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "inline data is at most a few hundred bytes"
    )]
    pub const fn len(&self) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Local { len, .. } | Self::Remote { len, .. } => *len,
            Self::Words(_) => urxe_wire::HELD_LEN as u32,
            Self::Bytes(bytes) => bytes.len() as u32,
        }
    }

    /// Whether there is no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Where a datagram goes; of a connection, which knows its peer, `None`.
    pub address: Option<&'a AddressVector>,
    /// Base transport header and extension headers.
    pub header: Header,
    /// The payload; padding and ICRC are the caller's.
    pub payload: Payload<'a>,
}

impl<'a> Transmit<'a> {
    /// One of a connection.
    #[inline]
    pub(crate) const fn connected(header: Header, payload: Payload<'a>) -> Self {
        Self {
            address: None,
            header,
            payload,
        }
    }
}
