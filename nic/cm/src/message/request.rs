//! REQ: a request for a connection.

use urxe_wire::{Gid, Mtu, Psn, Qpn};

use super::ids::LOCAL_COMM_ID;
use crate::bytes::{Raw, array, get, get16, get24, get32, put, put_array};
use crate::service::ServiceId;

const SERVICE_ID: usize = 32;
const CA_GUID: usize = 40;
const QKEY: usize = 52;
const QPN: usize = 56;
const RESPONDER_RESOURCES: usize = 59;
const INITIATOR_DEPTH: usize = 63;
const REMOTE_TIMEOUT_AND_SERVICE: usize = 67;
const STARTING_PSN: usize = 68;
const LOCAL_TIMEOUT_AND_RETRIES: usize = 71;
const PKEY: usize = 72;
const MTU_AND_RNR: usize = 74;
const RETRIES_AND_SRQ: usize = 75;
const LOCAL_LID: usize = 76;
const REMOTE_LID: usize = 78;
const LOCAL_GID: usize = 80;
const REMOTE_GID: usize = 96;
const FLOW_AND_RATE: usize = 112;
const TRAFFIC_CLASS: usize = 116;
const HOP_LIMIT: usize = 117;
const SERVICE_LEVEL: usize = 118;
const ACK_TIMEOUT: usize = 119;
const PRIVATE_DATA: usize = 164;

/// LIDs mean nothing on Ethernet; Linux writes the permissive one.
const NO_LID: u64 = 0xffff;

/// Transport service of the connection (IBTA vol 1, table 107, and A14 for XRC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
    /// Another one, by its number (reliable datagram is 2).
    Other(u8),
}

impl Service {
    /// From the two bits of the transport type and the three of its extension.
    const fn from_bits(bits: u8, extension: u8) -> Self {
        match (bits, extension) {
            (0, _) => Self::Rc,
            (1, _) => Self::Uc,
            (3, 1) => Self::Xrc,
            _ => Self::Other(bits),
        }
    }

    const fn bits(self) -> (u8, u8) {
        match self {
            Self::Rc => (0, 0),
            Self::Uc => (1, 0),
            Self::Xrc => (3, 1),
            Self::Other(bits) => (bits & 3, 0),
        }
    }
}

