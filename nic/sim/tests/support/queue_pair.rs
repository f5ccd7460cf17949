//! A queue pair alone, for tests that hand it packets themselves.

use urxe_proto::{
    AttrMask, Attributes, Capacity, PeerAbilities, QpConfig, QpState, QpType, QueuePair,
    required_attributes,
};
use urxe_sim::Random;
use urxe_wire::{Mtu, Psn, Qpn};

use super::scenario::PD;

/// Entries of each of its queues.
pub const REQUESTS: usize = 2048;
const MTU: Mtu = Mtu::B1024;

/// Any of what a peer may do beyond the specification, often all or nothing of it.
pub fn any_peer_abilities(random: &mut Random) -> PeerAbilities {
    match random.index(4) {
        0 => PeerAbilities::empty(),
        1 => PeerAbilities::URXE,
        _ => PeerAbilities::from_bits_truncate(random.bits() as u8),
    }
}

/// Ready to send to `peer` and to let it do what it likes, with up to 16 READs at a time and with
/// packet sequence numbers from `psn` on both ways.
pub fn queue_pair(number: Qpn, peer: Qpn, qp_type: QpType, psn: Psn, qkey: u32) -> QueuePair {
    let mut qp = QueuePair::new(QpConfig {
        number,
        pd: PD,
        qp_type,
        capacity: Capacity {
            send_requests: REQUESTS as u32,
            recv_requests: REQUESTS as u32,
            send_sges: 1,
            recv_sges: 1,
            inline_bytes: 0,
        },
        shares_receives: false,
        port_mtu: MTU,
    });
    let wanted = Attributes {
        path_mtu: MTU,
        dest_qp: peer,
        rq_psn: psn,
        sq_psn: psn,
        qkey,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        allow_remote_write: true,
        allow_remote_read: true,
        allow_remote_atomic: true,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        ..Attributes::new()
    };
    for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
        let (mask, _) = required_attributes(qp_type, qp.state(), state).unwrap();
        let wanted = Attributes {
            state,
            ..wanted.clone()
        };
        qp.modify(&wanted, mask | AttrMask::STATE).unwrap();
    }
    qp
}
