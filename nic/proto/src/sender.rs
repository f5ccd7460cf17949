//! The sending half of a queue pair: that of its transport service.

use urxe_wire::{Psn, Qpn, Transport};

use crate::connection::Connection;
use crate::memory::Memory;
use crate::qp::Outbox;
use crate::rc::requester::{Planned, Requester, RequesterLimits};
use crate::run::Run;
use crate::time::Instant;
use crate::unreliable::UnreliableSender;
use crate::verbs::{SendRequest, WcStatus};

/// See the module.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and the fast one"
)]
pub(crate) enum Sender {
    Reliable(Requester),
    Unreliable(UnreliableSender),
}

impl Sender {
    pub(crate) fn new(first: Psn, connection: &Connection, limits: RequesterLimits) -> Self {
        match connection.transport {
            Transport::Rc | Transport::Xrc => {
                Self::Reliable(Requester::new(first, connection, limits))
            }
            Transport::Uc | Transport::Ud => Self::Unreliable(UnreliableSender::new(first)),
        }
    }

    /// The half that waits for answers, if it has one.
    #[inline]
    pub(crate) const fn reliable(&self) -> Option<&Requester> {
        match self {
            Self::Reliable(requester) => Some(requester),
            Self::Unreliable(_) => None,
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) const fn reliable_mut(&mut self) -> Option<&mut Requester> {
        match self {
            Self::Reliable(requester) => Some(requester),
            Self::Unreliable(_) => None,
        }
    }

    #[inline]
    pub(crate) fn queued(&self) -> usize {
        match self {
            Self::Reliable(requester) => requester.queued(),
            Self::Unreliable(sender) => sender.queued(),
        }
    }

    /// Whether there is a request of which something is to be sent, now or later.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Reliable(requester) => requester.has_unsent(),
            Self::Unreliable(sender) => sender.queued() > 0,
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        match self {
            Self::Reliable(requester) => requester.has_started(),
            Self::Unreliable(sender) => sender.has_started(),
        }
    }

    pub(crate) const fn next_psn(&self) -> Psn {
        match self {
            Self::Reliable(requester) => requester.next_psn(),
            Self::Unreliable(sender) => sender.next_psn(),
        }
    }

    #[inline]
    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length: u32) {
        match self {
            Self::Reliable(requester) => requester.post(request, length),
            Self::Unreliable(sender) => sender.post(request, length),
        }
    }

    /// The payload of the packet `psn`, which was handed out, cannot be read any more.
    pub(crate) fn handle_memory_fault(&mut self, qp: Qpn, psn: Psn, out: &mut Outbox) {
        match self {
            Self::Reliable(requester) => requester.handle_memory_fault(qp, psn, out),
            // The packet handed out last is always of the oldest request.
            Self::Unreliable(sender) => sender.fail(qp, WcStatus::LocalProtection, out),
        }
    }

    /// Completes all requests as flushed.
    pub(crate) fn flush(&mut self, qp: Qpn, out: &mut Outbox) {
        match self {
            Self::Reliable(requester) => requester.flush(qp, out),
            Self::Unreliable(sender) => sender.flush(qp, out),
        }
    }

    /// The next packet and those like it, at most `most` together, if one may go; they count as
    /// sent. New requests start only while `may_start`.
    #[inline]
    pub(crate) fn plan<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        may_start: bool,
        most: u32,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Option<Planned> {
        match self {
            Self::Reliable(requester) => {
                requester.plan(now, connection, may_start, most, memory, out)
            }
            Self::Unreliable(sender) => sender.plan(connection, may_start, memory, out),
        }
    }

    /// The packets that were planned, with their payload.
    #[inline]
    pub(crate) fn packets(&self, planned: &Planned) -> Run<'_> {
        match self {
            Self::Reliable(requester) => requester.packets(planned),
            Self::Unreliable(sender) => Run::single(sender.packet(planned)),
        }
    }

    /// Panics with a description if the state contradicts itself.
    pub(crate) fn check_invariants(&self, transport: Transport) {
        match self {
            Self::Reliable(requester) => requester.check_invariants(),
            Self::Unreliable(sender) => sender.check_invariants(transport),
        }
    }
}
