//! The responder of a reliable connection: executes the peer's requests in PSN order, exactly once
//! (IBTA 9.7).

mod atomics;
mod duplicates;
mod execute;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use urxe_wire::{NakCode, Operation, Packet, Psn, Syndrome};

use super::acknowledge::{AckMode, Acknowledger, Polled, SEQUENCE_ERROR};
use super::early::{EARLY_MAX, Early};
use crate::connection::Connection;
use crate::memory::{Memory, Placement};
use crate::peer::PeerAbilities;
use crate::qp::{Failure, Outbox, QpEvent, QpStats};
use crate::receive_queue::{Inbound, ReceiveQueue};
use crate::run::Run;
use crate::time::Instant;
use crate::unreliable::Recent;
use crate::verbs::{Payload, Transmit, WcStatus};

/// Limits and rights that `modify` sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponderLimits {
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) allow_write: bool,
    pub(crate) allow_read: bool,
    pub(crate) allow_atomic: bool,
    pub(crate) allow_flush: Placement,
}

/// Why a request cannot be executed, and what the peer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No receive request is posted.
    NotReady,
    /// The peer broke a rule.
    Invalid,
    /// The peer may not do that to this memory.
    Access,
    /// The message does not fit the receive request.
    TooLong,
    /// The receive request's own memory cannot be used.
    OwnMemory,
    /// The message names a key that cannot be made invalid.
    Invalidation,
}

/// What the peer was told about `expected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// Nothing: it comes next.
    None,
    /// That it is missing. The packets after it are kept, or dropped in silence.
    Reported,
    /// That there is no receive for it yet. It comes again, and all after it.
    NotReady,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    pub(crate) expected: Psn,
    msn: u32,
    pub(crate) limits: ResponderLimits,
    pub(crate) inbound: Inbound,
    pub(crate) acknowledger: Acknowledger,
    gap: Gap,
    /// What is kept of what follows the gap.
    early: Option<Box<Early>>,
    /// It has kept packets that arrived early, whatever its peer is taken for now.
    has_kept: bool,
    atomic_log: VecDeque<(Psn, u64)>,
    pub(crate) established: bool,
    /// Of an unreliable connection.
    pub(crate) recent: Recent,
}

pub(crate) type Handled = Result<(), Refusal>;

impl Responder {
    pub(crate) fn new(expected: Psn, limits: ResponderLimits) -> Self {
        Self {
            expected,
            msn: 0,
            limits,
            inbound: Inbound::Idle,
            acknowledger: Acknowledger::default(),
            gap: Gap::None,
            early: None,
            has_kept: false,
            atomic_log: VecDeque::new(),
            established: false,
            recent: Recent::default(),
        }
    }

    /// Whether a packet of the peer may have this PSN now, or again: one that was forged had to
    /// guess it.
    #[inline]
    pub(crate) fn expects_about(&self, psn: Psn) -> bool {
        psn.distance_from(self.expected).unsigned_abs() <= EARLY_MAX
    }

