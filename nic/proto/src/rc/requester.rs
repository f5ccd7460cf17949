//! The requester of a reliable connection: sends requests, takes acknowledgements and responses,
//! completes work requests in order (IBTA 9.7).
//!
//! Loss recovery is go-back-N from the oldest PSN that is not acknowledged. An RDMA READ may go out
//! as several READ requests, so that its responses, too, stay within the window: a READ of the rest of
//! a message is what the specification has for retries, here it also paces.

use alloc::collections::VecDeque;

use urxe_wire::{
    Aeth, AtomicEth, Bth, Header, Ieth, NakCode, Opcode, Operation, Packet, Pkey, Psn, Qpn, Reth,
    Syndrome, Transport, rnr_timer_us,
};

use super::retry::{Expired, Retry};
use super::send_queue::{Position, SendQueue, Wqe};
use super::window::{Window, WindowLimits};
use crate::memory::{AccessError, LocalAccess, Memory, PdId, scatter};
use crate::qp::{Outbox, QpStats};
use crate::time::Instant;
use crate::verbs::{Payload, SendOp, SendRequest, Transmit, WcStatus};

/// An acknowledgement is asked for at least once in this many packets.
const ACK_INTERVAL_MAX: u32 = 32;

/// Greatest window until the caller sets another, bytes.
const DEFAULT_WINDOW_BYTES: u32 = 512 << 10;

/// What stays the same for all packets of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) qp: Qpn,
    pub(crate) pd: PdId,
    pub(crate) peer: Qpn,
    pub(crate) pkey: Pkey,
    pub(crate) mtu_bytes: u32,
}

impl Connection {
    /// A header to the peer with nothing but its base transport header.
    pub(crate) fn header(&self, operation: Operation, psn: Psn) -> Header {
        let opcode = Opcode::new(self.transport, operation);
        let mut bth = Bth::new(opcode, self.peer, psn);
        bth.migrated = true;
        bth.pkey = self.pkey;
        Header::new(bth)
    }
}

/// Limits that `modify` sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequesterLimits {
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_rd_atomic: u8,
}

/// The next packet, before its payload is borrowed from the queue.
pub(crate) struct Planned {
    position: Position,
    header: Header,
    offset: u32,
    len: u32,
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
    /// Ends of all READ requests ever sent for what is not acknowledged, in order. The responder may have
    /// executed any of them, and drops a repeated READ that it has executed in part.
    read_ends: VecDeque<Psn>,
    since_ack_request: u32,
    max_fetches: usize,
    window: Window,
    window_was_full: bool,
    retry: Retry,
    rnr_until: Option<Instant>,
    /// Where the last implied NAK went back to, so that its followers do not go back again.
    implied_nak_at: Option<Psn>,
    /// The packet whose round trip is being measured.
    timed: Option<(Psn, Instant)>,
}

impl Requester {
    pub(crate) fn new(first: Psn, mtu_bytes: u32, limits: RequesterLimits) -> Self {
        Self {
            queue: SendQueue::default(),
            next: first,
            unacked: first,
            cursor: first,
            cursor_wqe: 0,
            sent_end: first,
            fetches: VecDeque::new(),
            read_ends: VecDeque::new(),
            since_ack_request: 0,
            max_fetches: usize::from(limits.max_rd_atomic.max(1)),
            window: Window::new(WindowLimits::for_mtu(mtu_bytes, DEFAULT_WINDOW_BYTES)),
            window_was_full: false,
            retry: Retry::new(limits.timeout_ns, limits.retry_count, limits.rnr_retry),
            rnr_until: None,
            implied_nak_at: None,
            timed: None,
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

    /// Whether packets were sent that are not acknowledged.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.sent_end.is_after(self.unacked)
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length: u32) {
        self.queue.push(Wqe::new(request, length));
    }

    /// Whether requests were sent that are not completed.
    pub(crate) fn has_started(&self) -> bool {
        self.queue.front().is_some_and(Wqe::is_started)
    }

    /// Next PSN to be given out, for `query`.
    pub(crate) const fn next_psn(&self) -> Psn {
        self.next
    }

    fn in_flight(&self) -> u32 {
        distance(self.cursor, self.unacked)
    }

    // ---- sending -----------------------------------------------------------------------------

    /// The next packet, if the window and the timers allow one; it counts as sent. New requests start
    /// only while `may_start`.
    pub(crate) fn plan<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        may_start: bool,
        memory: &M,
        out: &mut Outbox,
    ) -> Option<Planned> {
        if self.rnr_until.is_some_and(|until| until > now) {
            return None;
        }
        self.rnr_until = None;
        loop {
            let position = self.cursor_wqe;
            let wqe = self.queue.get(position)?;
            if !wqe.is_started() {
                if !may_start || (wqe.fence && self.fetch_before(position)) {
                    return None;
                }
                self.start(position, connection, memory, out)?;
                continue;
            }
            let offset = distance(self.cursor, wqe.first);
            if offset < wqe.packets {
                let fetch = wqe.op.is_fetch();
                return if fetch {
                    self.plan_fetch(now, connection, position, offset)
                } else {
                    self.plan_packet(now, connection, position, offset)
                };
            }
            self.cursor_wqe += 1;
        }
    }

