//! A queue pair of the protocol core, and what the adapter knows of it.

use urxe_congestion::Path;
use urxe_proto::{
    AccessError, AtomicOp, AttrMask, Attributes, Capacity, Egress, LocalAccess, Memory,
    ModifyError, PdId, QpConfig, QpState, QpType, QueuePair, RecvRequest, RemoteAccess,
    RemoteRange, SendData, SendOp, SendRequest, SendTarget, Sge, Via, WindowBind,
    required_attributes,
};
use urxe_wire::{Mtu, Psn, Qpn};

use crate::gathered::Gathered;
use crate::packet::FlowId;
use crate::scenario::HostConfig;
use crate::traffic::Operation;

const PD: PdId = PdId(1);
/// Queue pair numbers 0 and 1 are for management.
const FIRST_NUMBER: u32 = 2;
const REQUESTS_MAX: u32 = 1 << 16;
/// READs outstanding, as ConnectX adapters have it.
const READS_MAX: u8 = 16;
/// Local ACK timeout: 67 ms, what perftest sets.
const TIMEOUT: u8 = 14;

/// Memory of a host: there is nothing in it, and everything is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

impl Memory for NoMemory {
    fn check_local(&self, _: PdId, _: &Sge, _: LocalAccess) -> Result<(), AccessError> {
        Ok(())
    }

    fn check_remote(&self, _: Via, _: RemoteRange, _: RemoteAccess) -> Result<(), AccessError> {
        Ok(())
    }

    fn write_local(&mut self, _: PdId, _: &Sge, _: u32, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn read_local(&self, _: PdId, _: &Sge, _: u32, _: &mut [u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn write_remote(&mut self, _: Via, _: RemoteRange, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn atomic(&mut self, _: Via, _: u32, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        Ok(0)
    }

    fn bind_window(&mut self, _: Via, _: &WindowBind) -> Result<(), AccessError> {
        Ok(())
    }

    fn invalidate(&mut self, _: Via, _: u32) -> Result<(), AccessError> {
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) qp: QueuePair,
    pub(crate) host: u32,
    /// The port that it sends by, of all ports.
    pub(crate) port: u32,
    /// The same among those of its host.
    pub(crate) port_index: u32,
    pub(crate) flow: FlowId,
    /// The process that is told of its completions.
    pub(crate) process: u32,
    /// Length of a message.
    pub(crate) message_bytes: u32,
    pub(crate) gathered: Gathered,
    /// Whether it waits for its turn to send.
    pub(crate) is_ready: bool,
    /// The earliest event that will look at its timers.
    pub(crate) timer_at: u64,
}

/// The number of a connection's queue pair.
pub(crate) const fn number(connection: u32) -> Qpn {
    Qpn::new(connection + FIRST_NUMBER)
}

/// The connection whose queue pair has a number.
pub(crate) const fn connection_of(number: Qpn) -> u32 {
    number.get() - FIRST_NUMBER
}

/// A queue pair that is ready to send to another.
pub(crate) fn queue_pair(
    own: u32,
    peer: u32,
    config: &HostConfig,
    mtu: Mtu,
) -> Result<QueuePair, ModifyError> {
    let mut qp = QueuePair::new(QpConfig {
        number: number(own),
        pd: PD,
        qp_type: QpType::Rc,
        capacity: Capacity {
            send_requests: REQUESTS_MAX,
            recv_requests: REQUESTS_MAX,
            send_sges: 1,
            recv_sges: 1,
            inline_bytes: 0,
        },
        shares_receives: false,
        port_mtu: Mtu::B4096,
    });
    let attributes = Attributes {
        path_mtu: mtu,
        dest_qp: number(peer),
        sq_psn: Psn::new(0),
        rq_psn: Psn::new(0),
        timeout: TIMEOUT,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: READS_MAX,
        max_dest_rd_atomic: READS_MAX,
        allow_remote_write: true,
        allow_remote_read: true,
        ..Attributes::new()
    };
    for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
        let (mask, _) = required_attributes(QpType::Rc, qp.state(), state)
            .unwrap_or((AttrMask::empty(), AttrMask::empty()));
        let wanted = Attributes {
            state,
            ..attributes.clone()
        };
        qp.modify(&wanted, mask | AttrMask::STATE)?;
    }
    qp.set_egress(Egress {
        window_bytes: config.window_bytes,
        ..Egress::default()
    });
    control_anew(&mut qp, config);
    Ok(qp)
}

/// Has a queue pair's congestion control begin as that of a new one.
pub(crate) fn control_anew(qp: &mut QueuePair, config: &HostConfig) {
    if let Some(control) = config.congestion_control {
        control.give_to(qp, path(config));
    }
}

/// What congestion control is told of the network.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and far below 2^64"
)]
fn path(config: &HostConfig) -> Path {
    Path {
        line_rate_bps: (config.rate_gbps * 1e9) as u64,
        base_round_trip_ns: config.base_round_trip_ns.unwrap_or(0),
        mtu_bytes: config.mtu_bytes,
    }
}

/// Posts a message. False if the queue pair does not take it.
pub(crate) fn post_message(qp: &mut QueuePair, operation: Operation, bytes: u32) -> bool {
    let op = match operation {
        Operation::Send => SendOp::Send,
        Operation::Write => SendOp::Write { va: 0, rkey: 0 },
        Operation::Read => SendOp::Read { va: 0, rkey: 0 },
    };
    let sges = [sge(bytes)];
    let request = SendRequest {
        wr_id: 0,
        op,
        data: SendData::Sges(&sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    };
    qp.post_send(&request).is_ok()
}

/// Posts a receive for a message of so many bytes. False if the queue pair does not take it.
pub(crate) fn post_receive(qp: &mut QueuePair, bytes: u32) -> bool {
    let sges = [sge(bytes)];
    let request = RecvRequest {
        wr_id: 0,
        sges: &sges,
    };
    qp.post_recv(&request).is_ok()
}

const fn sge(len: u32) -> Sge {
    Sge {
        addr: 0,
        len,
        lkey: 0,
    }
}
