//! What a path is, without opening it: stat, access, readlink and realpath of libc, and their
//! relatives, each in all the forms that programs call.
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use libc::{stat as Stat, statfs as Statfs, statx as Statx};
use urxe_device::FoundOnce;

use crate::descriptors;
use crate::errno::{Convention, Errno, Length, MinusOne, Outcome, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::sysfs::{Node, UVERBS_MAJOR};
use crate::tree::{self, Route};

/// sysfs(5) gives every file the size of a page.
const PAGE_BYTES: i64 = 4096;

/// What stat(2) tells of something of ours, its path without links.
fn status(path: &str, node: &Node) -> Stat {
    let (mode, size) = match node {
        Node::Folder | Node::Shared => (libc::S_IFDIR | 0o755, 0),
        Node::File(_) | Node::Mute(_) => (libc::S_IFREG | 0o444, PAGE_BYTES),
        Node::Link(target) => (
            libc::S_IFLNK | 0o777,
            target.len().try_into().unwrap_or(PAGE_BYTES),
        ),
        Node::Character(_) => (libc::S_IFCHR | 0o666, 0),
    };
    let (of, when_s) = file_system();
    // SAFETY: all zeros is a valid stat.
    let mut answer: Stat = unsafe { std::mem::zeroed() };
    answer.st_dev = of;
    answer.st_mode = mode;
    answer.st_nlink = 1;
    answer.st_size = size;
    // Of 64 bits, or of 32 on 64-bit ARM.
    answer.st_blksize = PAGE_BYTES as libc::blksize_t;
    answer.st_ino = inode(path);
    (answer.st_atime, answer.st_mtime, answer.st_ctime) = (when_s, when_s, when_s);
    if let Node::Character(minor) = node {
        answer.st_rdev = libc::makedev(UVERBS_MAJOR, *minor);
    }
    answer
}

/// The device number of sysfs, and when what is in it was made, in seconds: when it was first asked
/// for.
fn file_system() -> (libc::dev_t, i64) {
    static DEVICE: FoundOnce = FoundOnce::new();
    static SINCE_S: FoundOnce = FoundOnce::new();
    // SAFETY: null stands for no second copy of the answer.
    let now_s = || unsafe { libc::time(std::ptr::null_mut()) }.cast_unsigned();
    (
        DEVICE.or_find(|| device_of(c"/sys")),
        SINCE_S.or_find(now_s).cast_signed(),
    )
}

/// Whether a descriptor is of a file system that shared folders are in: quicker than to ask where
/// it is.
pub(crate) fn may_be_shared(fd: c_int) -> bool {
    static NEXT: Next = Next::libc(c"fstat");
    static DEVICES: FoundOnce = FoundOnce::new();
    // SAFETY: all zeros is a valid stat.
    let mut found: Stat = unsafe { std::mem::zeroed() };
    match call_next!(NEXT, fn(c_int, *mut Stat) -> c_int, fd, &raw mut found) {
        Some(0) => {
            let devices = DEVICES.or_find(|| device_of(c"/dev"));
            found.st_dev == devices || found.st_dev == file_system().0
        }
        Some(_) => false,
        // glibc before 2.33 has no such function.
        None => true,
    }
}

/// The device number of the file system that a path of the kernel's is in. Not by our own stat,
/// which comes back here.
fn device_of(path: &CStr) -> libc::dev_t {
    static NEXT: Next = Next::libc(c"stat");
    // SAFETY: all zeros is a valid stat.
    let mut found: Stat = unsafe { std::mem::zeroed() };
    let path = path.as_ptr();
    call_next!(
        NEXT,
        fn(*const c_char, *mut Stat) -> c_int,
        path,
        &raw mut found
    );
    found.st_dev
}

/// A number for a path without links, as good as any: FNV-1a.
pub(crate) fn inode(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Writes the answer for C.
///
/// # Safety
/// `to` is null or writable.
unsafe fn give<T>(answer: T, to: *mut T) -> Outcome<c_int> {
    if to.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by the caller's promise.
    unsafe { *to = answer };
    Ok(0)
}

/// Interposes functions of libc that take a path:
/// `name(arguments) -> type, convention, [folder, path, whether a link at its end is followed] |path, node| answer;`.
/// On 64-bit Linux the plain and the "64" forms take the same structs.
macro_rules! interpose {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $convention:ty, [$at:expr, $path:ident, $follows:expr]
        |$ours:pat_param, $node:pat_param| $answer:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(unused_unsafe, reason = "not every answer writes where the program says")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let route = unsafe { tree::route($at, $path, $follows) };
            let $path = match &route {
                // SAFETY: by the caller's promise.
                Route::Ours($ours, $node) => return <$convention>::raw(unsafe { $answer }),
                Route::Failed(errno) => return <$convention>::raw(Err(*errno)),
                Route::Instead(other) => other.as_ptr(),
                Route::Kernel => $path,
            };
            call_next!(NEXT, fn($($ty),*) -> $ret, $($arg),*)
                .unwrap_or_else(|| <$convention>::raw(Err(Errno::NOSYS)))
        }
    )*};
}

