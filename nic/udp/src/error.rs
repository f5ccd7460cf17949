//! What becomes of a send that fails: one policy for all sends.

use std::{fmt, io};

use libc::c_int;

use crate::transmit::Sent;

/// Why a send did not happen, where the caller has something to do about it.
///
/// The policy, for every errno of `sendmsg` (udp(7), ip(7)):
///
/// | errno | outcome | what the caller does |
/// |---|---|---|
/// | EAGAIN | [`SendError::WouldBlock`] | sends the same again when the socket is writable |
/// | EFAULT | [`SendError::Fault`] | the memory behind a piece is gone: a local error of its program |
/// | EMSGSIZE | [`SendError::TooBig`] | the path MTU shrank, or more than [`MAX_TRANSMIT_BYTES`](crate::MAX_TRANSMIT_BYTES): see [`path_mtu_bytes`](crate::path_mtu_bytes) |
/// | EBADF, ENOTSOCK, EAFNOSUPPORT | [`SendError::Broken`] | a fault of the program: gives the socket up |
/// | EINTR | tried again here | nothing |
/// | EIO, EINVAL of a GSO send | sent again here, segment by segment; if that works, GSO is off from then on | nothing |
/// | all others | [`Sent::lost`](crate::Sent): the network may lose datagrams at any time, and this one was lost early | counts it; the protocol above recovers or gives up |
///
/// Among the others: ENOBUFS, ENOMEM (a full queue), ENETUNREACH, EHOSTUNREACH, ENETDOWN (the route
/// or the link went away and may come back), EPERM, EACCES (a firewall), ECONNREFUSED (an ICMP
/// error of an earlier datagram), EINVAL (the local address was removed from its interface,
/// `ip_route_output_key_hash_rcu` in net/ipv4/route.c).
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer is full; nothing was sent.
    WouldBlock,
    /// Memory that was to be sent cannot be read.
    Fault,
    /// A datagram is larger than the path MTU or than UDP allows.
    TooBig,
    /// The socket or the call is wrong, and sending again cannot help.
    Broken(io::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("the socket's send buffer is full"),
            Self::Fault => f.write_str("memory to be sent cannot be read"),
            Self::TooBig => f.write_str("the datagram is larger than the path MTU"),
            Self::Broken(error) => write!(f, "the socket cannot send: {error}"),
        }
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}

/// What an errno of `sendmsg` means; None means that the datagram is lost.
fn classify(errno: c_int) -> Option<SendError> {
    match errno {
        // EWOULDBLOCK is EAGAIN on Linux.
        libc::EAGAIN => Some(SendError::WouldBlock),
        libc::EFAULT => Some(SendError::Fault),
        libc::EMSGSIZE => Some(SendError::TooBig),
        libc::EBADF | libc::ENOTSOCK | libc::EAFNOSUPPORT => {
            Some(SendError::Broken(io::Error::from_raw_os_error(errno)))
        }
        _ => None,
    }
}

/// Applies the error policy to a datagram of `length` bytes.
pub(crate) fn settle(errno: c_int, length: usize) -> Result<Sent, SendError> {
    match classify(errno) {
        Some(error) => Err(error),
        None => Ok(Sent {
            bytes: length,
            lost: Some(errno),
        }),
    }
}

/// The calling thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}
