//! The queue pair: state, attributes, and the two halves of its transport.

mod congestion;
mod data;
mod outgoing;
mod packets;
mod turns;

use alloc::boxed::Box;

use urxe_wire::{Qpn, Srqn, ack_timeout_ns};

use self::congestion::Congestion;
pub use self::data::{Capacity, PostError, QpConfig, QpEvent, QpStats};
pub(crate) use self::data::{Failure, Outbox};
use self::turns::{Reply, Turns};
pub use crate::rc::acknowledge::AckMode;

use crate::attr_mask::AttrMask;
use crate::attributes::{Attributes, ModifyError};
use crate::connection::Connection;
use crate::control::CongestionControl;
use crate::egress::Egress;
use crate::memory::PdId;
use crate::peer::PeerAbilities;
use crate::rc::requester::{Requester, RequesterLimits};
use crate::rc::responder::{Responder, ResponderLimits};
use crate::receive_queue::{Inbound, ReceiveQueue};
use crate::sender::Sender;
use crate::state::{QpState, required_attributes};
use crate::verbs::{QpType, RecvRequest, SendOp, SendRequest, SendTarget};

/// Longest message, in bytes: 1 GiB, so that its packets are few against the PSN space even at the
/// smallest MTU.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// The transport timeout over the value that the program set: the specification allows up to four
/// times (IBTA 9.7.6.1.3), and a peer in software may be kept from its processor for as long as
/// hardware never is. What is lost is sent again much earlier (`rc/retry.rs`).
const TIMEOUT_FACTOR: u64 = 4;

/// A queue pair. The crate's documentation has the call order.
#[derive(Clone, Debug)]
pub struct QueuePair {
    config: QpConfig,
    attributes: Attributes,
    connection: Connection,
    sender: Sender,
    responder: Responder,
    receives: ReceiveQueue,
    out: Outbox,
    drain_reported: bool,
    last_wqe_reported: bool,
    /// The shared receive queue that the message in progress names (XRC target).
    message_srqn: Option<Srqn>,
    stats: QpStats,
    turns: Turns,
    /// What must not leave before something that is owed.
    reply: Option<Reply>,
    /// What slows it down; `None` without congestion.
    control: Option<Box<dyn CongestionControl>>,
    congestion: Option<Box<Congestion>>,
}

impl QueuePair {
    /// A queue pair in the state `Reset`.
    #[must_use]
    pub fn new(config: QpConfig) -> Self {
        let mut attributes = Attributes::new();
        if config.qp_type == QpType::Ud {
            attributes.path_mtu = config.port_mtu;
        }
        let connection = connection(&config, &attributes);
        Self {
            config,
            sender: new_sender(&attributes, &connection),
            responder: Responder::new(attributes.rq_psn, responder_limits(&attributes)),
            connection,
            attributes,
            receives: ReceiveQueue::new(config.pd),
            out: Outbox::default(),
            drain_reported: false,
            last_wqe_reported: false,
            message_srqn: None,
            stats: QpStats::default(),
            turns: Turns::default(),
            reply: None,
            control: None,
            congestion: None,
        }
    }

    // ---- getters -----------------------------------------------------------------------------

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> Qpn {
        self.config.number
    }

