//! Events that a program got of an object and has to acknowledge before it destroys the object.
//! They are counted where libibverbs counts them, in public members of the C struct and under its
//! public mutex and condition: programs read them there, and wait for them.
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::*;

/// Events that a program got of an object so far; wraps around, as do the public counters.
#[derive(Default)]
pub(crate) struct Reported(AtomicU32);

impl Reported {
    /// The program got one.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether more were got than acknowledged. More acknowledged than got is a mistake of the
    /// program without consequence.
    fn exceeds(&self, acknowledged: u32) -> bool {
        let missing = self.0.load(Ordering::Acquire).wrapping_sub(acknowledged);
        missing.cast_signed() > 0
    }
}

/// The public mutex and condition of an object.
#[derive(Clone, Copy)]
pub(crate) struct Lock {
    mutex: *mut libc::pthread_mutex_t,
    condition: *mut libc::pthread_cond_t,
}

/// An object of which there are events.
pub(crate) trait HasEvents {
    /// Its public mutex and condition.
    ///
    /// # Safety
    /// The object is live, and stays so while the lock is used.
    unsafe fn lock(object: *mut Self) -> Lock;
}

macro_rules! has_events {
    ($($ty:ty)*) => {$(
        impl HasEvents for $ty {
            unsafe fn lock(object: *mut Self) -> Lock {
                // SAFETY: by the caller's promise.
                unsafe {
                    Lock {
                        mutex: &raw mut (*object).mutex,
                        condition: &raw mut (*object).cond,
                    }
                }
            }
        }
    )*};
}

has_events! { ibv_cq ibv_qp ibv_srq }

impl Lock {
    /// Makes both ready for use. The object is where it will stay.
    ///
    /// # Safety
    /// The object was just made, and nothing else knows it.
    pub(crate) unsafe fn initialise(self) {
        // SAFETY: by the caller's promise; with default attributes neither can fail.
        unsafe {
            libc::pthread_mutex_init(self.mutex, std::ptr::null());
            libc::pthread_cond_init(self.condition, std::ptr::null());
        }
    }

    /// The program acknowledges `count` events, which `counter` counts.
    ///
    /// # Safety
    /// Lock and counter are of a live object.
    pub(crate) unsafe fn acknowledge(self, counter: *mut u32, count: u32) {
        // SAFETY: by the caller's promise. Another thread may destroy the object once the mutex is
        // free, and nothing is touched after.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *counter = (*counter).wrapping_add(count);
            libc::pthread_cond_broadcast(self.condition);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until all events are acknowledged that were `reported`.
    ///
    /// # Safety
    /// As for [`Self::acknowledge`].
    pub(crate) unsafe fn wait_for(self, reported: &Reported, counter: *const u32) {
        // SAFETY: by the caller's promise.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            while reported.exceeds(*counter) {
                libc::pthread_cond_wait(self.condition, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_last_acknowledgement() {
        struct Shared(*mut ibv_cq);
        // SAFETY: what is behind is used under its mutex.
        unsafe impl Sync for Shared {}
        impl Shared {
            fn get(&self) -> *mut ibv_cq {
                self.0
            }
        }
        let mut cq = ibv_cq::default();
        let shared = &Shared(&raw mut cq);
        let reported = &Reported::default();
        reported.add();
        reported.add();
        // SAFETY: the queue lives until the end of the test.
        unsafe {
            let lock = || HasEvents::lock(shared.get());
            let counter = || &raw mut (*shared.get()).comp_events_completed;
            lock().initialise();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(move || lock().wait_for(reported, counter()));
                lock().acknowledge(counter(), 1);
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(!waiter.is_finished(), "one is not acknowledged");
                lock().acknowledge(counter(), 1);
            });
            assert_eq!(*counter(), 2);
            lock().acknowledge(counter(), 5);
            lock().wait_for(reported, counter());
        }
    }

    #[test]
    fn counters_wrap_around() {
        let reported = Reported(AtomicU32::new(u32::MAX));
        reported.add();
        assert!(reported.exceeds(u32::MAX));
        assert!(!reported.exceeds(0));
        assert!(!reported.exceeds(3));
    }
}
