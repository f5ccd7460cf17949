//! Where the process is, which may be a folder of ours ([`crate::cwd`]).
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptors::read_link;

/// What the name of such a folder begins with, and what the kernel shows behind a name that was
/// removed.
pub(crate) const NAME: &str = "/urxe-cwd-";
const REMOVED: &str = " (deleted)";

/// Whether the process may be in a folder of ours. It stays so: a child of vfork shares this, and
/// not the folder.
pub(crate) static MAY_BE_OURS: AtomicBool = AtomicBool::new(false);

/// Looks where the process was started.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        MAY_BE_OURS.store(find().is_some(), Ordering::Relaxed);
    }
    look
};

/// The folder of ours that this thread is in.
pub(crate) fn ours() -> Option<String> {
    MAY_BE_OURS.load(Ordering::Relaxed).then(find)?
}

fn find() -> Option<String> {
    let shown = read_link("/proc/thread-self/cwd")?;
    let (_, name) = shown.strip_suffix(REMOVED)?.split_once(NAME)?;
    // The random part ends before the path begins.
    name.find('/').map(|begin| name[begin..].to_owned())
}

/// The kernel's folder that this thread is in.
pub(crate) fn real() -> Option<String> {
    read_link("/proc/thread-self/cwd")
}
