//! Why a request is refused.

/// Reason codes of a REJ (IBTA vol 1, 12.6.7.2). Only those that this crate sends or tells apart
/// have names; a peer may send any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// The peer waited too long.
    pub const TIMEOUT: Self = Self(4);
    /// The communication ID is not known.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No program listens on the service ID.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The requester's queue pair is still in another connection.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The program said no.
    pub const CONSUMER: Self = Self(28);
    /// The program says no because of one of the vendor-specific options (enhanced connection
    /// establishment).
    pub const VENDOR_OPTION: Self = Self(35);
}

/// Status codes of a SIDR_REP (IBTA vol 1, 12.11.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair number and Q_Key are valid.
    pub const SUCCESS: Self = Self(0);
    /// No program listens on the service ID.
    pub const UNSUPPORTED: Self = Self(1);
    /// The program said no.
    pub const REJECT: Self = Self(2);
}
