//! The queue pair: state, attributes, and the two halves of its transport.

use alloc::collections::VecDeque;

use urxe_wire::{Opcode, Packet, Psn, Qpn, Transport, ack_timeout_ns};

pub use crate::rc::acknowledge::AckMode;

use crate::attributes::{AttrMask, Attributes, ModifyError};
use crate::memory::{Memory, PdId};
use crate::rc::connection::Connection;
use crate::rc::inbound::{ReceiveQueue, RecvWqe};
use crate::rc::requester::{Requester, RequesterLimits};
use crate::rc::responder::{Responder, ResponderLimits};
use crate::state::{QpState, required_attributes};
use crate::time::{Instant, earliest};
use crate::verbs::{Completion, RecvRequest, SendData, SendRequest, Transmit, WcStatus};

/// Longest message, in bytes: 1 GiB, so that its packets are few against the PSN space even at the
/// smallest MTU.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// The transport timeout over the value that the program set: the specification allows up to four times
/// (IBTA 9.7.6.1.3), and a peer in software may be kept from its processor for as long as hardware never
/// is. What is lost is sent again much earlier (`rc/retry.rs`).
const TIMEOUT_FACTOR: u64 = 4;

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send requests outstanding.
    pub send_requests: u32,
    /// Receive requests outstanding.
    pub recv_requests: u32,
    /// Scatter/gather elements of a send request.
    pub send_sges: u32,
    /// Scatter/gather elements of a receive request.
    pub recv_sges: u32,
    /// Bytes of inline data.
    pub inline_bytes: u32,
}

/// Something that happened to the queue pair, besides completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The first packet arrived (`IBV_EVENT_COMM_EST`).
    CommunicationEstablished,
    /// The send queue has drained (`IBV_EVENT_SQ_DRAINED`).
    SendQueueDrained,
    /// The peer's request was invalid (`IBV_EVENT_QP_REQ_ERR`).
    RequestError,
    /// The peer's access was refused (`IBV_EVENT_QP_ACCESS_ERR`).
    AccessError,
    /// A local error (`IBV_EVENT_QP_FATAL`).
    Fatal,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair's state does not allow posting.
    State(QpState),
    /// The queue is full.
    Full,
    /// Too many scatter/gather elements or too much inline data.
    TooManySges,
    /// The message is longer than a message may be.
    TooLong,
    /// The operation does not go with its data: inline data for a READ, an atomic of other than 8
    /// bytes, or anything but SEND and WRITE on an unreliable connection.
    Unsupported,
}

/// Counters of a queue pair, named as rdma-core's hw_counters are where those have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpStats {
    /// Packets handed out to be sent.
    pub tx_packets: u64,
    /// Packets taken in.
    pub rx_packets: u64,
    /// Requests received that were executed before.
    pub duplicate_request: u64,
    /// Requests received ahead of their turn.
    pub out_of_sequence: u64,
    /// NAKs received for a PSN sequence error.
    pub packet_seq_err: u64,
    /// Losses concluded from a response to a later request.
    pub implied_nak_seq_err: u64,
    /// Transport timeouts that used up a retry.
    pub local_ack_timeout_err: u64,
    /// Retransmissions after a short silence, which cost no retry.
    pub probes: u64,
    /// RNR NAKs received.
    pub rnr_nak_received: u64,
    /// RNR NAKs sent.
    pub rnr_nak_sent: u64,
    /// Responses that answered nothing outstanding.
    pub ignored_responses: u64,
    /// Packets that do not belong to this queue pair's transport, partition or state.
    pub dropped: u64,
}

/// What the two halves hand to the queue pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) events: VecDeque<QpEvent>,
    pub(crate) enter_error: bool,
}

/// A reliable connection's queue pair. The crate's documentation has the call order.
#[derive(Clone, Debug)]
pub struct QueuePair {
    number: Qpn,
    pd: PdId,
    transport: Transport,
    capacity: Capacity,
    attributes: Attributes,
    connection: Connection,
    requester: Requester,
    responder: Responder,
    receives: ReceiveQueue,
    out: Outbox,
    drain_reported: bool,
    stats: QpStats,
}

