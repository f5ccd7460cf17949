//! Structures of RDMA-CM's kernel interface, from and to the device's.

use std::net::SocketAddr;

use urxe_device::{
    CmAddress, CmEvent, CmInfo, CmParam, CmQpAttributes, CmQpType, ConnectionParam, Gid,
};

use crate::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND,
};
use crate::cm_abi::*;
use crate::device;
use crate::errno::{Errno, Outcome};

/// "Exactly", of a selector in a path record (IBTA vol 1, 15.2.5.16).
pub(crate) const EXACTLY: u8 = 2;

/// Code of a packet's life time on Ethernet, as Linux has it.
pub(crate) const PACKET_LIFE_TIME: u8 = 16;

/// The partition of every RoCE device.
pub(crate) const PKEY: u16 = 0xffff;

pub(crate) fn qp_type(number: u32) -> Outcome<CmQpType> {
    Ok(match number {
        IBV_QPT_RC => CmQpType::Rc,
        IBV_QPT_UC => CmQpType::Uc,
        IBV_QPT_UD => CmQpType::Ud,
        IBV_QPT_XRC_SEND => CmQpType::XrcInitiator,
        IBV_QPT_XRC_RECV => CmQpType::XrcTarget,
        _ => return Err(Errno::INVAL),
    })
}

/// The bytes of an address in a structure.
pub(crate) fn bytes_mut<T>(address: &mut T) -> &mut [u8] {
    // SAFETY: only called with generated structures of addresses and parameters, which are plain
    // bytes whatever they are made of.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(address).cast(), size_of::<T>()) }
}

/// The first `size` bytes of an address in a structure.
pub(crate) fn raw<T>(address: &T, size: u16) -> Outcome<&[u8]> {
    // SAFETY: as for `bytes_mut`.
    let bytes: &[u8] =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(address).cast(), size_of::<T>()) };
    bytes
        .get(..size.into())
        .filter(|raw| raw.len() >= 8)
        .ok_or(Errno::INVAL)
}

pub(crate) fn address_in<T>(address: &T) -> Outcome<Option<SocketAddr>> {
    socket_address(raw(address, size_of::<T>() as u16)?)
}

/// Writes an address, or nothing but zeros; returns its length.
pub(crate) fn put_address(address: Option<SocketAddr>, to: &mut [u8]) -> u16 {
    address.map_or(0, |address| put_socket_address(address, to))
}

pub(crate) fn gid(address: Option<SocketAddr>) -> [u8; 16] {
    address.map_or([0; 16], |address| Gid::from(address.ip()).0)
}

pub(crate) fn native(address: Option<SocketAddr>) -> NativeAddress {
    NativeAddress {
        family: AF_IB,
        pkey: PKEY.to_be(),
        address: gid(address),
        ..NativeAddress::default()
    }
}

/// What librdmacm finds a device by, and its path MTU.
pub(crate) struct About {
    pub(crate) guid: u64,
    pub(crate) index: u32,
    pub(crate) mtu: u8,
}

impl About {
    pub(crate) fn of(info: &CmInfo) -> Option<Self> {
        info.device.as_ref().map(|device| Self {
            guid: u64::from_ne_bytes(device.guid),
            index: device::number(device).cast_unsigned(),
            mtu: device.active_mtu().code(),
        })
    }
}

pub(crate) fn addresses(info: &CmInfo) -> rdma_ucm_query_addr_resp {
    let mut answer = rdma_ucm_query_addr_resp::default();
    if let Some(about) = About::of(info) {
        answer.node_guid = about.guid;
        answer.ibdev_index = about.index;
        answer.port_num = 1;
        answer.pkey = PKEY.to_be();
    }
    answer
}

