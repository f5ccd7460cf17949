//! The engine of an iWARP device: rounds over its connections, in place of packets.

use urxe_proto::{Instant, SharedReceiveQueue};
use urxe_wire::Srqn;

use super::Engine;
use super::srq::table::SrqTable;
use crate::stream::{Host, SharedQueues, Streams};

impl SharedQueues for SrqTable {
    fn queue(&mut self, number: Srqn) -> Option<&mut SharedReceiveQueue> {
        self.entries.get_mut(&number).map(|entry| &mut entry.queue)
    }
}

impl Engine {
    /// The queue pairs of an iWARP device, and what they have in common with the rest of it.
    pub(crate) fn streams(&mut self) -> Option<(&mut Streams, Host<'_>)> {
        let host = Host {
            memory: &mut self.memory,
            queues: &mut self.srqs,
            events: &self.events,
        };
        Some((self.streams.as_deref_mut()?, host))
    }

    /// A round. Returns from how many connections something came.
    pub(super) fn run_streams(&mut self, now: Instant) -> usize {
        let Some((streams, mut host)) = self.streams() else {
            return 0;
        };
        let counts = streams.run(&mut host, now);
        self.requests += counts.receives as u64;
        counts.receives
    }
}