    /// The next response to send, with those like it, at most `most` together.
    pub(crate) fn poll_run<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        most: u32,
        connection: &Connection,
        memory: &M,
        out: &mut Outbox,
    ) -> Option<Run<'static>> {
        let (expected, msn) = (self.expected, self.msn);
        let polled = self
            .acknowledger
            .poll(now, mode, most, connection, expected, msn, memory);
        match polled {
            Polled::Nothing => None,
            Polled::Packet(transmit) => Some(Run::single(self.with_held(transmit))),
            Polled::Data(run) => Some(run),
            Polled::ReadRefused(psn) => {
                self.refuse_read(psn, out);
                self.poll_run(now, mode, most, connection, memory, out)
            }
        }
    }

    /// See [`Acknowledger::ride_along`].
    #[inline]
    pub(crate) fn ride_along(&mut self, again: bool) -> Option<Psn> {
        let acknowledged = self.expected.sub(1);
        self.acknowledger.ride_along(again).then_some(acknowledged)
    }

    /// A NAK says what is kept of what follows.
    fn with_held(&mut self, mut transmit: Transmit<'static>) -> Transmit<'static> {
        if let Some(early) = &self.early
            && transmit.header.aeth.map(|aeth| aeth.syndrome) == Some(SEQUENCE_ERROR)
            && let Some(held) = early.held(self.expected)
        {
            transmit.payload = Payload::Words(held.words());
        }
        transmit
    }

    /// A request packet of the peer.
    #[expect(
        clippy::too_many_arguments,
        reason = "the pieces of a queue pair, borrowed apart"
    )]
    pub(crate) fn handle_request<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        let psn = packet.header.bth.psn;
        if psn.is_before(self.expected) {
            stats.duplicate_request += 1;
            self.handle_duplicate(now, connection, packet, memory);
            return;
        }
        if psn.is_after(self.expected) {
            stats.out_of_sequence += 1;
            self.handle_early(connection, packet);
            return;
        }
        if !self.established {
            self.established = true;
            out.events.push_back(QpEvent::CommunicationEstablished);
        }
        match self.execute(connection, packet, receives, memory, out) {
            Ok(()) => {
                self.owe_acknowledgement(now, connection, packet);
                if self.gap != Gap::None {
                    self.close_gap(now, connection, receives, memory, out, stats);
                }
            }
            Err(refusal) => self.handle_refusal(psn, refusal, connection, receives, out, stats),
        }
    }

    /// A READ or an atomic is acknowledged by its response. An ACK besides would tell Linux rxe
    /// that it is done, though the response may be lost; another urxe, that the request arrived,
    /// which helps when it is.
    fn owe_acknowledgement(&mut self, now: Instant, connection: &Connection, packet: &Packet<'_>) {
        let bth = &packet.header.bth;
        let operation = bth.opcode.operation();
        let is_unseen = matches!(operation, Some(Operation::ReadRequest | Operation::Flush));
        let has_response = operation.is_some_and(Operation::has_response);
        let ends = operation.is_some_and(Operation::ends_message);
        if bth.ack_request && !has_response {
            self.acknowledger.owe(now, ends);
        } else if connection.has(PeerAbilities::UNASKED_ACKNOWLEDGEMENTS) && ends {
            self.acknowledger.owe_quietly(now);
        }
        // What a READ or a FLUSH does the program here cannot see.
        if ends && !is_unseen {
            self.acknowledger.keep_order(bth.psn);
        }
    }

    /// A packet that follows the one that is expected.
    #[cold]
    fn handle_early(&mut self, connection: &Connection, packet: &Packet<'_>) {
        if self.gap == Gap::NotReady {
            return;
        }
        let is_news = self.gap == Gap::None;
        self.gap = Gap::Reported;
        let mut is_kept = false;
        if connection.has(PeerAbilities::SELECTIVE_REPEAT)
            && packet.payload.len() <= connection.mtu_bytes as usize
        {
            self.has_kept = true;
            let early = self.early.get_or_insert_default();
            is_kept = early.keep(self.expected, packet, connection.mtu_bytes);
        }
        // A peer that asks how things are is told again: the first word, or what it sent upon it,
        // may be lost. What is too far away to be kept was sent before it heard that word, and is
        // no question about it. Peers take each word without what is kept for a repetition that
        // failed: those of 0.2.0 give up after eight.
        if is_news || is_kept && packet.header.bth.ack_request {
            self.acknowledger.set_nak(self.expected, SEQUENCE_ERROR);
        }
    }

    /// What was expected has come: what was kept follows it, up to the next gap.
    #[cold]
    fn close_gap<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        self.gap = Gap::None;
        let was_to_be_told = self.acknowledger.withdraw_sequence_error();
        let Some(mut early) = self.early.take() else {
            if was_to_be_told {
                // What came behind it was dropped, and now that is missing.
                self.gap = Gap::Reported;
                self.acknowledger.set_nak(self.expected, SEQUENCE_ERROR);
            }
            return;
        };
        while let Some(kept) = early.take(self.expected) {
            let packet = kept.packet();
            let psn = self.expected;
            if let Err(refusal) = self.execute(connection, &packet, receives, memory, out) {
                self.acknowledger.owe_quietly(now);
                self.handle_refusal(psn, refusal, connection, receives, out, stats);
                return;
            }
        }
        if early.has_behind(self.expected) {
            self.early = Some(early);
            self.gap = Gap::Reported;
            self.acknowledger.set_nak(self.expected, SEQUENCE_ERROR);
        } else {
            self.owe_urgently(now);
        }
    }

    // ---- duplicates and refusals -------------------------------------------------------------

    /// The peer is sending again what was executed.
    fn owe_urgently(&mut self, now: Instant) {
        self.acknowledger.owe_urgently(now);
        self.acknowledger.keep_order(self.expected.sub(1));
    }

    /// Tells the peer, and the program, why a request was not executed. The peer is not told that a
    /// key cannot be made invalid: its message has arrived, and it is this end that stops (the
    /// specification's fault behaviour of class J, as in Linux rxe).
    fn handle_refusal(
        &mut self,
        psn: Psn,
        refusal: Refusal,
        connection: &Connection,
        receives: &mut ReceiveQueue,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        // An error that completes a receive needs no event besides (IBTA 10.10.2.3).
        let (code, event) = match refusal {
            Refusal::NotReady => {
                stats.rnr_nak_sent += 1;
                self.gap = Gap::NotReady;
                let syndrome = Syndrome::RnrNak {
                    timer: self.limits.min_rnr_timer,
                };
                self.acknowledger.set_nak(psn, syndrome);
                return;
            }
            Refusal::Invalid => (NakCode::InvalidRequest, Some(QpEvent::RequestError)),
            Refusal::Access => (NakCode::RemoteAccessError, Some(QpEvent::AccessError)),
            Refusal::TooLong => {
                self.fail_receive(connection, WcStatus::LocalLength, receives, out);
                (NakCode::InvalidRequest, None)
            }
            Refusal::OwnMemory => {
                self.fail_receive(connection, WcStatus::LocalProtection, receives, out);
                (NakCode::RemoteOperationalError, None)
            }
            Refusal::Invalidation => {
                let status = WcStatus::RemoteInvalidRequest;
                self.fail_receive(connection, status, receives, out);
                self.acknowledger.end_with_acknowledgement(self.expected);
                out.failure = Failure::QueuePair;
                return;
            }
        };
        self.refuse(psn, code, event, out);
    }

    /// Memory that a READ is to be answered from, in the packet `psn`, cannot be read, or not any
    /// more.
    pub(crate) fn refuse_read(&mut self, psn: Psn, out: &mut Outbox) {
        let event = Some(QpEvent::AccessError);
        self.refuse(psn, NakCode::RemoteAccessError, event, out);
    }

    /// A request names a shared receive queue that it may not use (XRC).
    pub(crate) fn refuse_queue(&mut self, psn: Psn, out: &mut Outbox) {
        if psn == self.expected {
            let event = Some(QpEvent::RequestError);
            self.refuse(psn, NakCode::InvalidRequest, event, out);
        }
    }

    /// Tells the peer and goes to the error state.
    fn refuse(&mut self, psn: Psn, code: NakCode, event: Option<QpEvent>, out: &mut Outbox) {
        self.acknowledger.clear_all_but_nak();
        self.acknowledger.set_nak(psn, Syndrome::Nak(code));
        out.events.extend(event);
        out.failure = Failure::QueuePair;
    }

    pub(crate) fn fail_receive(
        &mut self,
        connection: &Connection,
        status: WcStatus,
        receives: &mut ReceiveQueue,
        out: &mut Outbox,
    ) {
        let wqe = match core::mem::take(&mut self.inbound) {
            Inbound::Send { wqe, .. } => Some(wqe),
            _ => receives.pop_front(),
        };
        if let Some(wqe) = wqe {
            out.completions
                .push_back(wqe.completion(connection.qp, status));
        }
    }

    /// Completes the message that is arriving and all receives as flushed. A NAK stays owed.
    pub(crate) fn flush(
        &mut self,
        connection: &Connection,
        receives: &mut ReceiveQueue,
        out: &mut Outbox,
    ) {
        if let Inbound::Send { wqe, .. } = core::mem::take(&mut self.inbound) {
            out.completions
                .push_back(wqe.completion(connection.qp, WcStatus::WrFlush));
        }
        while let Some(wqe) = receives.pop_front() {
            out.completions
                .push_back(wqe.completion(connection.qp, WcStatus::WrFlush));
        }
        self.acknowledger.clear_all_but_nak();
        self.early = None;
    }
}