impl QueuePair {
    /// A queue pair in the state `Reset`.
    #[must_use]
    pub fn new(number: Qpn, pd: PdId, transport: Transport, capacity: Capacity) -> Self {
        let attributes = Attributes::new();
        let connection = connection(number, pd, transport, &attributes);
        Self {
            number,
            pd,
            transport,
            capacity,
            requester: new_requester(&attributes, &connection),
            responder: Responder::new(attributes.rq_psn, responder_limits(&attributes)),
            connection,
            attributes,
            receives: ReceiveQueue::new(),
            out: Outbox::default(),
            drain_reported: false,
            stats: QpStats::default(),
        }
    }

    // ---- getters -----------------------------------------------------------------------------

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> Qpn {
        self.number
    }

    /// Its protection domain.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// Its transport service.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Its capacity.
    #[must_use]
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> QpState {
        self.attributes.state
    }

    /// Its attributes; PSNs as they are now.
    #[must_use]
    pub fn query(&self) -> Attributes {
        Attributes {
            current_state: self.state(),
            sq_psn: self.requester.next_psn(),
            rq_psn: self.responder.expected_psn(),
            ..self.attributes.clone()
        }
    }

    /// Its attributes as they were set.
    #[must_use]
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Its counters.
    #[must_use]
    pub const fn stats(&self) -> &QpStats {
        &self.stats
    }

