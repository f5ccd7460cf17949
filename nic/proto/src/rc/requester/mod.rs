//! The requester of a reliable connection: sends requests, takes acknowledgements and responses,
//! completes work requests in order (IBTA 9.7).
//!
//! Loss recovery is go-back-N from the oldest PSN that is not acknowledged, unless the peer is
//! urxe, too, and says what it has of the rest ([`selective`]). An RDMA READ may go out as several
//! READ requests, so that its responses, too, stay within the window: a READ of the rest of a
//! message is what the specification has for retries, here it also paces. And a short RDMA WRITE
//! may go out as several WRITEs, whose packets have one length ([`targets`]).

mod planning;
mod receiving;
mod selective;
mod sending;
mod targets;

pub(crate) use planning::Planned;
pub(crate) use sending::carry_out;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use urxe_wire::{Psn, Qpn};

use self::selective::Pass;
use self::targets::Targets;
use super::distance;
use super::early::Placed;
use super::retry::{Expired, Retry};
use super::window::{Window, WindowLimits};
use crate::connection::Connection;
use crate::egress::Egress;
use crate::habit::Habit;
use crate::peer::PeerAbilities;
use crate::qp::{Failure, Outbox, QpStats};
use crate::rc::STREAM_PACKETS;
use crate::send_queue::{Position, SendQueue, Wqe};
use crate::time::Instant;
use crate::verbs::{SendRequest, WcStatus};

/// Packets of messages without completions that may be in flight without having asked for an
/// acknowledgement: what a ping-pong of messages of 16 KiB sends until one comes by itself.
const QUIET_PACKETS: u32 = 32;
/// From so many packets in flight on something is going to ask.
const MANY_PACKETS: u32 = STREAM_PACKETS - 1;
/// An acknowledgement is asked for at least once in this many packets.
const ACK_INTERVAL_MAX: u32 = 64;
/// For how long all messages ask, at first and at most, after the peer was too late to acknowledge
/// what did not: its program neither polls nor blocks, and its background thread was late.
const HURRY_NS: (u64, u64) = (100_000_000, 10_000_000_000);

/// Limits that `modify` sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequesterLimits {
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u8,
}

/// Packets are sent again that may not be lost.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// The packet whose round trip was being measured.
    timed: Option<(Psn, Instant)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    queue: SendQueue,
    /// PSN of the next request that starts.
    next: Psn,
    /// Oldest PSN that is not acknowledged.
    unacked: Psn,
    /// PSN of the next packet to send: `unacked..=sent_end`.
    cursor: Psn,
    /// Work request of `cursor`.
    cursor_wqe: Position,
    /// One past the highest PSN sent (or, for a READ, asked for).
    sent_end: Psn,
    /// Ends of the READ and atomic requests that wait for responses.
    fetches: VecDeque<Psn>,
    /// Ends of all READ requests ever sent for what is not acknowledged, in order. The responder
    /// may have executed any of them, and drops a repeated READ that it has executed in part.
    read_ends: VecDeque<Psn>,
    targets: Targets,
    since_ack_request: u32,
    /// One past the last packet that asked for an answer.
    asked_end: Psn,
    /// One past the last packet that asked for an answer or left that to what comes behind it.
    loud_end: Psn,
    /// One past the last packet that was sent quietly.
    quiet_end: Psn,
    /// The peer was late to acknowledge what did not ask for it, or that was lost.
    hurry: Habit,
    max_fetches: usize,
    window: Window,
    window_was_full: bool,
    /// An acknowledgement is asked for at least once in so many packets.
    ack_interval_max: u32,
    retry: Retry,
    rnr_until: Option<Instant>,
    /// Where the last implied NAK went back to, so that its followers do not go back again.
    implied_nak_at: Option<Psn>,
    /// One past the highest PSN that was answered while the response at the first of these is
    /// missing.
    answered: Option<(Psn, Psn)>,
    /// Nothing was heard for long, and nothing else says that packets were lost.
    doubt: Option<Doubt>,
    /// What is being sent again to a peer that keeps what arrives early.
    pass: Option<Pass>,
    /// Responses of such a peer that arrived early.
    placed: Option<Box<Placed>>,
    /// The packet whose round trip is being measured.
    timed: Option<(Psn, Instant)>,
    /// A packet that was sent more than once, and when it was sent last.
    again: Option<(Psn, Instant)>,
    /// The request whose memory turned out to be gone. It fails once all before it are completed.
    faulty: Option<Position>,
}

