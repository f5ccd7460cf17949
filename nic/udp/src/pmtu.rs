//! Path MTU discovery, and through it the IP header: with DF set on an unconnected socket the IPv4
//! ID is 0.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use libc::{
    IP_MTU, IP_MTU_DISCOVER, IP_PMTUDISC_DO, IPPROTO_IP, IPPROTO_IPV6, IPV6_MTU, IPV6_MTU_DISCOVER,
    IPV6_PMTUDISC_DO,
};

use crate::address::canonical;
use crate::sockopt;

/// Sets DF on every datagram and never fragments (ip(7) IP_MTU_DISCOVER; linux/in6.h for IPv6,
/// which has no ID outside fragments). A datagram above the path MTU fails with EMSGSIZE.
pub(crate) fn forbid_fragments(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        sockopt::set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO)
    } else {
        sockopt::set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    }
}

/// The largest IP packet, headers included, that the kernel believes to fit the path from `source`
/// to `destination`: the interface's MTU, or less where the route or an ICMP message says so.
/// Nothing is sent, but a socket is made and connected (ip(7) IP_MTU reads connected sockets only):
/// not for the hot path.
///
/// # Errors
///
/// What `connect` says: ENETUNREACH without a route, EINVAL where `source` is no address of this
/// host, ...
pub fn path_mtu_bytes(source: Option<IpAddr>, destination: SocketAddr) -> io::Result<u32> {
    let destination = canonical(destination);
    let any = if destination.is_ipv6() {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    let scope_id = if let SocketAddr::V6(v6) = destination {
        v6.scope_id()
    } else {
        0
    };
    let mut local = SocketAddr::new(source.map_or(any, |source| source.to_canonical()), 0);
    if let SocketAddr::V6(v6) = &mut local {
        v6.set_scope_id(scope_id);
    }
    let socket = UdpSocket::bind(local)?;
    socket.connect(destination)?;
    let (level, name) = if destination.is_ipv6() {
        (IPPROTO_IPV6, IPV6_MTU)
    } else {
        (IPPROTO_IP, IP_MTU)
    };
    sockopt::get_int(socket.as_fd(), level, name).map(|mtu| mtu.max(0).cast_unsigned())
}
