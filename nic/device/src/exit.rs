//! What a process owes its peers when it ends.

use std::sync::Weak;

use crate::cm::sharing;
use crate::nic::opened::OPENED;

/// Ends the connections of the process, and sends the acknowledgements that are still held back:
/// the peer's requests were executed, and it must not take them for lost. Writes out captures. To
/// be called when the process exits.
pub fn at_exit() {
    sharing::at_exit();
    // try_lock: a thread that was ended while it held the lock must not stop the exit.
    let Some(opened) = OPENED.try_lock() else {
        return;
    };
    for nic in opened.iter().filter_map(Weak::upgrade) {
        nic.take_leave();
        nic.taps().flush();
    }
}