/// The same for functions that take a descriptor.
macro_rules! interpose_descriptors {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $convention:ty = $answer:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let answer: Option<Outcome<$ret>> = unsafe { $answer };
            answer.map(<$convention>::raw).unwrap_or_else(|| {
                call_next!(NEXT, fn($($ty),*) -> $ret, $($arg),*)
                    .unwrap_or_else(|| <$convention>::raw(Err(Errno::NOSYS)))
            })
        }
    )*};
}

/// What fstat(2) tells of a descriptor of ours.
fn status_of(fd: c_int) -> Option<Stat> {
    crate::cm_files::status(fd).or_else(|| {
        let path = descriptors::path(fd)?;
        let node = tree::at(&path)?;
        Some(status(&path, &node))
    })
}

/// # Safety
/// `to` is null or writable.
unsafe fn stat_fd(fd: c_int, to: *mut Stat) -> Option<Outcome<c_int>> {
    // SAFETY: by the caller's promise.
    Some(unsafe { give(status_of(fd)?, to) })
}

const HERE: c_int = libc::AT_FDCWD;

/// Whether a function with these flags follows a link at the end of a path.
const fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

interpose! {
    stat(path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, true] |path, node| give(status(path, node), to);
    stat64(path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, true] |path, node| give(status(path, node), to);
    lstat(path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, false] |path, node| give(status(path, node), to);
    lstat64(path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, false] |path, node| give(status(path, node), to);
    // What programs call that were built against glibc before 2.33.
    __xstat(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, true] |path, node| give(status(path, node), to);
    __xstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, true] |path, node| give(status(path, node), to);
    __lxstat(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, false] |path, node| give(status(path, node), to);
    __lxstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int, MinusOne, [HERE, path, false] |path, node| give(status(path, node), to);
    access(path: *const c_char, mode: c_int) -> c_int, MinusOne, [HERE, path, true] |_, node| permits(node, mode);
    eaccess(path: *const c_char, mode: c_int) -> c_int, MinusOne, [HERE, path, true] |_, node| permits(node, mode);
    euidaccess(path: *const c_char, mode: c_int) -> c_int, MinusOne, [HERE, path, true] |_, node| permits(node, mode);
    faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, MinusOne, [at, path, follows(flags)] |_, node| permits(node, mode);
    readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize, Length, [HERE, path, false] |_, node| target(node, to, size);
    readlinkat(at: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize, Length, [at, path, false] |_, node| target(node, to, size);
    __readlink_chk(path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize, Length, [HERE, path, false] |_, node| target(node, to, size);
    __readlinkat_chk(at: c_int, path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize, Length, [at, path, false] |_, node| target(node, to, size);
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char, Pointer<c_char>, [HERE, path, true] |path, _| copy(path, to);
    __realpath_chk(path: *const c_char, to: *mut c_char, room: usize) -> *mut c_char, Pointer<c_char>, [HERE, path, true] |path, _| copy(path, to);
    canonicalize_file_name(path: *const c_char) -> *mut c_char, Pointer<c_char>, [HERE, path, true] |path, _| copy(path, std::ptr::null_mut());
    statfs(path: *const c_char, to: *mut Statfs) -> c_int, MinusOne, [HERE, path, true] |_, _| give(sysfs(), to);
    statfs64(path: *const c_char, to: *mut Statfs) -> c_int, MinusOne, [HERE, path, true] |_, _| give(sysfs(), to);
    // `ls -l` asks for these.
    getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: usize) -> isize, Length, [HERE, path, true] |_, _| Err(Errno::OPNOTSUPP);
    lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: usize) -> isize, Length, [HERE, path, false] |_, _| Err(Errno::OPNOTSUPP);
    listxattr(path: *const c_char, to: *mut c_char, size: usize) -> isize, Length, [HERE, path, true] |_, _| Ok(0);
    llistxattr(path: *const c_char, to: *mut c_char, size: usize) -> isize, Length, [HERE, path, false] |_, _| Ok(0);
}

