//! Busy polling: the receiving thread drives the network card's queue itself instead of waiting for
//! its interrupt.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{SO_BUSY_POLL, SO_PREFER_BUSY_POLL, SOL_SOCKET, c_int};

use crate::sockopt;

/// How long a receive may poll the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Microseconds that one receive may poll the device's queue (SO_BUSY_POLL, Linux 3.11). More
    /// than the system's net.core.busy_read needs CAP_NET_ADMIN, and
    /// without it `bind` fails with EPERM.
    pub budget_us: u32,
    /// Keep the device's interrupts off while the application polls (SO_PREFER_BUSY_POLL, Linux
    /// 5.11).
    pub prefer: bool,
}

pub(crate) fn set(fd: BorrowedFd<'_>, busy: BusyPoll) -> io::Result<()> {
    let budget = c_int::try_from(busy.budget_us).unwrap_or(c_int::MAX);
    sockopt::set(fd, SOL_SOCKET, SO_BUSY_POLL, budget)?;
    if busy.prefer {
        sockopt::set(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, 1 as c_int)?;
    }
    Ok(())
}
