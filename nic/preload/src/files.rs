//! Opening and reading files: programs read what a device shows in `/sys` themselves, through libc.
//! For a path of ours ([`tree`]) they get a memory file with the text; every other path goes to
//! libc untouched.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use urxe_device::Uncancelled;

use crate::blocking::{self, Function};
use crate::errno::{Convention, Errno, MinusOne, Outcome, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::sysfs::Node;
use crate::tree::{self, Route};
use crate::{cm_files, descriptors};

/// Opens what is of ours at a path without links.
fn open_ours(path: &str, node: &Node, flags: c_int) -> Outcome<c_int> {
    let wants_folder = flags & libc::O_DIRECTORY != 0;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let wants_new = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
    let only_names = flags & libc::O_PATH != 0;
    match node {
        _ if wants_new => Err(Errno(libc::EEXIST)),
        Node::Folder | Node::Shared if writes => Err(Errno(libc::EISDIR)),
        Node::Folder | Node::Shared => descriptors::open_folder(path, flags),
        Node::Link(_) => Err(Errno(libc::ELOOP)),
        _ if wants_folder => Err(Errno(libc::ENOTDIR)),
        // Only libibverbs speaks to a character device, and it is not asked to for ours.
        Node::Character(_) => Err(Errno(libc::ENXIO)),
        Node::File(_) | Node::Mute(_) if writes => Err(Errno(libc::EACCES)),
        Node::File(content) => descriptors::open_file(path, content, flags),
        Node::Mute(_) if only_names => descriptors::open_file(path, &[], flags),
        Node::Mute(errno) => Err(*errno),
    }
}

/// Interposes functions that open a path. They are variadic in C: the mode is only there when a
/// file may be created. All Linux ABIs that we build for pass it where a third or fourth integer
/// argument goes, so a fixed signature takes and hands on whatever is there.
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
            let at = opens!(@at [$($before)?]);
            // SAFETY: by the caller's promise.
            let route = unsafe { tree::route(at, path, follows(flags)) };
            let path = match &route {
                Route::Ours(path, node) => return MinusOne::raw(open_ours(path, node, flags)),
                Route::Failed(errno) => return MinusOne::raw(Err(*errno)),
                Route::Instead(other) => other.as_ptr(),
                Route::Kernel => path,
            };
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
    (@at []) => { libc::AT_FDCWD };
    (@at [$folder:ident]) => { $folder };
}

/// Whether a link at the end of a path is followed when it is opened.
fn follows(flags: c_int) -> bool {
    let creates = libc::O_CREAT | libc::O_EXCL;
    flags & libc::O_NOFOLLOW == 0 && flags & creates != creates
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
            let route = unsafe { tree::route(libc::AT_FDCWD, path, true) };
            let path = match &route {
                // SAFETY: by the caller's promise.
                Route::Ours(path, node) => return Pointer::raw(unsafe { stream(path, node, mode) }),
                Route::Failed(errno) => return Pointer::raw(Err(*errno)),
                Route::Instead(other) => other.as_ptr(),
                Route::Kernel => path,
            };
            call_next!(NEXT, fn(*const c_char, *const c_char) -> *mut libc::FILE, path, mode)
                .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS)))
        }
    )*};
}

fopens! { fopen fopen64 }

/// # Safety
/// `mode` is null or a string.
unsafe fn stream(path: &str, node: &Node, mode: *const c_char) -> Outcome<*mut libc::FILE> {
    // SAFETY: by the caller's promise.
    let mode = (!mode.is_null()).then(|| unsafe { CStr::from_ptr(mode) }.to_bytes());
    let mode = mode.ok_or(Errno::INVAL)?;
    let only_reads = mode.starts_with(b"r") && !mode.contains(&b'+');
    let flags = if only_reads {
        libc::O_RDONLY
    } else {
        libc::O_WRONLY
    };
    let cloexec = if mode.contains(&b'e') {
        libc::O_CLOEXEC
    } else {
        0
    };
    let fd = open_ours(path, node, flags | cloexec)?;
    // SAFETY: an open descriptor; the stream owns it from here on.
    let stream = unsafe { libc::fdopen(fd, c"r".as_ptr()) };
    if stream.is_null() {
        return Err(Errno::of(&std::io::Error::last_os_error()));
    }
    Ok(stream)
}

/// Makes a file of ours say what is true now when a program begins to read it, as the kernel's do:
/// counters are opened once and read again and again.
fn refresh(fd: c_int) {
    let _uncancelled = Uncancelled::new();
    descriptors::refresh(fd, |path| match tree::at(path) {
        Some(Node::File(content)) => Some(content),
        _ => None,
    });
}

/// Whether a descriptor that may be ours is read from its beginning on.
fn is_at_begin(fd: c_int) -> bool {
    // SAFETY: plain integers.
    unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) == 0 }
}

/// Interposes functions that read: `name(fd, arguments) if it reads from the beginning on;`
macro_rules! reads {
    ($($next:ident: $name:ident($fd:ident $(, $arg:ident: $ty:ty)*) if $begins:expr;)*) => {$(
        static $next: Next = Next::libc(c_name!(stringify!($name)));

        crate::routed::routed! {
            #[doc = concat!("`", stringify!($name), "` of libc.")]
            $name($fd: c_int $(, $arg: $ty)*) -> isize = routes::$name;
        }
    )*

    mod routes {
        #[allow(clippy::wildcard_imports, reason = "what the macro's caller has")]
        use super::*;
        $(
            #[allow(unused_variables, reason = "some forms need them")]
            pub(super) unsafe extern "C" fn $name($fd: c_int $(, $arg: $ty)*) -> Function {
                if descriptors::may_be_file($fd) && $begins {
                    refresh($fd);
                }
                blocking::next(&$next)
            }
        )*
    }

    /// Finds them before the program runs: a program may read in a signal handler, where looking
    /// them up is not safe.
    #[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
    static FIND_READS: extern "C" fn() = {
        extern "C" fn find() {
            $($next.address();)*
        }
        find
    };
    };
}

reads! {
    READ: read(fd, to: *mut c_void, count: usize) if is_at_begin(fd);
    READ_CHK: __read_chk(fd, to: *mut c_void, count: usize, room: usize) if is_at_begin(fd);
    PREAD: pread(fd, to: *mut c_void, count: usize, from: i64) if from == 0;
    PREAD64: pread64(fd, to: *mut c_void, count: usize, from: i64) if from == 0;
    PREAD_CHK: __pread_chk(fd, to: *mut c_void, count: usize, from: i64, room: usize) if from == 0;
    PREAD64_CHK: __pread64_chk(fd, to: *mut c_void, count: usize, from: i64, room: usize) if from == 0;
}
