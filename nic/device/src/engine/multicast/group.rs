//! A multicast group.

use std::sync::Arc;

use urxe_udp::Socket;
use urxe_wire::{Gid, Qpn};

/// A group and the queue pairs that are attached.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) gid: Gid,
    pub(crate) socket: Arc<Socket>,
    pub(crate) members: Vec<Qpn>,
}
