//! What a queue pair takes in and hands out: packets, timeouts, completions, events.

use urxe_wire::{Bth, Opcode, Operation, Packet, PartialPsn, Psn, Qpn, Transport};

use super::{Failure, QpEvent, QueuePair};
use crate::memory::Memory;
use crate::peer::PeerAbilities;
use crate::rc::requester::Requester;
use crate::receive_queue::SharedReceiveQueue;
use crate::sender::Sender;
use crate::state::QpState;
use crate::time::{Instant, earliest};
use crate::unreliable::{Arrival, GRH_BYTES, receive};
use crate::verbs::{Completion, QpType, QueueSide};

impl QueuePair {
    // ---- inputs ------------------------------------------------------------------------------

    /// A packet for this queue pair arrived at `now`. The caller checked its ICRC and that it comes
    /// from the peer. `shared` is the shared receive queue that the queue pair has, of an XRC
    /// target the one that the packet names; `None` if that is none, or of another XRC domain.
    pub fn handle_packet<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        shared: Option<&mut SharedReceiveQueue>,
        memory: &mut M,
    ) {
        let bth = &packet.header.bth;
        let Opcode::Queue {
            transport,
            operation,
        } = bth.opcode
        else {
            self.handle_notification(now, bth);
            return;
        };
        let is_mine =
            transport == self.connection.transport && bth.pkey.matches(self.attributes.pkey);
        if !is_mine || !self.may_handle(operation.is_response()) {
            self.stats.dropped += 1;
            return;
        }
        self.stats.rx_packets += 1;
        if operation.is_response() {
            let before = self.losses();
            if let Some(requester) = self.sender.reliable_mut() {
                requester.handle_response(
                    now,
                    &self.connection,
                    packet,
                    memory,
                    &mut self.out,
                    &mut self.stats,
                );
            }
            self.note_losses(now, before);
        } else if self.config.qp_type == QpType::Rc {
            // The bits are reserved for all but our own kind.
            if let Some(acknowledged) = bth.acknowledges
                && self
                    .connection
                    .has(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS)
                && self.responder.expects_about(bth.psn)
            {
                self.handle_acknowledged(now, acknowledged);
            }
            self.responder.handle_request(
                now,
                &self.connection,
                packet,
                shared.map_or(&mut self.receives, |shared| &mut shared.queue),
                memory,
                &mut self.out,
                &mut self.stats,
            );
        } else {
            self.handle_request_of_another_type(now, packet, operation, shared, memory);
        }
        self.settle();
    }

    /// A request has an acknowledgement in its header.
    #[inline]
    fn handle_acknowledged(&mut self, now: Instant, acknowledged: PartialPsn) {
        if self.may_handle(true)
            && let Some(requester) = self.sender.reliable_mut()
        {
            let (connection, out) = (&self.connection, &mut self.out);
            requester.handle_acknowledged(now, connection, acknowledged, out, &mut self.stats);
        }
    }

    /// Packets that have come together, in the middle of a message, or WRITEs one behind the other:
    /// `packet` is the first, the others differ from it by their PSN, each one more, by their
    /// bytes, and by their address, if they have one, each that many more. `payloads` are those of
    /// all of them. Returns how many were handled, maybe none: the others are for
    /// [`Self::handle_packet`]. The caller checked of each what it checks of one.
    pub fn handle_run<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        payloads: &[&[u8]],
        memory: &mut M,
    ) -> usize {
        let bth = &packet.header.bth;
        let Opcode::Queue {
            transport,
            operation,
        } = bth.opcode
        else {
            return 0;
        };
        let mtu_bytes = self.connection.mtu_bytes as usize;
        let is_mine = transport == Transport::Rc
            && self.config.qp_type == QpType::Rc
            && bth.pkey.matches(self.attributes.pkey)
            && self.may_handle(operation.is_response());
        let len = packet.payload.len();
        let fits = if operation == Operation::WriteOnly {
            (1..=mtu_bytes).contains(&len)
        } else {
            len == mtu_bytes
        };
        let is_even = payloads.iter().all(|bytes| bytes.len() == len);
        if !is_mine || !fits || !is_even || bth.ack_request {
            return 0;
        }
        let (connection, out) = (&self.connection, &mut self.out);
        let count = match (&mut self.sender, operation) {
            (_, Operation::SendMiddle | Operation::WriteMiddle | Operation::WriteOnly) => {
                let responder = &mut self.responder;
                responder.execute_run(now, connection, packet, payloads, memory)
            }
            (Sender::Reliable(requester), Operation::ReadResponseMiddle) => {
                requester.handle_data_run(now, connection, bth.psn, payloads, memory, out)
            }
            _ => 0,
        };
        self.stats.rx_packets += count as u64;
        self.settle();
        count
    }

    #[cold]
    fn handle_request_of_another_type<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        operation: Operation,
        shared: Option<&mut SharedReceiveQueue>,
        memory: &mut M,
    ) {
        match self.config.qp_type {
            QpType::Uc => self.responder.handle_unreliable(
                &self.connection,
                packet,
                shared.map_or(&mut self.receives, |shared| &mut shared.queue),
                memory,
                &mut self.out,
                &mut self.stats,
            ),
            QpType::XrcTarget => self.handle_xrc_request(now, packet, operation, shared, memory),
            _ => self.stats.dropped += 1,
        }
    }

    /// A request to an XRC target: the shared receive queue that it names gives the receives, and
    /// the protection domain for all that it does (IBTA A14.4).
    fn handle_xrc_request<M: Memory>(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        operation: Operation,
        shared: Option<&mut SharedReceiveQueue>,
        memory: &mut M,
    ) {
        let named = packet.header.xrceth.map(|xrceth| xrceth.srqn);
        if operation.starts_message() {
            self.message_srqn = named;
        }
        let psn = packet.header.bth.psn;
        let Some(shared) = shared.filter(|_| named == self.message_srqn) else {
            self.responder.refuse_queue(psn, &mut self.out);
            return;
        };
        self.connection.pd = shared.pd();
        self.responder.handle_request(
            now,
            &self.connection,
            packet,
            &mut shared.queue,
            memory,
            &mut self.out,
            &mut self.stats,
        );
    }

    /// A datagram for this queue pair, or for a multicast group that it is attached to, arrived.
    /// `grh` is what the program gets to see of the network header.
    pub fn handle_datagram<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        grh: &[u8; GRH_BYTES],
        shared: Option<&mut SharedReceiveQueue>,
        memory: &mut M,
    ) {
        let bth = &packet.header.bth;
        let is_mine = bth.opcode.transport() == Some(self.connection.transport)
            && bth.pkey.matches(self.attributes.pkey);
        if self.config.qp_type != QpType::Ud || !is_mine || !self.may_handle(false) {
            self.stats.dropped += 1;
            return;
        }
        self.stats.rx_packets += 1;
        receive(
            &self.connection,
            &Arrival { packet, grh },
            shared.map_or(&mut self.receives, |shared| &mut shared.queue),
            memory,
            &mut self.out,
            &mut self.stats,
        );
        self.settle();
    }

    /// Whether a packet is one that only the peer should be able to send: the request that comes
    /// next, or an answer to one that is in flight. A stranger that does not see the packets of a
    /// connection would have to guess its PSN (24 bits). Of an unreliable connection, which takes
    /// any PSN for the next one (IBTA 9.8.2.2), the second of two forged packets seems to be
    /// credible.
    #[must_use]
    pub fn is_credible(&self, packet: &Packet<'_>) -> bool {
        let bth = &packet.header.bth;
        let is_response = bth.opcode.operation().is_some_and(Operation::is_response);
        if bth.opcode.transport() != Some(self.connection.transport)
            || !self.may_handle(is_response)
        {
            return false;
        }
        match (&self.sender, is_response) {
            (Sender::Reliable(requester), true) => requester.is_in_flight_at(bth.psn),
            (_, false) => bth.psn == self.responder.expected,
            (Sender::Unreliable(_), true) => false,
        }
    }

    pub(super) fn may_handle(&self, is_response: bool) -> bool {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::Error => false,
            QpState::ReadyToReceive => !is_response,
            QpState::ReadyToSend | QpState::SendQueueDrain | QpState::SendQueueError => true,
        }
    }

    /// Memory that a packet handed out was to be taken from cannot be read any more. `bth` is the
    /// packet's.
    pub fn handle_memory_fault(&mut self, bth: &Bth) {
        if bth.opcode.operation().is_some_and(Operation::is_response) {
            self.responder.refuse_read(bth.psn, &mut self.out);
        } else {
            self.sender
                .handle_memory_fault(self.config.number, bth.psn, &mut self.out);
        }
        self.settle();
    }

    /// The time that [`Self::poll_timeout`] gave has come. Harmless if called early.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(control) = &mut self.control {
            control.handle_timeout(now);
        }
        if self.may_handle(true) {
            let before = self.losses();
            if let Some(requester) = self.sender.reliable_mut() {
                let (connection, out) = (&self.connection, &mut self.out);
                requester.handle_timeout(now, connection, out, &mut self.stats);
            }
            self.note_losses(now, before);
            self.settle();
        }
    }

    /// The queue pair `peer` said that it does not exist any more, and expected `psn` next. If it
    /// is the peer, and does not answer probes for the transport timeout, or half a second if that
    /// is longer or none, what is in flight ends as after the last retry. The caller checked that
    /// the word comes from the peer's address and port.
    pub fn handle_peer_gone(&mut self, now: Instant, peer: Qpn, psn: Psn) {
        if peer == self.attributes.dest_qp
            && self.may_handle(true)
            && let Some(requester) = self.sender.reliable_mut()
        {
            requester.handle_peer_gone(now, psn);
        }
    }

    /// What is left to do after either half has run.
    pub(super) fn settle(&mut self) {
        match core::mem::take(&mut self.out.failure) {
            Failure::None => {}
            Failure::SendQueue => self.enter_send_queue_error(),
            Failure::QueuePair => self.enter_error(),
        }
    }

    /// An error of a send on an unreliable service stops the send queue alone (IBTA 10.3.1.6).
    #[cold]
    fn enter_send_queue_error(&mut self) {
        if matches!(self.state(), QpState::ReadyToSend | QpState::SendQueueDrain) {
            self.attributes.state = QpState::SendQueueError;
        }
        self.sender.flush(self.config.number, &mut self.out);
    }

    /// A completion was lost because its queue was full: the queue pair cannot go on (IBTA 11.6.3,
    /// a local work queue catastrophic error).
    pub fn handle_cq_overrun(&mut self) {
        if self.state() != QpState::Error {
            self.out.events.push_back(QpEvent::Fatal);
            self.enter_error();
        }
    }

    #[cold]
    pub(super) fn enter_error(&mut self) {
        self.attributes.state = QpState::Error;
        self.sender.flush(self.config.number, &mut self.out);
        self.responder
            .flush(&self.connection, &mut self.receives, &mut self.out);
        if self.config.shares_receives && !core::mem::replace(&mut self.last_wqe_reported, true) {
            self.out.events.push_back(QpEvent::LastWqeReached);
        }
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// The part of [`Self::poll_timeout`] that is about requests, data that congestion control
    /// holds back, and acknowledgements that no peer waits for: when to send (again). For a caller
    /// that sees to the others itself ([`Self::owes_response`]).
    #[must_use]
    pub fn poll_retry_timeout(&self) -> Option<Instant> {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::Error => None,
            _ => {
                let retry = self.sender.reliable().and_then(Requester::poll_timeout);
                let quiet = self.responder.acknowledger.quiet_deadline();
                earliest(earliest(retry, self.paced_until()), quiet)
            }
        }
    }

    /// Whether the peer has been silent for so long that [`Self::handle_timeout`] sends again, or
    /// gives up.
    #[must_use]
    pub fn is_silent(&self, now: Instant) -> bool {
        let requester = self.sender.reliable();
        self.may_handle(true) && requester.is_some_and(|requester| requester.is_silent(now))
    }

    /// When [`Self::handle_timeout`], and then [`Self::poll_transmit`], want to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::Error => None,
            _ => earliest(
                self.poll_retry_timeout(),
                self.responder.acknowledger.deadline(),
            ),
        }
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.out.completions.pop_front()
    }

    /// The next completion, if it is one of this side.
    pub fn poll_completion_of(&mut self, side: QueueSide) -> Option<Completion> {
        let is_of_side = |completion: &mut Completion| completion.side() == side;
        self.out.completions.pop_front_if(is_of_side)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.out.events.pop_front()
    }

    /// Panics with a description if the state contradicts itself. For tests and the simulation.
    pub fn check_invariants(&self) {
        self.sender.check_invariants(self.connection.transport);
        assert!(self.sender.queued() <= self.config.capacity.send_requests as usize);
        assert!(self.receives.len() <= self.config.capacity.recv_requests as usize);
        if self.state() == QpState::Error {
            assert_eq!(self.sender.queued(), 0, "requests left in the error state");
            assert!(self.receives.is_empty(), "receives left in the error state");
        }
    }
}