/// The path in the form of the subnet administrator (IBTA vol 1, 15.2.5.16).
pub(crate) fn path_answer(info: &CmInfo) -> PathAnswer {
    let mut record = [0u8; 64];
    record[8..24].copy_from_slice(&gid(info.destination));
    record[24..40].copy_from_slice(&gid(info.source));
    record[47] = CmAddress::HOP_LIMIT;
    record[48] = info.traffic_class;
    record[49] = 0x80 | 1;
    record[50..52].copy_from_slice(&PKEY.to_be_bytes());
    let mtu = About::of(info).map_or(0, |about| about.mtu);
    for (at, value) in [(54, mtu), (55, 0), (56, PACKET_LIFE_TIME)] {
        record[at] = EXACTLY << 6 | value;
    }
    let mut path = ib_path_rec_data {
        flags: IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL,
        ..ib_path_rec_data::default()
    };
    for (word, bytes) in path.path_rec.iter_mut().zip(record.chunks_exact(4)) {
        *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    PathAnswer {
        path_count: info.has_route.into(),
        reserved: 0,
        path,
    }
}

pub(crate) fn connection_param(from: &rdma_ucm_conn_param) -> ConnectionParam {
    ConnectionParam {
        qp_num: from.qp_num,
        qkey: from.qkey,
        private_data: from.private_data[..from.private_data_len.into()].to_vec(),
        responder_resources: from.responder_resources,
        initiator_depth: from.initiator_depth,
        flow_control: from.flow_control != 0,
        retry_count: from.retry_count,
        rnr_retry_count: from.rnr_retry_count,
        srq: from.srq != 0,
    }
}

/// Copies private data, and returns its length.
pub(crate) fn put_private(to: &mut [u8; 256], data: &[u8]) -> u8 {
    to[..data.len()].copy_from_slice(data);
    u8::try_from(data.len()).unwrap_or(u8::MAX)
}

pub(crate) fn event_answer(event: &CmEvent) -> rdma_ucm_event_resp {
    let mut answer = rdma_ucm_event_resp {
        uid: event.uid,
        id: event.id,
        event: event.kind as u32,
        status: event.status.cast_unsigned(),
        ..rdma_ucm_event_resp::default()
    };
    match &event.param {
        CmParam::None => {}
        CmParam::Connection(from) => {
            let mut conn = rdma_ucm_conn_param {
                qp_num: from.qp_num,
                srq: from.srq.into(),
                responder_resources: from.responder_resources,
                initiator_depth: from.initiator_depth,
                flow_control: from.flow_control.into(),
                retry_count: from.retry_count,
                rnr_retry_count: from.rnr_retry_count,
                ..rdma_ucm_conn_param::default()
            };
            conn.private_data_len = put_private(&mut conn.private_data, &from.private_data);
            answer.param.conn = conn;
        }
        CmParam::Datagram(from) => {
            let mut ud = rdma_ucm_ud_param {
                qp_num: from.qp_num,
                qkey: from.qkey,
                ah_attr: from
                    .address
                    .as_ref()
                    .map(address_vector)
                    .unwrap_or_default(),
                ..rdma_ucm_ud_param::default()
            };
            ud.private_data_len = put_private(&mut ud.private_data, &from.private_data);
            answer.param.ud = ud;
        }
        CmParam::Argument(argument) => {
            bytes_mut(&mut answer.param)[..8].copy_from_slice(&argument.to_ne_bytes());
        }
    }
    answer
}

pub(crate) fn address_vector(from: &CmAddress) -> ib_uverbs_ah_attr {
    let mut to = ib_uverbs_ah_attr {
        is_global: 1,
        port_num: 1,
        ..ib_uverbs_ah_attr::default()
    };
    to.grh.dgid = from.dest_gid.0;
    to.grh.sgid_index = from.source_gid_index;
    to.grh.hop_limit = from.hop_limit;
    to.grh.traffic_class = from.traffic_class;
    to
}

/// What the queue pair of an iWARP device is set to; the mask.
fn put_access(to: &mut ib_uverbs_qp_attr, has_state: bool, allow_access: bool) -> u32 {
    if allow_access {
        to.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    match has_state {
        true => IBV_QP_PORT | IBV_QP_STATE | IBV_QP_ACCESS_FLAGS,
        false => IBV_QP_PORT,
    }
}

pub(crate) fn qp_attributes(from: &CmQpAttributes) -> ib_uverbs_qp_attr {
    let mut to = ib_uverbs_qp_attr {
        port_num: 1,
        ..ib_uverbs_qp_attr::default()
    };
    let initial = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    to.qp_attr_mask = match from {
        CmQpAttributes::Unconnected { qkey: Some(qkey) } => {
            to.qkey = *qkey;
            initial | IBV_QP_QKEY
        }
        CmQpAttributes::Stream {
            has_state,
            allow_access,
        } => put_access(&mut to, *has_state, *allow_access),
        CmQpAttributes::Unconnected { qkey: None } => initial | IBV_QP_ACCESS_FLAGS,
        CmQpAttributes::Init { allow_read } => {
            to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
            if *allow_read {
                to.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            }
            initial | IBV_QP_ACCESS_FLAGS
        }
        CmQpAttributes::ReadyToReceive {
            address,
            path_mtu,
            dest_qp,
            rq_psn,
            max_dest_rd_atomic,
        } => {
            to.ah_attr = address_vector(address);
            to.path_mtu = path_mtu.code().into();
            to.dest_qp_num = dest_qp.get();
            to.rq_psn = rq_psn.get();
            let connected =
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            match max_dest_rd_atomic {
                Some(count) => {
                    to.max_dest_rd_atomic = *count;
                    connected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
                }
                None => connected,
            }
        }
        CmQpAttributes::ReadyToSend {
            sq_psn,
            reliable,
            timeout,
        } => {
            to.sq_psn = sq_psn.get();
            let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
            if let Some(reliable) = reliable {
                to.max_rd_atomic = reliable.max_rd_atomic;
                to.retry_cnt = reliable.retry_count;
                to.rnr_retry = reliable.rnr_retry_count;
                mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
            }
            if let Some(timeout) = timeout {
                to.timeout = *timeout;
                mask |= IBV_QP_TIMEOUT;
            }
            mask
        }
    };
    to
}
