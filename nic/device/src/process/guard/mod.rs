//! Access to the program's memory that survives when the memory is gone: the program may unmap what
//! it has registered, or cut short the file behind it, and what a peer asks for then must not end
//! the process.
//!
//! Hardware pins the pages of a region. Nothing here does, and to ask the kernel before each access
//! would cost a system call. So the access happens, and if it raises SIGSEGV or SIGBUS, a handler
//! returns from it with an error: what was placed until then stays. An access without a fault pays
//! for six registers on the stack: as much as a copy of 64 bytes (9 ns against 8, on a busy
//! machine).
//!
//! A thread that has these signals blocked would be killed instead. So each thread unblocks them
//! before its first access, and again after the program may have blocked them ([`forget_mask`]).
//!
//! Signals that are not ours go to the handler that was there before, and so end the process as
//! they would without us. A handler that the program installs later is found by [`find_handlers`],
//! and then stands behind ours.
//!
//! A program may have protected the memory to learn of accesses (mprotect(2)), and its handler
//! would repair that. It is not called in the middle of an access, when locks are held, since it
//! may not come back (siglongjmp(3)): [`offer`] calls it later.

mod call;
mod handlers;

pub(crate) use handlers::INSTALLING;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use urxe_proto::AccessError;

use call::{Outcome, urxe_guard_call, urxe_guard_set_ready};

/// Copies `bytes` to the process's address `to`, the last byte last: programs poll the end of a
/// buffer to learn that all of it has arrived.
///
/// # Errors
/// [`AccessError::Fault`] if it is not there; some of the bytes may have been placed.
///
/// # Safety
/// The memory must be of a program that expects to be written to.
pub(crate) unsafe fn place(to: u64, bytes: &[u8]) -> Result<(), AccessError> {
    let Some((last, body)) = bytes.split_last() else {
        return Ok(());
    };
    let to = to as *mut u8;
    // SAFETY: the caller's promise; `bytes` is ours, so the two do not overlap. Nothing here has to
    // be dropped.
    unsafe {
        guarded(|| {
            std::ptr::copy_nonoverlapping(body.as_ptr(), to, body.len());
            AtomicU8::from_ptr(to.add(body.len())).store(*last, Ordering::Release);
        })
    }
}

/// Copies `pieces` to the process's address `to`, one behind the other. They are no message's end:
/// see [`place`].
///
/// # Errors
/// [`AccessError::Fault`] if it is not there; some of the bytes may have been placed.
///
/// # Safety
/// The memory must be of a program that expects to be written to.
pub(crate) unsafe fn place_pieces(to: u64, pieces: &[&[u8]]) -> Result<(), AccessError> {
    // SAFETY: the caller's promise; the pieces are ours, so that nothing overlaps. Nothing here has
    // to be dropped.
    unsafe {
        guarded(|| {
            let mut to = to as *mut u8;
            for piece in pieces {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
                to = to.add(piece.len());
            }
        })
    }
}

/// Copies from the process's address `from`.
///
/// # Errors
/// [`AccessError::Fault`] if it is not there.
///
/// # Safety
/// No thread may be writing there that does not expect to be read.
pub(crate) unsafe fn take(from: u64, out: &mut [u8]) -> Result<(), AccessError> {
    let (from, len, out) = (from as *const u8, out.len(), out.as_mut_ptr());
    // SAFETY: the caller's promise; `out` is ours, so the two do not overlap. Nothing here has to
    // be dropped.
    unsafe { guarded(|| std::ptr::copy_nonoverlapping(from, out, len)) }
}

