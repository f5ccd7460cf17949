//! Objects that C programs hold pointers to.
//!
//! Each is one allocation: the C struct, and behind it what Rust keeps. C owns exactly one such
//! allocation per object: [`Handle::give`] hands it out at creation and [`Handle::take_back`] takes it
//! at destruction; in between only shared references to the Rust part exist, because programs call
//! from many threads.
use std::sync::atomic::{AtomicU32, Ordering};

use crate::errno::{Errno, Outcome};

/// A C struct with Rust state behind it.
#[repr(C)]
pub(crate) struct Handle<C, S> {
    /// What programs see and may write to.
    pub(crate) c: C,
    /// What they do not see.
    pub(crate) state: S,
}

impl<C, S> Handle<C, S> {
    /// Hands a new object to C.
    pub(crate) fn give(c: C, state: S) -> *mut C {
        Box::into_raw(Box::new(Self { c, state })).cast()
    }

    /// The Rust part of an object.
    ///
    /// # Safety
    /// `object` came from [`Handle::give`] of the same types and was not taken back, nor will be
    /// while the reference lives.
    pub(crate) unsafe fn state<'a>(object: *mut C) -> &'a S {
        // SAFETY: by the caller's promise.
        unsafe { &(*object.cast::<Self>()).state }
    }

    /// Takes an object back from C, at its destruction.
    ///
    /// # Safety
    /// As for [`Handle::state`], and nobody uses the object any more.
    pub(crate) unsafe fn take_back(object: *mut C) -> Box<Self> {
        // SAFETY: by the caller's promise it is the box that `give` made.
        unsafe { Box::from_raw(object.cast()) }
    }
}

/// Counts the objects that refer to an object, which cannot be destroyed before them.
#[derive(Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    /// One more.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// One less.
    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// EBUSY as long as there are users.
    pub(crate) fn none_left(&self) -> Outcome<()> {
        if self.0.load(Ordering::Acquire) == 0 {
            Ok(())
        } else {
            Err(Errno::BUSY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_found_behind_the_c_struct_and_dropped_once() {
        struct Noted<'a>(&'a AtomicU32);
        impl Drop for Noted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let drops = AtomicU32::new(0);
        let object = Handle::give([7u8; 3], Noted(&drops));
        // SAFETY: just given, taken back below, not used after.
        unsafe {
            assert_eq!(*object, [7; 3]);
            assert_eq!(
                Handle::<[u8; 3], Noted<'_>>::state(object)
                    .0
                    .load(Ordering::Relaxed),
                0
            );
            drop(Handle::<[u8; 3], Noted<'_>>::take_back(object));
        }
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_object_in_use_is_busy() {
        let users = Users::default();
        assert_eq!(users.none_left(), Ok(()));
        users.add();
        assert_eq!(users.none_left(), Err(Errno::BUSY));
        users.remove();
        assert_eq!(users.none_left(), Ok(()));
    }
}
