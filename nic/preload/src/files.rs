//! Opening files: programs read what a device shows in `/sys` themselves, through libc. For a path of
//! ours ([`tree`]) they get a memory file with the text; every other path goes to libc untouched.
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cm_files;
use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::sysfs::Node;
use crate::tree::{self, Place};

/// What `/sys/class/infiniband_verbs/abi_version` says since Linux 2.6.
pub(crate) const ABI_VERSION: &str = "6\n";

/// The name of the memory file that stands for an open folder of ours; its text is the folder's path.
const FOLDER: &CStr = c"urxe-folder";
/// How the kernel shows such a file.
const FOLDER_LINK: &[u8] = b"/memfd:urxe-folder (deleted)";

/// Whether a folder of ours was ever opened: until then no descriptor needs a closer look.
static HAS_FOLDERS: AtomicBool = AtomicBool::new(false);

/// A path that may be ours, as text.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn text<'a>(path: *const c_char) -> Option<&'a str> {
    if path.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    tree::may_be_ours(path.to_bytes())
        .then(|| path.to_str().ok())
        .flatten()
}

/// The absolute path of `path` as seen from the open folder `at`, if that may be ours.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn text_at(at: c_int, path: *const c_char) -> Option<String> {
    // SAFETY: by the caller's promise.
    if let Some(text) = unsafe { text(path) } {
        return Some(text.to_owned());
    }
    if path.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    if path.starts_with('/') {
        return None;
    }
    // hwloc names everything from an open root folder.
    if tree::may_be_ours_from_root(path.as_bytes()) && is_root(at) {
        return Some(format!("/{path}"));
    }
    Some(format!("{}/{path}", folder_path(at)?))
}

/// Whether a descriptor is of the root folder.
fn is_root(fd: c_int) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |file: &std::fs::Metadata| (file.dev(), file.ino());
    let opened = std::fs::metadata(format!("/proc/self/fd/{fd}"));
    let root = std::fs::metadata("/");
    matches!((opened, root), (Ok(opened), Ok(root)) if identity(&opened) == identity(&root))
}

/// The path of the folder of ours that a descriptor stands for.
pub(crate) fn folder_path(fd: c_int) -> Option<String> {
    if fd < 0 || !HAS_FOLDERS.load(Ordering::Relaxed) {
        return None;
    }
    if link_of(fd)? != FOLDER_LINK {
        return None;
    }
    let mut path = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer has this length.
    let length = unsafe { libc::pread(fd, path.as_mut_ptr().cast(), path.len(), 0) };
    path.truncate(usize::try_from(length).ok()?);
    String::from_utf8(path).ok()
}

/// What the kernel says that a descriptor is of.
fn link_of(fd: c_int) -> Option<Vec<u8>> {
    static NEXT: Next = Next::libc(c"readlink");
    let link = format!("/proc/self/fd/{fd}\0");
    let mut shown = vec![0u8; 64];
    let length = call_next!(
        NEXT,
        fn(*const c_char, *mut c_char, usize) -> isize,
        link.as_ptr().cast(),
        shown.as_mut_ptr().cast(),
        shown.len()
    )?;
    shown.truncate(usize::try_from(length).ok()?);
    Some(shown)
}

/// A descriptor from which `text` can be read.
fn memory_file(name: &CStr, text: &str, flags: c_int) -> Outcome<c_int> {
    let last = || Errno::of(&std::io::Error::last_os_error());
    let cloexec = if flags & libc::O_CLOEXEC == 0 {
        0
    } else {
        libc::MFD_CLOEXEC
    };
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), cloexec) };
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

/// Opens `path` if it is ours.
fn open_ours(path: &str, flags: c_int) -> Option<Outcome<c_int>> {
    let follows = flags & libc::O_NOFOLLOW == 0;
    let place = match tree::lookup(path, follows)? {
        Ok(place) => place,
        Err(errno) => return Some(Err(errno)),
    };
    let wants_folder = flags & libc::O_DIRECTORY != 0;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    Some(match place {
        Place::Sysfs(Node::File(_)) if writes => Err(Errno(libc::EACCES)),
        Place::Sysfs(Node::File(_)) if wants_folder => Err(Errno(libc::ENOTDIR)),
        Place::Sysfs(Node::File(text)) => memory_file(c"urxe-sysfs", &text, flags),
        Place::Sysfs(Node::Folder) | Place::Shared if writes => Err(Errno(libc::EISDIR)),
        Place::Sysfs(Node::Folder) | Place::Shared => {
            HAS_FOLDERS.store(true, Ordering::Relaxed);
            memory_file(FOLDER, &tree::canonical(path), flags)
        }
        Place::Sysfs(Node::Link(_)) | Place::Class(_) => Err(Errno(libc::ELOOP)),
        // Only libibverbs speaks to a character device, and it is not asked to for ours.
        Place::Character(_) => Err(Errno(libc::ENXIO)),
        Place::AbiVersion if has_real_abi_version() => return None,
        Place::AbiVersion if writes => Err(Errno(libc::EACCES)),
        Place::AbiVersion => memory_file(c"urxe-sysfs", ABI_VERSION, flags),
    })
}

