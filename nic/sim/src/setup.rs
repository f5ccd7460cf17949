//! Queue pairs in a simulated world.

use crate::host::HostId;
use crate::world::{QpHandle, World};
use urxe_proto::{
    AttrMask, Attributes, Capacity, Egress, PdId, PeerAbilities, Placement, QpConfig, QpState,
    QpType, QueuePair, required_attributes,
};
use urxe_wire::{Mtu, Psn, Qpn, Srqn};

/// Attributes of a connection, the same at both ends but for the PSNs and, if so wished, the path
/// MTU.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// Path MTU.
    pub mtu: Mtu,
    /// Path MTU of the second end, if it has another.
    pub mtu_b: Option<Mtu>,
    /// First PSN that the first end sends.
    pub psn_a: Psn,
    /// First PSN that the second end sends.
    pub psn_b: Psn,
    /// Local ACK timeout exponent.
    pub timeout: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries; 7 is for ever.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding, at both sides.
    pub max_rd_atomic: u8,
    /// What both ends do beyond the specification.
    pub peer_abilities: PeerAbilities,
    /// How much both hosts send on at once. The links of a [`World`] carry one packet after the
    /// other; batches are what a queue pair is told of.
    pub egress: Egress,
    /// Queue capacities.
    pub capacity: Capacity,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            mtu: Mtu::B1024,
            mtu_b: None,
            psn_a: Psn::new(0x12_3456),
            psn_b: Psn::new(0xab_cdef),
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            peer_abilities: PeerAbilities::empty(),
            egress: Egress {
                batch_packets: 15,
                ..Egress::default()
            },
            capacity: Capacity {
                send_requests: 256,
                recv_requests: 256,
                send_sges: 4,
                recv_sges: 4,
                inline_bytes: 256,
            },
        }
    }
}

impl World {
    /// Makes a queue pair on each of two hosts and brings both to ready-to-send.
    pub fn connect(
        &mut self,
        a: HostId,
        b: HostId,
        pd: PdId,
        options: &ConnectOptions,
    ) -> (QpHandle, QpHandle) {
        let end = (QpType::Rc, None);
        self.connect_as([(a, end), (b, end)], pd, options)
    }

    /// The same with queue pairs of other types, or with shared receive queues.
    pub fn connect_as(
        &mut self,
        ends: [(HostId, (QpType, Option<Srqn>)); 2],
        pd: PdId,
        options: &ConnectOptions,
    ) -> (QpHandle, QpHandle) {
        let ends = ends.map(|(host, (qp_type, srq))| {
            let shares_receives = srq.is_some() || qp_type == QpType::XrcTarget;
            self.add_qp(host, qp_type, pd, options.capacity, srq, shares_receives)
        });
        let [first, second] = ends;
        let mtu_b = options.mtu_b.unwrap_or(options.mtu);
        for (end, peer, path_mtu, sq_psn, rq_psn) in [
            (first, second, options.mtu, options.psn_a, options.psn_b),
            (second, first, mtu_b, options.psn_b, options.psn_a),
        ] {
            let attributes = Attributes {
                path_mtu,
                sq_psn,
                rq_psn,
                dest_qp: peer.number,
                dest_gid: self.host(peer.host).gid(),
                ..attributes(options)
            };
            self.bring_up(end, &attributes);
            self.set_peer_abilities(end, options.peer_abilities);
            self.set_egress(end, options.egress);
        }
        (first, second)
    }

    /// Makes a datagram queue pair, ready to send.
    pub fn add_datagrams(
        &mut self,
        host: HostId,
        pd: PdId,
        qkey: u32,
        capacity: Capacity,
        srq: Option<Srqn>,
    ) -> QpHandle {
        let qp = self.add_qp(host, QpType::Ud, pd, capacity, srq, srq.is_some());
        let attributes = Attributes {
            qkey,
            ..Attributes::new()
        };
        self.bring_up(qp, &attributes);
        qp
    }

    fn add_qp(
        &mut self,
        host: HostId,
        qp_type: QpType,
        pd: PdId,
        capacity: Capacity,
        srq: Option<Srqn>,
        shares_receives: bool,
    ) -> QpHandle {
        let number = Qpn::new(self.next_qpn);
        // Numbers of one host are not dense, and differ from those of the others.
        self.next_qpn += 0x13;
        let qp = QueuePair::new(QpConfig {
            number,
            pd,
            qp_type,
            capacity,
            shares_receives,
            port_mtu: Mtu::B4096,
        });
        self.host_mut(host).insert(qp, srq);
        QpHandle { host, number }
    }

    /// The usual steps to ready-to-send.
    fn bring_up(&mut self, qp: QpHandle, attributes: &Attributes) {
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            let qp_type = self.qp(qp).config().qp_type;
            let (mask, _) =
                required_attributes(qp_type, self.qp(qp).state(), state).expect("the usual steps");
            let wanted = Attributes {
                state,
                ..attributes.clone()
            };
            self.modify(qp, &wanted, mask | AttrMask::STATE)
                .expect("all that the step needs");
        }
    }
}

fn attributes(options: &ConnectOptions) -> Attributes {
    Attributes {
        path_mtu: options.mtu,
        timeout: options.timeout,
        retry_count: options.retry_count,
        rnr_retry: options.rnr_retry,
        min_rnr_timer: options.min_rnr_timer,
        max_rd_atomic: options.max_rd_atomic,
        max_dest_rd_atomic: options.max_rd_atomic,
        allow_remote_write: true,
        allow_remote_read: true,
        allow_remote_atomic: true,
        allow_flush: Placement::all(),
        ..Attributes::new()
    }
}
