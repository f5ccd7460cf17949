//! LAP and APR: a request to load an alternate path, and its answer. On Ethernet routing does what
//! alternate paths are for; a peer that asks is told that there are none.

use super::ids::{LOCAL_COMM_ID, REMOTE_COMM_ID};
use crate::bytes::{Raw, get32, put};

const STATUS: usize = 33;

/// Load alternate path (IBTA vol 1, 12.8.1): of it, only whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lap {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
}

impl Lap {
    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
    }
}

/// Alternate path response (IBTA vol 1, 12.8.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apr {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// Whether the path was loaded.
    pub status: u8,
}

impl Apr {
    /// Alternate paths are not supported (IBTA vol 1, table 129).
    pub const UNSUPPORTED: u8 = 2;

    pub(crate) fn parse(raw: &Raw) -> Self {
        Self {
            local_comm_id: get32(raw, LOCAL_COMM_ID),
            remote_comm_id: get32(raw, REMOTE_COMM_ID),
            status: raw[STATUS],
        }
    }

    pub(crate) fn emit(&self, raw: &mut Raw) {
        put(raw, LOCAL_COMM_ID, 4, self.local_comm_id.into());
        put(raw, REMOTE_COMM_ID, 4, self.remote_comm_id.into());
        raw[STATUS] = self.status;
    }
}
