//! Recovery between two ends that keep what arrives early ([`super::super::early`]): what is
//! missing is sent again, or asked for again, and what is there is not.
//!
//! Requests are missing at the peer, which says so in a NAK and what it has besides. Responses are
//! missing here: those that arrive early are placed at once, since their PSNs tell where. Either
//! starts a *pass*: the cursor goes back to what is missing and steps over the rest, up to the last
//! packet that arrived. What follows that one may be on its way still. From there on new packets
//! are sent, and what turns out to be missing besides joins the pass. Once a packet arrived that
//! was sent after the pass began, whatever of it is missing still was lost a second time: the next
//! pass begins.

use alloc::boxed::Box;

use urxe_wire::Psn;

use super::super::early::{EARLY_MAX, Held, PLACED_MAX, Placed};
use super::super::{distance, later};
use super::Requester;
use super::planning::Planned;
use super::sending::note_end;
use crate::connection::Connection;
use crate::memory::{Memory, scatter};
use crate::qp::{Outbox, QpStats};
use crate::send_queue::Position;
use crate::time::Instant;

/// What the cursor goes back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// Requests that the peer does not have.
    Requests(Held),
    /// Responses that are not placed.
    Responses,
}

/// A pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    missing: Missing,
    /// One past the highest PSN sent when it began.
    began_at: Psn,
    /// What is missing before this is sent again already, or will be by the cursor.
    scanned_to: Psn,
    /// Where the cursor goes on once it has been there.
    resume_at: Psn,
}

impl Requester {
    /// A NAK for `psn`, which may lie behind READ responses that are to come. If the peer says that
    /// it has what was never sent, a stranger forged the NAK or a packet for the peer: that part
    /// says nothing, nor does a NAK without another one.
    pub(super) fn handle_selective_nak(
        &mut self,
        now: Instant,
        psn: Psn,
        held: Held,
        stats: &mut QpStats,
    ) {
        let Some(held) = held.before(self.sent_end) else {
            stats.ignored_responses += 1;
            return;
        };
        if let Some((end, sent)) = self.timed
            && !end.is_after(held.end())
        {
            if held.contains(end.sub(1)) {
                self.handle_round_trip(now.since(sent));
            }
            self.timed = None;
        }
        self.scan(psn, held.end(), Missing::Requests(held));
        self.retry.handle_answer(now);
    }

    /// Something before `end` was answered while responses from `unacked` on are missing.
    fn ask_again(&mut self, now: Instant, end: Psn, stats: &mut QpStats) {
        self.timed = None;
        stats.implied_nak_seq_err += u64::from(self.scan(self.unacked, end, Missing::Responses));
        self.retry.handle_answer(now);
    }

    /// Sends again what is missing between `first`, which is, and `end`, of which something
    /// arrived. Whether anything is that was not known to be.
    fn scan(&mut self, first: Psn, end: Psn, missing: Missing) -> bool {
        let of_requests = matches!(missing, Missing::Requests(_));
        let same = self
            .pass
            .filter(|pass| matches!(pass.missing, Missing::Requests(_)) == of_requests)
            .filter(|pass| !end.is_after(pass.began_at));
        let from = same.map_or(first, |pass| later(first, pass.scanned_to));
        let resume_at = self.pass.map_or(self.cursor, |pass| pass.resume_at);
        let resume_at = later(later(resume_at, self.cursor), end);
        let lost = match &missing {
            Missing::Requests(held) => held.missing_from(from),
            // At least the first, if what came is too far away to be placed.
            Missing::Responses => self
                .placed()
                .missing_from(from)
                .max(u32::from(same.is_none())),
        };
        self.window.handle_gaps(lost, same.is_none());
        self.doubt = None;
        self.pass = Some(Pass {
            missing,
            began_at: same.map_or(self.sent_end, |pass| pass.began_at),
            scanned_to: later(from, end),
            resume_at,
        });
        self.again = None;
        if lost > 0 && from.is_before(end) && from.is_before(self.cursor) {
            self.cursor = from;
            self.cursor_wqe = self.queue.front_position();
        }
        lost > 0
    }

    /// Steps over what need not be sent again. Whether the cursor moved.
    #[cold]
    pub(super) fn step_over_held(&mut self, position: Position) -> bool {
        let Some(pass) = &self.pass else {
            return false;
        };
        let cursor = self.cursor;
        if !cursor.is_before(pass.resume_at) {
            return false;
        }
        if !cursor.is_before(pass.scanned_to) {
            self.cursor = pass.resume_at;
            return true;
        }
        let wqe = self.queue.get(position);
        let is_fetch = wqe.is_some_and(|wqe| wqe.op.has_response());
        let is_held = match &pass.missing {
            Missing::Requests(held) => held.contains(cursor),
            // Other requests were executed before what was answered.
            Missing::Responses => !is_fetch || self.placed().contains(cursor),
        };
        if is_fetch && matches!(pass.missing, Missing::Requests(_)) {
            return self.step_over_fetch(is_held);
        }
        if is_held {
            self.cursor = cursor.next();
        }
        is_held
    }

