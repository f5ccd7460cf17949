//! MRA and REJ: wait, and no.

use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use crate::bytes::{Raw, array, get16, get32, put, put_array};
use crate::reason::RejectReason;

const STAGE: usize = 32;
const SERVICE_TIMEOUT: usize = 33;
const MRA_PRIVATE_DATA: usize = 34;
const INFO_LEN: usize = 33;
const REASON: usize = 34;
const INFO: usize = 36;
const REJ_PRIVATE_DATA: usize = 108;

/// Which message an answer is about (IBTA vol 1, tables 109 and 110).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The REQ.
    Request = 0,
    /// The REP.
    Reply = 1,
    /// None of these (REJ), or the LAP (MRA).
    Other = 2,
}

impl Stage {
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Request,
            1 => Self::Reply,
            _ => Self::Other,
        }
    }
}

/// Message receipt acknowledgement: the answer will take longer (IBTA vol 1, 12.6.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// What was received.
    pub stage: Stage,
    /// How much longer: 4.096 us times two to this power (5 bits).
    pub service_timeout: u8,
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 222;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            stage: Stage::from_bits(raw[STAGE] >> 6),
            service_timeout: raw[SERVICE_TIMEOUT] >> 3,
            private_data: array(raw, MRA_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        raw[STAGE] = (self.stage as u8) << 6;
        raw[SERVICE_TIMEOUT] = self.service_timeout << 3;
        put_array(raw, MRA_PRIVATE_DATA, &self.private_data);
    }
}

/// Reject (IBTA vol 1, 12.6.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The sender's communication ID; 0 if it has none.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// What is rejected.
    pub stage: Stage,
    /// Bytes of additional information that are used (7 bits).
    pub info_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// Additional information on the reason.
    pub info: [u8; Self::INFO_LEN],
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Rej {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 148;
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            stage: Stage::from_bits(raw[STAGE] >> 6),
            info_len: raw[INFO_LEN] >> 1,
            reason: RejectReason(get16(raw, REASON)),
            info: array(raw, INFO),
            private_data: array(raw, REJ_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        raw[STAGE] = (self.stage as u8) << 6;
        raw[INFO_LEN] = self.info_len << 1;
        put(raw, REASON, 2, self.reason.0.into());
        put_array(raw, INFO, &self.info);
        put_array(raw, REJ_PRIVATE_DATA, &self.private_data);
    }
}
