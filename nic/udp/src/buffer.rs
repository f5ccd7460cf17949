//! Socket buffers: as large as we want, or as large as we may.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{SO_RCVBUF, SO_RCVBUFFORCE, SO_SNDBUF, SO_SNDBUFFORCE, SOL_SOCKET, c_int};

use crate::sockopt;

/// Asks for a receive buffer and returns what the kernel accounts against: socket(7) doubles the
/// value set, to make room for its own bookkeeping, and caps it at net.core.rmem_max unless the
/// process has CAP_NET_ADMIN (SO_RCVBUFFORCE, Linux 2.6.14).
pub(crate) fn set_receive_buffer(fd: BorrowedFd<'_>, wanted_bytes: usize) -> io::Result<usize> {
    grow(fd, SO_RCVBUFFORCE, SO_RCVBUF, wanted_bytes)
}

/// Asks for a send buffer; as [`set_receive_buffer`], with net.core.wmem_max.
pub(crate) fn set_send_buffer(fd: BorrowedFd<'_>, wanted_bytes: usize) -> io::Result<usize> {
    grow(fd, SO_SNDBUFFORCE, SO_SNDBUF, wanted_bytes)
}

fn grow(
    fd: BorrowedFd<'_>,
    forced: c_int,
    capped: c_int,
    wanted_bytes: usize,
) -> io::Result<usize> {
    let wanted = c_int::try_from(wanted_bytes).unwrap_or(c_int::MAX);
    if sockopt::set(fd, SOL_SOCKET, forced, wanted).is_err() {
        sockopt::set(fd, SOL_SOCKET, capped, wanted)?;
    }
    sockopt::get_int(fd, SOL_SOCKET, capped).map(|bytes| bytes.max(0) as usize)
}
