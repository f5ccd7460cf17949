//! What a requester sends: requests in the order of posting, as far as the window and the timers
//! allow.

use alloc::collections::VecDeque;

use urxe_wire::{AtomicEth, Feth, Header, Operation, Psn, Reth};

use super::planning::Planned;
use super::{QUIET_PACKETS, Requester, STREAM_PACKETS};
use crate::connection::Connection;
use crate::memory::{AccessError, LocalAccess, Memory, Via};
use crate::peer::PeerAbilities;
use crate::qp::Outbox;
use crate::run::Run;
use crate::send_queue::{Position, Wqe};
use crate::time::Instant;
use crate::verbs::{Payload, SendOp, Transmit, WcStatus};

/// The end of a message asks for one, too, unless so many more wait behind it.
const MESSAGES_BEHIND: Position = 4;

impl Requester {
    /// Whether there is a request of which something is to be sent, now or later.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        let is_new = |wqe: &Wqe| !wqe.is_started();
        self.cursor != self.next
            || self.queue.back().is_some_and(is_new)
            || self.rnr_until.is_some()
    }

    /// Whether the next packet would be of a request at `least` or behind it.
    pub(crate) fn is_about_to_send(&self, least: Position) -> bool {
        let mut position = self.cursor_wqe;
        while let Some(wqe) = self.queue.get(position) {
            if !wqe.is_started() || self.cursor.is_before(wqe.end()) {
                return position >= least;
            }
            position += 1;
        }
        false
    }

    /// The packets that were planned, with their payload.
    #[inline]
    pub(crate) fn packets(&self, planned: &Planned) -> Run<'_> {
        let wqe = self.queue.get(planned.position);
        let payload = wqe.map_or(Payload::Empty, |wqe| {
            wqe.payload(planned.offset, planned.len)
        });
        Run {
            first: Transmit::connected(planned.header, payload),
            more: planned.more,
        }
    }

    /// Whether a READ, an atomic or the like before `position` is not completed.
    pub(super) fn fetch_before(&self, position: Position) -> bool {
        let count = position - self.queue.front_position();
        self.queue
            .iter()
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .any(|w| w.op.has_response())
    }

    /// Gives the request at `position` its PSNs, or fails it, once all before it are completed,
    /// when its memory may not be used: completions come in the order of posting.
    #[inline]
    pub(super) fn start<M: Memory>(
        &mut self,
        position: Position,
        connection: &Connection,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Option<()> {
        let next = self.next;
        let is_behind_others = next.is_after(self.unacked);
        let is_front = position == self.queue.front_position();
        let wqe = self.queue.get_mut(position)?;
        if wqe.op.is_local() {
            return self.carry_out(position, connection, memory, out);
        }
        // Where the answer to a READ or an atomic goes is found out when it comes, as by hardware
        // and Linux rxe: the peer has carried the request out by then, or refused it.
        let is_usable = |sge| {
            memory
                .check_local(connection.pd, sge, LocalAccess::Read)
                .is_ok()
        };
        if !wqe.op.is_fetch() && !wqe.sges().iter().all(is_usable) {
            if is_front {
                self.fail(connection.qp, WcStatus::LocalProtection, out);
            }
            return None;
        }
        wqe.start(next, connection.mtu_bytes);
        if let SendOp::Write { va, rkey } = wqe.op
            && connection.has(PeerAbilities::GAINS_BY_EQUAL_LENGTHS)
            && wqe.packets > 1
            && wqe.packets <= divided_max(connection.batch_packets, is_behind_others)
            && self.targets.covers(rkey, va, wqe.length)
        {
            wqe.divide();
        }
        self.next = wqe.end();
        Some(())
    }

    /// Carries out a request that concerns this host alone, when its turn to be sent comes (IBTA
    /// 10.8.3): requests before it may be on their way, those after it meet its effect.
    #[cold]
    fn carry_out<M: Memory>(
        &mut self,
        position: Position,
        connection: &Connection,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Option<()> {
        let next = self.next;
        let is_front = position == self.queue.front_position();
        let wqe = self.queue.get_mut(position)?;
        if carry_out(&wqe.op, connection.via(), memory).is_err() {
            if is_front {
                self.fail(connection.qp, WcStatus::MwBind, out);
            }
            return None;
        }
        wqe.start(next, connection.mtu_bytes);
        self.complete(connection, out);
        Some(())
    }

    /// Whether a message, of which `offset` packets are sent, need not ask for an acknowledgement:
    /// no program waits for it, and a peer of our kind sends one by itself. Only while little is in
    /// flight, with the rest of it and as much again; not if something before it counts on a later
    /// message to ask. Nor before a round trip is known, for else a loss is found out late.
    pub(super) fn may_be_quiet(
        &self,
        now: Instant,
        connection: &Connection,
        wqe: &Wqe,
        offset: u32,
    ) -> bool {
        let and_as_much = self.in_flight() + (wqe.packets - offset).saturating_add(wqe.packets);
        !wqe.signaled
            && connection.has(PeerAbilities::UNASKED_ACKNOWLEDGEMENTS)
            && wqe.packets < STREAM_PACKETS
            && self.pass.is_none()
            && self.cursor == self.sent_end
            && and_as_much <= QUIET_PACKETS.min(self.window.packets())
            && !self.is_streaming()
            && !self.owes_asking()
            && self.retry.round_trip_ns().is_some()
            && !self.hurry.lasts(now)
    }

    /// Whether something in flight should have asked for an acknowledgement and left that to what
    /// comes behind it.
    fn owes_asking(&self) -> bool {
        self.loud_end.is_after(self.asked_end)
    }

    /// A program that has posted far ahead does not wait for this message, and each acknowledgement
    /// costs both ends as much as some packets.
    pub(super) fn wants_ack(&mut self, position: Position, ends: bool, is_quiet: bool) -> bool {
        self.since_ack_request += 1;
        if is_quiet {
            return false;
        }
        let is_awaited =
            ends && (self.pass.is_some() || self.queue.get(position + MESSAGES_BEHIND).is_none());
        let ask = is_awaited || self.since_ack_request >= self.ack_interval();
        if ask {
            self.since_ack_request = 0;
        }
        ask
    }

    /// The last packet that was sent asked for an answer.
    pub(super) fn note_asked(&mut self) {
        if self.cursor.is_after(self.asked_end) {
            self.asked_end = self.cursor;
        }
    }

    /// In how many packets an acknowledgement is asked for at least once.
    pub(super) fn ack_interval(&self) -> u32 {
        (self.window.packets() / 4).clamp(1, self.ack_interval_max)
    }

    /// Packets were sent. What does not ask is answered late, which tells no round trip.
    pub(super) fn note_sent(&mut self, now: Instant, count: u32, is_quiet: bool) {
        if is_quiet {
            self.move_cursor(now, count);
            self.quiet_end = self.cursor;
        } else {
            self.handle_sent(now, count);
            if self.cursor.is_after(self.loud_end) {
                self.loud_end = self.cursor;
            }
        }
    }

    /// Moves on behind packets that were sent, or asked for.
    fn move_cursor(&mut self, now: Instant, count: u32) {
        let first_time = self.cursor == self.sent_end;
        self.cursor = self.cursor.add(count);
        if self.cursor.is_after(self.sent_end) {
            self.sent_end = self.cursor;
        }
        if !first_time
            && self
                .again
                .is_none_or(|(end, _)| !end.is_after(self.unacked))
        {
            self.again = Some((self.cursor, now));
        }
        self.retry.handle_sent(now);
    }

    /// The same, of packets whose answer tells a round trip, as it does not wait.
    pub(super) fn handle_sent(&mut self, now: Instant, count: u32) {
        let first_time = self.cursor == self.sent_end;
        self.move_cursor(now, count);
        if self.timed.is_none() && first_time && !self.is_asking_again() {
            self.timed = Some((self.cursor, now));
        }
    }
}

/// Each packet of a WRITE of up to so many is a message of its own: the first of a longer one has
/// 16 bytes more than those behind it, and so leaves alone. A batch and one packet more take two
/// batches as one message, too. Behind others two full batches are worth it, instead of three: what
/// each message costs both ends goes on beside the rest. A program that waits for one WRITE has it
/// sooner as one message.
const fn divided_max(batch_packets: u32, is_behind_others: bool) -> u32 {
    match batch_packets {
        0 | 1 => 0,
        _ if is_behind_others => 2 * batch_packets,
        _ => batch_packets + 1,
    }
}

/// Inserts the end of a request where it belongs.
pub(super) fn note_end(ends: &mut VecDeque<Psn>, end: Psn) {
    let at = ends.partition_point(|earlier| earlier.is_before(end));
    if ends.get(at) != Some(&end) {
        ends.insert(at, end);
    }
}

/// Carries out a local operation.
pub(crate) fn carry_out<M: Memory>(
    op: &SendOp,
    via: Via,
    memory: &mut M,
) -> Result<(), AccessError> {
    match op {
        SendOp::BindWindow(bind) => memory.bind_window(via, bind),
        SendOp::LocalInvalidate { rkey } => memory.invalidate(via, *rkey),
        _ => Ok(()),
    }
}

pub(super) fn fetch_header(
    connection: &Connection,
    wqe: &Wqe,
    psn: Psn,
    offset: u32,
    count: u32,
) -> Header {
    let operation = match wqe.op {
        SendOp::CompareSwap { .. } => Operation::CompareSwap,
        SendOp::FetchAdd { .. } => Operation::FetchAdd,
        SendOp::AtomicWrite { .. } => Operation::AtomicWrite,
        SendOp::Flush { .. } => Operation::Flush,
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
        SendOp::AtomicWrite { va, rkey } => {
            let len = wqe.length;
            header.reth = Some(Reth { va, rkey, len });
        }
        SendOp::Flush {
            va,
            rkey,
            len,
            placement,
        } => {
            header.feth = Some(Feth {
                placement: placement.bits(),
                selectivity: len.map_or(Feth::REGION, |_| Feth::RANGE),
            });
            let len = len.unwrap_or(0);
            header.reth = Some(Reth { va, rkey, len });
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
