//! The messages, one type each. Fields that a RoCE device has no use for (local IDs, alternate
//! paths) are written as Linux writes them, and not read.

mod answer;
mod datagram;
mod end;
mod ids;
mod migrate;
mod reply;
mod request;

pub use answer::{Mra, Rej, Stage};
pub use datagram::{SidrRep, SidrReq};
pub use end::{Drep, Dreq};
pub use migrate::{Apr, Lap};
pub use reply::{Rep, Rtu};
pub use request::{Req, Service};

/// Private data of `N` bytes that begin with `data`; `None` if it is longer than that.
#[must_use]
pub fn padded<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..data.len())?.copy_from_slice(data);
    Some(whole)
}
