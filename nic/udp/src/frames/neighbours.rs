//! The link addresses of hosts on the same network, as the kernel knows them (arp(7)).

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// ATF_COM of linux/if_arp.h: the entry is complete.
const ATF_COM: libc::c_int = 2;

/// The Ethernet address of a host on the network of the interface `name`, if the kernel has it.
pub(super) fn ethernet_address(fd: BorrowedFd<'_>, name: &str, ip: Ipv4Addr) -> Option<[u8; 6]> {
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
