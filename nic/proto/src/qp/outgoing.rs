//! Packets on their way out of a queue pair.

use super::{AckMode, QpEvent, QueuePair};
use crate::memory::Memory;
use crate::peer::PeerAbilities;
use crate::rc::requester::Planned;
use crate::run::Run;
use crate::state::QpState;
use crate::time::Instant;
use crate::verbs::Transmit;
use urxe_wire::PartialPsn;

impl QueuePair {
    /// The next packet to send, if any may go now. What is owed to the peer goes before what the
    /// program posted since it could know of it: else the peer's program would have the reply
    /// before it has the completion of what that replies to. Requests that were posted before go
    /// first, so that a burst of them leaves together; but after many of them what may not wait has
    /// its turn.
    pub fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        memory: &mut M,
    ) -> Option<Transmit<'_>> {
        self.poll(now, mode, 1, memory).map(|run| run.first)
    }

    /// The same, with those that hardly differ from it and may go now, too: at most `most` packets
    /// together.
    pub fn poll_run<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        most: u32,
        memory: &mut M,
    ) -> Option<Run<'_>> {
        self.poll(now, mode, most, memory)
    }

    /// Whether [`Self::poll_transmit`] has nothing to hand out in mode [`AckMode::Hold`], found out
    /// for less; no says nothing.
    #[must_use]
    #[inline]
    pub fn is_at_rest(&self, now: Instant) -> bool {
        self.state() == QpState::ReadyToSend
            && self.control.is_none()
            && !self.sender.has_unsent()
            && self.responder.acknowledger.may_wait(now)
    }

    /// Inlined, so that the common case, one packet, pays nothing for runs.
    #[inline(always)]
    fn poll<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        most: u32,
        memory: &mut M,
    ) -> Option<Run<'_>> {
        if self.reply.is_some()
            && let Some(run) = self.poll_before_reply(now, most, memory)
        {
            return Some(run);
        }
        if self.turns.is_of_owed()
            && let Some(run) = self.poll_owed(now, most, memory)
        {
            return Some(run);
        }
        if self.control.is_some() {
            return self.poll_paced(now, mode, memory);
        }
        let may_start = self.state() == QpState::ReadyToSend;
        let may_request = may_start || self.state() == QpState::SendQueueDrain;
        if may_request
            && self.sender.has_unsent()
            && let Some(mut planned) = self.sender.plan(
                now,
                &self.connection,
                may_start,
                most,
                memory,
                &mut self.out,
            )
        {
            self.note_planned(&mut planned);
            return Some(self.sender.packets(&planned));
        }
        self.turns.restart();
        self.poll_response(now, mode, most, memory)
    }

    /// What was planned counts as sent. The last packet of a request, to a peer of our kind, has in
    /// its header what is owed: a reply completes no earlier at its peer than what it replies to,
    /// and costs no more for it.
    #[inline]
    pub(super) fn note_planned(&mut self, planned: &mut Planned) {
        self.stats.tx_packets += 1 + u64::from(planned.more);
        self.turns.note_requests(1 + planned.more);
        self.responder.acknowledger.note_request();
        if planned.ends
            && self
                .connection
                .has(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS)
            && let Some(acknowledged) = self.responder.ride_along(planned.is_again)
        {
            planned.header.bth.acknowledges = Some(PartialPsn::of(acknowledged));
            self.reply = None;
        }
    }

    /// What is owed to the peer, if the next request is one that comes behind it. Data that
    /// congestion control holds back does not hold requests back.
    #[cold]
    fn poll_before_reply<M: Memory>(
        &mut self,
        now: Instant,
        most: u32,
        memory: &mut M,
    ) -> Option<Run<'static>> {
        let reply = self.reply?;
        if self
            .connection
            .has(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS)
            && self.responder.acknowledger.may_ride_along()
        {
            return None;
        }
        let requester = self.sender.reliable();
        let is_next = self.state() == QpState::ReadyToSend
            && requester.is_some_and(|requester| requester.is_about_to_send(reply.position));
        if !is_next || self.control.is_some() && self.responder.acknowledger.is_about_to_send_data()
        {
            return None;
        }
        self.responder.acknowledger.go_ahead(now);
        let run = self.poll_response(now, AckMode::Hold, most, memory);
        if run.is_none() {
            self.reply = None;
        }
        run
    }

    /// What is owed to the peer and may not wait, after as many requests as may go before it.
    #[cold]
    fn poll_owed<M: Memory>(
        &mut self,
        now: Instant,
        most: u32,
        memory: &mut M,
    ) -> Option<Run<'static>> {
        // Data has to ask congestion control.
        if self.control.is_some() && self.responder.acknowledger.is_about_to_send_data() {
            return None;
        }
        if !self.responder.acknowledger.may_wait(now) {
            let most = most.min(self.turns.owed_left());
            let run = self.poll_response(now, AckMode::Hold, most, memory);
            if let Some(run) = run {
                self.turns.note_owed(1 + run.more);
                return Some(run);
            }
        }
        self.turns.restart();
        None
    }

    /// What is owed to the peer, once no request may go.
    #[inline]
    pub(super) fn poll_response<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        most: u32,
        memory: &mut M,
    ) -> Option<Run<'static>> {
        self.settle();
        self.report_drained();
        let may_respond = !matches!(self.state(), QpState::Reset | QpState::Init)
            && (self.state() != QpState::Error || self.responder.acknowledger.has_nak());
        if !may_respond {
            return None;
        }
        let response =
            self.responder
                .poll_run(now, mode, most, &self.connection, memory, &mut self.out);
        if let Some(run) = &response {
            self.stats.tx_packets += u64::from(1 + run.more);
            let bth = &run.first.header.bth;
            self.reply = self.reply.filter(|reply| !reply.may_follow(bth));
        }
        self.settle();
        response
    }

    pub(super) fn report_drained(&mut self) {
        if self.state() == QpState::SendQueueDrain
            && !self.drain_reported
            && !self.sender.has_started()
        {
            self.drain_reported = true;
            if self.attributes.sqd_notify {
                self.out.events.push_back(QpEvent::SendQueueDrained);
            }
        }
    }
}
