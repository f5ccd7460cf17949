//! What a requester takes in: acknowledgements, NAKs, READ data and atomic results.

use urxe_wire::{Aeth, NakCode, Operation, Packet, PartialPsn, Psn, Syndrome, rnr_timer_us};

use super::super::acknowledge::SEQUENCE_ERROR;
use super::super::distance;
use super::super::early::Held;
use super::{Doubt, Requester};
use crate::connection::Connection;
use crate::memory::{Memory, scatter};
use crate::peer::PeerAbilities;
use crate::qp::{Outbox, QpStats};
use crate::time::Instant;
use crate::verbs::{SendOp, WcStatus};

impl Requester {
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
            self.handle_beyond(now, connection, packet, out, stats);
            return;
        }
        match (operation, packet.header.aeth, packet.header.atomic_ack) {
            (Some(Operation::Acknowledge), Some(aeth), _) => {
                let held = Held::read(psn, packet.payload);
                self.handle_acknowledge(now, connection, (psn, aeth, held), out, stats);
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

    /// An answer about what was never sent says nothing, except that the packet is missing which
    /// comes next: all before it has arrived then. A peer says so that keeps packets which a
    /// stranger forged.
    #[cold]
    fn handle_beyond(
        &mut self,
        now: Instant,
        connection: &Connection,
        packet: &Packet<'_>,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        let psn = packet.header.bth.psn;
        let says_missing = packet
            .header
            .aeth
            .is_some_and(|aeth| aeth.syndrome == SEQUENCE_ERROR);
        if psn == self.sent_end && says_missing {
            self.handle_done(now, connection, psn.sub(1), out, stats);
        } else {
            stats.ignored_responses += 1;
        }
    }

    /// An acknowledgement in the header of a request.
    pub(crate) fn handle_acknowledged(
        &mut self,
        now: Instant,
        connection: &Connection,
        acknowledged: PartialPsn,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        let psn = acknowledged.near(self.unacked);
        if psn.is_before(self.unacked) {
            return;
        }
        if psn.is_before(self.sent_end) {
            self.handle_done(now, connection, psn, out, stats);
        } else {
            stats.ignored_responses += 1;
        }
    }

    /// The request with the packet `psn`, and all before it, are done.
    fn handle_done(
        &mut self,
        now: Instant,
        connection: &Connection,
        psn: Psn,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        self.acknowledge(now, psn.next(), connection, out);
        if self.placed.is_some() {
            self.advance_over_placed(now, connection, out);
        }
        if psn.next().is_after(self.unacked) {
            self.handle_later_answer(now, connection, psn.next(), stats);
        }
    }

    fn handle_acknowledge(
        &mut self,
        now: Instant,
        connection: &Connection,
        (psn, aeth, held): (Psn, Aeth, Option<Held>),
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                if !psn.next().is_after(self.unacked) {
                    self.handle_answer_again(now, connection);
                }
                self.handle_done(now, connection, psn, out, stats);
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
            Syndrome::Nak(code) => {
                self.handle_nak(now, connection, (psn, code, held), out, stats);
            }
        }
    }

    fn handle_nak(
        &mut self,
        now: Instant,
        connection: &Connection,
        (psn, code, held): (Psn, NakCode, Option<Held>),
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
                if let Some(held) = held {
                    self.handle_selective_nak(now, psn, held, stats);
                    return;
                }
                // A peer that keeps what is early says the same about each message that is too far
                // away for it, all of one flight. Its silence about what is missing is timed.
                let is_repeated = connection.has(PeerAbilities::SELECTIVE_REPEAT);
                if !progress && !is_repeated && !self.retry.use_retry() {
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
            self.handle_answer_again(now, connection);
            stats.ignored_responses += 1;
            return;
        }
        // A response acknowledges all requests before its own (IBTA 9.7.5).
        self.acknowledge(now, psn, connection, out);
        let Some(wqe) = self.queue.front() else {
            return;
        };
        if psn != self.unacked {
            if connection.has(PeerAbilities::SELECTIVE_REPEAT) {
                self.place_early(connection, psn, bytes, memory);
            }
            self.handle_later_answer(now, connection, psn.next(), stats);
            return;
        }
        if !wqe.is_started() || !wqe.op.has_response() {
            stats.ignored_responses += 1;
            return;
        }
        let offset = distance(psn, wqe.first);
        let expected = wqe.response_len(offset, connection.mtu_bytes);
        if bytes.len() != expected as usize {
            self.fail(connection.qp, WcStatus::BadResponse, out);
            return;
        }
        let at = offset * connection.mtu_bytes;
        match scatter(memory, connection.pd, wqe.sges(), at, bytes) {
            Ok(()) => {
                self.advance(now, psn.next(), connection, out);
                if self.placed.is_some() {
                    self.advance_over_placed(now, connection, out);
                }
            }
            Err(_) => self.fail(connection.qp, WcStatus::LocalProtection, out),
        }
    }

    /// READ responses in the middle of an answer that have come together, the first of them `psn`.
    /// Returns how many it took: as many as are expected next and are simple, or none.
    pub(crate) fn handle_data_run<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        psn: Psn,
        payloads: &[&[u8]],
        memory: &mut M,
        out: &mut Outbox,
    ) -> usize {
        if psn != self.unacked || self.placed.is_some() {
            return 0;
        }
        let Some(wqe) = self.queue.front().filter(|wqe| wqe.is_started()) else {
            return 0;
        };
        let ([sge], SendOp::Read { .. }) = (wqe.sges(), wqe.op) else {
            return 0;
        };
        let offset = distance(psn, wqe.first);
        let asked_for = distance(self.sent_end, psn);
        let middles = (wqe.packets - 1).saturating_sub(offset).min(asked_for);
        let count = middles.min(u32::try_from(payloads.len()).unwrap_or(u32::MAX));
        let at = offset * connection.mtu_bytes;
        let pieces = &payloads[..count as usize];
        let placed = memory.write_local_pieces(connection.pd, sge, at, pieces);
        if count == 0 || placed.is_err() {
            return 0;
        }
        self.advance(now, psn.add(count), connection, out);
        count as usize
    }

    /// Something before `end` was answered, and a response at `unacked` is missing.
    pub(super) fn handle_later_answer(
        &mut self,
        now: Instant,
        connection: &Connection,
        end: Psn,
        stats: &mut QpStats,
    ) {
        let answered_to = match self.answered {
            Some((missing, to)) if missing == self.unacked => to,
            _ => self.unacked,
        };
        if end.is_after(answered_to) {
            self.answered = Some((self.unacked, end));
            self.retry.handle_later_answer(now);
        }
        if connection.has(PeerAbilities::SELECTIVE_REPEAT) {
            self.look_for_missing(now, end, stats);
        } else {
            self.handle_implied_nak(now, stats);
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
    pub(super) fn acknowledge(
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
            if wqe.op.has_response() && wqe.end().is_after(reached) {
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
    pub(super) fn advance(
        &mut self,
        now: Instant,
        to: Psn,
        connection: &Connection,
        out: &mut Outbox,
    ) {
        let count = distance(to, self.unacked);
        let before = self.unacked;
        // What is missing before it holds the acknowledgement of a packet back.
        let is_held_back = self.pass.is_some();
        self.unacked = to;
        // Not left so far behind that they seem to be ahead.
        for end in [&mut self.asked_end, &mut self.loud_end, &mut self.quiet_end] {
            if end.is_before(to) {
                *end = to;
            }
        }
        self.implied_nak_at = None;
        if self.cursor.is_before(to) {
            self.cursor = to;
            if let Some(doubt) = self.doubt.take() {
                self.stop_repeating(to, doubt);
            }
        }
        if self.pass.is_some() || self.placed.is_some() {
            self.leave_behind(to);
        }
        self.complete(connection, out);
        while self.fetches.front().is_some_and(|end| !end.is_after(to)) {
            self.fetches.pop_front();
        }
        while self.read_ends.front().is_some_and(|end| !end.is_after(to)) {
            self.read_ends.pop_front();
        }
        if let Some((psn, sent)) = self.timed
            && !psn.is_after(to)
        {
            self.timed = None;
            self.again = None;
            if !is_held_back {
                self.handle_round_trip(now.since(sent));
            }
        } else if let Some((end, _)) = self.again
            && end.is_after(before)
        {
            self.handle_answer_again(now, connection);
        }
        self.window.handle_acked(count, self.window_was_full);
        self.window_was_full = false;
        self.retry.handle_progress(now, self.sent_end.is_after(to));
    }

    pub(super) fn handle_round_trip(&mut self, nanos: u64) {
        self.retry.handle_round_trip(nanos);
        self.window.handle_round_trip(nanos);
    }

    /// An answer to what was sent more than once, or one of several. To another device, which may
    /// answer a repeated request once only, or late, patience is better: what it sees too often may
    /// cost retries.
    #[cold]
    fn handle_answer_again(&mut self, now: Instant, connection: &Connection) {
        if connection.has(PeerAbilities::ANSWERS_REPETITIONS)
            && let Some((end, sent)) = self.again
            && !end.is_after(self.unacked)
        {
            self.retry.handle_at_least(now.since(sent));
        }
    }

    /// Completes the requests of which all is acknowledged.
    #[inline]
    pub(super) fn complete(&mut self, connection: &Connection, out: &mut Outbox) {
        while let Some(front) = self.queue.front() {
            if !front.is_started() || front.end().is_after(self.unacked) {
                break;
            }
            match front.op {
                SendOp::Write { va, rkey } if front.packets > 1 && !front.is_in_pieces() => {
                    self.targets.note(rkey, va, front.length);
                }
                SendOp::SendInvalidate { rkey } => self.targets.forget(rkey),
                _ => {}
            }
            if front.signaled {
                out.completions
                    .push_back(front.completion(connection.qp, WcStatus::Success));
            }
            self.queue.pop_front();
        }
        self.cursor_wqe = self.cursor_wqe.max(self.queue.front_position());
        if self.faulty.is_some() {
            self.fail_if_faulty(connection.qp, out);
        }
    }

    /// Everything from the oldest unacknowledged PSN is to be sent again.
    pub(super) fn go_back(&mut self) {
        self.cursor = self.unacked;
        self.cursor_wqe = self.queue.front_position();
        self.fetches.clear();
        self.doubt = None;
        self.pass = None;
        self.timed = None;
        self.again = None;
    }

    /// What was not sent again yet after a silence, before `to`, is answered: it was not lost, so
    /// the answers to the rest are on their way, too, in a queue that is longer than the patience
    /// was. To send it again would only make that longer.
    #[cold]
    fn stop_repeating(&mut self, to: Psn, doubt: Doubt) {
        self.timed = doubt.timed;
        self.window.undo_silence();
        let ends = self.read_ends.iter().filter(|end| end.is_after(to));
        // Of a READ that went out in other pieces each time, there may be more ends than requests.
        if ends.clone().count() <= self.max_fetches {
            self.fetches = ends.copied().collect();
            self.cursor = self.sent_end;
        }
    }
}