    /// The peer has the request at the cursor, or not; its PSNs after the first are those of
    /// responses.
    fn step_over_fetch(&mut self, is_held: bool) -> bool {
        let cursor = self.cursor;
        let mut ends = self.read_ends.iter().copied();
        let Some(end) = ends.find(|end| end.is_after(cursor)) else {
            return false;
        };
        if !is_held {
            // It is sent again, and counts then.
            self.fetches.retain(|each| *each != end);
            return false;
        }
        // One for which there is no room waits, as if it had to be sent: those before it may go out
        // in more pieces now.
        let has_room = self.fetches.len() < self.max_fetches || self.fetches.contains(&end);
        if has_room {
            self.cursor = end;
            note_end(&mut self.fetches, end);
        }
        has_room
    }

    /// How many responses are missing at the cursor, if it is there for them.
    pub(super) fn missing_responses(&self) -> Option<u32> {
        let pass = self
            .pass
            .filter(|pass| pass.missing == Missing::Responses)?;
        let placed = self.placed();
        let mut end = self.cursor;
        while end.is_before(pass.scanned_to) && !placed.contains(end) {
            end = end.next();
        }
        let count = distance(end, self.cursor);
        let is_there = self.cursor.is_before(pass.resume_at) && count > 0;
        is_there.then_some(count)
    }

    /// Asks again for some of the responses of a request that the peer has executed. Such do not
    /// count as outstanding.
    #[cold]
    pub(super) fn plan_again(
        &mut self,
        now: Instant,
        connection: &Connection,
        (position, offset): (Position, u32),
        missing: u32,
    ) -> Option<Planned> {
        let wqe = self.queue.get(position)?;
        let count = missing.min(wqe.packets - offset);
        // What was asked for at once is asked for at once again, or a part of it.
        let cursor = self.cursor;
        let next_end = self.read_ends.iter().find(|end| end.is_after(cursor));
        let count = next_end.map_or(count, |end| count.min(distance(*end, cursor)));
        self.ask_for(now, connection, (position, offset), count)
    }

    /// Whether responses are asked for that are missing.
    pub(super) fn is_asking_again(&self) -> bool {
        self.pass
            .is_some_and(|pass| pass.missing == Missing::Responses)
    }

    /// The responses that arrived early.
    fn placed(&self) -> Placed {
        let placed = self.placed.as_deref().copied();
        placed.unwrap_or(Placed::none(self.unacked))
    }

    /// A response that is not the next one: it is placed.
    #[cold]
    pub(super) fn place_early<M: Memory>(
        &mut self,
        connection: &Connection,
        psn: Psn,
        bytes: &[u8],
        memory: &mut M,
    ) {
        let wqe = self
            .queue
            .iter()
            .take_while(|wqe| wqe.is_started())
            .find(|wqe| psn.is_before(wqe.end()));
        if let Some(wqe) = wqe.filter(|wqe| wqe.op.has_response()) {
            let offset = distance(psn, wqe.first);
            let at = offset * connection.mtu_bytes;
            let expected = wqe.response_len(offset, connection.mtu_bytes);
            let mut placed = self.placed();
            if bytes.len() == expected as usize
                && placed.insert(psn)
                && scatter(memory, connection.pd, wqe.sges(), at, bytes).is_ok()
            {
                **self.placed.get_or_insert_with(|| Box::new(placed)) = placed;
            }
        }
    }

    /// Something before `end` was answered, and a response at `unacked` is missing.
    pub(super) fn look_for_missing(&mut self, now: Instant, end: Psn, stats: &mut QpStats) {
        let is_news = self.pass.is_none_or(|pass| {
            pass.missing != Missing::Responses
                || end.is_after(pass.began_at)
                || end.is_after(pass.scanned_to)
        });
        if is_news && !end.is_after(self.sent_end) {
            self.ask_again(now, end, stats);
        }
    }

    /// Goes on over what is placed, now that everything before `unacked` has come.
    #[cold]
    pub(super) fn advance_over_placed(
        &mut self,
        now: Instant,
        connection: &Connection,
        out: &mut Outbox,
    ) {
        while let Some(placed) = self.placed.as_deref().copied() {
            let last = placed.end().sub(1);
            // A response acknowledges all requests before its own.
            self.acknowledge(now, last, connection, out);
            let mut to = self.unacked;
            while placed.contains(to) {
                to = to.next();
            }
            if to == self.unacked {
                return;
            }
            self.advance(now, to, connection, out);
        }
    }

    /// Whether more packets may go than the window says: those that were kept are not on their way.
    #[cold]
    pub(super) fn may_exceed_window(&self) -> bool {
        self.pass.is_some() && self.kept_room() > 0
    }

    /// How many packets may go while a pass lasts.
    pub(super) fn kept_room(&self) -> u32 {
        let (kept, farthest) = match &self.pass {
            Some(Pass {
                missing: Missing::Requests(held),
                ..
            }) => (held.count(), EARLY_MAX),
            _ => (self.placed().count(), PLACED_MAX),
        };
        let in_flight = self.in_flight();
        let room = (self.window.packets() + kept).saturating_sub(in_flight);
        room.min(farthest.saturating_sub(in_flight))
    }

    /// Everything before `to` is acknowledged.
    #[cold]
    pub(super) fn leave_behind(&mut self, to: Psn) {
        if self.pass.is_some_and(|pass| !to.is_before(pass.began_at)) {
            self.pass = None;
        }
        // The base itself is not among them, unless it is placed, too: then it is left behind next.
        if let Some(placed) = &mut self.placed {
            **placed = placed.with_base(to);
        }
        self.placed.take_if(|placed| placed.count() == 0);
    }
}
