//! The unreliable services: connections (UC) and datagrams (UD). Nothing is acknowledged and
//! nothing sent again: a request completes when its last packet is handed out.

mod connected;
mod datagram;
mod sending;

pub(crate) use connected::Recent;
pub use datagram::GRH_BYTES;
pub(crate) use datagram::{Arrival, receive};
pub(crate) use sending::UnreliableSender;
