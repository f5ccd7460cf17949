//! Memory of which a part can be unmapped and stays unmapped.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Where these mappings are: far below all others. The kernel gives out the highest addresses that
/// are free, so that elsewhere the stack of another test's thread, or the page that guards it, may
/// be in a hole as soon as there is one.
const FIRST: usize = 1 << 36;
/// From one to the next.
const STEP: usize = 1 << 24;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A new mapping of so many bytes, with these rights (`PROT_READ` and so on).
pub fn map(len: usize, rights: i32) -> *mut libc::c_void {
    assert!(len < STEP);
    let at = NEXT.fetch_add(STEP, Ordering::Relaxed) as *mut libc::c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, which replaces none.
    let mapped = unsafe { libc::mmap(at, len, rights, flags, -1, 0) };
    assert_eq!(mapped, at, "{}", std::io::Error::last_os_error());
    mapped
}
