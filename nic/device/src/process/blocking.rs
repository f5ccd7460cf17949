//! Calls of the program that block, in steps. Between two steps the thread waits for a descriptor,
//! in a frame of the caller's that holds nothing of ours: there a signal handler may run for as
//! long as it likes or jump out, and the thread may be cancelled.

use std::io;
use std::os::fd::RawFd;

/// What to wait for before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Until this is readable, ...
    pub fd: RawFd,
    /// ... but no longer than this; for ever if absent.
    pub timeout_ns: Option<u64>,
}

/// What a step came to.
#[derive(Debug)]
pub enum Step<T> {
    /// The call is over.
    Done(io::Result<T>),
    /// There is nothing yet.
    Wait(Waiting),
}

/// A call under way. What it holds, it gives back when it is dropped, finished or not.
pub trait BlockingCall {
    /// What the program asked for.
    type Answer;

    /// Goes on: at the beginning, and after each wait, of which `is_ready` tells whether the
    /// descriptor was readable.
    fn step(&mut self, is_ready: bool) -> Step<Self::Answer>;
}

/// Does a call on this thread to its end.
///
/// # Errors
/// Those of the call; EINTR when a signal handler ran meanwhile.
pub(crate) fn finish<C: BlockingCall>(mut call: C) -> io::Result<C::Answer> {
    let mut is_ready = false;
    loop {
        let waiting = match call.step(is_ready) {
            Step::Done(result) => return result,
            Step::Wait(waiting) => waiting,
        };
        is_ready = poll(waiting)?;
    }
}

/// Waits; whether the descriptor is readable. Stopping and continuing the process is no
/// interruption for ppoll(2).
///
/// # Errors
/// EINTR when a signal handler ran.
pub fn poll(waiting: Waiting) -> io::Result<bool> {
    let mut polled = libc::pollfd {
        fd: waiting.fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = waiting.timeout_ns.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one entry, which lives until the call returns, as does the time; no signal mask.
    match unsafe { libc::ppoll(&raw mut polled, 1, limit, std::ptr::null()) } {
        -1 => Err(io::Error::last_os_error()),
        count => Ok(count == 1),
    }
}

/// A time as the kernel takes it.
#[must_use]
pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}
