//! Objects that C programs hold pointers to.
//!
//! Each is one allocation: the C struct, and behind it what Rust keeps. C owns exactly one such
//! allocation per object: [`Handle::give`] hands it out at creation and [`Handle::take_back`] takes
//! it at destruction. In between only shared references to the Rust part exist, because programs
//! call from many threads.
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use urxe_device::epoch;

use crate::errno::{Errno, Outcome};

/// A C struct with Rust state behind it.
#[repr(C)]
pub(crate) struct Handle<C, S> {
    /// What programs see and may write to.
    pub(crate) c: C,
    /// The process that made it: see [`epoch`].
    epoch: u32,
    /// What they do not see.
    pub(crate) state: S,
}

impl<C, S> Handle<C, S> {
    /// Hands a new object to C.
    pub(crate) fn give(c: C, state: S) -> *mut C {
        let epoch = epoch();
        Box::into_raw(Box::new(Self { c, epoch, state })).cast()
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

    /// Whether the object is of the process that this one was forked from.
    ///
    /// # Safety
    /// As for [`Handle::state`].
    #[inline]
    pub(crate) unsafe fn is_inherited(object: *mut C) -> bool {
        let epoch = epoch();
        // SAFETY: by the caller's promise.
        epoch != 0 && unsafe { (*object.cast::<Self>()).epoch } != epoch
    }

    /// Takes an object back from C, at its destruction.
    ///
    /// # Safety
    /// As for [`Handle::state`], and no thread uses the object any more.
    pub(crate) unsafe fn take_back(object: *mut C) -> Box<Self> {
        // SAFETY: by the caller's promise it is the box that `give` made.
        unsafe { Box::from_raw(object.cast()) }
    }
}

/// Pointers to functions that a structure has room for behind those of the release that we were
/// built with.
const NEWER: usize = 16;

/// A structure that ends with pointers to functions, of which later releases of libibverbs have
/// more.
#[repr(C)]
pub(crate) struct Growing<C> {
    known: C,
    newer: [*const c_void; NEWER],
}

impl<C> Growing<C> {
    /// Lets `refusal` stand for all functions that are not there: those that are null, and those of
    /// later releases.
    ///
    /// # Safety
    /// From the byte `first` on, `known` is pointers to functions, which may be null. `refusal` is
    /// a function that takes any arguments.
    pub(crate) unsafe fn new(mut known: C, first: usize, refusal: *const c_void) -> Self {
        const WORD: usize = size_of::<*const c_void>();
        // SAFETY: by the caller's promise.
        let functions = unsafe {
            let start = (&raw mut known).cast::<*const c_void>().byte_add(first);
            std::slice::from_raw_parts_mut(start, (size_of::<C>() - first) / WORD)
        };
        for function in functions.iter_mut().filter(|function| function.is_null()) {
            *function = refusal;
        }
        Self {
            known,
            newer: [refusal; NEWER],
        }
    }

    /// The same with a function of a later release in its place, the first being behind all known
    /// ones.
    pub(crate) fn with_newer(mut self, place: usize, function: *const c_void) -> Self {
        self.newer[place] = function;
        self
    }
}

/// What an object is known by, as the kernel knows it by the handle in the C struct. A program may
/// have written another number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u32);

impl Number {
    /// The handle that a new object gets.
    pub(crate) const fn of(handle: u32) -> Self {
        Self(handle)
    }

    /// A number of no object of this process before, for those that have none by themselves.
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// For the C struct.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// EINVAL for another handle, as the kernel says of one that it does not have.
    pub(crate) fn is_of(self, handle: u32) -> Outcome<()> {
        if handle == self.0 {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }

    /// The same when the object is to be destroyed: the kernel says ENOENT then.
    pub(crate) fn ends(self, handle: u32) -> Outcome<()> {
        self.is_of(handle).map_err(|_| Errno::NOENT)
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
    fn a_function_that_is_not_there_is_the_refusal() {
        let functions: [*const c_void; 3] = [0, 0x10, 0].map(std::ptr::without_provenance);
        let refusal = std::ptr::without_provenance(0x70);
        // SAFETY: from the second on, pointers.
        let grown = unsafe { Growing::new(functions, size_of::<*const c_void>(), refusal) };
        assert_eq!(grown.known.map(|at| at.addr()), [0, 0x10, 0x70]);
        assert_eq!(grown.newer, [refusal; NEWER]);
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