impl Requester {
    pub(crate) fn new(first: Psn, connection: &Connection, limits: RequesterLimits) -> Self {
        let mtu_bytes = connection.mtu_bytes;
        Self {
            queue: SendQueue::new(connection.transport),
            next: first,
            unacked: first,
            cursor: first,
            cursor_wqe: 0,
            sent_end: first,
            fetches: VecDeque::new(),
            read_ends: VecDeque::new(),
            targets: Targets::default(),
            since_ack_request: 0,
            asked_end: first,
            loud_end: first,
            quiet_end: first,
            hurry: Habit::new(HURRY_NS.0, HURRY_NS.1),
            max_fetches: usize::from(limits.max_rd_atomic.max(1)),
            window: Window::new(WindowLimits::for_mtu(
                mtu_bytes,
                Egress::default().window_bytes,
            )),
            window_was_full: false,
            ack_interval_max: ACK_INTERVAL_MAX,
            retry: Retry::new(limits.timeout_ns, limits.retry_count, limits.rnr_retry),
            rnr_until: None,
            implied_nak_at: None,
            answered: None,
            doubt: None,
            pass: None,
            placed: None,
            timed: None,
            again: None,
            faulty: None,
        }
    }

    /// Takes new limits from `modify` while connected.
    pub(crate) fn configure(&mut self, limits: RequesterLimits) {
        self.max_fetches = usize::from(limits.max_rd_atomic.max(1));
        self.retry
            .configure(limits.timeout_ns, limits.retry_count, limits.rnr_retry);
    }

    /// Changes how many packets may be in flight at most.
    pub(crate) fn set_window_max(&mut self, max_packets: u32) {
        self.window.set_max(max_packets);
    }

    /// Congestion control says how many packets may be in flight, and in how many packets it wants
    /// an acknowledgement; `None`: it says nothing of that.
    pub(crate) fn grant(&mut self, packets: Option<u32>, ack_interval: Option<u32>) {
        self.window.grant(packets);
        self.ack_interval_max = ack_interval.map_or(ACK_INTERVAL_MAX, |packets| packets.max(1));
    }

    /// Whether others fill a queue on the way, and it takes its share.
    pub(crate) const fn competes(&self) -> bool {
        self.window.competes()
    }

    /// Packets acknowledged and sent since `first`, with which the count began.
    pub(crate) fn progress_since(&self, first: Psn) -> (u32, u32) {
        (
            distance(self.unacked, first),
            distance(self.sent_end, first),
        )
    }

