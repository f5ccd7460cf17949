//! The sending half of a queue pair: that of its transport service.

use urxe_wire::{Psn, Qpn, Transport};

use crate::connection::Connection;
use crate::memory::Memory;
use crate::qp::{Outbox, QpStats};
use crate::rc::requester::{Planned, Requester, RequesterLimits};
use crate::run::Run;
use crate::send_queue::Position;
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

    /// Takes new limits from `modify` while connected.
    pub(crate) fn configure(&mut self, limits: RequesterLimits) {
        if let Self::Reliable(requester) = self {
            requester.configure(limits);
        }
    }

    /// Changes how many packets may be in flight at most.
    #[inline]
    pub(crate) fn set_window_max(&mut self, max_packets: u32) {
        if let Self::Reliable(requester) = self {
            requester.set_window_max(max_packets);
        }
    }

    /// See [`Requester::grant`].
    pub(crate) fn grant(&mut self, packets: Option<u32>, ack_interval: Option<u32>) {
        if let Self::Reliable(requester) = self {
            requester.grant(packets, ack_interval);
        }
    }

    /// See [`Requester::progress_since`].
    pub(crate) fn progress_since(&self, first: Psn) -> Option<(u32, u32)> {
        match self {
            Self::Reliable(requester) => Some(requester.progress_since(first)),
            Self::Unreliable(_) => None,
        }
    }

    #[inline]
    pub(crate) fn awaits_answer(&self) -> bool {
        matches!(self, Self::Reliable(requester) if requester.awaits_answer())
    }

    /// What it sends at, bits per second, if it can tell.
    pub(crate) fn rate_bps(&self, mtu_bytes: u32) -> Option<u64> {
        match self {
            Self::Reliable(requester) => requester.rate_bps(mtu_bytes),
            Self::Unreliable(_) => None,
        }
    }

    /// Whether much is in flight.
    #[inline]
    pub(crate) fn is_streaming(&self) -> bool {
        matches!(self, Self::Reliable(requester) if requester.is_streaming())
    }

    /// The same, while much is in flight.
    #[inline]
    pub(crate) fn bulk_rate_bps(&self, mtu_bytes: u32) -> Option<u64> {
        match self {
            Self::Reliable(requester) => requester.bulk_rate_bps(mtu_bytes),
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

    /// The position of the next request to be posted.
    #[inline]
    pub(crate) fn end_position(&self) -> Position {
        match self {
            Self::Reliable(requester) => requester.end_position(),
            Self::Unreliable(_) => 0,
        }
    }

    /// Whether the next packet would be of a request at `position` or behind it.
    pub(crate) fn is_about_to_send(&self, position: Position) -> bool {
        matches!(self, Self::Reliable(requester) if requester.is_about_to_send(position))
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

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Reliable(requester) => requester.poll_timeout(),
            Self::Unreliable(_) => None,
        }
    }

    /// Whether no answer came in time.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        matches!(self, Self::Reliable(requester) if requester.is_silent(now))
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        connection: &Connection,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        if let Self::Reliable(requester) = self {
            requester.handle_timeout(now, connection, out, stats);
        }
    }

    pub(crate) fn handle_peer_gone(&mut self, now: Instant, psn: Psn) {
        if let Self::Reliable(requester) = self {
            requester.handle_peer_gone(now, psn);
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
