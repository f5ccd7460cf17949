//! What the requester sends next.

use super::super::distance;
use super::Requester;
use super::sending::{fetch_header, note_end};
use crate::connection::Connection;
use crate::memory::Memory;
use crate::peer::PeerAbilities;
use crate::qp::Outbox;
use crate::send_queue::{Position, Wqe};
use crate::time::Instant;
use crate::verbs::SendOp;
use urxe_wire::{Header, Ieth, Transport, XrcEth};

/// A READ of up to so many packets is asked for two by two; in a longer one most are in the middle,
/// and all of one length.
const PAIRS_MAX: u32 = 16;

/// The next packet, before its payload is borrowed from the queue.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) position: Position,
    pub(crate) header: Header,
    /// Bytes of the message before the packet's own.
    pub(crate) offset: u32,
    /// Bytes of its payload.
    pub(crate) len: u32,
    /// Packets like it that follow ([`crate::run::Run`]).
    pub(crate) more: u32,
    /// The request is complete with it.
    pub(crate) ends: bool,
    /// It was sent before.
    pub(crate) is_again: bool,
}

impl Requester {
    /// The next packet and those like it, at most `most` together, if the window and the timers
    /// allow one; they count as sent. New requests start only while `may_start`.
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

    /// How many packets like the one that was planned, at `offset` packets into its message and not
    /// its last, go with it; they count as sent.
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
        // All that is the next one's own affair ends a run: the last packet, one that asks for an
        // acknowledgement, one that was sent before.
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
            // Linux rxe remembers of a READ that it repeats only what was asked for last, and drops
            // without a word what lies before that: what was asked for at once is asked for again
            // at once, whatever the window.
            Some(end) if is_again && !connection.has(PeerAbilities::SELECTIVE_REPEAT) => {
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
        let planned = self.ask_for(now, connection, (position, offset), count)?;
        note_end(&mut self.fetches, self.cursor);
        note_end(&mut self.read_ends, self.cursor);
        Some(Planned {
            is_again,
            ..planned
        })
    }

    /// A request for `count` responses of the one at `position`, from `offset` on.
    #[inline]
    pub(super) fn ask_for(
        &mut self,
        now: Instant,
        connection: &Connection,
        (position, offset): (Position, u32),
        count: u32,
    ) -> Option<Planned> {
        let wqe = self.queue.get(position)?;
        let mut header = fetch_header(connection, wqe, self.cursor, offset, count);
        let len = wqe.request_len();
        if connection.transport == Transport::Xrc {
            let srqn = self.queue.srqn(position);
            header.xrceth = Some(XrcEth { srqn });
        }
        self.handle_sent(now, count);
        self.note_asked();
        Some(Planned {
            position,
            header,
            offset: 0,
            len,
            more: 0,
            ends: true,
            is_again: true,
        })
    }

    /// How many packets of a READ are asked for at once. The first and the last of an answer are 4
    /// bytes longer than those between them: a peer that gains by equal lengths sends an answer of
    /// two with others that wait. Not where so few may be asked for at once that two READs could
    /// not overlap.
    fn piece_of_read(&self, connection: &Connection, wqe: &Wqe) -> u32 {
        let pieces = wqe.packets.div_ceil(2) as usize;
        let is_worth_it = connection.has(PeerAbilities::GAINS_BY_EQUAL_LENGTHS)
            && wqe.packets <= PAIRS_MAX
            && 2 * pieces <= self.max_fetches;
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
}
