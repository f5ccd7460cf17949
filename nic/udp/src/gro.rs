//! Generic receive offload: datagrams of one flow, equally long but for the last, handed over in
//! one piece (udp(7)).

use std::os::fd::BorrowedFd;

use libc::{SOL_UDP, UDP_GRO, c_int};

use crate::control::ControlMessage;
use crate::sockopt;

/// Turns it on (UDP_GRO of linux/udp.h, Linux 5.0). False if the kernel has none.
pub(crate) fn enable(fd: BorrowedFd<'_>) -> bool {
    sockopt::set(fd, SOL_UDP, UDP_GRO, 1 as c_int).is_ok()
}

/// The length of every segment but the last, if that is what the message says. Absent where there
/// is only one segment.
pub(crate) fn read(message: &ControlMessage) -> Option<usize> {
    match (message.level, message.kind) {
        // An int (`udp_cmsg_recv` of net/ipv4/udp.c), although udp(7) is silent about it.
        (SOL_UDP, UDP_GRO) => message
            .integer()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size > 0),
        _ => None,
    }
}
