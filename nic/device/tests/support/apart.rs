//! Memory of which a part can be unmapped and stays unmapped.

use std::sync::atomic::{AtomicUsize, Ordering};

use urxe_device::{Access, SendOp, Sge};

use super::{End, all_rights};

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

/// Changes the rights to pages of a mapping.
pub fn protect(at: usize, len: usize, rights: libc::c_int) {
    // SAFETY: what tests ask for is a part of their own mappings.
    let status = unsafe { libc::mprotect(at as *mut libc::c_void, len, rights) };
    assert_eq!(status, 0);
}

pub type FaultHandler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Has this called for each fault.
pub fn on_fault(handler: FaultHandler) {
    // SAFETY: all zeros is a valid sigaction, and the handler has the type that the flag asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
}

/// Pages of their own that are registered at one end.
pub struct Pages {
    pub at: usize,
    pub len: usize,
    pub key: u32,
}

impl Pages {
    /// With all rights.
    pub fn new(end: &End, len: usize) -> Self {
        Self::with(end, len, all_rights())
    }

    pub fn with(end: &End, len: usize, access: Access) -> Self {
        let at = map(len, libc::PROT_READ | libc::PROT_WRITE) as usize;
        let va = at as u64;
        let region = end.nic.register(end.pd, va, len as u64, va, access);
        let key = region.unwrap().lkey;
        Self { at, len, key }
    }

    pub fn unmap(&self) {
        // SAFETY: they are this test's own.
        let status = unsafe { libc::munmap(self.at as *mut libc::c_void, self.len) };
        assert_eq!(status, 0);
    }

    pub fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.at as u64,
            len: len as u32,
            lkey: self.key,
        }
    }

    pub fn write_op(&self) -> SendOp {
        let (va, rkey) = (self.at as u64, self.key);
        SendOp::Write { va, rkey }
    }
}
