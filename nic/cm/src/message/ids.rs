//! Where messages name what they belong to.

/// Where every message names its sender's communication ID, and the receiver's.
pub(super) const LOCAL_COMM_ID: usize = 24;
pub(super) const REMOTE_COMM_ID: usize = 28;
