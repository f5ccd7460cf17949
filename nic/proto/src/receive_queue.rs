//! Receive queues: of one queue pair, and shared by several (IBTA 10.2.9).

use alloc::collections::VecDeque;

use smallvec::SmallVec;
use urxe_wire::Qpn;

use crate::memory::PdId;
use crate::qp::PostError;
use crate::sge::Sge;
use crate::verbs::{Completion, CompletionKind, RecvRequest, WcStatus};

/// A queued receive work request.
#[derive(Clone, Debug)]
pub struct RecvWqe {
    /// The program's own identifier.
    pub wr_id: u64,
    /// Whose regions the elements are in: of a shared queue the queue's own, whatever the queue
    /// pair's is (IBTA 10.2.9.1).
    pub pd: PdId,
    /// Where the message goes.
    pub sges: SmallVec<[Sge; 2]>,
    /// Bytes that it takes.
    pub capacity: u64,
}

impl RecvWqe {
    #[inline]
    fn new(request: &RecvRequest<'_>, pd: PdId) -> Self {
        Self {
            wr_id: request.wr_id,
            pd,
            sges: SmallVec::from_slice(request.sges),
            capacity: request.sges.iter().map(|sge| u64::from(sge.len)).sum(),
        }
    }

    /// Its completion, as far as it is known before a message has come.
    #[must_use]
    pub const fn completion(&self, qp: Qpn, status: WcStatus) -> Completion {
        Completion::new(self.wr_id, status, CompletionKind::Recv, 0, qp)
    }
}

/// Receive work requests in the order of posting.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    pd: PdId,
    wqes: VecDeque<RecvWqe>,
    /// Having fewer requests than this is an event, once; 0 asks for none.
    limit: u32,
    limit_reached: bool,
}

impl ReceiveQueue {
    /// An empty queue, of requests with memory of this protection domain.
    #[must_use]
    pub const fn new(pd: PdId) -> Self {
        Self {
            pd,
            wqes: VecDeque::new(),
            limit: 0,
            limit_reached: false,
        }
    }

    pub(crate) const fn pd(&self) -> PdId {
        self.pd
    }

    pub(crate) fn len(&self) -> usize {
        self.wqes.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Queues a request, if the queue has fewer than `capacity` and the request at most `max_sges`
    /// elements.
    ///
    /// # Errors
    /// [`PostError::Full`] and [`PostError::TooManySges`].
    #[inline]
    pub fn post(
        &mut self,
        request: &RecvRequest<'_>,
        capacity: u32,
        max_sges: u32,
    ) -> Result<(), PostError> {
        if self.wqes.len() >= capacity as usize {
            return Err(PostError::Full);
        }
        if request.sges.len() > max_sges as usize {
            return Err(PostError::TooManySges);
        }
        self.wqes.push_back(RecvWqe::new(request, self.pd));
        Ok(())
    }

    pub(crate) fn front(&self) -> Option<&RecvWqe> {
        self.wqes.front()
    }

    /// Takes the oldest request.
    #[inline]
    pub fn pop_front(&mut self) -> Option<RecvWqe> {
        let wqe = self.wqes.pop_front();
        if self.limit != 0 && self.wqes.len() < self.limit as usize {
            self.limit = 0;
            self.limit_reached = true;
        }
        wqe
    }

    /// Gives back the request of a message that was dropped: the next message takes it.
    pub(crate) fn give_back(&mut self, wqe: RecvWqe) {
        self.wqes.push_front(wqe);
    }
}

/// Something that happened to a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrqEvent {
    /// It has fewer requests than the limit that was armed (`IBV_EVENT_SRQ_LIMIT_REACHED`).
    LimitReached,
}

/// A receive queue that several queue pairs take from. Its caller hands it to
/// [`QueuePair::handle_packet`](crate::QueuePair::handle_packet) with the packets of those queue
/// pairs.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    capacity: u32,
    max_sges: u32,
    pub(crate) queue: ReceiveQueue,
}

