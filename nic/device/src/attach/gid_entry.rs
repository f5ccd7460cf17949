//! Entries of a GID table, and the addresses that they stand for.

use std::net::{Ipv6Addr, SocketAddr};

use urxe_wire::Gid;

/// An entry of a GID table. Every entry is of type RoCE v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// The scope of an IPv6 link-local address, else 0.
    pub scope_id: u32,
}

impl GidEntry {
    /// Whether there is an address here. An entry whose address went away stays empty until an
    /// address takes its place, so that the others keep their index.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.gid.is_zero()
    }

    /// The socket address of UDP port `port` at this GID.
    pub(crate) fn with_port(&self, port: u16) -> SocketAddr {
        socket_address(self.gid, self.scope_id, port)
    }
}

/// The socket address of a GID as seen from an interface with index `scope_id`.
pub(crate) fn socket_address(gid: Gid, scope_id: u32, port: u16) -> SocketAddr {
    match SocketAddr::new(gid.to_ip(), port) {
        SocketAddr::V6(mut v6) if is_link_local(v6.ip()) => {
            v6.set_scope_id(scope_id);
            v6.into()
        }
        other => other,
    }
}

/// Whether an address means something only on one link (RFC 4291, 2.5.6 and 2.7).
fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || ip.is_multicast() && matches!(ip.segments()[0] & 0xf, 1 | 2)
}
