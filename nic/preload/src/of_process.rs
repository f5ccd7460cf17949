//! What stands behind an object that outlives a fork: a context and a protection domain of the
//! parent's stand for new ones in the child, made when it first uses them.
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};

use urxe_device::{AcrossFork, epoch};

use crate::errno::Outcome;

/// Held by the thread that puts something in the place of what is inherited.
pub(crate) static RENEWING: AcrossFork<()> = AcrossFork::new(());

struct Made<T> {
    epoch: u32,
    value: T,
}

/// See the module. What is there of another process is never dropped: threads that this process
/// does not have may have been amid it.
pub(crate) struct OfProcess<T>(AtomicPtr<Made<T>>);

// SAFETY: it is as a box of the value that it points to.
unsafe impl<T: Send + Sync> Send for OfProcess<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for OfProcess<T> {}

impl<T> OfProcess<T> {
    fn boxed(value: T) -> *mut Made<T> {
        let epoch = epoch();
        Box::into_raw(Box::new(Made { epoch, value }))
    }

    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Self::boxed(value)))
    }

    fn made(&self) -> &Made<T> {
        // SAFETY: never null, and dropped with this alone.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Whether it was made in a process that this one is a child of, and nothing took its place
    /// yet.
    pub(crate) fn is_inherited(&self) -> bool {
        self.made().epoch != epoch()
    }

    /// Puts what `make` returns in the place of what is inherited. `make` renews nothing else.
    pub(crate) fn renew(&self, make: impl FnOnce(&T) -> Outcome<T>) -> Outcome<()> {
        if !self.is_inherited() {
            return Ok(());
        }
        let _alone = RENEWING.lock();
        if self.is_inherited() {
            let made = Self::boxed(make(&self.made().value)?);
            self.0.store(made, Ordering::Release);
        }
        Ok(())
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.made().value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_inherited() {
            // SAFETY: made by `boxed`, and the object that it stands behind is gone.
            drop(unsafe { Box::from_raw(*self.0.get_mut()) });
        }
    }
}
