//! Entries of a GID table, and the addresses that they stand for.

use std::net::{Ipv6Addr, SocketAddr};

use urxe_wire::Gid;
use urxe_wire::icrc::Flow;

/// What packets from and to a GID look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// Ethernet frames without IP and UDP, which no router passes on.
    RoceV1,
    /// UDP datagrams.
    RoceV2,
}

/// An entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// The scope of an IPv6 link-local address, else 0.
    pub scope_id: u32,
    /// Its type.
    pub kind: GidType,
}

impl GidEntry {
    /// Whether there is an address here. An entry whose address went away stays empty until an
    /// address takes its place, so that the others keep their index.
    #[must_use]
    pub fn is_used(&self) -> bool {
        !self.gid.is_zero()
    }

    /// Whether there is an address here for RoCEv2, which RDMA-CM has alone.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.is_used() && self.kind == GidType::RoceV2
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

/// The flow of packets from one address to another: RoCE v1's, or RoCEv2's, which there is none of
/// between addresses of different families.
pub(crate) fn flow(is_v1: bool, from: SocketAddr, to: SocketAddr) -> Option<Flow> {
    if is_v1 {
        Some(Flow::v1(Gid::from(from.ip()), Gid::from(to.ip())))
    } else {
        Flow::new(from, to)
    }
}

/// Whether an address means something only on one link (RFC 4291, 2.5.6 and 2.7).
fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || ip.is_multicast() && matches!(ip.segments()[0] & 0xf, 1 | 2)
}
