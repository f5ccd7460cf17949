//! What a path is, without opening it: stat, access, readlink and realpath of libc, each in all the forms
//! that programs call.
use std::ffi::{CStr, CString, c_char, c_int, c_uint};

use libc::{stat as Stat, statx as Statx};

use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::files::{self, folder_path, text, text_at};
use crate::next::{Next, c_name, call_next};
use crate::sysfs::{self, Node};
use crate::tree::{self, Place};

/// What stat(2) tells of `path`, if it is ours. A folder that is really there is left to the kernel.
fn stat_ours(path: &str, follows: bool) -> Option<Outcome<Stat>> {
    let place = match tree::lookup(path, follows)? {
        Ok(place) => place,
        Err(errno) => return Some(Err(errno)),
    };
    let (mode, size) = match &place {
        Place::Shared => {
            if is_really_there(path) {
                return None;
            }
            (libc::S_IFDIR | 0o755, 0)
        }
        Place::AbiVersion if files::has_real_abi_version() => return None,
        Place::Sysfs(Node::Folder) => (libc::S_IFDIR | 0o755, 0),
        // sysfs(5) gives every file the size of a page.
        Place::Sysfs(Node::File(_)) | Place::AbiVersion => (libc::S_IFREG | 0o444, 4096),
        Place::Sysfs(Node::Link(target)) => (libc::S_IFLNK | 0o777, target.len()),
        Place::Class(target) => (libc::S_IFLNK | 0o777, target.len()),
        Place::Character(_) => (libc::S_IFCHR | 0o666, 0),
    };
    // SAFETY: all zeros is a valid stat.
    let mut answer: Stat = unsafe { std::mem::zeroed() };
    answer.st_mode = mode;
    answer.st_nlink = 1;
    answer.st_size = size.try_into().unwrap_or(0);
    answer.st_blksize = 4096;
    answer.st_ino = inode(&tree::canonical(path));
    if let Place::Character(minor) = place {
        answer.st_rdev = libc::makedev(sysfs::UVERBS_MAJOR, minor);
    }
    Some(Ok(answer))
}

/// A number for a path, as good as any: FNV-1a.
pub(crate) fn inode(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Whether the real file system has something at `path`.
fn is_really_there(path: &str) -> bool {
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

/// Writes the answer for C.
///
/// # Safety
/// `to` is null or writable.
unsafe fn give(answer: Outcome<Stat>, to: *mut Stat) -> c_int {
    MinusOne::raw(answer.and_then(|answer| {
        if to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: by the caller's promise.
        unsafe { *to = answer };
        Ok(0)
    }))
}

/// Interposes functions of libc: `name(arguments) = what is ours, or None;`. On 64-bit Linux the plain
/// and the "64" forms take the same structs.
macro_rules! interpose {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $convention:ty = $ours:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let ours: Option<$ret> = unsafe { $ours };
            ours.unwrap_or_else(|| {
                call_next!(NEXT, fn($($ty),*) -> $ret, $($arg),*)
                    .unwrap_or_else(|| <$convention>::raw(Err(Errno::NOSYS)))
            })
        }
    )*};
}

/// # Safety
/// `path` is null or a string, `to` is null or writable.
unsafe fn stat_path(path: *const c_char, follows: bool, to: *mut Stat) -> Option<c_int> {
    // SAFETY: by the caller's promise.
    unsafe { Some(give(stat_ours(text(path)?, follows)?, to)) }
}

/// # Safety
/// `path` is null or a string, `to` is null or writable.
unsafe fn stat_at(at: c_int, path: *const c_char, flags: c_int, to: *mut Stat) -> Option<c_int> {
    // SAFETY: by the caller's promise.
    unsafe { Some(give(stat_at_ours(at, path, flags)?, to)) }
}

/// # Safety
/// `path` is null or a string.
unsafe fn stat_at_ours(at: c_int, path: *const c_char, flags: c_int) -> Option<Outcome<Stat>> {
    // SAFETY: by the caller's promise.
    let path = unsafe { text_at(at, path) }?;
    stat_ours(&path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)
}

/// What a descriptor of a folder of ours is.
///
/// # Safety
/// `to` is null or writable.
unsafe fn stat_fd(fd: c_int, to: *mut Stat) -> Option<c_int> {
    if let Some(status) = crate::cm_files::status(fd) {
        // SAFETY: by the caller's promise.
        return Some(unsafe { give(Ok(status), to) });
    }
    let path = folder_path(fd)?;
    let mut answer = stat_ours(&path, true)?;
    if let Ok(answer) = &mut answer {
        answer.st_mode = libc::S_IFDIR | 0o755;
    }
    // SAFETY: by the caller's promise.
    Some(unsafe { give(answer, to) })
}

