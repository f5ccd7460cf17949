//! The type of service (IPv4) or traffic class (IPv6): DSCP in the upper six bits, ECN in the lower
//! two (RFC 3168).

use std::io;
use std::os::fd::BorrowedFd;

use libc::{IP_RECVTOS, IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPV6_RECVTCLASS, IPV6_TCLASS, c_int};

use crate::control::{ControlMessage, ControlWriter};
use crate::sockopt;

/// Sets what every datagram carries unless its control message says otherwise (ip(7) IP_TOS, RFC
/// 3542 IPV6_TCLASS).
pub(crate) fn set_default(fd: BorrowedFd<'_>, ipv6: bool, tos: u8) -> io::Result<()> {
    let (level, name) = option(ipv6);
    sockopt::set(fd, level, name, c_int::from(tos))
}

/// Asks for the type of service of received datagrams (ip(7) IP_RECVTOS, RFC 3542 IPV6_RECVTCLASS).
/// False if there is no such thing.
pub(crate) fn enable_receive(fd: BorrowedFd<'_>, ipv6: bool) -> bool {
    let (level, name) = if ipv6 {
        (IPPROTO_IPV6, IPV6_RECVTCLASS)
    } else {
        (IPPROTO_IP, IP_RECVTOS)
    };
    sockopt::set(fd, level, name, 1 as c_int).is_ok()
}

/// Makes one datagram (or GSO batch) carry `tos`. An int serves both families (`ip_cmsg_send` takes
/// it since Linux 3.13).
pub(crate) fn write(control: &mut ControlWriter<'_>, ipv6: bool, tos: u8) {
    let (level, kind) = option(ipv6);
    control.push(level, kind, c_int::from(tos));
}

/// The type of service, if that is what the message says: one byte for IPv4 (`ip_cmsg_recv_tos`),
/// an int for IPv6.
pub(crate) fn read(message: &ControlMessage) -> Option<u8> {
    match (message.level, message.kind) {
        (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => {
            message.integer().map(|tos| tos as u8)
        }
        _ => None,
    }
}

fn option(ipv6: bool) -> (c_int, c_int) {
    if ipv6 {
        (IPPROTO_IPV6, IPV6_TCLASS)
    } else {
        (IPPROTO_IP, IP_TOS)
    }
}
