//! What the agent's thread waits for: epoll(7), to which other threads add while it waits.
//!
//! Not poll(2), which keeps a file that another thread closes alive until it returns, and with it a
//! name that is then not free.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// What a descriptor is.
const READER: u64 = 0;
const WRITER: u64 = 1;

/// See the module. A descriptor that is closed is no longer waited for.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// Waits for something to read from `fd`, too.
    pub(super) fn add_reader(&self, fd: &impl AsFd) -> io::Result<()> {
        self.add(fd, libc::EPOLLIN as u32, READER)
    }

    /// Waits for the other end of a pipe to be closed, too.
    pub(super) fn add_writer(&self, fd: &impl AsFd) -> io::Result<()> {
        // Errors are told whether asked for or not.
        self.add(fd, 0, WRITER)
    }

    fn add(&self, fd: &impl AsFd, events: u32, kind: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: kind };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: the event lives until the call returns.
        let status =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Waits until there is something, or for so long, rounded up to a millisecond. The caller
    /// looks at everything then, at pipes only if this returns that the other end of one is closed:
    /// there may be thousands.
    pub(super) fn wait(&self, timeout_ns: Option<u64>) -> bool {
        let timeout_ms = timeout_ns.map_or(-1, |ns| {
            i32::try_from(ns.div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let ready = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, timeout_ms) };
        ready == 1 && event.u64 == WRITER
    }
}
