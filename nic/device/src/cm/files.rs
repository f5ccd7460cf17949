//! Event files: what a program holds of communication management. Its descriptor is readable while
//! events wait, and may be polled, made non-blocking and passed on like any other.
//!
//! The descriptor is the reading end of a pipe with one byte in it while there are events. A pipe,
//! not an eventfd: it has an identity of its own, which tells whether a descriptor's number has
//! come to mean something else, and its other end learns when the program has closed it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::id::CmEvent;

/// See the module.
#[derive(Debug)]
pub(super) struct EventFile {
    /// The program's end. Its number only: the program closes it.
    fd: RawFd,
    identity: (u64, u64),
    pub(super) ours: OwnedFd,
    queue: VecDeque<CmEvent>,
}

impl EventFile {
    pub(super) fn new(is_cloexec: bool, is_nonblocking: bool) -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors; those that come back are ours.
        let ours = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(ends[1])
        };
        let fd = ends[0];
        // SAFETY: plain integers, of a descriptor just made.
        unsafe {
            if !is_cloexec {
                libc::fcntl(fd, libc::F_SETFD, 0);
            }
            if !is_nonblocking {
                libc::fcntl(fd, libc::F_SETFL, 0);
            }
        }
        Ok(Self {
            fd,
            identity: Self::identity(fd).ok_or_else(io::Error::last_os_error)?,
            ours,
            queue: VecDeque::new(),
        })
    }

    /// The program's end.
    pub(super) const fn fd(&self) -> RawFd {
        self.fd
    }

    /// What tells this file from any other.
    pub(super) const fn own_identity(&self) -> (u64, u64) {
        self.identity
    }

    /// What tells the file behind a descriptor from any other: device and inode of the pipe.
    pub(super) fn identity(fd: RawFd) -> Option<(u64, u64)> {
        // Not libc's function: that may be interposed to answer for this very file.
        // SAFETY: all zeros is a valid stat, and the kernel fills it.
        let status = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            if libc::syscall(libc::SYS_fstat, fd, &raw mut status) != 0 {
                return None;
            }
            status
        };
        Some((status.st_dev, status.st_ino))
    }

    /// Whether the program has closed its end.
    pub(super) fn is_closed(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.ours.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLERR != 0 }
    }

    pub(super) fn push(&mut self, event: CmEvent) {
        if self.queue.is_empty() {
            self.note_some();
        }
        self.queue.push_back(event);
    }

    /// Whether the program's descriptor still is this file.
    pub(super) fn is_programs(&self) -> bool {
        Self::identity(self.fd) == Some(self.identity)
    }

    /// Makes the descriptor say what is true: another process had events of its own behind it.
    pub(super) fn settle(&mut self) {
        let mut bytes: libc::c_int = 0;
        // SAFETY: room for an int.
        unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        for _ in 0..bytes {
            self.take_byte(self.fd);
        }
        if !self.queue.is_empty() {
            self.note_some();
        }
    }

    fn note_some(&self) {
        // SAFETY: one byte. It can only fail when the program has closed its end.
        unsafe { libc::write(self.ours.as_raw_fd(), [0u8; 1].as_ptr().cast(), 1) };
    }

    /// Takes the next event. `reader` is a descriptor of the program's end.
    pub(super) fn pop(&mut self, reader: RawFd) -> Option<CmEvent> {
        let event = self.queue.pop_front()?;
        self.note_empty(reader);
        Some(event)
    }

    /// Takes out the events that `wanted` says.
    pub(super) fn take(&mut self, wanted: impl Fn(&CmEvent) -> bool) -> Vec<CmEvent> {
        if self.queue.is_empty() {
            return Vec::new();
        }
        let taken = self.take_silently(wanted);
        // The program may have closed its descriptor, and the number may be another file's by now.
        if self.is_programs() {
            self.note_empty(self.fd);
        }
        taken
    }

    /// The same, of which the descriptor is not told.
    pub(super) fn take_silently(&mut self, wanted: impl Fn(&CmEvent) -> bool) -> Vec<CmEvent> {
        let (taken, left): (VecDeque<_>, _) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(wanted);
        self.queue = left;
        taken.into()
    }

    fn note_empty(&self, reader: RawFd) {
        if self.queue.is_empty() {
            self.take_byte(reader);
        }
    }

    fn take_byte(&self, reader: RawFd) {
        let mut byte = [0u8; 1];
        // SAFETY: one byte of room. There is one, so it cannot block.
        unsafe { libc::read(reader, byte.as_mut_ptr().cast(), 1) };
    }
}
