//! What a requester sends: requests in the order of posting, as far as the window and the timers allow.

use alloc::collections::VecDeque;

use urxe_wire::{AtomicEth, Feth, Header, Ieth, Operation, Psn, Reth, Transport, XrcEth};

use super::{QUIET_PACKETS, Requester, STREAM_PACKETS, distance};
use crate::connection::Connection;
use crate::memory::{AccessError, LocalAccess, Memory, Via};
use crate::qp::Outbox;
use crate::run::Run;
use crate::send_queue::{Position, Wqe};
use crate::time::Instant;
use crate::verbs::{Payload, SendOp, Transmit, WcStatus};

/// An acknowledgement is asked for at least once in this many packets.
const ACK_INTERVAL_MAX: u32 = 64;
/// The end of a message asks for one, too, unless so many more wait behind it.
const MESSAGES_BEHIND: Position = 4;
/// A READ of up to so many packets is asked for two by two; in a longer one those in the middle, all of one length, fill what the
/// kernel takes at once.
const PAIRS_MAX: u32 = 16;
/// Each packet of a WRITE of up to so many bytes is a message of its own: the first of a longer one has 16 bytes more than those behind
/// it, and so leaves alone, which costs it less. (What is longer is also acknowledged on the way, which a program that looks for it in
/// its memory bears better when the peer's device knows that it is one message.)
const DIVIDED_MAX_BYTES: u32 = 64 << 10;
/// And of so many packets at most: of less than 1024 bytes each, addresses would take more of the link than that saves.
const PIECES_MAX: u32 = 64;
/// Packets that are made of a WRITE beyond those that it needs, at most.
const SPARE_PIECES_MAX: u32 = 4;

/// The next packet, before its payload is borrowed from the queue.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) position: Position,
    pub(crate) header: Header,
    /// Bytes of the message before the packet's own.
    pub(crate) offset: u32,
    /// Bytes of its payload.
    pub(crate) len: u32,
    /// Packets like it that follow ([`Run`]).
    pub(crate) more: u32,
    /// The request is complete with it.
    pub(crate) ends: bool,
    /// It was sent before.
    pub(crate) is_again: bool,
}

