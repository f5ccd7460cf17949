//! REP and RTU: yes, and ready.

use urxe_wire::{Psn, Qpn};

use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use crate::bytes::{Raw, array, get, get24, get32, put, put_array};

const QKEY: usize = 32;
const QPN: usize = 36;
const EECN: usize = 40;
const STARTING_PSN: usize = 44;
const RESPONDER_RESOURCES: usize = 48;
const INITIATOR_DEPTH: usize = 49;
const ACK_DELAY: usize = 50;
const RNR_AND_SRQ: usize = 51;
const CA_GUID: usize = 52;
const REP_PRIVATE_DATA: usize = 60;
const RTU_PRIVATE_DATA: usize = 32;

/// Reply to a request for a connection (IBTA vol 1, 12.6.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The replier's communication ID.
    pub local_comm_id: u32,
    /// The requester's.
    pub remote_comm_id: u32,
    /// Q_Key, for reliable datagrams only.
    pub qkey: u32,
    /// The replier's queue pair.
    pub qpn: Qpn,
    /// Its end-to-end context, which XRC uses to tell the queue pair that receives.
    pub eecn: u32,
    /// PSN of the first packet that the requester shall send.
    pub starting_psn: Psn,
    /// READs and atomics that the replier wants to have outstanding at the requester.
    pub responder_resources: u8,
    /// READs and atomics that the replier takes from the requester.
    pub initiator_depth: u8,
    /// How long the replier's device takes to acknowledge, 4.096 us times two to this power (5
    /// bits).
    pub ack_delay: u8,
    /// Whether an alternate path was accepted (2 bits; 0 is yes).
    pub failover: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retries of the requester (3 bits); 7 is for ever.
    pub rnr_retry_count: u8,
    /// Whether the replier's queue pair has a shared receive queue.
    pub srq: bool,
    /// The replier's device.
    pub ca_guid: u64,
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 196;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            qkey: get32(raw, QKEY),
            qpn: Qpn::new(get24(raw, QPN)),
            eecn: get24(raw, EECN),
            starting_psn: Psn::new(get24(raw, STARTING_PSN)),
            responder_resources: raw[RESPONDER_RESOURCES],
            initiator_depth: raw[INITIATOR_DEPTH],
            ack_delay: raw[ACK_DELAY] >> 3,
            failover: raw[ACK_DELAY] >> 1 & 3,
            flow_control: raw[ACK_DELAY] & 1 != 0,
            rnr_retry_count: raw[RNR_AND_SRQ] >> 5,
            srq: raw[RNR_AND_SRQ] & 0x10 != 0,
            ca_guid: get(raw, CA_GUID, 8),
            private_data: array(raw, REP_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        put(raw, QKEY, 4, self.qkey.into());
        put(raw, QPN, 3, self.qpn.get().into());
        put(raw, EECN, 3, self.eecn.into());
        put(raw, STARTING_PSN, 3, self.starting_psn.get().into());
        raw[RESPONDER_RESOURCES] = self.responder_resources;
        raw[INITIATOR_DEPTH] = self.initiator_depth;
        raw[ACK_DELAY] =
            self.ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        raw[RNR_AND_SRQ] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(raw, CA_GUID, 8, self.ca_guid);
        put_array(raw, REP_PRIVATE_DATA, &self.private_data);
    }
}

/// Ready to use: the requester has the reply (IBTA vol 1, 12.6.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rtu {
    /// The requester's communication ID.
    pub local_comm_id: u32,
    /// The replier's.
    pub remote_comm_id: u32,
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Rtu {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 224;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            private_data: array(raw, RTU_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        put_array(raw, RTU_PRIVATE_DATA, &self.private_data);
    }
}