/// Runs `access`, which may touch memory that is not there.
///
/// # Errors
/// [`AccessError::Fault`] if it was not; `access` was left where it was then.
///
/// # Safety
/// `access` must be of a kind that can be left anywhere: it takes no lock, and has nothing to drop.
#[inline]
pub(crate) unsafe fn guarded<F: FnMut()>(mut access: F) -> Result<(), AccessError> {
    /// The closure, as assembly can call it.
    unsafe extern "C" fn run<F: FnMut()>(access: *mut libc::c_void) {
        // SAFETY: a live `F`, given below.
        unsafe { (*access.cast::<F>())() }
    }
    let access = (&raw mut access).cast();
    // SAFETY: `run` takes what `access` is; the caller's promise for leaving it.
    unsafe { call(run::<F>, access) }
}

/// # Safety
/// As [`guarded`]; `run` takes `access`.
#[inline]
unsafe fn call(
    run: unsafe extern "C" fn(*mut libc::c_void),
    access: *mut libc::c_void,
) -> Result<(), AccessError> {
    // SAFETY: the caller's promise.
    let Outcome { code, at } = unsafe { urxe_guard_call(run, access) };
    match code {
        Outcome::DONE => Ok(()),
        // SAFETY: the caller's promise.
        Outcome::BLOCKED => unsafe { call_unblocked(run, access) },
        code => {
            note_fault(Fault {
                at,
                is_protected: code == Outcome::PROTECTED,
            });
            Err(AccessError::Fault)
        }
    }
}

/// The thread's first access.
///
/// # Safety
/// As [`call()`].
#[cold]
unsafe fn call_unblocked(
    run: unsafe extern "C" fn(*mut libc::c_void),
    access: *mut libc::c_void,
) -> Result<(), AccessError> {
    handlers::unblock();
    urxe_guard_set_ready(1);
    // SAFETY: the caller's promise.
    unsafe { call(run, access) }
}

/// The last access of the thread that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The address.
    pub(crate) at: u64,
    /// Whether something is mapped there, only not for this: the program's handler may be there to
    /// repair it.
    pub(crate) is_protected: bool,
}

thread_local! {
    static LAST_FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

#[cold]
fn note_fault(fault: Fault) {
    let _ = LAST_FAULT.try_with(|last| last.set(Some(fault)));
}

/// Why the thread's last access failed, once.
pub(crate) fn take_fault() -> Option<Fault> {
    LAST_FAULT.try_with(Cell::take).ok().flatten()
}

/// Whether the program has a handler for faults of memory that it has protected.
pub(crate) fn has_programs_handler() -> bool {
    handlers::has_programs()
}

/// Accesses a byte as the program would, so that its handler is called if the byte is protected;
/// once: whether it can be accessed then. To be called without any lock, and without anything that
/// has to be dropped: the handler may not come back.
pub(crate) fn offer(at: u64, writes: bool) -> bool {
    let at = at as *mut u8;
    let access = || {
        // SAFETY: a byte of memory that the program registered. Nothing is changed.
        unsafe {
            let mut seen = at.read_volatile();
            if writes {
                // One that cannot change anything (`fetch_or(0)`) would be compiled to a read.
                let byte = AtomicU8::from_ptr(at);
                while let Err(other) =
                    byte.compare_exchange(seen, seen, Ordering::AcqRel, Ordering::Relaxed)
                {
                    seen = other;
                }
            }
        }
    };
    handlers::allow_one();
    // SAFETY: an access has nothing to drop, and takes no lock.
    let accessed = unsafe { guarded(access) };
    handlers::allow_none();
    accessed.is_ok()
}

/// Sees to it that the signals come here first.
pub(crate) fn install() {
    handlers::install();
}

/// The program has installed a handler of a signal: if memory is registered, and it is one of
/// faults, ours goes in front again.
pub fn find_handlers(signal: libc::c_int) {
    if handlers::SIGNALS.contains(&signal)
        && handlers::is_installed()
        && handlers::has_function_in_front(signal)
    {
        handlers::install();
    }
}

/// The thread may have blocked signals: it finds out when it next accesses memory.
pub fn forget_mask() {
    urxe_guard_set_ready(0);
}

#[cfg(test)]
mod tests;
