//! Datagrams that arrived and were dropped because the receive buffer was full.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use libc::{SO_MEMINFO, SOL_SOCKET};

use crate::sockopt;

/// SK_MEMINFO_VARS of linux/sock_diag.h.
const MEMINFO_VARS: usize = 9;
/// SK_MEMINFO_DROPS of linux/sock_diag.h: the socket's drop counter, sk_drops.
const MEMINFO_DROPS: usize = 8;

/// Reads the counter (SO_MEMINFO, Linux 4.12). It is read on demand, as SO_RXQ_OVFL would cost a
/// control message per receive.
pub(crate) fn receive_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut value = MaybeUninit::uninit();
    let info = sockopt::get_ints::<MEMINFO_VARS>(fd, SOL_SOCKET, SO_MEMINFO, &mut value)?;
    Ok(info[MEMINFO_DROPS].cast_unsigned())
}
