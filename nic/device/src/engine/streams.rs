//! The engine of an iWARP device: rounds over its connections, in place of packets.

use urxe_proto::{Instant, SharedReceiveQueue};
use urxe_wire::Srqn;

use super::Engine;
use super::srq::table::SrqTable;
use crate::process::clock::now;
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

    /// The program posted to the queue pair at `index`, after so many polls. Whether that may wait
    /// for company: the caller sees to it that [`Self::send_gathered`] is called soon.
    pub(crate) fn gather_in_stream(&mut self, now: Instant, index: u16, polls: u64) -> bool {
        let Some(streams) = &mut self.streams else {
            return false;
        };
        let turns = polls.wrapping_add(self.requests);
        let is_outstanding = streams.note_post(index, now, turns);
        let may_wait = self.posts.note_stream_post(now, turns, is_outstanding);
        may_wait && streams.gather(index, now)
    }

    /// Sends what waits for company.
    pub(super) fn send_gathered_streams(&mut self, now: Instant) {
        if let Some((streams, mut host)) = self.streams() {
            streams.send_gathered(&mut host, now, &mut Counts::default());
        }
    }

    /// Whether the program may be about to reply depends on the time.
    pub(crate) fn see(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.see(now());
        }
    }

    /// A round of the program's own, as [`Engine::run_round`].
    pub(super) fn run_program_streams(&mut self) -> (usize, Option<Instant>) {
        let at = self.posts.looks_at_clock().then(now);
        let Some((streams, mut host)) = self.streams() else {
            return (0, at);
        };
        let (counts, at) = streams.run(&mut host, at);
        self.requests += counts.receives as u64;
        if let Some(at) = at {
            self.posts.note_round_at(at);
        }
        (counts.receives, at)
    }

    /// A round. Returns from how many connections something came.
    pub(super) fn run_streams(&mut self, now: Instant) -> usize {
        let Some((streams, mut host)) = self.streams() else {
            return 0;
        };
        let (counts, _) = streams.run(&mut host, Some(now));
        self.requests += counts.receives as u64;
        counts.receives
    }
}
