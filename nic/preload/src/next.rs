//! The library behind us: the real libibverbs, and libc.
//!
//! Symbols are asked for by version, as the dynamic linker would: several of libibverbs exist
//! twice, and the older one takes other structs.
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use urxe_device::FoundOnce;

use crate::{elf, libc_dl};

/// A symbol of the next library, looked up at its first use.
pub(crate) struct Next {
    name: &'static CStr,
    of: Library,
    address: AtomicPtr<c_void>,
}

/// Whose symbol it is.
#[derive(Clone, Copy)]
enum Library {
    Libc,
    /// libibverbs's, of this version.
    Verbs(&'static CStr),
    /// libibverbs's own for its drivers; its version is another in nearly every release.
    VerbsPrivate,
}

/// Stands for "looked for, not there".
static MISSING: u8 = 0;

impl Next {
    /// A symbol of libibverbs with its version.
    pub(crate) const fn verb(name: &'static CStr, version: &'static CStr) -> Self {
        Self::of(name, Library::Verbs(version))
    }

    /// A symbol that libibverbs has for its drivers, of whatever version.
    pub(crate) const fn private(name: &'static CStr) -> Self {
        Self::of(name, Library::VerbsPrivate)
    }

    /// A symbol of libc.
    pub(crate) const fn libc(name: &'static CStr) -> Self {
        Self::of(name, Library::Libc)
    }

    const fn of(name: &'static CStr, of: Library) -> Self {
        Self {
            name,
            of,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address, or `None` if no library has it.
    pub(crate) fn address(&self) -> Option<*mut c_void> {
        let missing = (&raw const MISSING).cast_mut().cast();
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            address = self.find();
            if address.is_null() {
                address = missing;
            }
            self.address.store(address, Ordering::Release);
        }
        (address != missing).then_some(address)
    }

    fn find(&self) -> *mut c_void {
        let found = self.find_in(libc::RTLD_NEXT);
        if !found.is_null() {
            return found;
        }
        let library = match self.of {
            // Never for libc: the initialisers of libibverbs's own libraries open files, and so
            // come back here while it is being loaded.
            Library::Libc => None,
            Library::Verbs(_) => libibverbs(),
            // A Python package brings a libibverbs of its own, which only its own modules see.
            Library::VerbsPrivate => match elf::next_definition(self.name) {
                Some(address) => return address,
                None => libibverbs(),
            },
        };
        library.map_or(std::ptr::null_mut(), |library| self.find_in(library))
    }

    fn find_in(&self, library: *mut c_void) -> *mut c_void {
        // SAFETY: name and version are C strings; the handle is RTLD_NEXT or never closed.
        unsafe {
            match self.of {
                Library::Verbs(version) => {
                    libc_dl::real_dlvsym()(library, self.name.as_ptr(), version.as_ptr())
                }
                Library::Libc | Library::VerbsPrivate => {
                    libc_dl::real_dlsym()(library, self.name.as_ptr())
                }
            }
        }
    }
}

/// libibverbs, for a program that has loaded us but not it (it was opened with dlopen, say).
fn libibverbs() -> Option<*mut c_void> {
    static HANDLE: FoundOnce = FoundOnce::new();
    let handle = HANDLE.or_find(|| {
        // SAFETY: libibverbs may be loaded at any time, and has one handle however often it is.
        unsafe {
            libc::dlopen(
                c"libibverbs.so.1".as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL,
            ) as u64
        }
    });
    (handle != 0).then_some(handle as *mut c_void)
}

/// Calls a [`Next`] as `fn(argument types) -> result`; `None` if there is none.
macro_rules! call_next {
    ($next:expr, fn($($ty:ty),* $(,)?) -> $ret:ty, $($arg:expr),* $(,)?) => {
        $next.address().map(|address| {
            // SAFETY: the symbol has this signature in the version asked for, and the caller's
            // arguments are handed on as they came.
            unsafe {
                let function: unsafe extern "C" fn($($ty),*) -> $ret =
                    std::mem::transmute(address);
                function($($arg),*)
            }
        })
    };
}
pub(crate) use call_next;

/// A string constant as a C string.
macro_rules! c_name {
    ($name:expr) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a symbol name holds no zero byte"),
        }
    };
}

pub(crate) use c_name;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_libc_and_says_when_there_is_nothing() {
        static GETPID: Next = Next::libc(c"getpid");
        static ABSENT: Next = Next::libc(c"urxe_has_no_such_function");
        let pid = call_next!(GETPID, fn() -> libc::pid_t,);
        assert_eq!(pid, Some(std::process::id().cast_signed()));
        assert_eq!(ABSENT.address(), None);
        assert_eq!(ABSENT.address(), None, "the answer is remembered");
    }

    #[test]
    fn versions_tell_symbols_apart() {
        if libibverbs().is_none() {
            eprintln!("SKIPPED: libibverbs.so.1 is not installed");
            return;
        }
        static NEW: Next = Next::verb(c"ibv_alloc_pd", c"IBVERBS_1.1");
        static OLD: Next = Next::verb(c"ibv_alloc_pd", c"IBVERBS_1.0");
        static WRONG: Next = Next::verb(c"ibv_alloc_pd", c"IBVERBS_9.9");
        assert_ne!(NEW.address(), None);
        assert_ne!(OLD.address(), None);
        assert_ne!(NEW.address(), OLD.address());
        assert_eq!(WRONG.address(), None);
    }
}
