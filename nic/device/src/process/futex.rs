//! A lock whose whole state is one word, so that the child of a fork has nothing of it but what the
//! word says. Threads of the parent that waited for it, or were about to, leave nothing behind. A
//! lock that keeps its waiters in a table of the process would leave the child a table that a
//! thread was amid.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_api::{GuardNoSend, RawMutexTimed};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and a thread may sleep until it is free.
const AWAITED: u32 = 2;

/// See [`Mutex`].
#[derive(Debug)]
pub struct RawMutex(AtomicU32);

/// What belongs to it is used by one thread at a time. In the child of a fork it is as the forking
/// thread had it.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// What is behind a [`Mutex`], as long as this lives.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

impl RawMutex {
    #[inline]
    fn take(&self) -> bool {
        self.0
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock, or finds it locked after `end`.
    #[cold]
    fn wait_until(&self, end: Option<Instant>) -> bool {
        // It is always taken as awaited here, as others may sleep as well.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            self.sleep(left);
        }
        true
    }

    /// Sleeps until it is given back, or for so long, or for no reason.
    fn sleep(&self, at_most: Option<Duration>) {
        let timeout = at_most.map(|at_most| libc::timespec {
            tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(at_most.subsec_nanos().cast_signed()),
        });
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time live until the call returns.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), op, AWAITED, timeout) };
    }

    #[cold]
    fn wake(&self) {
        let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: only the address of the word is used.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), op, 1) };
    }
}

// SAFETY: one thread at a time changes the word from free, and only that thread makes it free.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self(AtomicU32::new(FREE));
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        if !self.take() {
            self.wait_until(None);
        }
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.take().then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            self.wake();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != FREE
    }
}

// SAFETY: as above.
unsafe impl RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, at_most: Duration) -> Option<GuardNoSend> {
        let is_taken = self.take() || self.wait_until(Instant::now().checked_add(at_most));
        is_taken.then(GuardNoSend::new)
    }

    fn try_lock_until(&self, end: Instant) -> Option<GuardNoSend> {
        (self.take() || self.wait_until(Some(end))).then(GuardNoSend::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_it() {
        const TIMES: u32 = 20_000;
        static COUNT: Mutex<u32> = Mutex::new(0);
        let threads: [_; 4] = std::array::from_fn(|index| {
            std::thread::spawn(move || {
                for round in 0..TIMES {
                    let patience = Duration::from_micros(u64::from(round % 3));
                    let mut count = match index {
                        0 => COUNT.try_lock_for(patience).unwrap_or_else(|| COUNT.lock()),
                        _ => COUNT.lock(),
                    };
                    let before = *count;
                    std::hint::black_box(&mut count);
                    *count = before + 1;
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*COUNT.lock(), 4 * TIMES);
    }

    #[test]
    fn a_thread_gives_up_when_its_time_is_over() {
        let lock = Mutex::new(());
        let held = lock.lock();
        let begun = Instant::now();
        let patience = Duration::from_millis(5);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(patience).is_none());
            assert!(waiter.join().unwrap());
        });
        assert!(begun.elapsed() >= patience);
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    /// Also one that had to sleep for it.
    #[test]
    fn a_thread_that_sleeps_for_it_gets_it() {
        let lock = Mutex::new(0);
        let mut held = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| *lock.lock());
            // SAFETY: only looked at.
            while unsafe { lock.raw() }.0.load(Ordering::Relaxed) != AWAITED {
                std::thread::yield_now();
            }
            *held = 7;
            drop(held);
            assert_eq!(waiter.join().unwrap(), 7);
        });
    }
}
