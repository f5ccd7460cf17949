//! libc's own dlsym and dlvsym, which ours stand before.
use std::ffi::{CStr, c_char, c_void};

use urxe_device::FoundOnce;

use crate::elf;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// libc's dlsym.
pub(crate) fn real_dlsym() -> Dlsym {
    static REAL: FoundOnce = FoundOnce::new();
    // SAFETY: the function of this name has this signature (dlsym(3)).
    unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real(&REAL, c"dlsym")) }
}

/// libc's dlvsym.
pub(crate) fn real_dlvsym() -> Dlvsym {
    static REAL: FoundOnce = FoundOnce::new();
    // SAFETY: the function of this name has this signature (dlvsym(3)).
    unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(real(&REAL, c"dlvsym")) }
}

/// The address of a function that the dynamic linker has.
fn real(known: &FoundOnce, name: &CStr) -> *mut c_void {
    let address = known.or_find(|| elf::next_definition(name).map_or(0, |address| address as u64));
    assert_ne!(address, 0, "the dynamic linker has {name:?}");
    address as *mut c_void
}
