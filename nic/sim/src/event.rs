//! What will happen, in the order of time and, at the same time, of scheduling.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use urxe_proto::Instant;

use crate::host::HostId;

/// A UDP payload under way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) udp_payload: Vec<u8>,
    pub(crate) ecn: bool,
}

/// Something that happens at some point in time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A datagram reaches the switch, at whose port its receiver is.
    Forward(Datagram),
    /// A datagram reaches its receiver.
    Deliver(Datagram),
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
