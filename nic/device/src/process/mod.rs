//! What concerns the process that uses the NIC, and threads in it: faults, forks, signals,
//! processor time, the clock.

pub(crate) mod across_fork;
pub(crate) mod ahead;
pub(crate) mod blocking;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod fork;
pub(crate) mod found_once;
pub(crate) mod futex;
pub(crate) mod guard;
pub(crate) mod odp;
pub(crate) mod random;
pub(crate) mod signalled;
pub(crate) mod threads;
pub(crate) mod usage;
