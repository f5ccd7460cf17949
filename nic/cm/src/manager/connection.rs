//! One connection.

use urxe_wire::{Mtu, Psn, Qpn};

use super::timing::{self, ACK_DELAY, RESPONSE_TIMEOUT, ack_timeout_code};
use super::values::{Parameters, Path};
use crate::mad::Message;
use crate::message::Req;

/// See the table of the module above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    ReqSent,
    RepReceived,
    ReqReceived,
    RepSent,
    Established,
    DreqSent,
    TimeWait,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) remote_id: u32,
    /// A peer asked for it.
    pub(super) is_passive: bool,
    /// The program still has it; it gets no events otherwise.
    pub(super) is_owned: bool,
    pub(super) transaction: u64,
    pub(super) parameters: Parameters,
    /// The peer was heard from the port that its queue pair's number tells
    /// ([`Manager::with_ports`](super::Manager::with_ports)).
    pub(super) has_known_port: bool,
    /// What is repeated when time runs out, or when the peer repeats itself.
    pub(super) sent: Option<Message>,
    pub(super) attempts: u8,
    pub(super) max_retries: u8,
    pub(super) response_timeout: u8,
    /// The peer asked to wait until then: silence does not count.
    pub(super) patient_until_ns: u64,
    pub(super) deadline_ns: Option<u64>,
}

impl Connection {
    pub(super) fn new(state: State, transaction: u64, path: Path, req: &Req) -> Self {
        let is_passive = state == State::ReqReceived;
        let mut parameters = Parameters {
            path,
            service: req.service,
            remote_qpn: Qpn::default(),
            rq_psn: req.starting_psn,
            sq_psn: Psn::default(),
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            path_mtu: req.path_mtu.unwrap_or(Mtu::B256),
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ack_timeout: ack_timeout_code(ACK_DELAY),
            traffic_class: req.traffic_class,
        };
        if is_passive {
            parameters.remote_qpn = req.qpn;
            parameters.sq_psn = req.starting_psn;
            parameters.rq_psn = Psn::default();
            parameters.responder_resources = req.initiator_depth;
            parameters.initiator_depth = req.responder_resources;
            parameters.ack_timeout = req.ack_timeout;
        }
        Self {
            state,
            remote_id: if is_passive { req.local_comm_id } else { 0 },
            is_passive,
            is_owned: true,
            transaction,
            parameters,
            has_known_port: false,
            sent: None,
            attempts: 0,
            max_retries: req.max_retries,
            response_timeout: if is_passive {
                req.local_response_timeout
            } else {
                req.remote_response_timeout
            },
            patient_until_ns: 0,
            deadline_ns: None,
        }
    }

    /// The end of waiting in [`State::TimeWait`]: what is on its way has arrived by then.
    pub(super) fn time_wait_ns(&self) -> u64 {
        timing::code_ns(self.parameters.ack_timeout.min(RESPONSE_TIMEOUT))
    }
}
