//! What a fork waits for: every lock of the crate that belongs to the process as a whole.

use crate::attach::gid_table::TABLES;
use crate::attach::tap::TAPS;
use crate::cm;
use crate::nic::opened::{self, OPENED};
use crate::process::across_fork::Held;
use crate::process::fork::{Part, hold, hold_others, in_child};
use crate::process::guard::INSTALLING;
use crate::process::usage::{self, BACKGROUND};
use crate::stat_server::SERVING;

/// To be called before anything is locked that a fork waits for, best before the program has
/// threads. `others` are locks of a crate that uses this one, to be taken in this order and before
/// ours; those of the first call count. At most 50.
pub fn prepare_for_fork(others: &'static [&'static dyn Held]) {
    hold_others(others);
    hold_all();
}

/// The same without others.
pub(crate) fn hold_all() {
    cm::hold_over_forks();
    hold(Part::Opened, &OPENED);
    hold(Part::Taps, &TAPS);
    hold(Part::Serving, &SERVING);
    hold(Part::Installing, &INSTALLING);
    hold(Part::Tables, &TABLES);
    hold(Part::Background, &BACKGROUND);
    in_child(Part::Opened, opened::forget);
    in_child(Part::Background, usage::forget_all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fork::unheld;

    #[test]
    fn no_lock_of_the_process_is_left_out() {
        prepare_for_fork(&[]);
        assert!(unheld().is_empty(), "{:?}", unheld());
    }
}
