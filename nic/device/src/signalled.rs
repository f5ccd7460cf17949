//! What waits for the program behind a descriptor: events of a completion channel, asynchronous events of a device. The
//! descriptor counts them, so that it is readable while there are any, and only then.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An eventfd that counts (`EFD_SEMAPHORE`): one read, one event. Blocking until the program says
/// otherwise with `fcntl`, as the verbs interface allows.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// Makes one more event readable.
    pub(crate) fn signal(&self) {
        let one: u64 = 1;
        // SAFETY: eight bytes at a u64. It fails only at 2^64 - 2 events, more than memory holds.
        unsafe { libc::syscall(libc::SYS_write, self.0.as_raw_fd(), &raw const one, 8) };
    }

    /// Takes one event, if there is one: never blocks, however the descriptor is set, should the program have read it itself.
    fn take(&self) {
        let mut count: u64 = 0;
        let fd = self.0.as_raw_fd();
        let piece = libc::iovec {
            iov_base: (&raw mut count).cast(),
            iov_len: size_of::<u64>(),
        };
        // At its current position, which an eventfd does not have.
        const CURRENT: libc::c_long = -1;
        // SAFETY: eight bytes at a u64.
        let got = unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                fd,
                &raw const piece,
                1,
                CURRENT,
                CURRENT,
                libc::RWF_NOWAIT,
            )
        };
        let is_known = || io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        // Before Linux 5.8 an eventfd does not know the flag.
        if got < 0 && !is_known() && self.is_readable() {
            // SAFETY: eight bytes at a u64.
            unsafe { libc::syscall(libc::SYS_read, fd, &raw mut count, 8) };
        }
    }

    fn is_nonblocking(&self) -> bool {
        // SAFETY: plain integers.
        let flags = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK != 0
    }

    fn is_readable(&self) -> bool {
        self.poll(0) == 1
    }

    fn wait(&self) -> io::Result<()> {
        if self.poll(-1) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn poll(&self, timeout_ms: i32) -> i32 {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, timeout_ms) }
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Signalled<T> {
    /// The descriptor counts as many, whenever nobody has the lock.
    queue: Mutex<VecDeque<T>>,
    fd: EventFd,
}

impl<T> Signalled<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            fd: EventFd::new()?,
        })
    }

    pub(crate) const fn fd(&self) -> &EventFd {
        &self.fd
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: T) {
        let mut queue = self.lock();
        queue.push_back(event);
        self.fd.signal();
    }

    /// Takes the next, if there is one.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut queue = self.lock();
        let event = queue.pop_front()?;
        self.fd.take();
        Some(event)
    }

    /// Takes the next; EAGAIN if there is none and the program has made the descriptor non-blocking. `None` if the caller is to
    /// wait.
    pub(crate) fn pop_or_refuse(&self) -> io::Result<Option<T>> {
        match self.pop() {
            None if self.fd.is_nonblocking() => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            event => Ok(event),
        }
    }

    /// Waits until there may be one.
    ///
    /// # Errors
    /// EINTR when a signal came.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.fd.wait()
    }

    pub(crate) fn has_some(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Forgets those that `is_of_it` says, of an object that is destroyed.
    pub(crate) fn forget(&self, is_of_it: impl Fn(&T) -> bool) {
        let mut queue = self.lock();
        let before = queue.len();
        queue.retain(|event| !is_of_it(event));
        for _ in queue.len()..before {
            self.fd.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let events = Signalled::new().unwrap();
        let is_readable = || events.fd.is_readable();
        assert!(!is_readable());
        for event in [1, 2, 1, 3] {
            events.push(event);
        }
        events.forget(|event| *event == 1);
        assert_eq!(events.pop(), Some(2));
        assert!(is_readable());
        events.forget(|event| *event == 3);
        assert!(!is_readable());
        assert_eq!(events.pop(), None);
    }

    /// With `read` of the descriptor, which it may not do.
    #[test]
    fn a_program_that_takes_the_count_blocks_nobody() {
        let events = Signalled::new().unwrap();
        events.push(1);
        events.fd.take();
        assert_eq!(events.pop(), Some(1));
        events.push(2);
        assert_eq!(events.pop(), Some(2));
        assert!(!events.fd.is_readable());
    }

    #[test]
    fn none_for_who_does_not_want_to_wait() {
        let events = Signalled::<u8>::new().unwrap();
        assert!(matches!(events.pop_or_refuse(), Ok(None)));
        // SAFETY: plain integers.
        unsafe { libc::fcntl(events.fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let refused = events.pop_or_refuse().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    }
}
