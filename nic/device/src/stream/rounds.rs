//! Rounds over the connections: what comes, what goes, and completions that wait for a reply.

use urxe_duty::constants::{HELD_MAX_NS, REPLY_OWED_NS};
use urxe_proto::{Instant, QpState};
use urxe_wire::Qpn;

use super::Streams;
use super::constants::{LAST_TURNS, LOOKS_PER_QUESTION, TURN_BYTES};
use super::host::{Counts, Host};
use crate::process::clock;

impl Streams {
    /// Sends what a queue pair has to send, completes what that completes, and follows its
    /// connection.
    pub(crate) fn serve(
        &mut self,
        index: u16,
        host: &mut Host<'_>,
        now: Instant,
        counts: &mut Counts,
    ) {
        let Some(slot) = &mut self.slots[usize::from(index)] else {
            return;
        };
        slot.expire(host, now);
        let has_more = slot.transmit(host, counts);
        if has_more && !std::mem::replace(&mut slot.is_ready, true) {
            self.ready.push_back(index);
        }
        let is_closed = slot.settle(&self.waiter, host, now);
        if slot.qp.is_stalled() && !self.stalled.contains(&index) {
            self.stalled.push(index);
        }
        if slot.is_holding() && !self.holding.contains(&index) {
            self.holding.push(index);
        }
        if let Some(at) = slot.deadline() {
            self.deadline = Some(self.deadline.map_or(at, |before| before.min(at)));
        }
        let is_open = matches!(
            slot.qp.state(),
            QpState::ReadyToSend | QpState::SendQueueDrain
        );
        if !is_open && let (Some(cookie), Some(told)) = (slot.cookie.take(), self.told) {
            told(cookie);
        }
        self.note_sender(index);
        if is_closed {
            self.connected.retain(|other| *other != index);
            self.free_if_over(index);
        }
    }