impl SharedReceiveQueue {
    /// An empty queue of at most `capacity` requests with at most `max_sges` elements each.
    #[must_use]
    pub fn new(pd: PdId, capacity: u32, max_sges: u32) -> Self {
        Self {
            capacity,
            max_sges,
            queue: ReceiveQueue::new(pd),
        }
    }

    /// Its protection domain.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.queue.pd()
    }

    /// Most requests that it holds.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Most scatter/gather elements of a request.
    #[must_use]
    pub const fn max_sges(&self) -> u32 {
        self.max_sges
    }

    /// Requests that wait for a message.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no request waits for a message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The limit that is armed; 0 if none is, or if it was reached.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.queue.limit
    }

    /// Queues a receive request.
    ///
    /// # Errors
    /// [`PostError::Full`] and [`PostError::TooManySges`].
    pub fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.queue.post(request, self.capacity, self.max_sges)
    }

    /// Arms the limit: the first message that leaves fewer requests than `limit` raises
    /// [`SrqEvent::LimitReached`], once. 0 disarms it. Whether it was taken: not if above the
    /// capacity.
    pub fn set_limit(&mut self, limit: u32) -> bool {
        if limit > self.capacity {
            return false;
        }
        self.queue.limit = limit;
        true
    }

    /// Changes how many requests it holds at most. Whether it was taken: not if there are more now,
    /// or if the limit would be above.
    pub fn resize(&mut self, capacity: u32) -> bool {
        if self.queue.len() > capacity as usize || self.queue.limit > capacity {
            return false;
        }
        self.capacity = capacity;
        true
    }

    /// Takes the oldest request, for a message of a queue pair that has this queue.
    pub fn take(&mut self) -> Option<RecvWqe> {
        self.queue.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SrqEvent> {
        core::mem::take(&mut self.queue.limit_reached).then_some(SrqEvent::LimitReached)
    }
}

/// What the next packet of a connection continues.
#[derive(Clone, Debug, Default)]
pub(crate) enum Inbound {
    /// Nothing: it starts a message.
    #[default]
    Idle,
    /// A SEND of which `received` bytes are placed.
    Send { wqe: RecvWqe, received: u32 },
    /// An RDMA WRITE of which `left` bytes are missing; the next goes to `va`.
    Write {
        rkey: u32,
        va: u64,
        left: u32,
        length: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(wr_id: u64) -> RecvRequest<'static> {
        RecvRequest { wr_id, sges: &[] }
    }

    #[test]
    fn the_limit_is_an_event_once() {
        let mut srq = SharedReceiveQueue::new(PdId(1), 4, 1);
        (0..4).for_each(|wr_id| srq.post(&request(wr_id)).unwrap());
        assert!(srq.set_limit(3));
        assert!(srq.queue.pop_front().is_some());
        assert_eq!((srq.poll_event(), srq.limit()), (None, 3));
        assert!(srq.queue.pop_front().is_some());
        assert_eq!(srq.poll_event(), Some(SrqEvent::LimitReached));
        assert_eq!((srq.limit(), srq.poll_event()), (0, None));
        assert!(srq.queue.pop_front().is_some());
        assert_eq!(srq.poll_event(), None, "it is armed for one event");
    }

    #[test]
    fn it_takes_no_more_than_it_holds() {
        let mut srq = SharedReceiveQueue::new(PdId(1), 2, 1);
        assert_eq!(srq.post(&request(1)), Ok(()));
        assert_eq!(srq.post(&request(2)), Ok(()));
        assert_eq!(srq.post(&request(3)), Err(PostError::Full));
        assert!(!srq.resize(1), "two requests wait");
        assert!(srq.resize(3));
        let sges = [Sge::default(); 2];
        let long = RecvRequest {
            wr_id: 3,
            sges: &sges,
        };
        assert_eq!(srq.post(&long), Err(PostError::TooManySges));
        assert!(!srq.set_limit(4) && srq.set_limit(3));
    }
}