impl Requester {
    /// Whether there is a request of which something is to be sent, now or later.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        let is_new = |wqe: &Wqe| !wqe.is_started();
        self.cursor != self.next
            || self.queue.back().is_some_and(is_new)
            || self.rnr_until.is_some()
    }

    /// The next packet and those like it, at most `most` together, if the window and the timers allow one; they count as
    /// sent. New requests start only while `may_start`.
    pub(crate) fn plan<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        may_start: bool,
        most: u32,
        memory: &mut M,
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
                if self.pass.is_some() && self.step_over_held(position) {
                    continue;
                }
                let wqe = self.queue.get(position)?;
                if self.faulty == Some(position) {
                    return None;
                }
                let (fetch, may_run) = (wqe.op.has_response(), wqe.may_begin_run(offset));
                return if let Some(missing) = self.missing_responses() {
                    self.plan_again(now, connection, (position, offset), missing)
                } else if fetch {
                    self.plan_fetch(now, connection, position, offset)
                } else {
                    let mut planned = self.plan_packet(now, connection, position, offset)?;
                    if may_run {
                        planned.more = self.plan_more(now, connection, &planned, offset, most);
                    }
                    Some(planned)
                };
            }
            self.cursor_wqe += 1;
        }
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
        let payload = self
            .queue
            .get(planned.position)
            .map_or(Payload::Empty, |wqe| {
                wqe.payload(planned.offset, planned.len)
            });
        let first = Transmit {
            address: None,
            header: planned.header,
            payload,
        };
        Run {
            first,
            more: planned.more,
        }
    }

    /// Whether a READ, an atomic or the like before `position` is not completed.
    fn fetch_before(&self, position: Position) -> bool {
        let count = position - self.queue.front_position();
        self.queue
            .iter()
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .any(|w| w.op.has_response())
    }

    /// Gives the request at `position` its PSNs, or fails it, once all before it are completed, when
    /// its memory may not be used: completions come in the order of posting.
    #[inline]
    fn start<M: Memory>(
        &mut self,
        position: Position,
        connection: &Connection,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Option<()> {
        let next = self.next;
        let is_front = position == self.queue.front_position();
        let wqe = self.queue.get_mut(position)?;
        if wqe.op.is_local() {
            return self.carry_out(position, connection, memory, out);
        }
        // Where the answer to a READ or an atomic goes is found out when it comes, as by hardware and Linux rxe: the peer has carried the
        // request out by then, or refused it.
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
            && connection.keeps_early
            && (2..=PIECES_MAX).contains(&wqe.packets)
            && wqe.length <= DIVIDED_MAX_BYTES
            && self.targets.covers(rkey, va, wqe.length)
        {
            let spare = spare_pieces(
                wqe.packets,
                distance(self.cursor, self.unacked),
                self.window.packets(),
            );
            wqe.divide(spare);
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

    fn plan_packet(
        &mut self,
        now: Instant,
        connection: &Connection,
        position: Position,
        offset: u32,
    ) -> Option<Planned> {
        if self.in_flight() >= self.window.packets() && !self.may_exceed_window() {
            self.window_was_full = true;
            return None;
        }
        let wqe = self.queue.get(position)?;
        let is_last = offset + 1 == wqe.packets;
        let mut header = connection.header(wqe.packet_operation(offset), self.cursor);
        header.reth = wqe.reth(offset, connection.mtu_bytes);
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
        if connection.transport == Transport::Xrc {
            let srqn = self.queue.srqn(position);
            header.xrceth = Some(XrcEth { srqn });
        }
        let len = wqe.packet_len(offset, connection.mtu_bytes);
        let bytes_before = wqe.bytes_before(offset, connection.mtu_bytes);
        let is_repeated = self.cursor.is_before(self.sent_end);
        let is_again = self.pass.is_some() && is_repeated;
        let is_quiet = self.may_be_quiet(now, connection, wqe, offset);
        header.bth.ack_request = self.wants_ack(position, is_last, is_quiet) || is_again;
        self.note_sent(now, 1, is_quiet);
        if header.bth.ack_request {
            self.note_asked();
        }
        Some(Planned {
            position,
            header,
            offset: bytes_before,
            len,
            more: 0,
            ends: is_last,
            is_again: is_repeated,
        })
    }

    /// How many packets like the one that was planned, at `offset` packets into its message and not its last, go with it; they
    /// count as sent.
    #[inline(never)]
    fn plan_more(
        &mut self,
        now: Instant,
        connection: &Connection,
        planned: &Planned,
        offset: u32,
        most: u32,
    ) -> u32 {
        let Some(wqe) = self.queue.get(planned.position) else {
            return 0;
        };
        // All that is the next one's own affair ends a run: the last packet, one that asks for an acknowledgement, one that was
        // sent before.
        let is_first_time = self.pass.is_none() && self.cursor == self.sent_end;
        let asks = planned.header.bth.ack_request;
        if most <= 1 || asks || !is_first_time || wqe.sges().len() != 1 {
            return 0;
        }
        let behind = wqe.packets - 2 - offset;
        let room = self.window.packets().saturating_sub(self.in_flight());
        let is_quiet = self.may_be_quiet(now, connection, wqe, offset + 1);
        let until_asking = if is_quiet {
            u32::MAX
        } else {
            self.ack_interval()
                .saturating_sub(self.since_ack_request + 1)
        };
        let more = (most - 1).min(behind).min(room).min(until_asking);
        if more > 0 {
            self.since_ack_request += more;
            self.note_sent(now, more, is_quiet);
        }
        more
    }

    /// A READ request for as many of the missing bytes as fit the window, or an atomic or the like.
    fn plan_fetch(
        &mut self,
        now: Instant,
        connection: &Connection,
        position: Position,
        offset: u32,
    ) -> Option<Planned> {
        let wqe = self.queue.get(position)?;
        let first = self.cursor;
        let left = wqe.packets - offset;
        let next_end = self.read_ends.iter().find(|end| end.is_after(first));
        let is_again = first.is_before(self.sent_end);
        let count = match next_end {
            // Linux rxe remembers of a READ that it repeats only what was asked for last, and drops without a word what
            // lies before that: what was asked for at once is asked for again at once, whatever the window.
            Some(end) if is_again && !connection.keeps_early => {
                let count = distance(*end, first).min(left);
                (self.in_flight() == 0 || count <= self.room()).then_some(count)
            }
            _ => {
                let piece = self.piece_of_read(connection, wqe);
                let count = left.min(self.room()).min(piece);
                // No small pieces: each costs a request, and only few may be outstanding.
                let is_piece = count < left.min(piece) && count < self.window.packets() / 2;
                let count = next_end.map_or(count, |end| count.min(distance(*end, first)));
                (count > 0 && !is_piece).then_some(count)
            }
        };
        let Some(count) = count else {
            self.window_was_full = true;
            return None;
        };
        if self.fetches.len() >= self.max_fetches {
            return None;
        }
        let mut header = fetch_header(connection, wqe, first, offset, count);
        let len = wqe.request_len();
        if connection.transport == Transport::Xrc {
            let srqn = self.queue.srqn(position);
            header.xrceth = Some(XrcEth { srqn });
        }
        self.handle_sent(now, count);
        self.note_asked();
        note_end(&mut self.fetches, self.cursor);
        note_end(&mut self.read_ends, self.cursor);
        Some(Planned {
            position,
            header,
            offset: 0,
            len,
            more: 0,
            ends: true,
            is_again,
        })
    }

    /// How many packets of a READ are asked for at once. The first and the last of an answer are 4 bytes longer than those between
    /// them, and the kernel takes only packets of one length together: a peer of our kind sends an answer of two with others
    /// that wait. Not where so few may be asked for at once that two READs could not overlap.
    fn piece_of_read(&self, connection: &Connection, wqe: &Wqe) -> u32 {
        let pieces = wqe.packets.div_ceil(2) as usize;
        let is_worth_it =
            connection.keeps_early && wqe.packets <= PAIRS_MAX && 2 * pieces <= self.max_fetches;
        if is_worth_it { 2 } else { u32::MAX }
    }

    /// How many packets may go, or be asked for.
    fn room(&self) -> u32 {
        if self.pass.is_some() {
            self.kept_room()
        } else {
            self.window.packets().saturating_sub(self.in_flight())
        }
    }

    /// Whether a message, of which `offset` packets are sent, need not ask for an acknowledgement: nobody waits for it, and a peer of
    /// our kind sends one by itself. Only while little is in flight, with the rest of it and as much again; not if something before it
    /// counts on a later message to ask; and not before a round trip is known, for else a loss is found out late.
    fn may_be_quiet(&self, now: Instant, connection: &Connection, wqe: &Wqe, offset: u32) -> bool {
        let and_as_much = self.in_flight() + (wqe.packets - offset).saturating_add(wqe.packets);
        !wqe.signaled
            && connection.keeps_early
            && wqe.packets < STREAM_PACKETS
            && self.pass.is_none()
            && self.cursor == self.sent_end
            && and_as_much <= QUIET_PACKETS.min(self.window.packets())
            && !self.is_streaming()
            && !self.owes_asking()
            && self.retry.round_trip_ns().is_some()
            && !self.hurry.lasts(now)
    }

    /// Whether something in flight should have asked for an acknowledgement and left that to what comes behind it.
    fn owes_asking(&self) -> bool {
        self.loud_end.is_after(self.asked_end)
    }

    /// A program that has posted far ahead does not wait for this message, and each acknowledgement costs both ends as much
    /// as some packets.
    fn wants_ack(&mut self, position: Position, ends: bool, is_quiet: bool) -> bool {
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
    fn ack_interval(&self) -> u32 {
        (self.window.packets() / 4).clamp(1, ACK_INTERVAL_MAX)
    }

    /// Packets were sent. What does not ask is answered late, which tells no round trip.
    fn note_sent(&mut self, now: Instant, count: u32, is_quiet: bool) {
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

/// How many packets more may be made of a WRITE of `packets`, so that they have one length: a packet costs less than a frame. But the
/// window counts packets: where others are in flight they are few, and none where those fill half of it.
fn spare_pieces(packets: u32, in_flight: u32, window: u32) -> u32 {
    let most = if in_flight >= STREAM_PACKETS {
        if in_flight <= window / 2 {
            packets / 3
        } else {
            0
        }
    } else if packets < STREAM_PACKETS {
        STREAM_PACKETS - 1 - packets
    } else {
        SPARE_PIECES_MAX
    };
    most.min(SPARE_PIECES_MAX)
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
                selectivity: if len.is_some() {
                    Feth::RANGE
                } else {
                    Feth::REGION
                },
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
