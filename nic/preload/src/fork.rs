//! What of this crate is locked while the process forks, so that the child finds it whole and free.
use urxe_device::{Held, prepare_for_fork};

use crate::{buffers, cm_table, device, folders, fts, of_process, report};

/// In the order in which they are taken: a thread that renews a context looks its device up, and
/// one that looks at the news lists all.
static LOCKS: [&(dyn Held + 'static); 8] = [
    &of_process::RENEWING,
    &device::LAST,
    &device::DEVICES,
    &buffers::BUFFERS,
    &cm_table::FILES,
    &folders::OPEN,
    &fts::OPEN,
    &report::SAID,
];

/// Before the program runs, and so before anything is locked.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static PREPARE: extern "C" fn() = {
    extern "C" fn prepare() {
        prepare_for_fork(&LOCKS);
    }
    prepare
};
