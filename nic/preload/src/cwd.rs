//! The working folder, which may be one of ours.
//!
//! The kernel has to know a working folder, for it hands it on to children and to other programs.
//! So a process that goes into a folder of ours is in a real one that was removed at once. Its name
//! tells where the process is, to us and to whatever it starts with our library.
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::Ordering;

use crate::descriptors::{self};
use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::next::{Next, call_next};
use crate::sysfs::Node;
use crate::tree::{self, Route};
use crate::working_folder::{MAY_BE_OURS, NAME, ours};

/// Where such folders are made, the first that can be written.
const PLACES: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

static NEXT_CHDIR: Next = Next::libc(c"chdir");

fn change(path: &CStr) -> Outcome<()> {
    match call_next!(NEXT_CHDIR, fn(*const c_char) -> c_int, path.as_ptr()) {
        Some(0) => Ok(()),
        _ => Err(Errno::of(&std::io::Error::last_os_error())),
    }
}

/// Goes into a folder of ours, its path without links.
fn enter(path: &str) -> Outcome<c_int> {
    let mut failure = Errno(libc::EACCES);
    for place in PLACES {
        match enter_below(place, path) {
            Ok(()) => return Ok(0),
            Err(errno) => failure = errno,
        }
    }
    Err(failure)
}

fn enter_below(place: &str, path: &str) -> Outcome<()> {
    let last = || Errno::of(&std::io::Error::last_os_error());
    let c_string = |text: String| CString::new(text).map_err(|_| Errno::INVAL);
    let mut name = format!("{place}{NAME}XXXXXX\0").into_bytes();
    // SAFETY: a string that may be written.
    if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
        return Err(last());
    }
    name.pop();
    let mut folder = String::from_utf8(name).map_err(|_| Errno::INVAL)?;
    let mut made = vec![c_string(folder.clone())?];
    let mut result = Ok(());
    for name in path.split('/').filter(|name| !name.is_empty()) {
        folder = format!("{folder}/{name}");
        let next = c_string(folder.clone())?;
        // SAFETY: a string.
        if unsafe { libc::mkdir(next.as_ptr(), 0o700) } < 0 {
            result = Err(last());
            break;
        }
        made.push(next);
    }
    if result.is_ok() {
        result = change(&made[made.len() - 1]);
    }
    if result.is_ok() {
        MAY_BE_OURS.store(true, Ordering::Relaxed);
    }
    for folder in made.iter().rev() {
        // SAFETY: a string.
        unsafe { libc::rmdir(folder.as_ptr()) };
    }
    result
}

/// `chdir` of libc.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: by the caller's promise.
    match unsafe { tree::route(libc::AT_FDCWD, path, true) } {
        Route::Ours(path, Node::Folder | Node::Shared) => MinusOne::raw(enter(&path)),
        Route::Ours(..) => MinusOne::raw(Err(Errno(libc::ENOTDIR))),
        Route::Failed(errno) => MinusOne::raw(Err(errno)),
        Route::Instead(path) => MinusOne::raw(change(&path).map(|()| 0)),
        Route::Kernel => call_next!(NEXT_CHDIR, fn(*const c_char) -> c_int, path)
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS))),
    }
}

/// `fchdir` of libc.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    static NEXT: Next = Next::libc(c"fchdir");
    match descriptors::folder(fd) {
        Some(path) => MinusOne::raw(enter(&path)),
        None => call_next!(NEXT, fn(c_int) -> c_int, fd)
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS))),
    }
}

/// Writes a path for C. A null pointer stands for as much memory as it takes, or for `size` bytes.
///
/// # Safety
/// `to` is null or has `size` writable bytes.
unsafe fn put(path: String, to: *mut c_char, size: usize) -> *mut c_char {
    Pointer::raw(
        CString::new(path)
            .map_err(|_| Errno::INVAL)
            .and_then(|path| {
                let bytes = path.as_bytes_with_nul();
                let wants_any = to.is_null() && size == 0;
                if size < bytes.len() && !wants_any {
                    let errno = if size == 0 {
                        libc::EINVAL
                    } else {
                        libc::ERANGE
                    };
                    return Err(Errno(errno));
                }
                let to = if to.is_null() {
                    // SAFETY: malloc may be called at any time; a program frees what getcwd
                    // returns.
                    unsafe { libc::malloc(size.max(bytes.len())) }.cast()
                } else {
                    to
                };
                if to.is_null() {
                    return Err(Errno(libc::ENOMEM));
                }
                // SAFETY: by the caller's promise, or just allocated.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
                Ok(to)
            }),
    )
}

/// Interposes the functions that say where a process is: `name(arguments) = to, size;`
macro_rules! interpose {
    ($($name:ident($($arg:ident: $ty:ty),*) = $to:expr, $size:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> *mut c_char {
            static NEXT: Next = Next::libc(crate::next::c_name!(stringify!($name)));
            match ours() {
                // SAFETY: by the caller's promise.
                Some(path) => unsafe { put(path, $to, $size) },
                None => call_next!(NEXT, fn($($ty),*) -> *mut c_char, $($arg),*)
                    .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS))),
            }
        }
    )*};
}

interpose! {
    getcwd(to: *mut c_char, size: usize) = to, size;
    __getcwd_chk(to: *mut c_char, size: usize, room: usize) = to, size.min(room);
    getwd(to: *mut c_char) = to, libc::PATH_MAX as usize;
    get_current_dir_name() = std::ptr::null_mut(), 0;
}
