//! What is counted of the whole network.

use urxe_proto::WcStatus;

/// Counters of the whole network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) events: u64,
    pub(crate) hops: u64,
    pub(crate) dropped: u64,
    pub(crate) lost_on_the_way: u64,
    pub(crate) without_way: u64,
    pub(crate) marked: u64,
    pub(crate) notifications: u64,
    pub(crate) pauses: u64,
    pub(crate) repeated: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) failure: Option<WcStatus>,
    pub(crate) deadlocks: u64,
}
