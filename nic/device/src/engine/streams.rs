//! The engine of an iWARP device: rounds over its connections, in place of packets.

use urxe_proto::{Instant, SharedReceiveQueue};
use urxe_wire::Srqn;

use super::Engine;
use super::srq::table::SrqTable;
use crate::stream::{Counts, Host, SharedQueues, Streams};

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

    /// The program posted a request of so many bytes to the queue pair at `index`. Whether it may
    /// wait for company, as of a program that posts often before it polls.
    pub(crate) fn gather_in_stream(&mut self, now: Instant, index: u16, bytes: u64) -> bool {
        self.posts.note_post(now, true)
            && self
                .streams
                .as_mut()
                .is_some_and(|streams| streams.gather(index, bytes))
    }

    /// Sends what waits for company.
    pub(super) fn send_gathered_streams(&mut self, now: Instant) {
        if let Some((streams, mut host)) = self.streams() {
            streams.send_gathered(&mut host, now, &mut Counts::default());
        }
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