    /// Whether requests were sent that are not acknowledged.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.requester.is_in_flight()
    }

    /// Whether an acknowledgement or a response is owed to the peer.
    #[must_use]
    pub fn owes_response(&self) -> bool {
        self.responder.owes()
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Changes state and attributes, those that `mask` names.
    ///
    /// # Errors
    /// What was wrong; nothing is changed then.
    pub fn modify(&mut self, wanted: &Attributes, mask: AttrMask) -> Result<(), ModifyError> {
        let from = self.state();
        let to = if mask.contains(AttrMask::STATE) {
            wanted.state
        } else {
            from
        };
        self.check_modify(from, to, wanted, mask)?;
        self.attributes.merge(wanted, mask);
        self.attributes.state = to;
        self.connection = connection(self.number, self.pd, self.transport, &self.attributes);
        match to {
            QpState::Reset => self.reset(),
            QpState::Error => self.enter_error(),
            QpState::ReadyToReceive if from == QpState::Init => {
                let limits = responder_limits(&self.attributes);
                self.responder = Responder::new(self.attributes.rq_psn, limits);
            }
            QpState::ReadyToSend if from == QpState::ReadyToReceive => {
                self.requester = new_requester(&self.attributes, &self.connection);
            }
            _ => {
                self.requester.configure(requester_limits(&self.attributes));
                self.responder.configure(responder_limits(&self.attributes));
            }
        }
        self.drain_reported = false;
        Ok(())
    }

    fn check_modify(
        &self,
        from: QpState,
        to: QpState,
        wanted: &Attributes,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        if mask.contains(AttrMask::CURRENT_STATE) && wanted.current_state != from {
            return Err(ModifyError::CurrentState { actual: from });
        }
        let Some((required, optional)) = required_attributes(self.transport, from, to) else {
            return Err(ModifyError::Transition { from, to });
        };
        let missing = required.difference(mask);
        if !missing.is_empty() {
            return Err(ModifyError::Missing(missing));
        }
        if matches!(to, QpState::Reset | QpState::Error) {
            return Ok(());
        }
        let allowed = required | optional | AttrMask::STATE | AttrMask::CURRENT_STATE;
        let extra = mask.difference(allowed);
        if !extra.is_empty() {
            return Err(ModifyError::NotAllowed(extra));
        }
        wanted
            .out_of_range(mask)
            .map_or(Ok(()), |bad| Err(ModifyError::OutOfRange(bad)))
    }

    fn reset(&mut self) {
        let fresh = Self::new(self.number, self.pd, self.transport, self.capacity);
        let stats = self.stats;
        *self = Self { stats, ..fresh };
    }

    /// Sets how many bytes may be in flight to the peer at most: what its receive buffer takes.
    pub fn set_window_bytes(&mut self, max_bytes: u32) {
        self.requester
            .set_window_max(max_bytes / self.connection.mtu_bytes);
    }

    /// Queues a send request.
    ///
    /// # Errors
    /// Why it was not taken. In the error state it is taken and flushed.
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let state = self.state();
        if matches!(
            state,
            QpState::Reset | QpState::Init | QpState::ReadyToReceive
        ) {
            return Err(PostError::State(state));
        }
        let length = self.check_send(request)?;
        self.requester.post(request, length);
        if state == QpState::Error {
            self.requester.flush(self.number, &mut self.out);
        }
        Ok(())
    }

    fn check_send(&self, request: &SendRequest<'_>) -> Result<u32, PostError> {
        if self.requester.queued() >= self.capacity.send_requests as usize {
            return Err(PostError::Full);
        }
        let length = match request.data {
            SendData::Sges(sges) => {
                if sges.len() > self.capacity.send_sges as usize {
                    return Err(PostError::TooManySges);
                }
                sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>()
            }
            SendData::Inline(bytes) => {
                if bytes.len() > self.capacity.inline_bytes as usize {
                    return Err(PostError::TooManySges);
                }
                if request.op.is_fetch() {
                    return Err(PostError::Unsupported);
                }
                bytes.len() as u64
            }
        };
        if length > MAX_MESSAGE_BYTES {
            return Err(PostError::TooLong);
        }
        if request.op.is_atomic() && length != 8 {
            return Err(PostError::Unsupported);
        }
        u32::try_from(length).map_err(|_| PostError::TooLong)
    }

    /// Queues a receive request.
    ///
    /// # Errors
    /// Why it was not taken. In the error state it is taken and flushed.
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let state = self.state();
        if state == QpState::Reset {
            return Err(PostError::State(state));
        }
        if self.receives.len() >= self.capacity.recv_requests as usize {
            return Err(PostError::Full);
        }
        if request.sges.len() > self.capacity.recv_sges as usize {
            return Err(PostError::TooManySges);
        }
        self.receives.push_back(RecvWqe::new(request));
        if state == QpState::Error {
            self.responder
                .flush(&self.connection, &mut self.receives, &mut self.out);
        }
        Ok(())
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// A packet for this queue pair arrived at `now`. The caller checked its ICRC and that it comes
    /// from the peer.
    pub fn handle_packet<M: Memory>(&mut self, now: Instant, packet: &Packet<'_>, memory: &mut M) {
        let bth = &packet.header.bth;
        let is_mine = bth.opcode.transport() == Some(self.transport)
            && bth.pkey.matches(self.attributes.pkey);
        let Opcode::Queue { operation, .. } = bth.opcode else {
            self.stats.dropped += 1;
            return;
        };
        if !is_mine || !self.may_handle(operation.is_response()) {
            self.stats.dropped += 1;
            return;
        }
        self.stats.rx_packets += 1;
        if operation.is_response() {
            self.requester.handle_response(
                now,
                &self.connection,
                packet,
                memory,
                &mut self.out,
                &mut self.stats,
            );
        } else {
            self.responder.handle_request(
                now,
                &self.connection,
                packet,
                &mut self.receives,
                memory,
                &mut self.out,
                &mut self.stats,
            );
        }
        self.settle();
    }

    fn may_handle(&self, is_response: bool) -> bool {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::Error => false,
            QpState::ReadyToReceive => !is_response,
            QpState::ReadyToSend | QpState::SendQueueDrain | QpState::SendQueueError => true,
        }
    }

    /// Memory that a packet handed out was to be taken from cannot be read any more.
    pub fn handle_memory_fault(&mut self) {
        let status = WcStatus::LocalProtection;
        self.requester.fail(self.number, status, &mut self.out);
        self.settle();
    }

    /// A completion was lost because its queue was full: the queue pair cannot go on (IBTA 11.6.3,
    /// a local work queue catastrophic error).
    pub fn handle_cq_overrun(&mut self) {
        if self.state() != QpState::Error {
            self.out.events.push_back(QpEvent::Fatal);
            self.enter_error();
        }
    }

    /// The time that [`Self::poll_timeout`] gave has come. Harmless if called early.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.may_handle(true) {
            self.requester
                .handle_timeout(now, &self.connection, &mut self.out, &mut self.stats);
            self.settle();
        }
    }

    /// What is left to do after either half has run.
    fn settle(&mut self) {
        if core::mem::take(&mut self.out.enter_error) {
            self.enter_error();
        }
    }

    fn enter_error(&mut self) {
        self.attributes.state = QpState::Error;
        self.requester.flush(self.number, &mut self.out);
        self.responder
            .flush(&self.connection, &mut self.receives, &mut self.out);
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// The next packet to send, if any may go now. Requests go first, then what is owed to the peer, so
    /// that an acknowledgement can leave with the request that answers.
    pub fn poll_transmit<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        memory: &M,
    ) -> Option<Transmit<'_>> {
        let may_start = self.state() == QpState::ReadyToSend;
        let may_request = may_start || self.state() == QpState::SendQueueDrain;
        if may_request
            && let Some(planned) =
                self.requester
                    .plan(now, &self.connection, may_start, memory, &mut self.out)
        {
            self.stats.tx_packets += 1;
            return Some(self.requester.packet(&planned));
        }
        self.settle();
        self.report_drained();
        let may_respond = !matches!(self.state(), QpState::Reset | QpState::Init)
            && (self.state() != QpState::Error || self.responder.has_nak());
        if !may_respond {
            return None;
        }
        let response =
            self.responder
                .poll_transmit(now, mode, &self.connection, memory, &mut self.out);
        self.stats.tx_packets += u64::from(response.is_some());
        self.settle();
        response
    }

    fn report_drained(&mut self) {
        if self.state() == QpState::SendQueueDrain
            && !self.drain_reported
            && !self.requester.has_started()
        {
            self.drain_reported = true;
            if self.attributes.sqd_notify {
                self.out.events.push_back(QpEvent::SendQueueDrained);
            }
        }
    }

    /// The part of [`Self::poll_timeout`] that is about requests: when to send again. For a caller
    /// that sees to held acknowledgements itself ([`Self::owes_response`]).
    #[must_use]
    pub fn poll_retry_timeout(&self) -> Option<Instant> {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::Error => None,
            _ => self.requester.poll_timeout(),
        }
    }

    /// When [`Self::handle_timeout`], and then [`Self::poll_transmit`], want to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::Error => None,
            _ => earliest(self.requester.poll_timeout(), self.responder.poll_timeout()),
        }
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.out.completions.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.out.events.pop_front()
    }

    /// Panics with a description if the state contradicts itself. For tests and the simulation.
    pub fn check_invariants(&self) {
        self.requester.check_invariants();
        assert!(self.requester.queued() <= self.capacity.send_requests as usize);
        assert!(self.receives.len() <= self.capacity.recv_requests as usize);
        if self.state() == QpState::Error {
            assert_eq!(
                self.requester.queued(),
                0,
                "requests left in the error state"
            );
            assert!(self.receives.is_empty(), "receives left in the error state");
        }
    }
}

fn connection(qp: Qpn, pd: PdId, transport: Transport, attributes: &Attributes) -> Connection {
    Connection {
        transport,
        qp,
        pd,
        peer: attributes.dest_qp,
        pkey: attributes.pkey,
        mtu_bytes: u32::try_from(attributes.path_mtu.bytes()).unwrap_or(u32::MAX),
    }
}

fn requester_limits(attributes: &Attributes) -> RequesterLimits {
    RequesterLimits {
        timeout_ns: ack_timeout_ns(attributes.timeout).map(|ns| ns * TIMEOUT_FACTOR),
        retry_count: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
        max_rd_atomic: attributes.max_rd_atomic,
    }
}

fn responder_limits(attributes: &Attributes) -> ResponderLimits {
    ResponderLimits {
        min_rnr_timer: attributes.min_rnr_timer,
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        allow_write: attributes.allow_remote_write,
        allow_read: attributes.allow_remote_read,
        allow_atomic: attributes.allow_remote_atomic,
    }
}

fn new_requester(attributes: &Attributes, connection: &Connection) -> Requester {
    let first: Psn = attributes.sq_psn;
    Requester::new(first, connection.mtu_bytes, requester_limits(attributes))
}
