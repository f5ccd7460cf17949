//! Waiting for sockets and wakeups, with a time limit in nanoseconds: epoll(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, c_int, epoll_event, timespec};

use crate::error::errno;
use crate::inherited::Private;
use crate::socket::Socket;
use crate::uncancelled;

/// Events per wait; the others come with the next one.
const EVENTS: usize = 16;

/// What of a descriptor to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Nothing: the descriptor stays registered but wakes no thread. Every datagram still passes
    /// through epoll then (200 ns); for the hot path, [`Waiter::remove`] it.
    pub const NONE: Self = Self(0);
    /// Something to receive.
    pub const READ: Self = Self(EPOLLIN as u32);
    /// Room to send.
    pub const WRITE: Self = Self(EPOLLOUT as u32);
    /// Either.
    pub const READ_WRITE: Self = Self(EPOLLIN as u32 | EPOLLOUT as u32);
}

/// A descriptor that is ready.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Event(epoll_event);

impl Event {
    /// What [`Waiter::add`] was told.
    pub fn token(&self) -> u64 {
        self.0.u64
    }

    /// There is something to receive, or an error that a receive will tell.
    pub fn readable(&self) -> bool {
        self.0.events & (EPOLLIN | EPOLLERR | EPOLLHUP) as u32 != 0
    }

    /// There is an error.
    pub fn failed(&self) -> bool {
        self.0.events & EPOLLERR as u32 != 0
    }

    /// There is room to send, or an error that a send will tell.
    pub fn writable(&self) -> bool {
        self.0.events & (EPOLLOUT | EPOLLERR | EPOLLHUP) as u32 != 0
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let events = self.0.events;
        write!(f, "Event(token {}, events {events:#x})", self.token())
    }
}

/// Waits for any of several descriptors. Level triggered: what was not dealt with is told again.
#[derive(Debug)]
pub struct Waiter {
    fd: Private<OwnedFd>,
    events: [MaybeUninit<Event>; EVENTS],
}

impl AsFd for Waiter {
    /// Readable when there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Waiter {
    /// Makes an epoll descriptor (epoll_create1(2), Linux 2.6.27).
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        let fd = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd).into(),
            }
        };
        Ok(Self {
            fd,
            events: [MaybeUninit::uninit(); EVENTS],
        })
    }

    /// Waits for `fd` too; its events carry `token`. Closing the descriptor removes it.
    ///
    /// # Errors
    ///
    /// EEXIST if it is there already, and the others of epoll_ctl(2).
    pub fn add(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what of `fd` to wait for. May be called while another thread waits.
    ///
    /// # Errors
    ///
    /// ENOENT if it is not there.
    pub fn modify(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Waits for `fd` no longer.
    ///
    /// # Errors
    ///
    /// ENOENT if it is not there.
    pub fn remove(&self, fd: &impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::NONE)
    }

    fn control(
        &self,
        operation: c_int,
        fd: &impl AsFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = epoll_event {
            events: interest.0,
            u64: token,
        };
        // SAFETY: the event lives until the call returns.
        let status = unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                operation,
                fd.as_fd().as_raw_fd(),
                &raw mut event,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Waits until a descriptor is ready or the time is up; None waits for ever, 0 only looks.
    /// Returns what is ready: nothing when the time is up, and also when a signal came (the
    /// caller's loop looks at its clock anyway).
    ///
    /// It may return late by the thread's timer slack, 50 us unless [`set_timer_slack_ns`] was
    /// called. Before Linux 5.11 the time is rounded up to a millisecond.
    ///
    /// # Errors
    ///
    /// Those of epoll_wait(2) that are a program's fault.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<&[Event]> {
        let ready = match epoll_pwait2(self.fd.as_raw_fd(), &mut self.events, timeout_ns) {
            Ok(ready) => ready,
            Err(libc::EINTR) => 0,
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
        };
        // SAFETY: the kernel wrote the first `ready` events, and Event is a transparent wrapper.
        Ok(unsafe { std::slice::from_raw_parts(self.events.as_ptr().cast::<Event>(), ready) })
    }
}

