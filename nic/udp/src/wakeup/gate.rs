//! What waits and what wakes, apart from the eventfd between them: loom tries every order of it
//! (`tests/wakeup_orders.rs`, which has atomics and an event of its own for this file).

use std::io;

use super::Event;
use super::sync::{AtomicBool, AtomicU64, Ordering, fence};

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
    pub(super) event: Event,
    pub(super) armed: AtomicBool,
    /// Signals that were on their way when the thread disarmed: what is to be taken when they come.
    /// Only the waiting thread uses it.
    pub(super) late: AtomicU64,
}

impl Wakeup {
    /// Makes an eventfd (eventfd(2), Linux 2.6.27).
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: Event::new()?,
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
            self.event.write();
        }
    }

    /// Says that the thread no longer waits, and takes the signal if there was one.
    pub fn disarm(&self) {
        let signals = u64::from(!self.armed.swap(false, Ordering::AcqRel));
        let due = self.late.load(Ordering::Relaxed) + signals;
        // A thread that signals disarms first and writes then, and may have been held up in
        // between. What comes late ends the next wait early, and has to be taken then: else all
        // waits would end early from then on.
        if due > 0 {
            let late = due.saturating_sub(self.event.take());
            self.late.store(late, Ordering::Relaxed);
        }
    }
}
