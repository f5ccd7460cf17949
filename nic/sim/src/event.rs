//! What will happen, in the order of time and, at the same time, of scheduling.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use urxe_proto::Instant;

use crate::host::HostId;

/// Something that happens at some point in time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A UDP payload reaches `to`.
    Deliver {
        from: HostId,
        to: HostId,
        udp_payload: Vec<u8>,
        ecn: bool,
    },
    /// A timer of `host`, or its link has become free.
    Wake { host: HostId },
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
}

impl EventQueue {
    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        self.events.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
