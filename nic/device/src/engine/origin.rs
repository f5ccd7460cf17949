//! Where datagrams come from.

use std::net::SocketAddr;

use urxe_udp::FrameHeader;
use urxe_wire::icrc::Flow;

use crate::attach::gid_entry::flow;

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
    /// Of RoCE v1, what came before it.
    pub(crate) frame: Option<FrameHeader>,
}

impl Origin {
    /// The flow of what comes from there; `None` where nothing can.
    pub(crate) fn flow(&self) -> Option<Flow> {
        flow(self.frame.is_some(), self.source, self.local)
    }

    /// Whether the ICRC of a datagram from there is right.
    pub(crate) fn has_good_icrc(&self, datagram: &[u8]) -> bool {
        let flow = self.flow();
        flow.is_some_and(|flow| flow.verify(datagram, self.ip_id).is_good())
    }
}
