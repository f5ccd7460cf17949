//! Waking a thread that waits in a [`Waiter`](crate::Waiter): an eventfd that is written only when
//! a thread waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{EFD_CLOEXEC, EFD_NONBLOCK};

use crate::uncancelled;

mod gate;

pub use gate::Wakeup;

/// Atomics, where loom puts its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
}

/// A count of signals that a thread can wait for.
#[derive(Debug)]
struct Event(OwnedFd);

impl Event {
    fn new() -> io::Result<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        unsafe {
            match libc::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    #[cold]
    fn write(&self) {
        let one: u64 = 1;
        // SAFETY: eight bytes at a u64. It fails only when 2^64 - 2 signals are pending, and then
        // the waiter wakes anyway.
        unsafe { uncancelled::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the signals that were written; returns how many.
    fn take(&self) -> u64 {
        let mut count: u64 = 0;
        // SAFETY: eight bytes at a u64. When there is none, the call fails and leaves it alone.
        unsafe { uncancelled::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        count
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interest, Waiter};
    use std::sync::atomic::{AtomicU32, Ordering};
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
        wakeup.event.write();
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