    /// Whether answers are on their way: something in flight asked for one, or so much is that
    /// something will.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.has_asked() || self.in_flight() >= MANY_PACKETS
    }

    /// Whether the packet `psn` was sent and is not acknowledged; of a READ, whether its response
    /// is missing.
    pub(crate) fn is_in_flight_at(&self, psn: Psn) -> bool {
        !psn.is_before(self.unacked) && psn.is_before(self.sent_end)
    }

    /// What it sends at by its window and its round trip, bits per second.
    pub(crate) fn rate_bps(&self, mtu_bytes: u32) -> Option<u64> {
        let window_bits = 8 * u64::from(self.window.packets()) * u64::from(mtu_bytes);
        let nanos = self.retry.round_trip_ns()?.max(1);
        Some(window_bits.saturating_mul(1_000_000_000) / nanos)
    }

    /// The same, while much is in flight: short messages have round trips that tell nothing about
    /// the link.
    #[inline]
    pub(crate) fn bulk_rate_bps(&self, mtu_bytes: u32) -> Option<u64> {
        if self.is_streaming() {
            return self.rate_bps(mtu_bytes);
        }
        None
    }

    /// Whether much is in flight. Messages of a ping-pong that are not acknowledged yet are no
    /// stream.
    #[inline]
    pub(crate) fn is_streaming(&self) -> bool {
        self.in_flight().min(distance(self.cursor, self.quiet_end)) >= STREAM_PACKETS
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The position of the next request to be posted.
    #[inline]
    pub(crate) fn end_position(&self) -> Position {
        self.queue.front_position() + self.queue.len() as Position
    }

    #[inline]
    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length: u32) {
        self.queue.push(Wqe::new(request, length), request.target);
    }

    /// Whether requests were sent that are not completed.
    pub(crate) fn has_started(&self) -> bool {
        self.queue.front().is_some_and(|wqe| wqe.is_started())
    }

    /// Next PSN to be given out, for `query`.
    pub(crate) const fn next_psn(&self) -> Psn {
        self.next
    }

    fn in_flight(&self) -> u32 {
        distance(self.cursor, self.unacked)
    }

    /// Whether something in flight asked for an answer.
    fn has_asked(&self) -> bool {
        self.asked_end.is_after(self.unacked)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        // While the peer is not ready, handle_timeout does nothing: no deadline may pass until
        // then.
        self.rnr_until.or_else(|| self.retry.deadline())
    }

    /// Whether no answer came in time.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.rnr_until.is_none() && self.retry.deadline().is_some_and(|at| at <= now)
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        connection: &Connection,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        if self.rnr_until.is_some_and(|until| until > now) {
            return;
        }
        match self.retry.expire(now) {
            None => return,
            Some(Expired::Probe) => stats.probes += 1,
            Some(Expired::Timeout) => stats.local_ack_timeout_err += 1,
            Some(Expired::GiveUp) => {
                self.fail(connection.qp, WcStatus::RetryExceeded, out);
                return;
            }
        }
        self.implied_nak_at = None;
        if self.awaits_answer() {
            self.window.handle_silence();
        }
        if !self.has_asked() {
            self.hurry.note(now);
        }
        // Another device may have said already what it misses, once, and that may be lost.
        let is_doubtful = connection.has(PeerAbilities::SELECTIVE_REPEAT)
            && self.pass.is_none()
            && self.placed.is_none();
        let timed = self.timed;
        self.go_back();
        self.doubt = is_doubtful.then_some(Doubt { timed });
    }

    /// The peer said that it is gone, and expects no more packets from `psn` on. Old words do not
    /// count.
    pub(crate) fn handle_peer_gone(&mut self, now: Instant, psn: Psn) {
        if !psn.is_before(self.unacked) && !psn.is_after(self.sent_end) {
            self.retry.handle_gone(now);
        }
    }

    /// The payload of the packet `psn`, which was handed out, cannot be read any more. Its request
    /// fails when its turn to complete comes (completions are in order); until then nothing of it
    /// is sent.
    pub(crate) fn handle_memory_fault(&mut self, qp: Qpn, psn: Psn, out: &mut Outbox) {
        let mut position = self.queue.front_position();
        for wqe in self.queue.iter() {
            if wqe.is_started() && psn.is_before(wqe.end()) {
                break;
            }
            position += 1;
        }
        self.faulty = Some(position);
        if self.cursor.is_after(psn) {
            self.cursor = psn;
            self.cursor_wqe = position;
        }
        self.fail_if_faulty(qp, out);
    }

    /// Fails the oldest request if its memory is gone.
    fn fail_if_faulty(&mut self, qp: Qpn, out: &mut Outbox) {
        if self.faulty == Some(self.queue.front_position()) {
            self.fail(qp, WcStatus::LocalProtection, out);
        }
    }

    /// Completes the oldest request with `status`; the queue pair goes to the error state.
    pub(crate) fn fail(&mut self, qp: Qpn, status: WcStatus, out: &mut Outbox) {
        if let Some(wqe) = self.queue.pop_front() {
            out.completions.push_back(wqe.completion(qp, status));
        }
        self.retry.stop();
        out.failure = Failure::QueuePair;
    }

    /// Completes all requests as flushed.
    pub(crate) fn flush(&mut self, qp: Qpn, out: &mut Outbox) {
        self.retry.stop();
        self.rnr_until = None;
        while let Some(wqe) = self.queue.pop_front() {
            out.completions
                .push_back(wqe.completion(qp, WcStatus::WrFlush));
        }
        self.cursor_wqe = self.queue.front_position();
        self.faulty = None;
    }

    /// Panics with a description if the state contradicts itself.
    pub(crate) fn check_invariants(&self) {
        let psns = [self.unacked, self.cursor, self.sent_end, self.next];
        assert!(
            psns.windows(2).all(|pair| !pair[0].is_after(pair[1])),
            "not in order: {psns:?}"
        );
        let mut expected = None;
        for wqe in self.queue.iter().take_while(|w| w.is_started()) {
            if let Some(expected) = expected {
                assert_eq!(wqe.first, expected, "requests share or skip PSNs");
            }
            expected = Some(wqe.end());
        }
        if let Some(front) = self.queue.front().filter(|w| w.is_started()) {
            assert!(!self.unacked.is_before(front.first) && self.unacked.is_before(front.end()));
        }
        assert!(
            self.fetches.len() <= self.max_fetches,
            "too many READs outstanding"
        );
        assert!(self.cursor_wqe >= self.queue.front_position());
    }
}