interpose! {
    stat(path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, true, to);
    stat64(path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, true, to);
    lstat(path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, false, to);
    lstat64(path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, false, to);
    fstat(fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    fstat64(fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    fstatat(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int, MinusOne = stat_at(at, path, flags, to);
    fstatat64(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int, MinusOne = stat_at(at, path, flags, to);
    // What programs call that were built against glibc before 2.33.
    __xstat(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, true, to);
    __xstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, true, to);
    __lxstat(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, false, to);
    __lxstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne = stat_path(path, false, to);
    __fxstat(version: c_int, fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    __fxstat64(version: c_int, fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    __fxstatat(version: c_int, at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int, MinusOne = stat_at(at, path, flags, to);
    __fxstatat64(version: c_int, at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int, MinusOne = stat_at(at, path, flags, to);
    statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut Statx) -> c_int, MinusOne = statx_at(at, path, flags, to);
    access(path: *const c_char, mode: c_int) -> c_int, MinusOne = access_ours(text(path), mode);
    eaccess(path: *const c_char, mode: c_int) -> c_int, MinusOne = access_ours(text(path), mode);
    euidaccess(path: *const c_char, mode: c_int) -> c_int, MinusOne = access_ours(text(path), mode);
    faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, MinusOne = access_ours(text_at(at, path), mode);
    readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize, Length = link_ours(text(path), to, size);
    readlinkat(at: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize, Length = link_ours(text_at(at, path), to, size);
    __readlink_chk(path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize, Length = link_ours(text(path), to, size);
    __readlinkat_chk(at: c_int, path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize, Length = link_ours(text_at(at, path), to, size);
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char, Pointer<c_char> = resolve_ours(text(path), to);
    __realpath_chk(path: *const c_char, to: *mut c_char, room: usize) -> *mut c_char, Pointer<c_char> = resolve_ours(text(path), to);
    canonicalize_file_name(path: *const c_char) -> *mut c_char, Pointer<c_char> = resolve_ours(text(path), std::ptr::null_mut());
}

/// As [`MinusOne`], for a length.
struct Length;

impl Convention for Length {
    type Value = isize;
    type Raw = isize;
    fn raw(outcome: Outcome<isize>) -> isize {
        outcome.unwrap_or_else(|errno| {
            errno.set();
            -1
        })
    }
}

/// # Safety
/// `path` is null or a string, `to` is null or writable.
unsafe fn statx_at(at: c_int, path: *const c_char, flags: c_int, to: *mut Statx) -> Option<c_int> {
    // SAFETY: by the caller's promise.
    let answer = unsafe { stat_at_ours(at, path, flags) }?;
    Some(MinusOne::raw(answer.and_then(|answer| {
        if to.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: all zeros is a valid statx.
        let mut wide: Statx = unsafe { std::mem::zeroed() };
        wide.stx_mask = libc::STATX_BASIC_STATS;
        wide.stx_mode = u16::try_from(answer.st_mode).unwrap_or(0);
        wide.stx_nlink = 1;
        wide.stx_size = answer.st_size.cast_unsigned();
        wide.stx_blksize = 4096;
        wide.stx_ino = answer.st_ino;
        wide.stx_rdev_major = libc::major(answer.st_rdev);
        wide.stx_rdev_minor = libc::minor(answer.st_rdev);
        // SAFETY: by the caller's promise.
        unsafe { *to = wide };
        Ok(0)
    })))
}

fn access_ours(path: Option<impl AsRef<str>>, mode: c_int) -> Option<c_int> {
    let answer = stat_ours(path?.as_ref(), true)?.and_then(|answer| {
        let may_write = answer.st_mode & libc::S_IFMT == libc::S_IFCHR;
        let may_search = answer.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if mode & libc::W_OK != 0 && !may_write || mode & libc::X_OK != 0 && !may_search {
            return Err(Errno(libc::EACCES));
        }
        Ok(0)
    });
    Some(MinusOne::raw(answer))
}

/// # Safety
/// `to` has `size` writable bytes.
unsafe fn link_ours(path: Option<impl AsRef<str>>, to: *mut c_char, size: usize) -> Option<isize> {
    let path = path?;
    let path = path.as_ref();
    let place = match tree::lookup(path, false)? {
        Ok(Place::Shared) if is_really_there(path) => return None,
        place => place,
    };
    Some(Length::raw(place.and_then(|place| {
        let target = match &place {
            Place::Sysfs(Node::Link(target)) => target,
            Place::Class(target) => target.as_str(),
            _ => return Err(Errno::INVAL),
        };
        let length = target.len().min(size);
        // SAFETY: by the caller's promise. No zero byte ends it, as with readlink(2).
        unsafe { std::ptr::copy_nonoverlapping(target.as_ptr().cast(), to, length) };
        Ok(length.cast_signed())
    })))
}

/// # Safety
/// `to` is null or has `PATH_MAX` writable bytes.
unsafe fn resolve_ours(path: Option<&str>, to: *mut c_char) -> Option<*mut c_char> {
    let path = path?;
    if matches!(tree::lookup(path, true)?, Ok(Place::Shared)) && is_really_there(path) {
        return None;
    }
    if let Err(errno) = tree::lookup(path, true)? {
        return Some(Pointer::raw(Err(errno)));
    }
    let resolved = CString::new(tree::canonical(path)).ok()?;
    let length = resolved.as_bytes_with_nul().len();
    let room = if to.is_null() {
        // SAFETY: malloc may be called at any time; a program frees what realpath returns.
        unsafe { libc::malloc(length) }.cast()
    } else {
        to
    };
    if !room.is_null() && length <= libc::PATH_MAX as usize {
        // SAFETY: by the caller's promise, or just allocated.
        unsafe { std::ptr::copy_nonoverlapping(CStr::as_ptr(&resolved), room, length) };
    }
    Some(room)
}
