//! dlsym and dlvsym of libc. A program that opens libibverbs with dlopen asks for its symbols by
//! handle, and then the dynamic linker does not look at preloaded libraries. Where it finds a verb
//! of libibverbs that we have too, the program gets ours.
//!
//! Only with a handle: `RTLD_NEXT` and `RTLD_DEFAULT` depend on the caller, so these calls are
//! passed on by a jump, which leaves the caller's return address where it was.

use std::ffi::{CStr, c_char, c_void};

use crate::blocking::Function;
use crate::elf;
use crate::libc_dl::{real_dlsym, real_dlvsym};

/// Our definition of the symbol that libc found, or that one.
///
/// # Safety
/// `name` is a string.
unsafe fn ours_or(found: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    let is_verb = bytes.starts_with(b"ibv_") || bytes.starts_with(b"_ibv_");
    if found.is_null() || !is_verb || !is_of_libibverbs(found) {
        return found;
    }
    elf::own_definition(name).unwrap_or(found)
}

/// The file that an address was loaded from.
fn object_of(address: *const c_void) -> Option<&'static CStr> {
    // SAFETY: all zeros is a valid Dl_info; dladdr fills it in, with strings that stay as long as
    // the object is loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null();
        found.then(|| CStr::from_ptr(info.dli_fname))
    }
}

fn is_of_libibverbs(address: *mut c_void) -> bool {
    let file = object_of(address).map_or(&[][..], CStr::to_bytes);
    let name = file.rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"libibverbs.so"))
}

unsafe extern "C" fn by_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: as the program promised dlsym.
    unsafe { ours_or(real_dlsym()(handle, name), name) }
}

unsafe extern "C" fn by_handle_and_version(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    // SAFETY: as the program promised dlvsym.
    unsafe { ours_or(real_dlvsym()(handle, name, version), name) }
}

/// Whether what is to be found depends on the caller.
fn depends_on_caller(handle: *mut c_void) -> bool {
    [libc::RTLD_DEFAULT, libc::RTLD_NEXT].contains(&handle)
}

mod routes {
    use super::*;

    pub(super) extern "C" fn dlsym(handle: *mut c_void) -> Function {
        if depends_on_caller(handle) {
            real_dlsym() as Function
        } else {
            by_handle as *const () as Function
        }
    }

    pub(super) extern "C" fn dlvsym(handle: *mut c_void) -> Function {
        if depends_on_caller(handle) {
            real_dlvsym() as Function
        } else {
            by_handle_and_version as *const () as Function
        }
    }
}

crate::routed::routed! {
    /// `dlsym` of libc.
    dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void = routes::dlsym;
    /// `dlvsym` of libc.
    dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void = routes::dlvsym;
}
