//! Why bytes are not what they should be.

use core::fmt;

/// Why bytes were not understood.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// They end early: so far, this many bytes are needed.
    TooShort {
        /// Bytes needed at least.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// A set-up frame does not begin with the key of a request or reply.
    Key,
    /// A set-up frame has a revision that is neither 1 nor 2.
    Revision {
        /// The revision.
        revision: u8,
    },
    /// A set-up frame announces more private data than the 512 bytes allowed.
    PrivateDataTooLong {
        /// Length announced, bytes.
        len: usize,
    },
    /// An enhanced set-up frame has too little private data for its IRD and ORD.
    EnhancedTooShort {
        /// Length announced, bytes.
        len: usize,
    },
    /// The DDP version is not 1.
    DdpVersion {
        /// The version.
        version: u8,
    },
    /// The RDMAP version is not 1.
    RdmapVersion {
        /// The version.
        version: u8,
    },
    /// No operation has this opcode.
    Opcode {
        /// The opcode.
        opcode: u8,
    },
    /// No atomic operation has this code, or one with masks is asked for.
    AtomicOperation {
        /// The code.
        code: u8,
    },
    /// The length of a message is not that of its operation.
    Length {
        /// Bytes that the operation has.
        expected: usize,
        /// Bytes there are.
        actual: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { needed, available } => {
                write!(f, "{available} bytes, needs at least {needed}")
            }
            Self::Key => f.write_str("no MPA request or reply: another key"),
            Self::Revision { revision } => {
                write!(f, "MPA revision {revision}, only 1 and 2 are defined")
            }
            Self::PrivateDataTooLong { len } => {
                write!(f, "{len} bytes of private data, at most 512 are allowed")
            }
            Self::EnhancedTooShort { len } => write!(
                f,
                "{len} bytes of private data, enhanced set-up begins with 4 of its own"
            ),
            Self::DdpVersion { version } => {
                write!(f, "DDP version {version}, only 1 is defined")
            }
            Self::RdmapVersion { version } => {
                write!(f, "RDMAP version {version}, only 1 is defined")
            }
            Self::Opcode { opcode } => write!(f, "RDMAP opcode {opcode} is not defined"),
            Self::AtomicOperation { code } => {
                write!(f, "atomic operation {code} is not supported")
            }
            Self::Length { expected, actual } => {
                write!(f, "a message of {actual} bytes, this one has {expected}")
            }
        }
    }
}

impl core::error::Error for ParseError {}

/// Checks that a message of a fixed length has it.
pub(crate) const fn check_len(bytes: &[u8], expected: usize) -> Result<(), ParseError> {
    if bytes.len() == expected {
        Ok(())
    } else {
        let actual = bytes.len();
        Err(ParseError::Length { expected, actual })
    }
}

/// Checks that there are at least so many bytes.
pub(crate) const fn check_available(bytes: &[u8], needed: usize) -> Result<(), ParseError> {
    if bytes.len() >= needed {
        Ok(())
    } else {
        let available = bytes.len();
        Err(ParseError::TooShort { needed, available })
    }
}
