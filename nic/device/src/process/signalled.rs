//! What waits for the program behind a descriptor: events of a completion channel, asynchronous
//! events of a device. The descriptor counts them, so that it is readable while there are any, and
//! only then.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use urxe_udp::Private;

/// An eventfd that counts (`EFD_SEMAPHORE`): one read, one event. Blocking until the program says
/// otherwise with `fcntl`, as the verbs interface allows.
#[derive(Debug)]
pub(crate) struct EventFd(Private<OwnedFd>);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd).into())),
            }
        }
    }

    /// Makes one more event readable.
    pub(crate) fn signal(&self) {
        let one: u64 = 1;
        // SAFETY: eight bytes at a u64. It fails only at 2^64 - 2 events, more than memory holds.
        unsafe { libc::syscall(libc::SYS_write, self.0.as_raw_fd(), &raw const one, 8) };
    }

    /// Takes one event, if there is one: never blocks, however the descriptor is set, should the
    /// program have read it itself.
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
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
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
    /// The descriptor counts as many, whenever no thread has the lock.
    queue: Mutex<Queue<T>>,
    fd: EventFd,
    /// The same file, for the program, which may close it at any time though it should not.
    programs: ProgramFd,
}

#[derive(Debug)]
struct Queue<T> {
    events: VecDeque<T>,
    is_closed: bool,
}

impl<T> Signalled<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = EventFd::new()?;
        Ok(Self {
            queue: Mutex::new(Queue {
                events: VecDeque::new(),
                is_closed: false,
            }),
            programs: ProgramFd::of(&fd)?,
            fd,
        })
    }

    /// For waiting in this library.
    pub(crate) const fn fd(&self) -> &EventFd {
        &self.fd
    }

    /// For the program.
    pub(crate) const fn programs_fd(&self) -> RawFd {
        self.programs.number
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: T) {
        let mut queue = self.lock();
        queue.events.push_back(event);
        self.fd.signal();
    }

    /// Takes the next, if there is one; EAGAIN if there is none and the program has made the
    /// descriptor non-blocking, EBADF once it is closed.
    pub(crate) fn pop_or_refuse(&self) -> io::Result<Option<T>> {
        let mut queue = self.lock();
        if let Some(event) = queue.events.pop_front() {
            self.fd.take();
            return Ok(Some(event));
        }
        let errno = match queue.is_closed {
            true => libc::EBADF,
            false if self.fd.is_nonblocking() => libc::EAGAIN,
            false => return Ok(None),
        };
        Err(io::Error::from_raw_os_error(errno))
    }

    pub(crate) fn has_some(&self) -> bool {
        let queue = self.lock();
        !queue.events.is_empty() || queue.is_closed
    }

    /// Nothing comes any more: wakes the threads that wait, for good.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.fd.signal();
        self.programs.close(&self.fd);
    }

    /// Forgets those that `is_of_it` says, of an object that is destroyed.
    pub(crate) fn forget(&self, is_of_it: impl Fn(&T) -> bool) {
        let events = &mut self.lock().events;
        let before = events.len();
        events.retain(|event| !is_of_it(event));
        for _ in events.len()..before {
            self.fd.take();
        }
    }
}

impl<T> Drop for Signalled<T> {
    fn drop(&mut self) {
        self.programs.close(&self.fd);
    }
}

/// A number for the program of a descriptor of ours.
#[derive(Debug)]
struct ProgramFd {
    number: RawFd,
    is_closed: AtomicBool,
}

impl ProgramFd {
    fn of(fd: &EventFd) -> io::Result<Self> {
        let number = fd.0.try_clone()?.into_raw_fd();
        let is_closed = AtomicBool::new(false);
        Ok(Self { number, is_closed })
    }

    /// Closes it, once, and unless the program has done so: the number may be another file's by
    /// now.
    fn close(&self, same: &EventFd) {
        if self.is_closed.swap(true, Ordering::Relaxed) || !is_same_file(self.number, same) {
            return;
        }
        // SAFETY: it is ours, and nothing uses it any more.
        drop(unsafe { OwnedFd::from_raw_fd(self.number) });
    }
}

/// Whether two descriptors are of one open file; so it is believed where the kernel does not tell
/// (kcmp(2)).
fn is_same_file(number: RawFd, fd: &EventFd) -> bool {
    /// Of linux/kcmp.h.
    const KCMP_FILE: libc::c_int = 0;
    let process = std::process::id();
    // SAFETY: plain integers.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            process,
            process,
            KCMP_FILE,
            libc::c_long::from(number),
            libc::c_long::from(fd.as_raw_fd()),
        )
    };
    let is_closed = || io::Error::last_os_error().raw_os_error() == Some(libc::EBADF);
    order == 0 || order < 0 && !is_closed()
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
        assert_eq!(events.pop_or_refuse().unwrap(), Some(2));
        assert!(is_readable());
        events.forget(|event| *event == 3);
        assert!(!is_readable());
        assert_eq!(events.pop_or_refuse().unwrap(), None);
    }

    /// With `read` of the descriptor, which it may not do.
    #[test]
    fn a_program_that_takes_the_count_blocks_nobody() {
        let events = Signalled::new().unwrap();
        events.push(1);
        events.fd.take();
        assert_eq!(events.pop_or_refuse().unwrap(), Some(1));
        events.push(2);
        assert_eq!(events.pop_or_refuse().unwrap(), Some(2));
        assert!(!events.fd.is_readable());
    }

    #[test]
    fn none_for_who_does_not_want_to_wait() {
        let events = Signalled::<u8>::new().unwrap();
        assert!(matches!(events.pop_or_refuse(), Ok(None)));
        // SAFETY: plain integers.
        unsafe { libc::fcntl(events.programs_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let refused = events.pop_or_refuse().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn whoever_asks_after_the_end_is_told_so() {
        let events = Signalled::new().unwrap();
        events.push(1);
        events.close();
        assert_eq!(events.pop_or_refuse().unwrap(), Some(1));
        let refused = events.pop_or_refuse().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        assert!(
            events.has_some() && events.fd.is_readable(),
            "who waits, wakes"
        );
    }

    /// Another thread may be given the number while this one destroys what had it.
    #[test]
    fn a_number_that_the_program_closed_is_not_closed_again() {
        let events = Signalled::<u8>::new().unwrap();
        let number = events.programs_fd();
        // SAFETY: as a program does that is wrong; nothing here uses the number.
        unsafe {
            let other = EventFd::new().unwrap();
            assert_eq!(libc::dup2(other.as_raw_fd(), number), number);
            drop(events);
            assert!(libc::fcntl(number, libc::F_GETFD) >= 0, "the other's");
            libc::close(number);
        }
    }
}
