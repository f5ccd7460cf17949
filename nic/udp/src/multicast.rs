//! Multicast groups: IP_ADD_MEMBERSHIP and IP_MULTICAST_IF (ip(7)), and their IPv6 counterparts
//! (ipv6(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use libc::c_int;

use crate::sockopt;

/// Lets other sockets bind the same group and port: of a multicast address, every such socket gets
/// every datagram. Before bind.
pub(crate) fn share_port(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1 as c_int)
}

/// Joins a group on an interface.
pub(crate) fn join(fd: BorrowedFd<'_>, group: IpAddr, ifindex: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(group.octets()),
                },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: ifindex.cast_signed(),
            };
            // Nothing of groups that other sockets joined.
            sockopt::set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0 as c_int)?;
            sockopt::set(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, request)
        }
        IpAddr::V6(group) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr {
                    s6_addr: group.octets(),
                },
                ipv6mr_interface: ifindex,
            };
            sockopt::set(fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, request)
        }
    }
}

/// Makes what is sent to groups leave by an interface.
pub(crate) fn send_by(fd: BorrowedFd<'_>, ipv6: bool, ifindex: u32) -> io::Result<()> {
    let ifindex = ifindex.cast_signed();
    if ipv6 {
        return sockopt::set(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, ifindex);
    }
    let by = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: 0 },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: ifindex,
    };
    sockopt::set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, by)
}
