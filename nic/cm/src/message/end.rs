//! DREQ and DREP: the end of a connection.

use urxe_wire::Qpn;

use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use crate::bytes::{Raw, array, get24, get32, put, put_array};

const QPN: usize = 32;
const DREQ_PRIVATE_DATA: usize = 36;
const DREP_PRIVATE_DATA: usize = 32;

/// Request to end a connection (IBTA vol 1, 12.6.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 220;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            remote_qpn: Qpn::new(get24(raw, QPN)),
            private_data: array(raw, DREQ_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        put(raw, QPN, 3, self.remote_qpn.get().into());
        put_array(raw, DREQ_PRIVATE_DATA, &self.private_data);
    }
}

/// Reply to a request to end a connection (IBTA vol 1, 12.6.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drep {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// For the program.
    pub private_data: [u8; Self::PRIVATE_LEN],
}

impl Drep {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 224;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            private_data: array(raw, DREP_PRIVATE_DATA),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        put_array(raw, DREP_PRIVATE_DATA, &self.private_data);
    }
}