interpose_descriptors! {
    fstat(fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    fstat64(fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    __fxstat(version: c_int, fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    __fxstat64(version: c_int, fd: c_int, to: *mut Stat) -> c_int, MinusOne = stat_fd(fd, to);
    fstatfs(fd: c_int, to: *mut Statfs) -> c_int, MinusOne = statfs_fd(fd, to);
    fstatfs64(fd: c_int, to: *mut Statfs) -> c_int, MinusOne = statfs_fd(fd, to);
}

/// Interposes the functions that take a path and, where that is empty, a descriptor.
macro_rules! stats_at {
    ($($name:ident [$($version:ident)?];)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of libc.")]
        ///
        /// # Safety
        /// As its manual page says.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            $($version: c_int,)? at: c_int, path: *const c_char, to: *mut Stat, flags: c_int,
        ) -> c_int {
            static NEXT: Next = Next::libc(c_name!(stringify!($name)));
            // SAFETY: by the caller's promise.
            let found = unsafe { status_at(at, path, flags) };
            let path = match &found {
                // SAFETY: by the caller's promise.
                At::Ours(status) => return MinusOne::raw(unsafe { give(*status, to) }),
                At::Failed(errno) => return MinusOne::raw(Err(*errno)),
                At::Instead(other) => other.as_ptr(),
                At::Kernel => path,
            };
            call_next!(
                NEXT,
                fn($(stats_at!(@int $version),)? c_int, *const c_char, *mut Stat, c_int) -> c_int,
                $($version,)? at, path, to, flags
            )
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
        }
    )*};
    (@int $version:ident) => { c_int };
}

stats_at! {
    fstatat [];
    fstatat64 [];
    __fxstatat [version];
    __fxstatat64 [version];
}

/// What there is to say of a path as seen from a folder.
enum At {
    Kernel,
    Instead(CString),
    Ours(Stat),
    Failed(Errno),
}

/// # Safety
/// `path` is null or a string.
unsafe fn status_at(at: c_int, path: *const c_char, flags: c_int) -> At {
    // SAFETY: by the caller's promise.
    let is_empty = path.is_null() || unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        return status_of(at).map_or(At::Kernel, At::Ours);
    }
    // SAFETY: by the caller's promise.
    match unsafe { tree::route(at, path, follows(flags)) } {
        Route::Kernel => At::Kernel,
        Route::Instead(path) => At::Instead(path),
        Route::Failed(errno) => At::Failed(errno),
        Route::Ours(path, node) => At::Ours(status(&path, &node)),
    }
}

