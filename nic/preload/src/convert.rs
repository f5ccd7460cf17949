//! Between C and the device: numbers, flags, attributes.
use std::ffi::c_int;

use urxe_device::{
    Access, AddressVector, AttrMask, Attributes, Capacity, Completion, CompletionKind,
    DatagramHeader, Error, Gid, Mtu, Nic, Placement, PostError, Psn, QpEvent, QpState, Qpn,
    QueueSide, Sge, WcStatus,
};

use crate::abi::*;
use crate::errno::{Errno, Outcome};

/// The error number for what the device says.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno(error.errno())
}

/// The error number for a work request that was not taken.
pub(crate) fn post_errno(error: PostError) -> Errno {
    errno(&Error::Post(error))
}

/// Access flags of a registration: the device's have the same bits.
pub(crate) fn access(flags: u32) -> Outcome<Access> {
    Access::from_bits(flags).ok_or(Errno::INVAL)
}

/// An element of a scatter/gather list.
pub(crate) fn sge(sge: &ibv_sge) -> Sge {
    Sge {
        addr: sge.addr,
        len: sge.length,
        lkey: sge.lkey,
    }
}

/// The bytes of inline data: no key, the program's own memory.
///
/// # Safety
/// The element names readable memory of the process.
pub(crate) unsafe fn bytes(sge: &Sge) -> &[u8] {
    if sge.len == 0 {
        return &[];
    }
    let start = std::ptr::with_exposed_provenance(sge.addr as usize);
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(start, sge.len as usize) }
}

pub(crate) fn mtu(mtu: Mtu) -> ibv_mtu {
    match mtu {
        Mtu::B256 => IBV_MTU_256,
        Mtu::B512 => IBV_MTU_512,
        Mtu::B1024 => IBV_MTU_1024,
        Mtu::B2048 => IBV_MTU_2048,
        Mtu::B4096 => IBV_MTU_4096,
    }
}

fn mtu_from_c(mtu: ibv_mtu) -> Outcome<Mtu> {
    Ok(match mtu {
        IBV_MTU_256 => Mtu::B256,
        IBV_MTU_512 => Mtu::B512,
        IBV_MTU_1024 => Mtu::B1024,
        IBV_MTU_2048 => Mtu::B2048,
        IBV_MTU_4096 => Mtu::B4096,
        _ => return Err(Errno::INVAL),
    })
}

pub(crate) fn status(status: WcStatus) -> ibv_wc_status {
    match status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::LocalLength => IBV_WC_LOC_LEN_ERR,
        WcStatus::LocalQpOperation => IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocalProtection => IBV_WC_LOC_PROT_ERR,
        WcStatus::WrFlush => IBV_WC_WR_FLUSH_ERR,
        WcStatus::MwBind => IBV_WC_MW_BIND_ERR,
        WcStatus::BadResponse => IBV_WC_BAD_RESP_ERR,
        WcStatus::LocalAccess => IBV_WC_LOC_ACCESS_ERR,
        WcStatus::RemoteInvalidRequest => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemoteAccess => IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemoteOperation => IBV_WC_REM_OP_ERR,
        WcStatus::RetryExceeded => IBV_WC_RETRY_EXC_ERR,
        WcStatus::RnrRetryExceeded => IBV_WC_RNR_RETRY_EXC_ERR,
    }
}

/// `IBV_WC_FLUSH`, which libibverbs 44 does not have.
const WC_FLUSH: ibv_wc_opcode = 8;

