//! `glob` of libc, which lists folders without calling the functions that [`crate::folders`] stands
//! in front of: it is told to call those, where a pattern may lead to something of ours.
use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{dirent, stat as Stat};

use crate::errno::Errno;
use crate::kernel_files::passes_through;
use crate::next::{Next, c_name, call_next};
use crate::{folders, paths, working_folder};

/// `glob_t` of glob.h, with the members that are for `GLOB_ALTDIRFUNC`.
#[repr(C)]
pub struct Glob {
    pathc: usize,
    pathv: *mut *mut c_char,
    offs: usize,
    flags: c_int,
    functions: Functions,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    closedir: unsafe extern "C" fn(*mut c_void),
    readdir: unsafe extern "C" fn(*mut c_void) -> *mut dirent,
    opendir: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    lstat: unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int,
    stat: unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int,
}

/// Flags of glob.h.
const ALTDIRFUNC: c_int = 1 << 9;
const BRACE: c_int = 1 << 10;

unsafe extern "C" fn close(folder: *mut c_void) {
    // SAFETY: glob closes what `open` gave it.
    unsafe { folders::closedir(folder.cast()) };
}

unsafe extern "C" fn read(folder: *mut c_void) -> *mut dirent {
    // SAFETY: glob reads what `open` gave it.
    unsafe { folders::readdir(folder.cast()) }
}

unsafe extern "C" fn open(path: *const c_char) -> *mut c_void {
    // SAFETY: glob names a folder.
    unsafe { folders::opendir(path) }.cast()
}

const FUNCTIONS: Functions = Functions {
    closedir: close,
    readdir: read,
    opendir: open,
    lstat: paths::lstat,
    stat: paths::stat,
};

/// Whether a pattern may match something of ours, by what stands before its first special
/// character.
fn may_match_ours(pattern: &[u8], flags: c_int) -> bool {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let has_braces = flags & BRACE != 0 && pattern.contains(&b'{');
    let ends = pattern.iter().position(is_special).unwrap_or(pattern.len());
    let fixed = &pattern[..ends];
    let is_near = |root: &&[u8]| root.starts_with(fixed) || fixed.starts_with(root);
    let roots: [&[u8]; 2] = [b"/sys", b"/dev"];
    !passes_through()
        && match pattern.first() {
            Some(b'/') => has_braces || roots.iter().any(is_near),
            Some(_) => has_braces || working_folder::ours().is_some(),
            None => false,
        }
}

/// Interposes the two forms of glob, which are the same on 64-bit Linux.
macro_rules! globs {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            pattern: *const c_char,
            flags: c_int,
            failed: *mut c_void,
            found: *mut Glob,
        ) -> c_int {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            unsafe { glob_with(&NEXT, pattern, flags, failed, found) }
        }
    )*};
}

globs! { glob glob64 }

/// # Safety
/// As the manual page of glob(3) says.
unsafe fn glob_with(
    next: &Next,
    pattern: *const c_char,
    flags: c_int,
    failed: *mut c_void,
    found: *mut Glob,
) -> c_int {
    let call = move |flags: c_int| {
        call_next!(
            next,
            fn(*const c_char, c_int, *mut c_void, *mut Glob) -> c_int,
            pattern,
            flags,
            failed,
            found
        )
        .unwrap_or_else(|| {
            Errno::NOSYS.set();
            libc::GLOB_ABORTED
        })
    };
    // SAFETY: by the caller's promise.
    let is_ours = !pattern.is_null()
        && !found.is_null()
        && flags & ALTDIRFUNC == 0
        && may_match_ours(unsafe { CStr::from_ptr(pattern) }.to_bytes(), flags);
    if !is_ours {
        return call(flags);
    }
    // SAFETY: by the caller's promise. What the program has there, perhaps nothing that was set,
    // stays.
    unsafe {
        let functions = &raw mut (*found).functions;
        let before = functions.cast::<[usize; 5]>().read();
        functions.write(FUNCTIONS);
        let status = call(flags | ALTDIRFUNC);
        functions.cast::<[usize; 5]>().write(before);
        (*found).flags &= !ALTDIRFUNC;
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_that_may_match_are_matched_by_us() {
        assert_eq!(size_of::<Glob>(), size_of::<libc::glob_t>());
        for pattern in [
            "/sys/class/infiniband/*",
            "/*/class/i*",
            "/s?s",
            "/dev/inf*/u*",
            "/*",
        ] {
            assert!(may_match_ours(pattern.as_bytes(), 0), "{pattern}");
        }
        for pattern in ["", "*", "/etc/*", "/usr/lib/*.so", "~/*"] {
            assert!(!may_match_ours(pattern.as_bytes(), 0), "{pattern}");
        }
        assert!(may_match_ours(b"{/etc,/sys/class}/*", BRACE));
    }
}
