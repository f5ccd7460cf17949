//! Opening a device's files: programs read `/sys/class/infiniband/<device>/...` themselves, through
//! libc. For a device of ours they get a memory file with the text; every other path goes to libc
//! untouched.
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::{cm_files, sysfs};

/// The text behind `path` if it is a file of a device of ours (see [`sysfs::read`]). Cheap for all
/// other paths: this runs on every open of the program.
///
/// # Safety
/// `path` is null or a string.
unsafe fn ours(path: *const c_char) -> Option<Option<String>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !path.starts_with(b"/sys/class/infiniband/urxe_") {
        return None;
    }
    sysfs::read(std::str::from_utf8(path).ok()?)
}

/// A file descriptor from which `text` can be read.
fn memory_file(text: Option<String>, flags: c_int) -> Outcome<c_int> {
    let text = text.ok_or(Errno(libc::ENOENT))?;
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno(libc::EACCES));
    }
    let last = || Errno::of(&std::io::Error::last_os_error());
    let cloexec = if flags & libc::O_CLOEXEC == 0 {
        0
    } else {
        libc::MFD_CLOEXEC
    };
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(c"urxe-sysfs".as_ptr(), cloexec) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: just opened, and nobody else knows it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the text is readable for its length.
    let written = unsafe { libc::pwrite(file.as_raw_fd(), text.as_ptr().cast(), text.len(), 0) };
    if written < 0 {
        return Err(last());
    }
    Ok(file.into_raw_fd())
}

/// Interposes functions that open a path. They are variadic in C: the mode is only there when a file
/// may be created. All Linux ABIs that we build for pass it where a third or fourth integer argument
/// goes, so a fixed signature takes and hands on whatever is there.
macro_rules! opens {
    ($($name:ident [$($before:ident: $before_ty:ty)?] path, flags $([$after:ident: $after_ty:ty])?;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            $($before: $before_ty,)? path: *const c_char, flags: c_int $(, $after: $after_ty)?
        ) -> c_int {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            if let Some(text) = unsafe { ours(path) } {
                return MinusOne::raw(memory_file(text, flags));
            }
            // SAFETY: by the caller's promise.
            if let Some(opened) = unsafe { cm_files::open(path, flags) } {
                return MinusOne::raw(opened);
            }
            call_next!(
                NEXT,
                fn($($before_ty,)? *const c_char, c_int $(, $after_ty)?) -> c_int,
                $($before,)? path, flags $(, $after)?
            )
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
        }
    )*};
}

opens! {
    open [] path, flags [mode: c_uint];
    open64 [] path, flags [mode: c_uint];
    openat [folder: c_int] path, flags [mode: c_uint];
    openat64 [folder: c_int] path, flags [mode: c_uint];
    __open_2 [] path, flags;
    __open64_2 [] path, flags;
}

/// Interposes `fopen` and `fopen64`.
macro_rules! fopens {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            if let Some(text) = unsafe { ours(path) } {
                // SAFETY: by the caller's promise.
                return Pointer::raw(unsafe { memory_stream(text, mode) });
            }
            call_next!(NEXT, fn(*const c_char, *const c_char) -> *mut libc::FILE, path, mode)
                .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS)))
        }
    )*};
}

fopens! { fopen fopen64 }

/// # Safety
/// `mode` is null or a string.
unsafe fn memory_stream(text: Option<String>, mode: *const c_char) -> Outcome<*mut libc::FILE> {
    // SAFETY: by the caller's promise.
    let reads = !mode.is_null() && unsafe { CStr::from_ptr(mode) }.to_bytes().starts_with(b"r");
    let fd = memory_file(
        text,
        if reads {
            libc::O_RDONLY
        } else {
            libc::O_WRONLY
        },
    )?;
    // SAFETY: an open descriptor; the stream owns it from here on.
    let stream = unsafe { libc::fdopen(fd, c"r".as_ptr()) };
    if stream.is_null() {
        Err(Errno::of(&std::io::Error::last_os_error()))
    } else {
        Ok(stream)
    }
}

/// `access` of libc: programs ask it before they open.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    static NEXT: Next = Next::libc(c"access");
    // SAFETY: by the caller's promise.
    match unsafe { ours(path) } {
        Some(Some(_)) if mode & (libc::W_OK | libc::X_OK) == 0 => 0,
        Some(Some(_)) => MinusOne::raw(Err(Errno(libc::EACCES))),
        Some(None) => MinusOne::raw(Err(Errno(libc::ENOENT))),
        None => call_next!(NEXT, fn(*const c_char, c_int) -> c_int, path, mode)
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS))),
    }
}
