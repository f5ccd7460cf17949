//! Waking a thread that waits in a [`Waiter`](crate::Waiter): an eventfd that is written only when
//! somebody waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use libc::{EFD_CLOEXEC, EFD_NONBLOCK};

/// Wakes one waiting thread. Without a waiter, [`signal`](Self::signal) costs a fence and a load,
/// no system call.
///
/// The waiting thread arms it, looks once more for work, waits, disarms it:
///
/// ```
/// # use std::{sync::atomic::{AtomicBool, Ordering}, thread};
/// # use urxe_udp::{Interest, Waiter, Wakeup};
/// let (wakeup, work) = (Wakeup::new()?, AtomicBool::new(false));
/// let mut waiter = Waiter::new()?;
/// waiter.add(&wakeup, 0, Interest::READ)?;
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         work.store(true, Ordering::Release);
///         wakeup.signal();
///     });
///     while !work.load(Ordering::Acquire) {
///         wakeup.arm();
///         if !work.load(Ordering::Acquire) {
///             waiter.wait(None).unwrap();
///         }
///         wakeup.disarm();
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Wakeup {
    fd: OwnedFd,
    armed: AtomicBool,
    /// Signals that were on their way when the thread disarmed: what is to be taken when they come. Only
    /// the waiting thread uses it.
    late: AtomicU64,
}

impl Wakeup {
    /// Makes an eventfd (eventfd(2), Linux 2.6.27).
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        let fd = unsafe {
            match libc::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Self {
            fd,
            armed: AtomicBool::new(false),
            late: AtomicU64::new(0),
        })
    }

    /// Says that the calling thread is about to wait. It must look for work once more after this,
    /// and only then wait.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        // Pairs with the fence of `signal`: of "I wait" and "there is work" at least one is seen by
        // the other side.
        fence(Ordering::SeqCst);
    }

    /// Wakes the thread that armed it, if there is one. Work must be visible before the call.
    #[inline]
    pub fn signal(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            self.write();
        }
    }

    /// Says that the thread no longer waits, and takes the signal if there was one.
    pub fn disarm(&self) {
        let signals = u64::from(!self.armed.swap(false, Ordering::AcqRel));
        let due = self.late.load(Ordering::Relaxed) + signals;
        // Who signals disarms first and writes then, and may have been held up in between. What comes late
        // ends the next wait early, and has to be taken then: else all waits would end early from then on.
        if due > 0 {
            let late = due.saturating_sub(self.take());
            self.late.store(late, Ordering::Relaxed);
        }
    }

    #[cold]
    fn write(&self) {
        let one: u64 = 1;
        // SAFETY: eight bytes at a u64. It fails only when 2^64 - 2 signals are pending, and then
        // the waiter wakes anyway.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the signals that were written; returns how many.
    fn take(&self) -> u64 {
        let mut count: u64 = 0;
        // SAFETY: eight bytes at a u64. When there is none, the call fails and leaves it alone.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        count
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interest, Waiter};
    use std::sync::atomic::AtomicU32;
    use std::thread;

    fn readable(wakeup: &Wakeup) -> bool {
        let mut waiter = Waiter::new().unwrap();
        waiter.add(wakeup, 1, Interest::READ).unwrap();
        waiter.wait(Some(0)).unwrap().len() == 1
    }

    #[test]
    fn nobody_waits_and_nothing_is_written() {
        let wakeup = Wakeup::new().unwrap();
        wakeup.signal();
        assert!(!readable(&wakeup));
    }

    #[test]
    fn an_armed_one_is_written_once_and_disarm_takes_it() {
        let wakeup = Wakeup::new().unwrap();
        wakeup.arm();
        wakeup.signal();
        wakeup.signal();
        assert!(readable(&wakeup));
        wakeup.disarm();
        assert!(!readable(&wakeup));
        wakeup.signal();
        assert!(!readable(&wakeup));
    }

    #[test]
    fn a_signal_that_comes_late_ends_one_wait_early_and_no_more() {
        let wakeup = Wakeup::new().unwrap();
        wakeup.arm();
        // Another thread is in the middle of `signal`, and held up there.
        assert!(wakeup.armed.swap(false, Ordering::AcqRel));
        wakeup.disarm();
        wakeup.write();
        wakeup.arm();
        assert!(readable(&wakeup));
        wakeup.disarm();
        assert!(!readable(&wakeup));
        wakeup.arm();
        wakeup.signal();
        wakeup.disarm();
        assert!(!readable(&wakeup));
    }

    #[test]
    fn no_wakeup_is_ever_lost() {
        const ROUNDS: u32 = 20_000;
        let (there, back) = (Wakeup::new().unwrap(), Wakeup::new().unwrap());
        let turn = AtomicU32::new(0);
        let play = |mine: &Wakeup, other: &Wakeup, parity: u32| {
            let mut waiter = Waiter::new().unwrap();
            waiter.add(mine, 0, Interest::READ).unwrap();
            while turn.load(Ordering::Acquire) < ROUNDS {
                if turn.load(Ordering::Acquire) % 2 == parity {
                    turn.fetch_add(1, Ordering::AcqRel);
                    other.signal();
                    continue;
                }
                mine.arm();
                if turn.load(Ordering::Acquire) % 2 != parity
                    && turn.load(Ordering::Acquire) < ROUNDS
                {
                    let events = waiter.wait(Some(5_000_000_000)).unwrap();
                    assert!(!events.is_empty(), "a wakeup was lost");
                }
                mine.disarm();
            }
            other.signal();
        };
        thread::scope(|scope| {
            scope.spawn(|| play(&there, &back, 0));
            play(&back, &there, 1);
        });
        assert!(turn.into_inner() >= ROUNDS);
    }
}
