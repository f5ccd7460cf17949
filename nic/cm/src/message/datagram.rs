//! SIDR_REQ and SIDR_REP: which queue pair serves a service ID with datagrams.

use urxe_wire::Qpn;

use crate::bytes::{Raw, array, get, get16, get24, get32, put, put_array};
use crate::reason::SidrStatus;
use crate::service::ServiceId;

const REQUEST_ID: usize = 24;
const PKEY: usize = 28;
const REQ_SERVICE_ID: usize = 32;
const REQ_PRIVATE_DATA: usize = 40;
const STATUS: usize = 28;
const INFO_LEN: usize = 29;
const QPN: usize = 32;
const REP_SERVICE_ID: usize = 36;
const QKEY: usize = 44;
const INFO: usize = 48;
const REP_PRIVATE_DATA: usize = 120;

/// Service ID resolution request (IBTA vol 1, 12.11.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// The requester's number for it.
    pub request_id: u32,
    /// Partition.
    pub pkey: u16,
    /// What is wanted.
    pub service_id: ServiceId,
    /// For the program; with RDMA IP CM it begins with an [`IpHeader`](crate::IpHeader).
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl SidrReq {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 216;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            request_id: get32(raw, REQUEST_ID),
            pkey: get16(raw, PKEY),
            service_id: ServiceId(get(raw, REQ_SERVICE_ID, 8)),
            private_data: array(raw, REQ_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, REQUEST_ID, 4, self.request_id.into());
        put(raw, PKEY, 2, self.pkey.into());
        put(raw, REQ_SERVICE_ID, 8, self.service_id.0);
        put_array(raw, REQ_PRIVATE_DATA, &self.private_data);
    }
}

/// Service ID resolution response (IBTA vol 1, 12.11.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The requester's number.
    pub request_id: u32,
    /// Whether it was resolved.
    pub status: SidrStatus,
    /// Bytes of additional information that are used.
    pub info_len: u8,
    /// The queue pair.
    pub qpn: Qpn,
    /// What was wanted.
    pub service_id: ServiceId,
    /// The queue pair's Q_Key.
    pub qkey: u32,
    /// Additional information on the status.
    pub info: [u8; Self::INFO_LEN],
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl SidrRep {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 136;
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            request_id: get32(raw, REQUEST_ID),
            status: SidrStatus(raw[STATUS]),
            info_len: raw[INFO_LEN],
            qpn: Qpn::new(get24(raw, QPN)),
            service_id: ServiceId(get(raw, REP_SERVICE_ID, 8)),
            qkey: get32(raw, QKEY),
            info: array(raw, INFO),
            private_data: array(raw, REP_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, REQUEST_ID, 4, self.request_id.into());
        raw[STATUS] = self.status.0;
        raw[INFO_LEN] = self.info_len;
        put(raw, QPN, 3, self.qpn.get().into());
        put(raw, REP_SERVICE_ID, 8, self.service_id.0);
        put(raw, QKEY, 4, self.qkey.into());
        put_array(raw, INFO, &self.info);
        put_array(raw, REP_PRIVATE_DATA, &self.private_data);
    }
}