/// `statx` of libc.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut Statx,
) -> c_int {
    static NEXT: Next = Next::libc(c"statx");
    // SAFETY: by the caller's promise.
    let found = unsafe { status_at(at, path, flags) };
    let path = match &found {
        // SAFETY: by the caller's promise.
        At::Ours(status) => return MinusOne::raw(unsafe { give(wide(status), to) }),
        At::Failed(errno) => return MinusOne::raw(Err(*errno)),
        At::Instead(other) => other.as_ptr(),
        At::Kernel => path,
    };
    call_next!(
        NEXT,
        fn(c_int, *const c_char, c_int, c_uint, *mut Statx) -> c_int,
        at,
        path,
        flags,
        mask,
        to
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
}

/// The same as statx(2) has it.
fn wide(status: &Stat) -> Statx {
    // SAFETY: all zeros is a valid statx.
    let mut wide: Statx = unsafe { std::mem::zeroed() };
    wide.stx_mask = libc::STATX_BASIC_STATS;
    wide.stx_mode = u16::try_from(status.st_mode).unwrap_or(0);
    wide.stx_nlink = 1;
    wide.stx_size = status.st_size.cast_unsigned();
    wide.stx_blksize = 4096;
    wide.stx_ino = status.st_ino;
    wide.stx_dev_major = libc::major(status.st_dev);
    wide.stx_dev_minor = libc::minor(status.st_dev);
    wide.stx_rdev_major = libc::major(status.st_rdev);
    wide.stx_rdev_minor = libc::minor(status.st_rdev);
    wide.stx_atime.tv_sec = status.st_atime;
    wide.stx_mtime.tv_sec = status.st_mtime;
    wide.stx_ctime.tv_sec = status.st_ctime;
    wide
}

/// What statfs(2) tells of sysfs.
fn sysfs() -> Statfs {
    /// `SYSFS_MAGIC` of linux/magic.h.
    const MAGIC: i64 = 0x6265_6572;
    // SAFETY: all zeros is a valid statfs.
    let mut answer: Statfs = unsafe { std::mem::zeroed() };
    answer.f_type = MAGIC;
    answer.f_bsize = PAGE_BYTES;
    answer.f_namelen = 255;
    answer
}

/// # Safety
/// `to` is null or writable.
unsafe fn statfs_fd(fd: c_int, to: *mut Statfs) -> Option<Outcome<c_int>> {
    descriptors::path(fd)?;
    // SAFETY: by the caller's promise.
    Some(unsafe { give(sysfs(), to) })
}

/// What access(2) says: files cannot be written, not even by root, and folders not either.
fn permits(node: &Node, mode: c_int) -> Outcome<c_int> {
    let may_write = matches!(node, Node::Character(_));
    let may_search = matches!(node, Node::Folder | Node::Shared);
    if mode & libc::W_OK != 0 && !may_write || mode & libc::X_OK != 0 && !may_search {
        return Err(Errno(libc::EACCES));
    }
    Ok(0)
}

/// # Safety
/// `to` has `size` writable bytes.
unsafe fn target(node: &Node, to: *mut c_char, size: usize) -> Outcome<isize> {
    let Node::Link(target) = node else {
        return Err(Errno::INVAL);
    };
    if size == 0 {
        return Err(Errno::INVAL);
    }
    let length = target.len().min(size);
    // SAFETY: by the caller's promise. No zero byte ends it, as with readlink(2).
    unsafe { std::ptr::copy_nonoverlapping(target.as_ptr().cast(), to, length) };
    Ok(length.cast_signed())
}

/// A path for C.
///
/// # Safety
/// `to` is null, for memory that the program frees, or has `PATH_MAX` writable bytes.
unsafe fn copy(path: &str, to: *mut c_char) -> Outcome<*mut c_char> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    let length = path.as_bytes_with_nul().len();
    if length > libc::PATH_MAX as usize {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    let room = if to.is_null() {
        // SAFETY: malloc may be called at any time.
        unsafe { libc::malloc(length) }.cast()
    } else {
        to
    };
    if room.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: by the caller's promise, or just allocated.
    unsafe { std::ptr::copy_nonoverlapping(CStr::as_ptr(&path), room, length) };
    Ok(room)
}
