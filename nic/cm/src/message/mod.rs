//! The messages, one type each. Fields that a RoCE device has no use for (local IDs, alternate paths)
//! are written as Linux writes them, and not read.

mod answer;
mod datagram;
mod end;
mod migrate;
mod reply;
mod request;

pub use answer::{Mra, Rej, Stage};
pub use datagram::{SidrRep, SidrReq};
pub use end::{Drep, Dreq};
pub use migrate::{Apr, Lap};
pub use reply::{Rep, Rtu};
pub use request::{Req, Service};

use crate::Message;

/// Where every message names its sender's communication ID, and the receiver's.
const LOCAL_COMM_ID: usize = 24;
const REMOTE_COMM_ID: usize = 28;

impl Message {
    /// What the receiver calls the exchange that the message belongs to; 0 of one that begins an exchange.
    #[must_use]
    pub const fn answered_id(&self) -> u32 {
        match self {
            Self::Req(_) | Self::SidrReq(_) => 0,
            Self::Mra(m) => m.remote_comm_id,
            Self::Rej(m) => m.remote_comm_id,
            Self::Rep(m) => m.remote_comm_id,
            Self::Rtu(m) => m.remote_comm_id,
            Self::Dreq(m) => m.remote_comm_id,
            Self::Drep(m) => m.remote_comm_id,
            Self::SidrRep(m) => m.request_id,
            Self::Lap(m) => m.remote_comm_id,
            Self::Apr(m) => m.remote_comm_id,
        }
    }
}

/// Private data of `N` bytes that begin with `data`; `None` if it is longer than that.
#[must_use]
pub fn padded<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..data.len())?.copy_from_slice(data);
    Some(whole)
}
