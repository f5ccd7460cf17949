//! `/dev/infiniband/rdma_cm`, in the process: opening it gives a descriptor that can be polled, and
//! what a program writes to it is a command ([`crate::cm`]).
//!
//! With `URXE_CM=kernel` the kernel's own file is left alone, and RDMA-CM works with real devices
//! only.
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use urxe_device::{CmFile, FoundOnce, Uncancelled};

use crate::blocking::{self, Frame, Function};
use crate::cm;
use crate::cm_table::{FILES, file, forget, may_be_ours, place};
use crate::errno::{Errno, Outcome};
use crate::next::{Next, call_next};

const PATH: &CStr = c"/dev/infiniband/rdma_cm";

/// Opens the file if it is what `path` names, and ours to answer.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int) -> Option<Outcome<c_int>> {
    // SAFETY: by the caller's promise.
    let is_it = !path.is_null() && unsafe { CStr::from_ptr(path) } == PATH;
    (is_it && !is_left_to_the_kernel()).then(|| open_ours(flags))
}

fn is_left_to_the_kernel() -> bool {
    const OURS: u64 = 1;
    const LEFT: u64 = 2;
    static WHOSE: FoundOnce = FoundOnce::new();
    let whose = WHOSE.or_find(|| match std::env::var_os("URXE_CM") {
        Some(value) if value == "kernel" => LEFT,
        _ => OURS,
    });
    whose == LEFT
}

fn open_ours(flags: c_int) -> Outcome<c_int> {
    crate::report::start();
    crate::context::flush_at_exit();
    let file = CmFile::open(flags & libc::O_CLOEXEC != 0, flags & libc::O_NONBLOCK != 0)
        .map_err(|error| Errno::of(&error))?;
    let fd = file.fd();
    let Some((word, bit)) = place(fd) else {
        // SAFETY: just opened, and no other code knows it.
        unsafe { libc::close(fd) };
        return Err(Errno(libc::EMFILE));
    };
    FILES.lock().insert(fd, file);
    word.fetch_or(bit, Ordering::Relaxed);
    Ok(fd)
}

static NEXT_WRITE: Next = Next::libc(c"write");

static NEXT_CLOSE: Next = Next::libc(c"close");

/// Finds libc's functions before the program runs: a program may call them in a signal handler,
/// where looking them up is not safe.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static FIND_NEXT: extern "C" fn() = {
    extern "C" fn find() {
        NEXT_WRITE.address();
        NEXT_CLOSE.address();
    }
    find
};

crate::routed::routed! {
    /// `close` of libc. With the last descriptor of a file of ours all ends that belongs to the
    /// file: it is free when this returns.
    close(fd: c_int) -> c_int = route_close;
}

extern "C" fn route_close(fd: c_int) -> Function {
    if may_be_ours(fd) && file(fd).is_some() {
        close_ours as extern "C" fn(c_int) -> c_int as Function
    } else {
        blocking::next(&NEXT_CLOSE)
    }
}

extern "C" fn close_ours(fd: c_int) -> c_int {
    let _uncancelled = Uncancelled::new();
    let ours = file(fd);
    if let Some(file) = ours {
        // First: the number may be another file's once it is closed.
        forget(fd, file);
    }
    let closed = call_next!(NEXT_CLOSE, fn(c_int) -> c_int, fd).unwrap_or_else(|| {
        Errno::NOSYS.set();
        -1
    });
    if let Some(file) = ours {
        file.end_if_closed();
    }
    closed
}

crate::routed::routed! {
    /// `write` of libc.
    write(fd: c_int, bytes: *const c_void, count: usize) -> isize = route_write;
}

extern "C" fn route_write(fd: c_int) -> Function {
    if may_be_ours(fd) && file(fd).is_some() {
        command as unsafe extern "C" fn() as Function
    } else {
        blocking::next(&NEXT_WRITE)
    }
}

crate::routed::calls! {
    /// `write` of a command.
    command = begin_command;
}

/// # Safety
/// The arguments are the program's of write(2).
unsafe extern "C" fn begin_command(frame: &mut Frame) -> bool {
    let [fd, bytes, count] = frame.arguments;
    // The upper half of an int's register says nothing.
    let Some(file) = file(fd as c_int) else {
        return frame.finish(Err(Errno(libc::EBADF)));
    };
    // SAFETY: by the caller's promise.
    unsafe { cm::begin(frame, file, std::ptr::with_exposed_provenance(bytes), count) }
}

/// What `fstat` says of a descriptor of ours: librdmacm makes sure that what it opened is a device,
/// so it is. Where the kernel has such a device, too, librdmacm may have asked for its number.
pub(crate) fn status(fd: RawFd) -> Option<libc::stat> {
    if !may_be_ours(fd) {
        return None;
    }
    file(fd)?;
    // SAFETY: all zeros is a valid stat, the path is a string.
    let kernels_device = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let found = libc::stat(PATH.as_ptr(), &raw mut status) == 0;
        found.then_some(status.st_rdev)
    };
    // SAFETY: as above.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    status.st_mode = libc::S_IFCHR | 0o666;
    status.st_nlink = 1;
    status.st_rdev = kernels_device.unwrap_or_default();
    Some(status)
}