fn opcode(kind: CompletionKind) -> ibv_wc_opcode {
    match kind {
        CompletionKind::Send => IBV_WC_SEND,
        CompletionKind::Write => IBV_WC_RDMA_WRITE,
        CompletionKind::Read => IBV_WC_RDMA_READ,
        CompletionKind::CompareSwap => IBV_WC_COMP_SWAP,
        CompletionKind::FetchAdd => IBV_WC_FETCH_ADD,
        CompletionKind::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        CompletionKind::Flush => WC_FLUSH,
        CompletionKind::LocalInvalidate => IBV_WC_LOCAL_INV,
        CompletionKind::BindWindow => IBV_WC_BIND_MW,
        CompletionKind::Recv => IBV_WC_RECV,
        CompletionKind::RecvWriteImm => IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// What the service level of a received datagram tells: RoCE v1, RoCE v2 over IPv6 or IPv4.
const SL_ROCE_V1: u8 = 0;
const SL_IPV6: u8 = 1;
const SL_IPV4: u8 = 2;

/// A completion as `ibv_poll_cq` returns it.
pub(crate) fn work_completion(completion: &Completion) -> ibv_wc {
    let mut wc = ibv_wc {
        wr_id: completion.wr_id,
        status: status(completion.status),
        opcode: opcode(completion.kind),
        byte_len: completion.byte_len,
        qp_num: completion.qp.get(),
        ..ibv_wc::default()
    };
    if let Some(immediate) = completion.immediate {
        wc.__bindgen_anon_1.imm_data = u32::from_ne_bytes(immediate.0);
        wc.wc_flags |= IBV_WC_WITH_IMM;
    } else if let Some(rkey) = completion.invalidated_rkey {
        wc.__bindgen_anon_1.invalidated_rkey = rkey;
        wc.wc_flags |= IBV_WC_WITH_INV;
    }
    // Every RoCEv2 packet has a header that routes it, and Linux rxe and mlx5 say so of every
    // message, not only of datagrams, before which it is placed.
    if completion.side() == QueueSide::Recv && completion.status == WcStatus::Success {
        wc.wc_flags |= IBV_WC_GRH;
    }
    if let Some(source) = completion.source_qp {
        wc.src_qp = source.get();
        // There is no service level in RoCE. Hardware tells here which header came before the
        // datagram, and UCX goes by it.
        wc.sl = match completion.header {
            DatagramHeader::RoceV1 => SL_ROCE_V1,
            DatagramHeader::Ipv6 => SL_IPV6,
            DatagramHeader::Ipv4 => SL_IPV4,
        };
    }
    wc
}

/// The type of an event of a queue pair.
pub(crate) fn qp_event(event: QpEvent) -> ibv_event_type {
    match event {
        QpEvent::CommunicationEstablished => IBV_EVENT_COMM_EST,
        QpEvent::SendQueueDrained => IBV_EVENT_SQ_DRAINED,
        QpEvent::RequestError => IBV_EVENT_QP_REQ_ERR,
        QpEvent::AccessError => IBV_EVENT_QP_ACCESS_ERR,
        QpEvent::Fatal => IBV_EVENT_QP_FATAL,
        QpEvent::LastWqeReached => IBV_EVENT_QP_LAST_WQE_REACHED,
    }
}

/// Bytes of a scatter/gather element.
const SGE_BYTES: u32 = size_of::<ibv_sge>() as u32;

pub(crate) fn capacity(cap: &ibv_qp_cap) -> Capacity {
    Capacity {
        send_requests: cap.max_send_wr,
        recv_requests: cap.max_recv_wr,
        send_sges: cap.max_send_sge,
        recv_sges: cap.max_recv_sge,
        // As much as the scatter/gather elements of a request take: providers round up so, and
        // programs send a few bytes inline that they never asked for (rdma_xclient).
        inline_bytes: cap
            .max_inline_data
            .max(cap.max_send_sge.saturating_mul(SGE_BYTES)),
    }
}

pub(crate) fn c_capacity(capacity: &Capacity) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capacity.send_requests,
        max_recv_wr: capacity.recv_requests,
        max_send_sge: capacity.send_sges,
        max_recv_sge: capacity.recv_sges,
        max_inline_data: capacity.inline_bytes,
    }
}

fn state_from_c(state: ibv_qp_state) -> Outcome<QpState> {
    Ok(match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::ReadyToReceive,
        IBV_QPS_RTS => QpState::ReadyToSend,
        IBV_QPS_SQD => QpState::SendQueueDrain,
        IBV_QPS_SQE => QpState::SendQueueError,
        IBV_QPS_ERR => QpState::Error,
        _ => return Err(Errno::INVAL),
    })
}

fn c_state(state: QpState) -> ibv_qp_state {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::ReadyToReceive => IBV_QPS_RTR,
        QpState::ReadyToSend => IBV_QPS_RTS,
        QpState::SendQueueDrain => IBV_QPS_SQD,
        QpState::SendQueueError => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    }
}

/// A mask of `ibv_modify_qp`: the device's has the same bits.
pub(crate) fn attribute_mask(mask: c_int) -> Outcome<AttrMask> {
    AttrMask::from_bits(mask.cast_unsigned()).ok_or(Errno::INVAL)
}

/// The attributes that `mask` names; the others are not looked at, they may be uninitialised.
pub(crate) fn attributes(attr: &ibv_qp_attr, mask: AttrMask, nic: &Nic) -> Outcome<Attributes> {
    let mut to = Attributes::new();
    if mask.contains(AttrMask::STATE) {
        to.state = state_from_c(attr.qp_state)?;
    }
    if mask.contains(AttrMask::CURRENT_STATE) {
        to.current_state = state_from_c(attr.cur_qp_state)?;
    }
    if mask.contains(AttrMask::ACCESS_FLAGS) {
        let grants = |flag| attr.qp_access_flags & flag != 0;
        to.allow_remote_write = grants(IBV_ACCESS_REMOTE_WRITE);
        to.allow_remote_read = grants(IBV_ACCESS_REMOTE_READ);
        to.allow_remote_atomic = grants(IBV_ACCESS_REMOTE_ATOMIC);
        to.allow_flush = if grants(IBV_ACCESS_FLUSH_GLOBAL) {
            Placement::GLOBAL
        } else {
            Placement::empty()
        };
    }
    if mask.contains(AttrMask::PATH_MTU) {
        to.path_mtu = mtu_from_c(attr.path_mtu)?;
    }
    if mask.contains(AttrMask::ADDRESS_VECTOR) {
        put_address(&mut to, &attr.ah_attr, nic)?;
    }
    to.pkey_index = attr.pkey_index;
    to.port = attr.port_num;
    to.qkey = attr.qkey;
    to.dest_qp = Qpn::new(attr.dest_qp_num);
    to.rq_psn = Psn::new(attr.rq_psn);
    to.sq_psn = Psn::new(attr.sq_psn);
    to.max_rd_atomic = attr.max_rd_atomic;
    to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    to.min_rnr_timer = attr.min_rnr_timer;
    to.timeout = attr.timeout;
    to.retry_count = attr.retry_cnt;
    to.rnr_retry = attr.rnr_retry;
    if mask.contains(AttrMask::SQD_NOTIFY) {
        to.sqd_notify = attr.en_sqd_async_notify != 0;
    }
    Ok(to)
}

