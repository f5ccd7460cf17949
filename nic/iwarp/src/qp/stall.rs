//! Messages that come before the receive request that they take.
//!
//! iWARP has no "receiver not ready", but TCP has: what this end does not take from the stream
//! waits at the peer. So the stream stands still until there is a receive request, with all that is
//! behind the message; what this end sends goes on. It does not stand for ever, because what the
//! program waits for before it posts a receive may be behind the message.

use alloc::vec::Vec;

use urxe_iwarp_wire::Fault;
use urxe_proto::SharedReceiveQueue;

use super::QueuePair;
use super::refusal::Refusal;
use crate::memory::StreamMemory;
use crate::stream::Stalled;

impl QueuePair {
    /// Whether a message waits for a receive request: nothing more is to be read from the stream
    /// until [`Self::resume`]. If no receive request comes for
    /// [`RECEIVE_TIMEOUT_NS`](crate::RECEIVE_TIMEOUT_NS), the connection ends.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.stalled.is_some())
    }

    /// There may be a receive request for the message that waits for one. `srq` is as for
    /// [`Self::handle_bytes`].
    pub fn resume<M: StreamMemory>(
        &mut self,
        srq: Option<&mut SharedReceiveQueue>,
        memory: &mut M,
    ) {
        let mut srq = srq;
        let stream = self.stream.as_mut();
        let Some(stalled) = stream.and_then(|stream| stream.stalled.take()) else {
            return;
        };
        match self.begin_segment(srq.as_deref_mut(), memory) {
            Ok(()) => self.handle_bytes(&stalled.rest, srq, memory),
            Err(refusal) if refusal.fault == Fault::UntaggedNoBuffer => {
                if let Some(stream) = &mut self.stream {
                    stream.stalled = Some(stalled);
                }
            }
            Err(refusal) => self.refuse(&refusal, memory),
        }
    }

    /// A segment begins whose DDP header has come, or waits until it can.
    pub(super) fn begin_or_stall<M: StreamMemory>(
        &mut self,
        srq: Option<&mut SharedReceiveQueue>,
        memory: &M,
    ) -> Result<(), Refusal> {
        match self.begin_segment(srq, memory) {
            Err(refusal) if refusal.fault == Fault::UntaggedNoBuffer => {
                self.stats.no_receive += 1;
                if let Some(stream) = &mut self.stream {
                    // The peer has sent: this end may, whatever it waits for itself.
                    stream.may_send = true;
                    stream.stalled = Some(Stalled {
                        rest: Vec::new(),
                        until: None,
                    });
                }
                Ok(())
            }
            result => result,
        }
    }

    /// No receive request came for the message that waits for one.
    pub(super) fn give_up_waiting<M: StreamMemory>(&mut self, memory: &M) {
        if let Some(stream) = &mut self.stream {
            stream.stalled = None;
        }
        self.refuse(&Fault::UntaggedNoBuffer.into(), memory);
    }
}
