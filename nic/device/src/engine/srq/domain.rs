//! XRC domains.

/// An XRC domain: which target queue pairs may use which shared receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Xrcd(pub(crate) u32);
