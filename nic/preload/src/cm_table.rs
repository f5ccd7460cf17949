//! The descriptors that stand for files of communication management.
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use urxe_device::{AcrossFork, CmFile};

/// Descriptors below this number can be ours: as many as Linux lets a process have by default.
const DESCRIPTORS: usize = 1 << 20;
const BITS: usize = u64::BITS as usize;

/// Which descriptors are ours, a bit each: a `write` of the program to any other descriptor pays
/// for one load. Pages of it that are not touched cost nothing.
static OURS: [AtomicU64; DESCRIPTORS / BITS] = [const { AtomicU64::new(0) }; DESCRIPTORS / BITS];

pub(crate) static FILES: AcrossFork<BTreeMap<RawFd, CmFile>> = AcrossFork::new(BTreeMap::new());

pub(crate) fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let index = usize::try_from(fd).ok()?;
    Some((OURS.get(index / BITS)?, 1 << (index % BITS)))
}

pub(crate) fn may_be_ours(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The file behind a descriptor, if it is (still) one of ours.
pub(crate) fn file(fd: RawFd) -> Option<CmFile> {
    if !may_be_ours(fd) {
        return None;
    }
    let file = *FILES.lock().get(&fd)?;
    if file.is_current() {
        return Some(file);
    }
    // The program closed it, and the number means something else now, or nothing.
    forget(fd, file);
    None
}

/// `fd` does not stand for `file` any more.
pub(crate) fn forget(fd: RawFd, file: CmFile) {
    let mut files = FILES.lock();
    if files.get(&fd) == Some(&file) {
        files.remove(&fd);
        if let Some((word, bit)) = place(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}