    /// One round: bytes in, answers and requests out, connections that end. What came of it, and
    /// when it is: `None` of a round with nothing to do, in which the clock was not looked at.
    pub(crate) fn run(
        &mut self,
        host: &mut Host<'_>,
        at: Option<Instant>,
    ) -> (Counts, Option<Instant>) {
        let mut counts = Counts::default();
        let mut at = at;
        if !self.connected.is_empty() {
            let has_asked = self.look();
            let found = std::mem::take(&mut self.found);
            for index in &found {
                self.take_in(*index, has_asked, host, &mut at, &mut counts);
            }
            self.found = found;
        }
        if at.is_none() && self.ready.is_empty() {
            return (counts, None);
        }
        let now = *at.get_or_insert_with(clock::now);
        self.see(now);
        self.send_gathered(host, now, &mut counts);
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            for index in self.connected.clone() {
                self.serve(index, host, now, &mut counts);
            }
        }
        self.expire_held(host, now);
        self.packets += counts.packets;
        (counts, at)
    }

    /// Finds those that have something, at most as many as a look tells, or the one that may have;
    /// whether it has asked.
    fn look(&mut self) -> bool {
        self.found.clear();
        let slots = &mut self.slots;
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS_PER_QUESTION)
            && let Some(last) = self.last
            && let Some(slot) = &slots[usize::from(last)]
            && !slot.is_blocked
        {
            self.found.push(last);
            return false;
        }
        let Ok(events) = self.waiter.wait(Some(0)) else {
            return true;
        };
        for event in events {
            let number = u32::try_from(event.token()).map(Qpn::new);
            let Some(index) = number.ok().and_then(|number| self.by_number.get(&number)) else {
                continue;
            };
            if let Some(slot) = &mut slots[usize::from(*index)] {
                slot.is_blocked &= !event.writable();
            }
            self.found.push(*index);
        }
        true
    }

    /// Takes in what came over a connection, and does what follows of it. One that was not `asked`
    /// for may have nothing.
    fn take_in(
        &mut self,
        index: u16,
        is_asked: bool,
        host: &mut Host<'_>,
        at: &mut Option<Instant>,
        counts: &mut Counts,
    ) {
        let Some(slot) = &mut self.slots[usize::from(index)] else {
            return;
        };
        let received = slot.receive(&mut self.scratch, host);
        if received == 0 && !is_asked && !slot.has_ended() {
            return;
        }
        let now = *at.get_or_insert_with(clock::now);
        if received > 0 {
            counts.note(received);
            counts.receives += 1;
            self.last = Some(index);
        }
        if received == 0 && self.last == Some(index) {
            self.last = None;
        }
        if slot.has_message(now) {
            self.owes_until = now.after(REPLY_OWED_NS);
            self.let_go(host, now);
        }
        self.serve(index, host, now, counts);
    }

    /// Takes in and drops what has come over a connection: if it is closed with something unread,
    /// TCP drops what it has not sent yet.
    pub(super) fn read_out(&mut self, index: u16, host: &mut Host<'_>) {
        for _ in 0..LAST_TURNS {
            let slot = &mut self.slots[usize::from(index)];
            let received = slot
                .as_mut()
                .map(|slot| slot.receive(&mut self.scratch, host));
            if received.is_none_or(|len| len < TURN_BYTES) {
                return;
            }
        }
    }

    /// When a round is wanted, whatever comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let gathered = self.gathered_since.map(|since| since.after(HELD_MAX_NS));
        match (self.deadline, gathered) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether the last round left something to send.
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The program posted to the queue pair at `index`, after so many turns ([`urxe_duty::Posts`]).
    /// Whether it has yet to poll for what it posted there before.
    pub(crate) fn note_post(&mut self, index: u16, now: Instant, turns: u64) -> bool {
        self.owes_until = now;
        let slot = self.slots[usize::from(index)].as_deref_mut();
        slot.is_some_and(|slot| slot.note_post(turns))
    }

    /// Lets what the program has posted to the queue pair at `index` wait for company, until
    /// [`Self::send_gathered`] or the next round. Whether it may.
    pub(crate) fn gather(&mut self, index: u16, now: Instant) -> bool {
        let slot = self.slots[usize::from(index)].as_deref_mut();
        let Some(slot) = slot.filter(|slot| slot.may_gather()) else {
            return false;
        };
        if !std::mem::replace(&mut slot.is_ready, true) {
            self.ready.push_back(index);
        }
        self.gathered_since.get_or_insert(now);
        true
    }

    /// Sends what waits for company, and what an earlier turn has left.
    pub(crate) fn send_gathered(&mut self, host: &mut Host<'_>, now: Instant, counts: &mut Counts) {
        self.gathered_since = None;
        for _ in 0..self.ready.len() {
            if let Some(index) = self.ready.pop_front() {
                if let Some(slot) = &mut self.slots[usize::from(index)] {
                    slot.is_ready = false;
                }
                self.serve(index, host, now, counts);
            }
        }
    }

    /// The program posted, and sends what it posted.
    pub(crate) fn serve_posted(
        &mut self,
        index: u16,
        host: &mut Host<'_>,
        now: Instant,
        counts: &mut Counts,
    ) {
        // It alone, as of most programs, waits for nothing then.
        if self.ready.len() == 1
            && let Some(slot) = &mut self.slots[usize::from(index)]
            && std::mem::take(&mut slot.is_ready)
        {
            self.ready.clear();
            self.gathered_since = None;
        }
        self.owes_until = now;
        self.serve(index, host, now, counts);
    }

    /// No completion waits for a reply any more: there is something else for the program to see to,
    /// or it waits for events.
    pub(crate) fn let_go(&mut self, host: &mut Host<'_>, now: Instant) {
        for index in std::mem::take(&mut self.holding) {
            if let Some(slot) = &mut self.slots[usize::from(index)] {
                slot.let_go(host, now);
                self.note_sender(index);
            }
        }
    }

    fn note_sender(&mut self, index: u16) {
        if let Some(slot) = &mut self.slots[usize::from(index)] {
            let is_sender = slot.has_requests();
            self.senders -= usize::from(std::mem::replace(&mut slot.is_sender, is_sender));
            self.senders += usize::from(is_sender);
        }
    }

    /// Completions that have waited long enough for a reply.
    fn expire_held(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut holding = std::mem::take(&mut self.holding);
        holding.retain(|index| {
            let Some(slot) = &mut self.slots[usize::from(*index)] else {
                return false;
            };
            slot.deliver(host, now);
            let is_holding = slot.is_holding();
            self.note_sender(*index);
            is_holding
        });
        self.holding = holding;
    }

    /// Whether a request is not complete, or the program may be about to reply to a message.
    pub(crate) fn is_amid(&self) -> bool {
        self.senders > 0 || self.now < self.owes_until
    }

    /// It is `now`.
    pub(crate) fn see(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// As many packets of RoCE would have been as much work as what came and went in rounds so far.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }
}
