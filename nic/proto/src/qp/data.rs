//! What a queue pair is made with, and what it says of itself.

use alloc::collections::VecDeque;

use urxe_wire::{Mtu, Qpn};

use crate::memory::PdId;
use crate::state::QpState;
use crate::verbs::{Completion, QpType, SendData, SendOp, SendRequest};

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Its number.
    pub number: Qpn,
    /// Its protection domain. An XRC target uses those of the shared receive queues instead.
    pub pd: PdId,
    /// Its type.
    pub qp_type: QpType,
    /// How much it holds.
    pub capacity: Capacity,
    /// Whether receives come from a shared receive queue.
    pub shares_receives: bool,
    /// The MTU of the port, the longest datagram.
    pub port_mtu: Mtu,
}

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

impl Capacity {
    /// The length in bytes of the message of a send request that a queue pair with this capacity
    /// takes, if messages have at most `max_bytes`.
    ///
    /// # Errors
    /// Why it does not take it.
    pub fn message_length(
        &self,
        request: &SendRequest<'_>,
        max_bytes: u64,
    ) -> Result<u32, PostError> {
        match request.data {
            SendData::Sges(sges) if sges.len() > self.send_sges as usize => {
                return Err(PostError::TooManySges);
            }
            SendData::Inline(bytes) if bytes.len() > self.inline_bytes as usize => {
                return Err(PostError::TooManySges);
            }
            SendData::Inline(_) if request.op.is_fetch() => return Err(PostError::Unsupported),
            _ => {}
        }
        let length = request.data.len();
        if length > max_bytes {
            return Err(PostError::TooLong);
        }
        let fits = match request.op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite { .. } => {
                length == 8
            }
            SendOp::Flush { .. } => length == 0,
            op => !op.is_local() || length == 0,
        };
        if !fits {
            return Err(PostError::Unsupported);
        }
        u32::try_from(length).map_err(|_| PostError::TooLong)
    }
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
    /// It is in the error state and takes no more from its shared receive queue
    /// (`IBV_EVENT_QP_LAST_WQE_REACHED`).
    LastWqeReached,
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
    /// The message is longer than a message may be; a datagram, longer than the port's MTU.
    TooLong,
    /// The operation does not go with its data (inline data for a READ, an atomic or ATOMIC WRITE
    /// of other than 8 bytes, a FLUSH with any), with its target, or with the type of the queue
    /// pair (IBTA table 38).
    Unsupported,
    /// Receives are posted to the shared receive queue.
    SharedReceives,
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
    /// Messages for which no receive was posted, on the unreliable services.
    pub out_of_buffer: u64,
    /// Datagrams with a wrong Q_Key.
    pub bad_qkey: u64,
    /// Datagrams longer than the receive that was posted.
    pub too_long: u64,
    /// Packets that do not belong to this queue pair's transport, partition or state.
    pub dropped: u64,
    /// Congestion notifications received and obeyed.
    pub cnp_handled: u64,
    /// Congestion notifications received while congestion control was off.
    pub cnp_ignored: u64,
    /// Congestion notifications sent.
    pub cnp_sent: u64,
}

/// What the two halves hand to the queue pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) events: VecDeque<QpEvent>,
    pub(crate) failure: Failure,
}

/// What a failure stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    #[default]
    None,
    /// The send queue (unreliable services).
    SendQueue,
    /// Everything.
    QueuePair,
}
