//! What a process owes its peers when it ends.

use std::sync::{Arc, Weak};

use crate::across_fork::AcrossFork;
use crate::fork;
use crate::nic::Nic;

/// The devices that the process has opened.
pub(crate) static OPENED: AcrossFork<Vec<Weak<Nic>>> = AcrossFork::new(Vec::new());

pub(crate) fn remember(nic: &Arc<Nic>) {
    fork::prepare();
    let mut opened = OPENED.lock();
    opened.retain(|nic| nic.strong_count() > 0);
    opened.push(Arc::downgrade(nic));
}

/// The opened devices.
pub(crate) fn opened() -> Vec<Arc<Nic>> {
    OPENED.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Ends the connections of the process, and sends the acknowledgements that are still held back: the
/// peer's requests were executed, and it must not take them for lost. Writes out captures. To be called
/// when the process exits.
pub fn at_exit() {
    crate::cm::at_exit();
    // try_lock: a thread that was ended while it held the lock must not stop the exit.
    let Some(opened) = OPENED.try_lock() else {
        return;
    };
    for nic in opened.iter().filter_map(Weak::upgrade) {
        nic.take_leave();
        nic.taps().flush();
    }
}