    /// Its protection domain.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.config.pd
    }

    /// Bytes that a full packet carries.
    #[must_use]
    pub const fn mtu_bytes(&self) -> u32 {
        self.connection.mtu_bytes
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &QpConfig {
        &self.config
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
            sq_psn: self.sender.next_psn(),
            rq_psn: self.responder.expected,
            is_draining: self.state() == QpState::SendQueueDrain && self.sender.has_started(),
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

    /// Whether answers are on their way to it: packets were sent that are not acknowledged, and of
    /// which the peer was asked to tell.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.sender.reliable().is_some_and(Requester::awaits_answer)
    }

    /// What a reliable queue pair sends at by its window and its round trip, bits per second, while
    /// so much is in flight that they tell something about the link.
    #[must_use]
    pub fn bulk_rate_bps(&self) -> Option<u64> {
        let requester = self.sender.reliable()?;
        requester.bulk_rate_bps(self.connection.mtu_bytes)
    }

    /// Whether an acknowledgement or a response is owed to a peer that waits for it.
    #[must_use]
    pub fn owes_response(&self) -> bool {
        self.responder.acknowledger.owes()
    }

    /// Whether a message has come in part.
    #[must_use]
    pub fn is_within_message(&self) -> bool {
        !matches!(self.responder.inbound, Inbound::Idle)
    }

    /// Whether what it sends is part of a stream, or of a large message: much is in flight, or
    /// about to be.
    #[must_use]
    #[inline]
    pub fn is_streaming(&self) -> bool {
        let requester = self.sender.reliable();
        requester.is_some_and(Requester::is_streaming) || self.responder.acknowledger.is_streaming()
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
        self.connection = Connection {
            peer_abilities: if to == QpState::Init {
                PeerAbilities::empty()
            } else {
                self.connection.peer_abilities
            },
            batch_packets: self.connection.batch_packets,
            ..connection(&self.config, &self.attributes)
        };
        match to {
            QpState::Reset => self.reset(),
            QpState::Error => self.enter_error(),
            QpState::ReadyToReceive if from == QpState::Init => {
                let limits = responder_limits(&self.attributes);
                self.responder = Responder::new(self.attributes.rq_psn, limits);
            }
            QpState::ReadyToSend if from == QpState::ReadyToReceive => {
                self.sender = new_sender(&self.attributes, &self.connection);
            }
            _ => {
                if let Some(requester) = self.sender.reliable_mut() {
                    requester.configure(requester_limits(&self.attributes));
                }
                self.responder.limits = responder_limits(&self.attributes);
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
        let Some((required, optional)) = required_attributes(self.config.qp_type, from, to) else {
            return Err(ModifyError::Transition { from, to });
        };
        let missing = required.difference(mask);
        if !missing.is_empty() {
            return Err(ModifyError::Missing(missing));
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
        let stats = self.stats;
        let congestion = self
            .congestion
            .take_if(|congestion| congestion.is_notified());
        *self = Self {
            stats,
            congestion,
            ..Self::new(self.config)
        };
    }

    /// Says how much the caller sends on at once from now on.
    #[inline]
    pub fn set_egress(&mut self, egress: Egress) {
        self.connection.batch_packets = egress.batch_packets;
        if let Some(requester) = self.sender.reliable_mut() {
            requester.set_window_max(egress.window_bytes / self.connection.mtu_bytes);
        }
    }

    /// What the peer's device does beyond the specification, as far as it is known, until the queue
    /// pair is initialised again. Only RC has any.
    pub fn set_peer_abilities(&mut self, abilities: PeerAbilities) {
        // The packets of an XRC target may name different shared receive queues.
        if self.config.qp_type == QpType::Rc {
            self.connection.peer_abilities = abilities;
        }
    }

    /// Queues a send request.
    ///
    /// # Errors
    /// Why it was not taken. In the error state it is taken and flushed.
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let length = self.check_send(request, 0)?;
        if self.responder.acknowledger.is_ordered() {
            let position = match self.reply {
                Some(reply) => reply.position,
                None => self.sender.reliable().map_or(0, Requester::end_position),
            };
            self.reply = Some(Reply {
                position,
                answers_to: self.responder.expected,
            });
        }
        self.sender.post(request, length);
        if self.flushes_sends() {
            self.sender.flush(self.config.number, &mut self.out);
        }
        Ok(())
    }

    /// Whether what is posted is flushed at once.
    fn flushes_sends(&self) -> bool {
        matches!(self.state(), QpState::Error | QpState::SendQueueError)
    }

    /// Whether a send request would be taken once `ahead` others are queued; its length in bytes.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check_send(&self, request: &SendRequest<'_>, ahead: usize) -> Result<u32, PostError> {
        let state = self.state();
        if matches!(
            state,
            QpState::Reset | QpState::Init | QpState::ReadyToReceive
        ) {
            return Err(PostError::State(state));
        }
        let capacity = &self.config.capacity;
        let queued = if self.flushes_sends() {
            0
        } else {
            self.sender.queued() + ahead
        };
        if queued >= capacity.send_requests as usize {
            return Err(PostError::Full);
        }
        if !has_operation(self.config.qp_type, &request.op, &request.target) {
            return Err(PostError::Unsupported);
        }
        let max = match self.config.qp_type {
            QpType::Ud => u64::from(self.connection.mtu_bytes),
            _ => MAX_MESSAGE_BYTES,
        };
        capacity.message_length(request, max)
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
        if self.config.shares_receives || !self.config.qp_type.receives() {
            return Err(PostError::SharedReceives);
        }
        let capacity = &self.config.capacity;
        self.receives
            .post(request, capacity.recv_requests, capacity.recv_sges)?;
        if state == QpState::Error {
            self.responder
                .flush(&self.connection, &mut self.receives, &mut self.out);
        }
        Ok(())
    }
}

/// Whether queue pairs of this type have the operation (IBTA table 38), and such targets.
fn has_operation(qp_type: QpType, op: &SendOp, target: &SendTarget) -> bool {
    use SendOp as O;
    let is_plain = matches!(op, O::Send | O::SendImm(_));
    match (qp_type, target) {
        (QpType::Rc, SendTarget::Connection) => true,
        (QpType::XrcInitiator, SendTarget::XrcSrq(_)) => {
            !matches!(op, O::AtomicWrite { .. } | O::Flush { .. })
        }
        (QpType::XrcInitiator, _) => op.is_local(),
        (QpType::Uc, SendTarget::Connection) => {
            is_plain || matches!(op, O::Write { .. } | O::WriteImm { .. }) || op.is_local()
        }
        (QpType::Ud, SendTarget::Datagram { .. }) => is_plain,
        _ => false,
    }
}

fn connection(config: &QpConfig, attributes: &Attributes) -> Connection {
    Connection {
        transport: config.qp_type.transport(),
        qp: config.number,
        pd: config.pd,
        peer: attributes.dest_qp,
        pkey: attributes.pkey,
        mtu_bytes: u32::try_from(attributes.path_mtu.bytes()).unwrap_or(u32::MAX),
        qkey: attributes.qkey,
        peer_abilities: PeerAbilities::empty(),
        batch_packets: Egress::default().batch_packets,
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
        allow_flush: attributes.allow_flush,
    }
}

fn new_sender(attributes: &Attributes, connection: &Connection) -> Sender {
    Sender::new(attributes.sq_psn, connection, requester_limits(attributes))
}
