//! Why a management datagram is not understood.

use core::fmt;

/// Why a management datagram is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadError {
    /// It does not have 256 bytes.
    Length(usize),
    /// Its base version, class, class version or method is not that of a connection manager's
    /// message (IBTA vol 1, 12.6.1): the four bytes.
    NotCm([u8; 4]),
    /// The attribute names no message of the connection manager.
    Attribute(u16),
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "a management datagram of {len} bytes, not 256"),
            Self::NotCm(bytes) => {
                write!(
                    f,
                    "not a connection manager's datagram: it begins {bytes:02x?}"
                )
            }
            Self::Attribute(id) => write!(f, "no message of the connection manager: {id:#06x}"),
        }
    }
}

impl core::error::Error for MadError {}
