//! Packet sockets.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use libc::c_int;

use crate::inherited::Private;

/// A packet socket that receives nothing yet.
pub(crate) fn packet_socket() -> io::Result<Private<OwnedFd>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain integers; a descriptor that is not negative is ours.
    unsafe {
        match libc::socket(libc::AF_PACKET, kind, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd).into()),
        }
    }
}

/// Binds a packet socket to an interface, for frames of `protocol` (ETH_P_*; 0: none).
pub(crate) fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: u16) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as c_int;
    let bytes = std::mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`.
    let status = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
