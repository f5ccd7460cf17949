//! Threads of the program that wait for packets in a poll, because others want the processor
//! ([`urxe_duty::Poller`]).
//!
//! A packet in a socket wakes them. But another thread may take it out before they look, and with
//! it what they wait for: the background thread, or one that blocks in a completion channel. Then
//! that thread wakes them. It does so, too, where it sent something over a connection: requests
//! complete by that.

use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use urxe_udp::{Socket, Wakeup, wait_readable};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Naps {
    /// Rounds that brought packets, or sent something over a connection.
    arrivals: AtomicU64,
    /// How many threads wait.
    count: AtomicUsize,
    wakeups: Mutex<Wakeups>,
}

#[derive(Debug, Default)]
struct Wakeups {
    waiting: Vec<Arc<Wakeup>>,
    spare: Vec<Arc<Wakeup>>,
}

impl Naps {
    /// Rounds that brought packets so far, to be asked before one looks for what they may have
    /// brought.
    #[inline]
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// A round brought packets. To be called with the engine's lock, once all that they bring is to
    /// be seen.
    #[inline]
    pub(crate) fn note_arrival(&self) {
        let before = self.arrivals.load(Ordering::Relaxed);
        self.arrivals
            .store(before.wrapping_add(1), Ordering::Release);
        // Pairs with the one in `wait`: of "I wait" and "something came" at least one is seen by
        // the other side.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        for each in &self.lock().waiting {
            each.signal();
        }
    }

    /// Waits until something is in a socket, or a round brings packets, at most so long; not at all
    /// if one did since there were `seen`.
    pub(crate) fn wait(
        &self,
        seen: u64,
        sockets: &[Arc<Socket>],
        connections: Option<BorrowedFd<'_>>,
        wait_ns: u64,
    ) {
        let fds = || {
            let sockets = sockets.iter().flat_map(|socket| socket.readable_fds());
            sockets.chain(connections)
        };
        let spare = self.lock().spare.pop();
        let Some(wakeup) = spare.or_else(|| Wakeup::new().ok().map(Arc::new)) else {
            // No descriptors are left: it may wait longer than it would have to.
            return wait_readable(fds(), wait_ns);
        };
        wakeup.arm();
        self.lock().waiting.push(Arc::clone(&wakeup));
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.arrivals.load(Ordering::Acquire) == seen {
            wait_readable(iter::once(wakeup.as_fd()).chain(fds()), wait_ns);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut wakeups = self.lock();
        wakeups.waiting.retain(|each| !Arc::ptr_eq(each, &wakeup));
        wakeup.disarm();
        wakeups.spare.push(wakeup);
    }

    fn lock(&self) -> MutexGuard<'_, Wakeups> {
        self.wakeups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::thread;
    use std::time::{Duration, Instant};

    /// Longer than a test may take.
    const LONG_NS: u64 = 60_000_000_000;

    #[test]
    fn who_waits_is_woken_by_what_another_thread_takes_in() {
        const THREADS: usize = 2;
        let naps = &Naps::default();
        for turn in 0..100 {
            thread::scope(|scope| {
                let seen = naps.arrivals();
                for _ in 0..THREADS {
                    scope.spawn(move || naps.wait(seen, &[], None, LONG_NS));
                }
                // Now and then while they begin to wait.
                while turn % 2 == 0 && naps.count.load(Ordering::Relaxed) < THREADS {
                    thread::yield_now();
                }
                naps.note_arrival();
            });
        }
        let wakeups = naps.lock();
        assert!(wakeups.waiting.is_empty() && wakeups.spare.len() <= THREADS);
    }

    #[test]
    fn nobody_waits_for_what_has_come_already() {
        let naps = Naps::default();
        let seen = naps.arrivals();
        naps.note_arrival();
        naps.wait(seen, &[], None, LONG_NS);
    }

    #[test]
    fn a_wait_in_which_nothing_comes_lasts_as_long_as_was_asked_for() {
        let naps = Naps::default();
        for _ in 0..3 {
            let start = Instant::now();
            naps.wait(naps.arrivals(), &[], None, 2_000_000);
            assert!(start.elapsed() >= Duration::from_millis(2));
            naps.note_arrival();
        }
    }
}
