//! What is done to queue pairs, whichever end they belong to.

use urxe_device::{
    AddressVector, AttrMask, Attributes, Gid, Mtu, Psn, Qp, QpState, QpType, Qpn, RecvRequest,
    SendData, SendOp, SendRequest, SendTarget, Sge,
};

use super::{End, TIMEOUT};

const PSN: Psn = Psn::new(0x00ff_fff8);

fn modify(qp: &Qp, state: QpState, wanted: &Attributes, mask: AttrMask) {
    let wanted = Attributes {
        state,
        ..wanted.clone()
    };
    qp.modify(&wanted, mask | AttrMask::STATE).unwrap();
}

pub fn set_state(qp: &Qp, state: QpState) {
    modify(qp, state, &Attributes::new(), AttrMask::empty());
}

/// Brings a datagram queue pair to ready-to-send.
pub fn ready_datagrams(qp: &Qp, qkey: u32) {
    use AttrMask as A;
    let wanted = Attributes {
        qkey,
        sq_psn: PSN,
        ..Attributes::new()
    };
    modify(
        qp,
        QpState::Init,
        &wanted,
        A::PKEY_INDEX | A::PORT | A::QKEY,
    );
    modify(qp, QpState::ReadyToReceive, &wanted, A::empty());
    modify(qp, QpState::ReadyToSend, &wanted, A::SQ_PSN);
}

/// Connects a queue pair to the queue pair `peer` of this host.
pub fn connect(end: &End, qp: &Qp, peer: Qpn, mtu: Mtu) {
    connect_to(qp, end.nic.gids()[0].gid, peer, mtu);
}

/// Connects a queue pair to the queue pair `peer` at an address.
pub fn connect_to(qp: &Qp, dest_gid: Gid, peer: Qpn, mtu: Mtu) {
    connect_with(qp, &peer_attributes(dest_gid, peer, mtu));
}

/// What a queue pair wants to know to be connected to the queue pair `peer` at an address.
pub fn peer_attributes(dest_gid: Gid, peer: Qpn, mtu: Mtu) -> Attributes {
    Attributes {
        allow_remote_write: true,
        allow_remote_read: true,
        allow_remote_atomic: true,
        dest_gid,
        path_mtu: mtu,
        dest_qp: peer,
        rq_psn: PSN,
        sq_psn: PSN,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        timeout: TIMEOUT,
        retry_count: 7,
        rnr_retry: 7,
        ..Attributes::new()
    }
}

/// Connects a queue pair as the attributes say.
pub fn connect_with(qp: &Qp, wanted: &Attributes) {
    use AttrMask as A;
    let is_reliable = qp.init().qp_type != QpType::Uc;
    let only_if = |condition: bool, mask: A| if condition { mask } else { A::empty() };
    let requests = is_reliable && qp.init().qp_type.sends();
    let answers = is_reliable && qp.init().qp_type != QpType::XrcInitiator;
    let to_receive = A::ADDRESS_VECTOR | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
    modify(
        qp,
        QpState::Init,
        wanted,
        A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS,
    );
    modify(
        qp,
        QpState::ReadyToReceive,
        wanted,
        to_receive | only_if(answers, A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER),
    );
    let to_send = only_if(is_reliable, A::TIMEOUT)
        | only_if(requests, A::RETRY_COUNT | A::RNR_RETRY | A::MAX_RD_ATOMIC);
    modify(qp, QpState::ReadyToSend, wanted, A::SQ_PSN | to_send);
}

/// Connects two queue pairs of this host.
pub fn connect_both(a: &End, qp_a: &Qp, b: &End, qp_b: &Qp, mtu: Mtu) {
    connect(a, qp_a, qp_b.number(), mtu);
    connect(b, qp_b, qp_a.number(), mtu);
}

/// To the connected peer.
pub fn post(qp: &Qp, wr_id: u64, op: SendOp, sges: &[Sge]) {
    post_to_target(qp, wr_id, op, sges, SendTarget::Connection);
}

pub fn post_to_target(qp: &Qp, wr_id: u64, op: SendOp, sges: &[Sge], target: SendTarget) {
    qp.post_send(&request(wr_id, op, sges, target)).unwrap();
}

/// To the connected peer, without a completion.
pub fn post_unsignaled(qp: &Qp, op: SendOp, sges: &[Sge]) {
    let request = SendRequest {
        signaled: false,
        ..request(0, op, sges, SendTarget::Connection)
    };
    qp.post_send(&request).unwrap();
}

pub fn request(wr_id: u64, op: SendOp, sges: &[Sge], target: SendTarget) -> SendRequest<'_> {
    SendRequest {
        wr_id,
        op,
        data: SendData::Sges(sges),
        signaled: true,
        solicited: false,
        fence: false,
        target,
    }
}

/// To a queue pair that is not connected.
pub fn datagram_to(address: AddressVector, qp: Qpn, qkey: u32) -> SendTarget {
    SendTarget::Datagram { address, qp, qkey }
}

pub fn post_recv(qp: &Qp, wr_id: u64, sges: &[Sge]) {
    qp.post_recv(&RecvRequest { wr_id, sges }).unwrap();
}
