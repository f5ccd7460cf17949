//! The link addresses of hosts on the same network, as the kernel knows them (arp(7)), and what it
//! does with packets to them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::Destination;
use crate::sockopt;

/// ATF_COM of linux/if_arp.h: the entry is complete.
const ATF_COM: libc::c_int = 2;

/// Whether the kernel would send packets to a host as they are: no policy forbids or changes them,
/// and no route is narrower than the link. `fd` is a UDP socket that is bound to the address that
/// they come from.
///
/// A policy of IPsec that forbids shows in that the socket cannot be connected, and one that
/// encrypts in the room that this takes. That works without the right to look at policies, though
/// for what leaves only.
pub(super) fn goes_as_it_is(fd: BorrowedFd<'_>, to: SocketAddrV4, mtu_bytes: usize) -> bool {
    let to = Destination::new(to.into());
    // SAFETY: pointer and length describe `to`.
    let status = unsafe { libc::connect(fd.as_raw_fd(), to.as_ptr().cast(), to.length()) };
    let room = || sockopt::get_int(fd, libc::IPPROTO_IP, libc::IP_MTU);
    status == 0 && room().is_ok_and(|bytes| usize::try_from(bytes) == Ok(mtu_bytes))
}

/// The Ethernet address of a host on the network of the interface `name`, if the kernel has it.
pub(crate) fn ethernet_address(fd: BorrowedFd<'_>, name: &str, ip: Ipv4Addr) -> Option<[u8; 6]> {
    // SAFETY: all zeros is a valid arpreq.
    let mut request: libc::arpreq = unsafe { std::mem::zeroed() };
    request.arp_pa.sa_family = libc::AF_INET as libc::sa_family_t;
    // sockaddr_in: the port, then the address.
    for (to, from) in request.arp_pa.sa_data[2..].iter_mut().zip(ip.octets()) {
        *to = from as libc::c_char;
    }
    for (to, from) in request.arp_dev.iter_mut().take(15).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is of the type that the kernel expects.
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGARP as _, &raw mut request) };
    if status != 0 || request.arp_flags & ATF_COM == 0 {
        return None;
    }
    let mut address = [0; 6];
    for (to, from) in address.iter_mut().zip(request.arp_ha.sa_data) {
        *to = from as u8;
    }
    (address != [0; 6]).then_some(address)
}
