//! What belongs to a process as a whole, behind locks that a fork ([`crate::process::fork`]) waits
//! for.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_api::{GuardNoSend, RawMutexTimed as _};

use crate::process::futex::{Mutex, MutexGuard};

/// Forks before this process was what it is.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// How many forks there were between the first process and this one. What was made in another epoch
/// is the parent's.
#[inline]
#[must_use]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// This process is the child of a fork now.
pub(crate) fn begin_epoch() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// Whether any lock of [`AcrossFork`] was ever taken. Until then there is nothing that a fork could
/// find in disorder, and a program that never uses a device pays nothing for its forks: to touch
/// these locks would copy their pages in parent and child.
static HAS_LOCKED: AtomicBool = AtomicBool::new(false);

/// See [`HAS_LOCKED`].
pub(crate) fn has_locked() -> bool {
    HAS_LOCKED.load(Ordering::Relaxed)
}

thread_local! {
    /// Locks of [`AcrossFork`] that the thread has or is about to take.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread has such a lock, or is about to take one: so a signal handler has
/// interrupted it there.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

/// While it lives, the thread may have a lock.
struct Inside;

impl Inside {
    fn new() -> Self {
        if !has_locked() {
            HAS_LOCKED.store(true, Ordering::Relaxed);
        }
        Self::count(1);
        Self
    }

    /// A thread that ends has no place to count, and does not fork.
    fn count(change: i32) {
        let _ = INSIDE.try_with(|inside| inside.set(inside.get().saturating_add_signed(change)));
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        Self::count(-1);
    }
}

/// Something of the whole process that is locked while the process is copied, so that the copy is
/// whole and free.
#[derive(Debug)]
pub struct AcrossFork<T>(Mutex<T>);

impl<T> AcrossFork<T> {
    /// Behind a lock that is free.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Locked<'_, T> {
        let inside = Inside::new();
        Locked {
            guard: self.0.lock(),
            _inside: inside,
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Locked<'_, T>> {
        let inside = Inside::new();
        let guard = self.0.try_lock()?;
        Some(Locked {
            guard,
            _inside: inside,
        })
    }
}

/// What is behind a lock, as long as this lives.
pub struct Locked<'a, T> {
    guard: MutexGuard<'a, T>,
    /// Dropped after it.
    _inside: Inside,
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A lock that a fork takes and gives back.
pub trait Held: Sync {
    /// Takes the lock; false if that takes longer.
    fn hold(&self, at_most: Duration) -> bool;

    /// Gives it back.
    ///
    /// # Safety
    /// This thread, or the one in the parent that it is the copy of, took it by [`Self::hold`].
    unsafe fn release(&self);
}

impl<T: Send> Held for AcrossFork<T> {
    fn hold(&self, at_most: Duration) -> bool {
        // SAFETY: it is unlocked by `release` alone.
        unsafe { self.0.raw() }.try_lock_for(at_most).is_some()
    }

    unsafe fn release(&self) {
        // SAFETY: by the caller's promise this thread has the lock, without a guard.
        unsafe { self.0.force_unlock(GuardNoSend::new()) };
    }
}
