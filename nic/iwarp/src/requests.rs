//! Send work requests, from post to completion, in order.

use alloc::collections::VecDeque;

use smallvec::SmallVec;
use urxe_proto::{
    Completion, DatagramHeader, Payload, SendData, SendOp, SendRequest, Sge, WcStatus,
};
use urxe_wire::Qpn;

/// Data of a work request while it is queued. The sizes keep the common cases free of allocation.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Sges(SmallVec<[Sge; 3]>),
    Inline(SmallVec<[u8; 48]>),
}

/// How far a work request has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing of it was handed out.
    Queued,
    /// Some or all of it was handed out.
    Started,
    /// All of an RDMA WRITE was handed out, and its immediate data was not.
    Written,
    /// It is done, and completes once those before it are.
    Done(WcStatus),
}

/// A queued send work request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) data: Data,
    pub(crate) length: u32,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    pub(crate) progress: Progress,
    /// Bytes of the message that are in frames; of a READ, that came.
    pub(crate) moved: u32,
}

impl Request {
    pub(crate) fn new(request: &SendRequest<'_>, length: u32) -> Self {
        Self {
            wr_id: request.wr_id,
            op: request.op,
            data: match request.data {
                SendData::Sges(sges) => Data::Sges(SmallVec::from_slice(sges)),
                SendData::Inline(bytes) => Data::Inline(SmallVec::from_slice(bytes)),
            },
            length,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
            progress: Progress::Queued,
            moved: 0,
        }
    }

    /// The scatter/gather list; empty for inline data.
    pub(crate) fn sges(&self) -> &[Sge] {
        match &self.data {
            Data::Sges(sges) => sges,
            Data::Inline(_) => &[],
        }
    }

    /// The buffer of a READ as the peer is told of it: it gives back what it was told, and this end
    /// knows the list.
    pub(crate) fn sink(&self) -> (u32, u64) {
        let first = self.sges().first().copied().unwrap_or_default();
        (first.lkey, first.addr)
    }

    /// `len` bytes of the message from byte `offset`.
    pub(crate) fn payload(&self, offset: u32, len: u32) -> Payload<'_> {
        match &self.data {
            _ if len == 0 => Payload::Empty,
            Data::Sges(sges) => Payload::Local { sges, offset, len },
            Data::Inline(bytes) => Payload::Bytes(&bytes[offset as usize..][..len as usize]),
        }
    }

    fn completion(&self, qp: Qpn, status: WcStatus) -> Completion {
        Completion {
            wr_id: self.wr_id,
            status,
            kind: self.op.kind(),
            byte_len: self.length,
            qp,
            immediate: None,
            invalidated_rkey: None,
            solicited: false,
            source_qp: None,
            header: DatagramHeader::default(),
        }
    }
}

/// The position of a request, counted since the queue pair was created.
pub(crate) type Position = u64;

/// The queue. A request keeps its position while older ones complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    queue: VecDeque<Request>,
    completed: u64,
}

impl Requests {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn push(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    fn index(&self, position: Position) -> usize {
        position
            .checked_sub(self.completed)
            .and_then(|index| usize::try_from(index).ok())
            .unwrap_or(usize::MAX)
    }

    pub(crate) fn get(&self, position: Position) -> Option<&Request> {
        self.queue.get(self.index(position))
    }

    pub(crate) fn get_mut(&mut self, position: Position) -> Option<&mut Request> {
        let index = self.index(position);
        self.queue.get_mut(index)
    }

    /// The position of the next request that is posted.
    pub(crate) fn end(&self) -> Position {
        self.completed + self.queue.len() as u64
    }

    /// Whether one was begun that is not complete.
    pub(crate) fn has_begun(&self) -> bool {
        let front = self.queue.front();
        front.is_some_and(|front| front.progress != Progress::Queued)
    }

    /// Ends a request.
    pub(crate) fn finish(&mut self, position: Position, status: WcStatus) {
        if let Some(request) = self.get_mut(position) {
            request.progress = Progress::Done(status);
        }
    }

    /// The next completion of a request that is done, with all before it.
    pub(crate) fn complete(&mut self, qp: Qpn) -> Option<Completion> {
        while let Some(Progress::Done(status)) = self.queue.front().map(|front| front.progress) {
            let request = self.queue.pop_front()?;
            self.completed += 1;
            if request.signaled || status != WcStatus::Success {
                return Some(request.completion(qp, status));
            }
        }
        None
    }

    /// Ends what is not done, as flushed.
    pub(crate) fn flush(&mut self) {
        for request in &mut self.queue {
            if !matches!(request.progress, Progress::Done(_)) {
                request.progress = Progress::Done(WcStatus::WrFlush);
            }
        }
    }
}
