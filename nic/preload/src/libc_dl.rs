//! libc's own dlsym and dlvsym, which ours stand before.
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use crate::elf;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// libc's dlsym.
pub(crate) fn real_dlsym() -> Dlsym {
    static REAL: OnceLock<Dlsym> = OnceLock::new();
    *REAL.get_or_init(|| {
        let address = elf::next_definition(c"dlsym").expect("the dynamic linker has dlsym");
        // SAFETY: the function of this name has this signature (dlsym(3)).
        unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) }
    })
}

/// libc's dlvsym.
pub(crate) fn real_dlvsym() -> Dlvsym {
    static REAL: OnceLock<Dlvsym> = OnceLock::new();
    *REAL.get_or_init(|| {
        let address = elf::next_definition(c"dlvsym").expect("the dynamic linker has dlvsym");
        // SAFETY: the function of this name has this signature (dlvsym(3)).
        unsafe { std::mem::transmute::<*mut c_void, Dlvsym>(address) }
    })
}
