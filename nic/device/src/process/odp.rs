//! Memory that may be missing: faulting it in without the risk of a signal, and memory that is
//! always zero.

use std::sync::atomic::{AtomicBool, Ordering};

use urxe_proto::AccessError;

use crate::process::found_once::FoundOnce;

/// Whether `len` bytes at the process's address `at` are there, brought in if need be; an access
/// would raise SIGSEGV or SIGBUS otherwise. What another thread unmaps after this is not seen.
pub(crate) fn fault_in(at: u64, len: u64, writes: bool) -> bool {
    /// The kernel is older than Linux 5.14.
    static CANNOT_POPULATE: AtomicBool = AtomicBool::new(false);
    if len == 0 {
        return true;
    }
    let page = page_bytes();
    let start = at - at % page;
    let Some(end) = at
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(page))
    else {
        return false;
    };
    let (start, bytes) = (start as *mut libc::c_void, (end - start) as usize);
    if !CANNOT_POPULATE.load(Ordering::Relaxed) {
        let advice = if writes {
            libc::MADV_POPULATE_WRITE
        } else {
            libc::MADV_POPULATE_READ
        };
        // SAFETY: populating changes no memory, and fails where there is none (madvise(2)).
        if unsafe { libc::madvise(start, bytes, advice) } == 0 {
            return true;
        }
        // EINVAL is also what a mapping without the right gets.
        if is_populate_known() {
            return false;
        }
        CANNOT_POPULATE.store(true, Ordering::Relaxed);
    }
    is_mapped(start, bytes)
}

/// Whether the kernel knows the advice: a page of ours can be populated then.
fn is_populate_known() -> bool {
    let byte = 0u8;
    let at = std::ptr::from_ref(&byte) as u64;
    let start = (at - at % page_bytes()) as *mut libc::c_void;
    // SAFETY: the page of a live variable; nothing is changed.
    unsafe { libc::madvise(start, 1, libc::MADV_POPULATE_READ) == 0 }
}

/// Whether all pages are mapped, with whatever rights.
fn is_mapped(start: *mut libc::c_void, bytes: usize) -> bool {
    let pages = bytes.div_ceil(page_bytes() as usize);
    let mut resident = vec![0u8; pages];
    // SAFETY: one byte per page; mincore(2) looks at no memory, and fails with ENOMEM for a hole.
    unsafe { libc::mincore(start, bytes, resident.as_mut_ptr()) == 0 }
}

pub(crate) fn page_bytes() -> u64 {
    static PAGE: FoundOnce = FoundOnce::new();
    PAGE.or_find(|| {
        // SAFETY: always possible.
        u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    })
}

/// The address of `len` bytes that are zero: at most the longest message. They take no memory, but
/// for page tables, because nothing writes them.
pub(crate) fn zeros(len: u64) -> Result<u64, AccessError> {
    const BYTES: usize = 1 << 30;
    const MISSING: u64 = 0;
    static ZEROS: FoundOnce = FoundOnce::new();
    if len > BYTES as u64 {
        return Err(AccessError::OutOfBounds);
    }
    let map = || {
        // SAFETY: a new mapping, for reading.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            MISSING
        } else {
            start as u64
        }
    };
    // SAFETY: a mapping of this length that no other code knows.
    let unmap = |start| unsafe {
        libc::munmap(start as *mut libc::c_void, BYTES);
    };
    match ZEROS.or_make(map, unmap) {
        MISSING => Err(AccessError::Fault),
        start => Ok(start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_there_and_a_hole_is_not() {
        let page = page_bytes() as usize;
        let start = crate::support::apart::map(2 * page, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the second page of a new mapping.
        assert_eq!(unsafe { libc::munmap(start.add(page), page) }, 0);
        let at = start as u64;
        assert!(fault_in(at, 1, true));
        assert!(fault_in(at + 10, page as u64 - 10, false));
        assert!(!fault_in(at + 10, page as u64, false));
        assert!(!fault_in(u64::MAX - 10, 5, false));
        assert!(!fault_in(u64::MAX - 10, 50, false));
        assert!(is_mapped(start, page));
        assert!(!is_mapped(start, 2 * page));
    }
}