impl AsRawFd for Waiter {
    /// Readable while one of the descriptors is ready: for a caller that waits for something else
    /// as well.
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Set once the kernel, or a seccomp filter, does not know epoll_pwait2.
static MISSING: AtomicBool = AtomicBool::new(false);

fn timespec_of(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / 1_000_000_000).min(i32::MAX as u64) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// epoll_pwait2 (Linux 5.11), or epoll_wait where the kernel or a seccomp filter does not know it.
/// Called by number, because glibc before 2.35 has no function for it.
fn epoll_pwait2(
    epoll: c_int,
    events: &mut [MaybeUninit<Event>],
    timeout_ns: Option<u64>,
) -> Result<usize, c_int> {
    if !MISSING.load(Ordering::Relaxed) {
        let limit = timeout_ns.map(timespec_of);
        let limit_ptr = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the kernel writes at most events.len() events; the time lives until the call
        // returns; no signal mask.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll,
                events.as_mut_ptr(),
                events.len() as c_int,
                limit_ptr,
                ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        match (ready, if ready < 0 { errno() } else { 0 }) {
            // Old container runtimes answer EPERM for system calls that they do not know.
            (_, libc::ENOSYS | libc::EPERM) => MISSING.store(true, Ordering::Relaxed),
            (_, 0) => return Ok(ready as usize),
            (_, errno) => return Err(errno),
        }
    }
    epoll_wait(epoll, events, timeout_ns)
}

fn epoll_wait(
    epoll: c_int,
    events: &mut [MaybeUninit<Event>],
    timeout_ns: Option<u64>,
) -> Result<usize, c_int> {
    // Rounded up: a caller that wakes before its deadline would only wait again.
    let timeout_ms = timeout_ns.map_or(-1, |ns| {
        c_int::try_from(ns.div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    });
    // SAFETY: the kernel writes at most events.len() events, and Event is a transparent wrapper of
    // epoll_event.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            epoll,
            events.as_mut_ptr(),
            events.len() as c_int,
            timeout_ms,
            ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    usize::try_from(ready).map_err(|_| errno())
}

/// Waits once, without an epoll set, until one of the descriptors ([`Socket::readable_fds`]) is
/// readable or the time is up. For a thread that waits rarely: it costs a lookup per descriptor and
/// call, but nothing between calls, whereas a socket in an epoll set costs every packet. Of more
/// than 64 descriptors it looks at the first.
pub fn wait_readable<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>, timeout_ns: u64) {
    const NONE: libc::pollfd = libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polled = [NONE; 64];
    let mut count = 0;
    for (entry, fd) in polled.iter_mut().zip(fds) {
        entry.fd = fd.as_raw_fd();
        count += 1;
    }
    poll_once(&mut polled[..count], timeout_ns);
}

/// Waits once, without an epoll set, until a socket takes something to send or the time is up.
pub fn wait_writable(socket: &Socket, timeout_ns: u64) {
    let mut polled = [libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    }];
    poll_once(&mut polled, timeout_ns);
}

fn poll_once(polled: &mut [libc::pollfd], timeout_ns: u64) {
    let mut limit = timespec_of(timeout_ns);
    // SAFETY: the entries and the time live until the call returns. An error, like a signal, ends
    // the wait early, which the caller cannot tell from a packet that is not its own.
    unsafe {
        uncancelled::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            &raw mut limit,
        );
    }
}

/// Sets how late the calling thread's timers may be (prctl(2) PR_SET_TIMERSLACK, Linux 2.6.28; at
/// least 1). A thread that waits for timeouts of microseconds wants this once.
pub fn set_timer_slack_ns(slack_ns: u32) -> io::Result<()> {
    // 0 would mean the default.
    let slack = libc::c_ulong::from(slack_ns.max(1));
    // SAFETY: plain integers.
    let status = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wakeup;
    use std::time::Instant;

    #[test]
    fn a_time_limit_is_kept_and_reaches_the_kernel_in_nanoseconds() {
        let mut waiter = Waiter::new().unwrap();
        let start = Instant::now();
        assert!(waiter.wait(Some(200_000)).unwrap().is_empty());
        assert!(start.elapsed().as_nanos() >= 200_000);
        let limit = timespec_of(1_000_200_001);
        assert_eq!((limit.tv_sec, limit.tv_nsec), (1, 200_001));
        if MISSING.load(Ordering::Relaxed) {
            println!("skipped: this kernel rounds up to milliseconds, for it has no epoll_pwait2");
        }
    }

    #[test]
    fn the_fallback_rounds_up() {
        let epoll = Waiter::new().unwrap();
        let mut events = [MaybeUninit::uninit(); 1];
        let start = Instant::now();
        assert_eq!(
            epoll_wait(epoll.fd.as_raw_fd(), &mut events, Some(1_200_000)),
            Ok(0)
        );
        assert!(start.elapsed().as_nanos() >= 1_200_000);
    }

    #[test]
    fn interest_decides_what_is_told() {
        let wakeup = Wakeup::new().unwrap();
        let mut waiter = Waiter::new().unwrap();
        waiter.add(&wakeup, 7, Interest::NONE).unwrap();
        wakeup.arm();
        wakeup.signal();
        assert!(waiter.wait(Some(0)).unwrap().is_empty());
        waiter.modify(&wakeup, 8, Interest::READ_WRITE).unwrap();
        let events = waiter.wait(None).unwrap();
        assert_eq!(events.len(), 1);
        assert!(events[0].token() == 8 && events[0].readable() && events[0].writable());
        waiter.remove(&wakeup).unwrap();
        assert!(waiter.wait(Some(0)).unwrap().is_empty());
        let error = waiter.remove(&wakeup).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