    /// The packet that was planned, with its payload.
    pub(crate) fn packet(&self, planned: &Planned) -> Transmit<'_> {
        let payload = self
            .queue
            .get(planned.position)
            .map_or(Payload::Empty, |wqe| {
                wqe.payload(planned.offset, planned.len)
            });
        Transmit {
            header: planned.header,
            payload,
        }
    }

    /// Whether a READ or atomic before `position` is not completed.
    fn fetch_before(&self, position: Position) -> bool {
        let count = position - self.queue.front_position();
        self.queue
            .iter()
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .any(|w| w.op.is_fetch())
    }

    /// Gives the request at `position` its PSNs, or fails it, once all before it are completed, when
    /// its memory may not be used: completions come in the order of posting.
    fn start<M: Memory>(
        &mut self,
        position: Position,
        connection: &Connection,
        memory: &M,
        out: &mut Outbox,
    ) -> Option<()> {
        let next = self.next;
        let is_front = position == self.queue.front_position();
        let wqe = self.queue.get_mut(position)?;
        let access = if wqe.op.is_fetch() {
            LocalAccess::Write
        } else {
            LocalAccess::Read
        };
        let usable = wqe
            .sges()
            .iter()
            .try_for_each(|sge| memory.check_local(connection.pd, sge, access));
        if usable.is_err() {
            if is_front {
                self.fail(connection.qp, WcStatus::LocalProtection, out);
            }
            return None;
        }
        wqe.start(next, connection.mtu_bytes);
        self.next = wqe.end();
        Some(())
    }

    fn plan_packet(
        &mut self,
        now: Instant,
        connection: &Connection,
        position: Position,
        offset: u32,
    ) -> Option<Planned> {
        if self.in_flight() >= self.window.packets() {
            self.window_was_full = true;
            return None;
        }
        let wqe = self.queue.get(position)?;
        let is_first = offset == 0;
        let is_last = offset + 1 == wqe.packets;
        let mut header =
            connection.header(packet_operation(&wqe.op, is_first, is_last), self.cursor);
        if let SendOp::Write { va, rkey } | SendOp::WriteImm { va, rkey, .. } = wqe.op
            && is_first
        {
            header.reth = Some(Reth {
                va,
                rkey,
                len: wqe.length,
            });
        }
        if is_last {
            match wqe.op {
                SendOp::SendImm(immediate) | SendOp::WriteImm { immediate, .. } => {
                    header.immediate = Some(immediate);
                }
                SendOp::SendInvalidate { rkey } => header.ieth = Some(Ieth { rkey }),
                _ => {}
            }
            header.bth.solicited = wqe.solicited;
        }
        let len = wqe.packet_len(offset, connection.mtu_bytes);
        header.bth.ack_request = self.wants_ack(is_last);
        self.handle_sent(now, 1);
        Some(Planned {
            position,
            header,
            offset: offset * connection.mtu_bytes,
            len,
        })
    }

    /// A READ request for as many of the missing bytes as fit the window, or an atomic.
    fn plan_fetch(
        &mut self,
        now: Instant,
        connection: &Connection,
        position: Position,
        offset: u32,
    ) -> Option<Planned> {
        let room = self.window.packets().saturating_sub(self.in_flight());
        let wqe = self.queue.get(position)?;
        let left = wqe.packets - offset;
        let count = left.min(room);
        // No small pieces: each costs a request, and only few may be outstanding.
        if count == 0 || (count < left && count < self.window.packets() / 2) {
            self.window_was_full = true;
            return None;
        }
        if self.fetches.len() >= self.max_fetches {
            return None;
        }
        let first = self.cursor;
        let next_end = self.read_ends.iter().find(|end| end.is_after(first));
        let count = next_end.map_or(count, |end| count.min(distance(*end, first)));
        let header = fetch_header(connection, wqe, first, offset, count);
        self.handle_sent(now, count);
        self.fetches.push_back(self.cursor);
        self.note_read_end(self.cursor);
        Some(Planned {
            position,
            header,
            offset: 0,
            len: 0,
        })
    }

    fn note_read_end(&mut self, end: Psn) {
        let at = self
            .read_ends
            .partition_point(|earlier| earlier.is_before(end));
        if self.read_ends.get(at) != Some(&end) {
            self.read_ends.insert(at, end);
        }
    }

    fn wants_ack(&mut self, is_last: bool) -> bool {
        self.since_ack_request += 1;
        let interval = (self.window.packets() / 4).clamp(1, ACK_INTERVAL_MAX);
        let ask = is_last || self.since_ack_request >= interval;
        if ask {
            self.since_ack_request = 0;
        }
        ask
    }

    fn handle_sent(&mut self, now: Instant, count: u32) {
        let first_time = self.cursor == self.sent_end;
        self.cursor = self.cursor.add(count);
        if self.cursor.is_after(self.sent_end) {
            self.sent_end = self.cursor;
        }
        if self.timed.is_none() && first_time {
            self.timed = Some((self.cursor, now));
        }
        self.retry.handle_sent(now);
    }

    // ---- receiving ---------------------------------------------------------------------------

    /// An ACK, NAK, READ response or atomic response.
    pub(crate) fn handle_response<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        packet: &Packet<'_>,
        memory: &mut M,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        let psn = packet.header.bth.psn;
        let operation = packet.header.bth.opcode.operation();
        if !psn.is_before(self.sent_end) {
            stats.ignored_responses += 1;
            return;
        }
        match (operation, packet.header.aeth, packet.header.atomic_ack) {
            (Some(Operation::Acknowledge), Some(aeth), _) => {
                self.handle_acknowledge(now, connection, psn, aeth, out, stats);
            }
            (Some(Operation::AtomicAcknowledge), _, Some(ack)) => {
                let value = ack.original.to_ne_bytes();
                self.handle_fetched(now, connection, psn, &value, memory, out, stats);
            }
            (Some(op), ..) if op.is_read_response() => {
                self.handle_fetched(now, connection, psn, packet.payload, memory, out, stats);
            }
            _ => stats.ignored_responses += 1,
        }
    }

    fn handle_acknowledge(
        &mut self,
        now: Instant,
        connection: &Connection,
        psn: Psn,
        aeth: Aeth,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                self.acknowledge(now, psn.next(), connection, out);
                if psn.next().is_after(self.unacked) {
                    self.handle_implied_nak(now, stats);
                }
            }
            Syndrome::RnrNak { timer } => {
                self.acknowledge(now, psn, connection, out);
                // While it waits nothing is sent: another refusal is a copy of the same.
                if psn != self.unacked || self.rnr_until.is_some() {
                    return;
                }
                stats.rnr_nak_received += 1;
                let until = now.after(u64::from(rnr_timer_us(timer)) * 1000);
                if self.retry.handle_rnr(until) {
                    self.rnr_until = Some(until);
                    self.go_back();
                } else {
                    self.fail(connection.qp, WcStatus::RnrRetryExceeded, out);
                }
            }
            Syndrome::Nak(code) => self.handle_nak(now, connection, psn, code, out, stats),
        }
    }

    fn handle_nak(
        &mut self,
        now: Instant,
        connection: &Connection,
        psn: Psn,
        code: NakCode,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        if psn.is_before(self.unacked) {
            return;
        }
        let progress = self.acknowledge(now, psn, connection, out);
        let status = match code {
            NakCode::PsnSequenceError => {
                stats.packet_seq_err += 1;
                if !progress && !self.retry.use_retry() {
                    self.fail(connection.qp, WcStatus::RetryExceeded, out);
                    return;
                }
                self.retry.handle_answer(now);
                self.window.handle_loss();
                self.go_back();
                return;
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => WcStatus::RemoteInvalidRequest,
            NakCode::RemoteAccessError => WcStatus::RemoteAccess,
            NakCode::RemoteOperationalError => WcStatus::RemoteOperation,
        };
        self.fail(connection.qp, status, out);
    }

    /// Data of a READ response or the old value of an atomic.
    #[expect(
        clippy::too_many_arguments,
        reason = "the pieces of a queue pair, borrowed apart"
    )]
    fn handle_fetched<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        psn: Psn,
        bytes: &[u8],
        memory: &mut M,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        if psn.is_before(self.unacked) {
            stats.ignored_responses += 1;
            return;
        }
        // A response acknowledges all requests before its own (IBTA 9.7.5).
        self.acknowledge(now, psn, connection, out);
        let Some(wqe) = self.queue.front() else {
            return;
        };
        if psn != self.unacked {
            self.handle_implied_nak(now, stats);
            return;
        }
        if !wqe.is_started() || !wqe.op.is_fetch() {
            stats.ignored_responses += 1;
            return;
        }
        let offset = distance(psn, wqe.first);
        let expected = if wqe.op.is_atomic() {
            8
        } else {
            wqe.packet_len(offset, connection.mtu_bytes)
        };
        if bytes.len() != expected as usize {
            self.fail(connection.qp, WcStatus::BadResponse, out);
            return;
        }
        let at = offset * connection.mtu_bytes;
        match scatter(memory, connection.pd, wqe.sges(), at, bytes) {
            Ok(()) => self.advance(now, psn.next(), connection, out),
            Err(AccessError::OutOfBounds) => self.fail(connection.qp, WcStatus::LocalLength, out),
            Err(_) => self.fail(connection.qp, WcStatus::LocalProtection, out),
        }
    }

    /// Something later was answered while a READ or atomic response is missing: it was lost (the
    /// "implied NAK" of IBTA 9.7.5).
    fn handle_implied_nak(&mut self, now: Instant, stats: &mut QpStats) {
        if self.implied_nak_at == Some(self.unacked) {
            return;
        }
        stats.implied_nak_seq_err += 1;
        self.implied_nak_at = Some(self.unacked);
        self.retry.handle_answer(now);
        self.window.handle_loss();
        self.go_back();
    }

    /// Everything before `end` is acknowledged, as far as no READ or atomic response is missing.
    /// Returns whether anything was.
    fn acknowledge(
        &mut self,
        now: Instant,
        end: Psn,
        connection: &Connection,
        out: &mut Outbox,
    ) -> bool {
        let before = self.unacked;
        let mut reached = before;
        for wqe in self.queue.iter() {
            if !wqe.is_started() || !end.is_after(reached) {
                break;
            }
            if wqe.op.is_fetch() && wqe.end().is_after(reached) {
                break;
            }
            reached = if wqe.end().is_after(end) {
                end
            } else {
                wqe.end()
            };
        }
        if reached == before {
            return false;
        }
        self.advance(now, reached, connection, out);
        true
    }

    /// Moves `unacked` to `to`, completing what lies before it.
    fn advance(&mut self, now: Instant, to: Psn, connection: &Connection, out: &mut Outbox) {
        let count = distance(to, self.unacked);
        self.unacked = to;
        self.implied_nak_at = None;
        if self.cursor.is_before(to) {
            self.cursor = to;
        }
        while let Some(front) = self.queue.front() {
            if !front.is_started() || front.end().is_after(to) {
                break;
            }
            if front.signaled {
                out.completions
                    .push_back(front.completion(connection.qp, WcStatus::Success));
            }
            self.queue.pop_front();
        }
        self.cursor_wqe = self.cursor_wqe.max(self.queue.front_position());
        while self.fetches.front().is_some_and(|end| !end.is_after(to)) {
            self.fetches.pop_front();
        }
        while self.read_ends.front().is_some_and(|end| !end.is_after(to)) {
            self.read_ends.pop_front();
        }
        if let Some((psn, sent)) = self.timed
            && !psn.is_after(to)
        {
            self.retry.handle_round_trip(now.since(sent));
            self.timed = None;
        }
        self.window.handle_acked(count, self.window_was_full);
        self.window_was_full = false;
        self.retry.handle_progress(now, self.sent_end.is_after(to));
    }

    /// Everything from the oldest unacknowledged PSN is to be sent again.
    fn go_back(&mut self) {
        self.cursor = self.unacked;
        self.cursor_wqe = self.queue.front_position();
        self.fetches.clear();
        self.timed = None;
    }

    // ---- time and failure --------------------------------------------------------------------

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        // While the peer is not ready, handle_timeout does nothing: no deadline may pass until then.
        self.rnr_until.or_else(|| self.retry.deadline())
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
        self.window.handle_silence();
        self.go_back();
    }

    /// Completes the oldest request with `status`; the queue pair goes to the error state.
    pub(crate) fn fail(&mut self, qp: Qpn, status: WcStatus, out: &mut Outbox) {
        if let Some(wqe) = self.queue.pop_front() {
            out.completions.push_back(wqe.completion(qp, status));
        }
        self.retry.stop();
        out.enter_error = true;
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
    }

    /// Panics with a description if the state contradicts itself.
    pub(crate) fn check_invariants(&self) {
        assert!(
            !self.unacked.is_after(self.cursor),
            "cursor {:?} before unacked {:?}",
            self.cursor,
            self.unacked
        );
        assert!(
            !self.cursor.is_after(self.sent_end),
            "cursor {:?} after sent_end {:?}",
            self.cursor,
            self.sent_end
        );
        assert!(
            !self.sent_end.is_after(self.next),
            "sent_end {:?} after next {:?}",
            self.sent_end,
            self.next
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

/// `later - earlier` for PSNs known to be in this order.
fn distance(later: Psn, earlier: Psn) -> u32 {
    later.distance_from(earlier).max(0).unsigned_abs()
}

fn packet_operation(op: &SendOp, is_first: bool, is_last: bool) -> Operation {
    use Operation as O;
    let (first, middle, last, only) = match op {
        SendOp::Send => (O::SendFirst, O::SendMiddle, O::SendLast, O::SendOnly),
        SendOp::SendImm(_) => (O::SendFirst, O::SendMiddle, O::SendLastImm, O::SendOnlyImm),
        SendOp::SendInvalidate { .. } => (
            O::SendFirst,
            O::SendMiddle,
            O::SendLastInvalidate,
            O::SendOnlyInvalidate,
        ),
        SendOp::WriteImm { .. } => (
            O::WriteFirst,
            O::WriteMiddle,
            O::WriteLastImm,
            O::WriteOnlyImm,
        ),
        _ => (O::WriteFirst, O::WriteMiddle, O::WriteLast, O::WriteOnly),
    };
    match (is_first, is_last) {
        (true, true) => only,
        (true, false) => first,
        (false, true) => last,
        (false, false) => middle,
    }
}

fn fetch_header(connection: &Connection, wqe: &Wqe, psn: Psn, offset: u32, count: u32) -> Header {
    let operation = match wqe.op {
        SendOp::CompareSwap { .. } => Operation::CompareSwap,
        SendOp::FetchAdd { .. } => Operation::FetchAdd,
        _ => Operation::ReadRequest,
    };
    let mut header = connection.header(operation, psn);
    header.bth.ack_request = true;
    match wqe.op {
        SendOp::CompareSwap {
            va,
            rkey,
            compare,
            swap,
        } => {
            header.atomic = Some(AtomicEth {
                va,
                rkey,
                swap_or_add: swap,
                compare,
            });
        }
        SendOp::FetchAdd { va, rkey, add } => {
            header.atomic = Some(AtomicEth {
                va,
                rkey,
                swap_or_add: add,
                compare: 0,
            });
        }
        SendOp::Read { va, rkey } => {
            let at = offset * connection.mtu_bytes;
            let len = (wqe.length - at).min(count * connection.mtu_bytes);
            header.reth = Some(Reth {
                va: va.wrapping_add(u64::from(at)),
                rkey,
                len,
            });
        }
        _ => {}
    }
    header
}