/// Takes the peer's address.
fn put_address(to: &mut Attributes, address: &ibv_ah_attr, nic: &Nic) -> Outcome<()> {
    let address = address_vector(address, nic)?;
    to.dest_gid = address.dest_gid;
    to.source_gid_index = address.source_gid_index;
    to.traffic_class = address.traffic_class;
    to.hop_limit = address.hop_limit;
    to.flow_label = address.flow_label;
    to.service_level = address.service_level;
    Ok(())
}

/// An address: that of the GRH, or the one that a LID of ours stands for.
pub(crate) fn address_vector(address: &ibv_ah_attr, nic: &Nic) -> Outcome<AddressVector> {
    if address.port_num != crate::port::PORT {
        return Err(Errno::INVAL);
    }
    if address.is_global == 0 {
        let known = urxe_device::address_of_lid(&nic.gids(), address.dlid);
        return known.ok_or_else(|| {
            log::info!(
                "the program names a peer by LID {:#x}, which only urxe ports with an IPv4 address have; RoCE \
                 needs a GID (option -g of the pingpong programs, -x of perftest)",
                address.dlid
            );
            Errno::INVAL
        });
    }
    Ok(AddressVector {
        // SAFETY: both members of the union are 16 bytes of any value.
        dest_gid: Gid(unsafe { address.grh.dgid.raw }),
        source_gid_index: address.grh.sgid_index,
        traffic_class: address.grh.traffic_class,
        hop_limit: address.grh.hop_limit,
        flow_label: address.grh.flow_label,
        service_level: address.sl,
    })
}

/// All attributes, as `ibv_query_qp` returns them.
pub(crate) fn c_attributes(from: &Attributes, cap: ibv_qp_cap) -> ibv_qp_attr {
    let access = [
        (from.allow_remote_write, IBV_ACCESS_REMOTE_WRITE),
        (from.allow_remote_read, IBV_ACCESS_REMOTE_READ),
        (from.allow_remote_atomic, IBV_ACCESS_REMOTE_ATOMIC),
        (
            from.allow_flush.contains(Placement::GLOBAL),
            IBV_ACCESS_FLUSH_GLOBAL,
        ),
    ];
    ibv_qp_attr {
        qp_state: c_state(from.state),
        cur_qp_state: c_state(from.current_state),
        path_mtu: mtu(from.path_mtu),
        path_mig_state: IBV_MIG_MIGRATED,
        qkey: from.qkey,
        rq_psn: from.rq_psn.get(),
        sq_psn: from.sq_psn.get(),
        dest_qp_num: from.dest_qp.get(),
        qp_access_flags: access
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| flag)
            .sum(),
        cap,
        ah_attr: c_address(from),
        pkey_index: from.pkey_index,
        en_sqd_async_notify: from.sqd_notify.into(),
        sq_draining: from.is_draining.into(),
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port,
        timeout: from.timeout,
        retry_cnt: from.retry_count,
        rnr_retry: from.rnr_retry,
        ..ibv_qp_attr::default()
    }
}

fn c_address(from: &Attributes) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: from.dest_gid.0,
            },
            flow_label: from.flow_label,
            sgid_index: from.source_gid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        sl: from.service_level,
        is_global: (!from.dest_gid.is_zero()).into(),
        port_num: from.port,
        ..ibv_ah_attr::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_received_message_had_a_route_header_on_any_transport() {
        use CompletionKind as Kind;
        let flags = |kind, status, immediate| {
            let completion = Completion {
                wr_id: 1,
                status,
                kind,
                byte_len: 0,
                qp: Qpn::new(5),
                immediate,
                invalidated_rkey: None,
                solicited: false,
                source_qp: None,
                header: DatagramHeader::Ipv6,
            };
            work_completion(&completion).wc_flags
        };
        let immediate = Some(urxe_device::Immediate([0; 4]));
        let ok = WcStatus::Success;
        assert_eq!(flags(Kind::Recv, ok, None), IBV_WC_GRH);
        assert_eq!(
            flags(Kind::RecvWriteImm, ok, immediate),
            IBV_WC_GRH | IBV_WC_WITH_IMM
        );
        assert_eq!(flags(Kind::Recv, WcStatus::WrFlush, None), 0);
        assert_eq!(flags(Kind::Send, ok, None), 0);
    }
}
