//! The file system as it is without us.
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};

use crate::next::{Next, call_next};

thread_local! {
    static PASSES_THROUGH: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in [`without_ours`].
pub(crate) fn passes_through() -> bool {
    PASSES_THROUGH.get()
}

/// Runs `f` with nothing of ours in the file system: the libibverbs behind us must not take our
/// devices for the kernel's.
pub(crate) fn without_ours<T>(f: impl FnOnce() -> T) -> T {
    let before = PASSES_THROUGH.replace(true);
    let result = f();
    PASSES_THROUGH.set(before);
    result
}

/// Whether the real file system has something at `path`.
pub(crate) fn is_really_there(path: &str) -> bool {
    static NEXT: Next = Next::libc(c"access");
    CString::new(path).is_ok_and(|path| {
        let found = call_next!(
            NEXT,
            fn(*const c_char, c_int) -> c_int,
            path.as_ptr(),
            libc::F_OK
        );
        found == Some(0)
    })
}