/// Request for a connection (IBTA vol 1, 12.6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// The requester's communication ID.
    pub local_comm_id: u32,
    /// What is wanted.
    pub service_id: ServiceId,
    /// The requester's device.
    pub ca_guid: u64,
    /// Q_Key, for reliable datagrams only.
    pub qkey: u32,
    /// The requester's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the requester wants to have outstanding at the recipient.
    pub responder_resources: u8,
    /// READs and atomics that the requester takes from the recipient.
    pub initiator_depth: u8,
    /// How long the recipient may take to answer: 4.096 us times two to this power (5 bits).
    pub remote_response_timeout: u8,
    /// Transport service.
    pub service: Service,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// PSN of the first packet that the recipient shall send.
    pub starting_psn: Psn,
    /// How long the requester takes to answer, as `remote_response_timeout`.
    pub local_response_timeout: u8,
    /// Transport retries of the recipient (3 bits).
    pub retry_count: u8,
    /// Partition.
    pub pkey: u16,
    /// Path MTU; `None` for a code that is not defined.
    pub path_mtu: Option<Mtu>,
    /// RNR retries of the recipient (3 bits); 7 is for ever.
    pub rnr_retry_count: u8,
    /// How often a message is repeated (4 bits).
    pub max_retries: u8,
    /// Whether the requester's queue pair has a shared receive queue.
    pub srq: bool,
    /// Address of the requester.
    pub local_gid: Gid,
    /// Address of the recipient.
    pub remote_gid: Gid,
    /// Flow label (20 bits).
    pub flow_label: u32,
    /// Rate code (6 bits); 0 is any.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level (4 bits).
    pub service_level: u8,
    /// The requester's local ACK timeout (5 bits).
    pub ack_timeout: u8,
    /// For the program; with RDMA IP CM it begins with an [`IpHeader`](crate::IpHeader).
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 92;

    pub(crate) fn parse(raw: &Raw) -> Self {
        let service = raw[REMOTE_TIMEOUT_AND_SERVICE];
        let retries = raw[RETRIES_AND_SRQ];
        let flow = get32(raw, FLOW_AND_RATE);
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            service_id: ServiceId(get(raw, SERVICE_ID, 8)),
            ca_guid: get(raw, CA_GUID, 8),
            qkey: get32(raw, QKEY),
            qpn: Qpn::new(get24(raw, QPN)),
            responder_resources: raw[RESPONDER_RESOURCES],
            initiator_depth: raw[INITIATOR_DEPTH],
            remote_response_timeout: service >> 3,
            service: Service::from_bits(service >> 1 & 3, retries & 7),
            flow_control: service & 1 != 0,
            starting_psn: Psn::new(get24(raw, STARTING_PSN)),
            local_response_timeout: raw[LOCAL_TIMEOUT_AND_RETRIES] >> 3,
            retry_count: raw[LOCAL_TIMEOUT_AND_RETRIES] & 7,
            pkey: get16(raw, PKEY),
            path_mtu: Mtu::from_code(raw[MTU_AND_RNR] >> 4),
            rnr_retry_count: raw[MTU_AND_RNR] & 7,
            max_retries: retries >> 4,
            srq: retries & 8 != 0,
            local_gid: Gid(array(raw, LOCAL_GID)),
            remote_gid: Gid(array(raw, REMOTE_GID)),
            flow_label: flow >> 12,
            packet_rate: (flow & 0x3f) as u8,
            traffic_class: raw[TRAFFIC_CLASS],
            hop_limit: raw[HOP_LIMIT],
            service_level: raw[SERVICE_LEVEL] >> 4,
            ack_timeout: raw[ACK_TIMEOUT] >> 3,
            private_data: array(raw, PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        let (service, extension) = self.service.bits();
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, SERVICE_ID, 8, self.service_id.0);
        put(raw, CA_GUID, 8, self.ca_guid);
        put(raw, QKEY, 4, self.qkey.into());
        put(raw, QPN, 3, self.qpn.get().into());
        raw[RESPONDER_RESOURCES] = self.responder_resources;
        raw[INITIATOR_DEPTH] = self.initiator_depth;
        raw[REMOTE_TIMEOUT_AND_SERVICE] =
            self.remote_response_timeout << 3 | service << 1 | u8::from(self.flow_control);
        put(raw, STARTING_PSN, 3, self.starting_psn.get().into());
        raw[LOCAL_TIMEOUT_AND_RETRIES] = self.local_response_timeout << 3 | self.retry_count & 7;
        put(raw, PKEY, 2, self.pkey.into());
        raw[MTU_AND_RNR] = self.path_mtu.map_or(0, Mtu::code) << 4 | self.rnr_retry_count & 7;
        raw[RETRIES_AND_SRQ] = self.max_retries << 4 | u8::from(self.srq) << 3 | extension;
        put(raw, LOCAL_LID, 2, NO_LID);
        put(raw, REMOTE_LID, 2, NO_LID);
        put_array(raw, LOCAL_GID, &self.local_gid.0);
        put_array(raw, REMOTE_GID, &self.remote_gid.0);
        let flow = self.flow_label << 12 | u32::from(self.packet_rate & 0x3f);
        put(raw, FLOW_AND_RATE, 4, flow.into());
        raw[TRAFFIC_CLASS] = self.traffic_class;
        raw[HOP_LIMIT] = self.hop_limit;
        raw[SERVICE_LEVEL] = self.service_level << 4;
        raw[ACK_TIMEOUT] = self.ack_timeout << 3;
        put_array(raw, PRIVATE_DATA, &self.private_data);
    }
}
