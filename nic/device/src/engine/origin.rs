//! Where datagrams come from.

use std::net::SocketAddr;

/// Batches read from one socket before the others get their turn.
pub(crate) const BATCHES_PER_TURN: usize = 8;

/// Where a datagram came from, and to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Index of the socket.
    pub(crate) port: usize,
    /// The address that it was sent to.
    pub(crate) local: SocketAddr,
    pub(crate) source: SocketAddr,
    pub(crate) tos: u8,
    /// The IPv4 ID that it probably has.
    pub(crate) ip_id: u16,
}