/// A descriptor that stands for the folder of ours at `path`, which is there.
pub(crate) fn open_folder(path: &str) -> Outcome<c_int> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    open_ours(path, flags).unwrap_or(Err(Errno(libc::ENOENT)))
}

/// The name of the memory file that stands for an open device.
const DEVICE: &CStr = c"urxe-device";
const DEVICE_LINK: &[u8] = b"/memfd:urxe-device (deleted)";

/// A descriptor for a context: programs set flags of it and duplicate it; nothing can be read from it or written to it.
pub(crate) fn open_device() -> Outcome<OwnedFd> {
    // SAFETY: the name is a string.
    let fd =
        unsafe { libc::memfd_create(DEVICE.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(Errno::of(&std::io::Error::last_os_error()));
    }
    // SAFETY: just opened, and nobody else knows it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // A libibverbs that is newer than we are may write a command to it, and would take a write that succeeds for an answer.
    // SAFETY: seals of a memory file without content.
    unsafe {
        libc::fcntl(
            fd,
            libc::F_ADD_SEALS,
            libc::F_SEAL_WRITE | libc::F_SEAL_GROW,
        )
    };
    Ok(file)
}

/// `RDMA_VERBS_IOCTL` of the kernel's <rdma/rdma_user_ioctl_cmds.h>: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
const RDMA_VERBS_IOCTL: c_ulong = 0xc018_1b01;

/// `ioctl` of libc: functions of libibverbs that ask the kernel themselves learn from the descriptor of a context of ours
/// that they are not supported.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    static NEXT: Next = Next::libc(c"ioctl");
    if request == RDMA_VERBS_IOCTL && is_device(fd) {
        return MinusOne::raw(Err(Errno::OPNOTSUPP));
    }
    // Variadic in C: what it is given is one integer or pointer, where the third argument goes.
    call_next!(
        NEXT,
        fn(c_int, c_ulong, *mut c_void) -> c_int,
        fd,
        request,
        argument
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
}

/// Whether a descriptor is one of [`open_device`], or a duplicate of it.
pub(crate) fn is_device(fd: c_int) -> bool {
    link_of(fd).is_some_and(|link| link == DEVICE_LINK)
}

/// Whether the kernel has RDMA devices, or could have.
pub(crate) fn has_real_abi_version() -> bool {
    static NEXT: Next = Next::libc(c"access");
    let path = c"/sys/class/infiniband_verbs/abi_version";
    let found = call_next!(
        NEXT,
        fn(*const c_char, c_int) -> c_int,
        path.as_ptr(),
        libc::F_OK
    );
    found == Some(0)
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
            let text = unsafe { opens!(@text [$($before)?] path) };
            if let Some(opened) = text.and_then(|path| open_ours(&path, flags)) {
                return MinusOne::raw(opened);
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
    (@text [] $path:ident) => { text($path).map(str::to_owned) };
    (@text [$folder:ident] $path:ident) => { text_at($folder, $path) };
}

opens! {
    open [] path, flags [mode: c_uint];
    open64 [] path, flags [mode: c_uint];
    openat [folder: c_int] path, flags [mode: c_uint];
    openat64 [folder: c_int] path, flags [mode: c_uint];
    __open_2 [] path, flags;
    __open64_2 [] path, flags;
    __openat_2 [folder: c_int] path, flags;
    __openat64_2 [folder: c_int] path, flags;
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
            let stream = unsafe { text(path).and_then(|path| memory_stream(path, mode)) };
            if let Some(stream) = stream {
                return Pointer::raw(stream);
            }
            call_next!(NEXT, fn(*const c_char, *const c_char) -> *mut libc::FILE, path, mode)
                .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS)))
        }
    )*};
}

fopens! { fopen fopen64 }

/// # Safety
/// `mode` is null or a string.
unsafe fn memory_stream(path: &str, mode: *const c_char) -> Option<Outcome<*mut libc::FILE>> {
    // SAFETY: by the caller's promise.
    let reads = !mode.is_null() && unsafe { CStr::from_ptr(mode) }.to_bytes().starts_with(b"r");
    let flags = if reads {
        libc::O_RDONLY
    } else {
        libc::O_WRONLY
    };
    let fd = match open_ours(path, flags)? {
        Ok(fd) => fd,
        Err(errno) => return Some(Err(errno)),
    };
    // SAFETY: an open descriptor; the stream owns it from here on.
    let stream = unsafe { libc::fdopen(fd, c"r".as_ptr()) };
    Some(if stream.is_null() {
        Err(Errno::of(&std::io::Error::last_os_error()))
    } else {
        Ok(stream)
    })
}
