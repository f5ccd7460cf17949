//! Descriptors that stand for something of ours: memory files, by whose names we know them again.
use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::errno::{Convention, Errno, MinusOne, Outcome};
use crate::next::{Next, call_next};

/// What stands before and behind the name of a memory file where the kernel shows it.
const SHOWN: (&[u8], &[u8]) = (b"/memfd:", b" (deleted)");

/// Beginnings of the names of files and folders; a path follows. Of the 249 bytes that a name may
/// have, the longest path takes 110.
const FILE: &str = "urxe:";
const FOLDER: &str = "urxe-folder:";
/// The name of the memory file that stands for an open device.
const DEVICE: &str = "urxe-device";

/// Whether something of ours was ever opened: until then no descriptor needs a closer look.
static HAS_OPENED: AtomicBool = AtomicBool::new(false);

/// Descriptors below this number can be known at once: as many as Linux lets a process have by
/// default.
const DESCRIPTORS: usize = 1 << 20;
const BITS: usize = u64::BITS as usize;

/// Which descriptors were opened as files, a bit each. Pages of it that are not touched cost
/// nothing.
static FILES: [AtomicU64; DESCRIPTORS / BITS] = [const { AtomicU64::new(0) }; DESCRIPTORS / BITS];

fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let index = usize::try_from(fd).ok()?;
    Some((FILES.get(index / BITS)?, 1 << (index % BITS)))
}

/// Whether a descriptor may be a file of ours that was opened here: for every read of a program,
/// and so no more than a load.
pub(crate) fn may_be_file(fd: c_int) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// What the kernel says that a descriptor is of.
pub(crate) fn link_of(fd: c_int) -> Option<String> {
    (fd >= 0).then(|| read_link(&format!("/proc/self/fd/{fd}")))?
}

/// Where a link of the kernel's leads.
pub(crate) fn read_link(path: &str) -> Option<String> {
    static NEXT: Next = Next::libc(c"readlink");
    let path = CString::new(path).ok()?;
    let mut shown = vec![0u8; libc::PATH_MAX as usize];
    let length = call_next!(
        NEXT,
        fn(*const c_char, *mut c_char, usize) -> isize,
        path.as_ptr(),
        shown.as_mut_ptr().cast(),
        shown.len()
    )?;
    shown.truncate(usize::try_from(length).ok()?);
    String::from_utf8(shown).ok()
}

/// The name of the memory file that a descriptor is of.
fn name_of(fd: c_int) -> Option<String> {
    if !HAS_OPENED.load(Ordering::Relaxed) {
        return None;
    }
    let link = link_of(fd)?;
    let name = link
        .as_bytes()
        .strip_prefix(SHOWN.0)?
        .strip_suffix(SHOWN.1)?;
    String::from_utf8(name.to_vec()).ok()
}

/// The path of the folder of ours that a descriptor stands for.
pub(crate) fn folder(fd: c_int) -> Option<String> {
    name_of(fd)?.strip_prefix(FOLDER).map(str::to_owned)
}

/// The path of the file or folder of ours that a descriptor stands for.
pub(crate) fn path(fd: c_int) -> Option<String> {
    let name = name_of(fd)?;
    let path = name.strip_prefix(FOLDER).or(name.strip_prefix(FILE))?;
    Some(path.to_owned())
}

/// Whether a descriptor is one of [`open_device`], or a duplicate of it.
pub(crate) fn is_device(fd: c_int) -> bool {
    name_of(fd).is_some_and(|name| name == DEVICE)
}

fn last() -> Errno {
    Errno::of(&std::io::Error::last_os_error())
}

/// A memory file.
fn memory_file(name: &str, content: &[u8]) -> Outcome<OwnedFd> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: just opened, and no other code knows it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    write(&file, content)?;
    HAS_OPENED.store(true, Ordering::Relaxed);
    Ok(file)
}

fn write(file: &OwnedFd, content: &[u8]) -> Outcome<()> {
    let fd = file.as_raw_fd();
    // SAFETY: the content is readable for its length.
    let written = unsafe { libc::pwrite(fd, content.as_ptr().cast(), content.len(), 0) };
    let length = content.len().try_into().map_err(|_| Errno::INVAL)?;
    // SAFETY: plain integers.
    if written < 0 || unsafe { libc::ftruncate(fd, length) } < 0 {
        return Err(last());
    }
    Ok(())
}

/// Opens the file behind a descriptor once more.
fn again(fd: c_int, flags: c_int) -> Outcome<OwnedFd> {
    static NEXT: Next = Next::libc(c"open");
    let path = CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::INVAL)?;
    let opened = call_next!(
        NEXT,
        fn(*const c_char, c_int) -> c_int,
        path.as_ptr(),
        flags
    );
    match opened {
        // SAFETY: just opened, and no other code knows it.
        Some(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last()),
    }
}

/// What open(2) leaves to the descriptor.
const KEPT_FLAGS: c_int = libc::O_CLOEXEC | libc::O_NONBLOCK;

/// A descriptor for a program, which cannot write: one that reads what `file` is, with the
/// program's flags.
fn give(file: OwnedFd, flags: c_int) -> c_int {
    let kept = flags & KEPT_FLAGS;
    let fd = again(file.as_raw_fd(), libc::O_RDONLY | kept).unwrap_or(file);
    fd.into_raw_fd()
}

/// A descriptor that reads a file of ours, its path without links.
pub(crate) fn open_file(path: &str, content: &[u8], flags: c_int) -> Outcome<c_int> {
    let fd = give(memory_file(&format!("{FILE}{path}"), content)?, flags);
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    Ok(fd)
}

/// A descriptor that stands for a folder of ours, its path without links.
pub(crate) fn open_folder(path: &str, flags: c_int) -> Outcome<c_int> {
    Ok(give(memory_file(&format!("{FOLDER}{path}"), &[])?, flags))
}

/// A descriptor for a context: programs set flags of it and duplicate it; nothing can be read from
/// it. Nor written to it: a libibverbs that is newer than we are may write a command, and would
/// take a write that succeeds for an answer.
pub(crate) fn open_device() -> Outcome<OwnedFd> {
    let fd = give(memory_file(DEVICE, &[])?, libc::O_CLOEXEC);
    // SAFETY: just opened, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `RDMA_VERBS_IOCTL` of the kernel's <rdma/rdma_user_ioctl_cmds.h>:
/// `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
const RDMA_VERBS_IOCTL: c_ulong = 0xc018_1b01;

/// `ioctl` of libc: functions of libibverbs that ask the kernel themselves learn from the
/// descriptor of a context of ours that they are not supported.
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

/// Brings a file of ours up to date, if that is what the descriptor is.
pub(crate) fn refresh(fd: c_int, content: impl FnOnce(&str) -> Option<Vec<u8>>) {
    let name = name_of(fd);
    let Some(path) = name.as_deref().and_then(|name| name.strip_prefix(FILE)) else {
        // The program closed it, and the number means something else now.
        if let Some((word, bit)) = place(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        return;
    };
    let saved = last();
    if let (Some(content), Ok(file)) = (content(path), again(fd, libc::O_RDWR | libc::O_CLOEXEC)) {
        // What cannot be written stays as it was.
        let _ = write(&file, &content);
    }
    saved.set();
}
