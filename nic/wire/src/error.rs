//! Why bytes are not a packet, or a header cannot become bytes.

use core::fmt;

use crate::operation::Operation;
use crate::transport::Transport;

/// The parts of a packet, for saying which one is missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are those of the headers")]
pub enum Part {
    Bth,
    Deth,
    XrcEth,
    Feth,
    Reth,
    AtomicEth,
    Aeth,
    AtomicAckEth,
    Immediate,
    Ieth,
    Icrc,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bth => "base transport header",
            Self::Deth => "datagram extended header",
            Self::XrcEth => "XRC extended header",
            Self::Feth => "FLUSH extended header",
            Self::Reth => "RDMA extended header",
            Self::AtomicEth => "atomic extended header",
            Self::Aeth => "acknowledge extended header",
            Self::AtomicAckEth => "atomic acknowledge extended header",
            Self::Immediate => "immediate data",
            Self::Ieth => "invalidate extended header",
            Self::Icrc => "invariant CRC",
        })
    }
}

/// Why a byte is no opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum OpcodeError {
    /// The transport service is reserved, and it is not a CNP.
    ReservedTransport {
        /// The byte.
        opcode: u8,
    },
    /// Reliable datagram, which no device implements.
    ReliableDatagram {
        /// The byte.
        opcode: u8,
    },
    /// 0xc0 and up belong to the manufacturer.
    ManufacturerSpecific {
        /// The byte.
        opcode: u8,
    },
    /// The operation is reserved for every transport service.
    ReservedOperation {
        /// The byte.
        opcode: u8,
    },
    /// The operation exists, but not for this transport service.
    NotForTransport {
        /// The transport service.
        transport: Transport,
        /// What it does not have.
        operation: Operation,
    },
}

impl fmt::Display for OpcodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReservedTransport { opcode } => {
                write!(f, "opcode {opcode:#04x} has a reserved transport service")
            }
            Self::ReliableDatagram { opcode } => write!(
                f,
                "opcode {opcode:#04x} is reliable datagram, which is not supported"
            ),
            Self::ManufacturerSpecific { opcode } => {
                write!(f, "opcode {opcode:#04x} is specific to a manufacturer")
            }
            Self::ReservedOperation { opcode } => {
                write!(f, "opcode {opcode:#04x} has a reserved operation")
            }
            Self::NotForTransport {
                transport,
                operation,
            } => {
                write!(
                    f,
                    "the {transport:?} transport service does not define {operation:?}"
                )
            }
        }
    }
}

impl core::error::Error for OpcodeError {}

/// Why a UDP payload is not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// It ends before `part` does.
    TooShort {
        /// What is missing or cut.
        part: Part,
        /// Bytes from the start of the UDP payload that the packet needs at least.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// The opcode byte means nothing.
    Opcode(OpcodeError),
    /// The transport header version is not 0, the only one there is.
    TransportVersion {
        /// The version.
        version: u8,
    },
    /// The packet is not a whole number of 4-byte words.
    NotWords {
        /// Its length.
        len: usize,
    },
    /// The pad count is greater than what is there to pad.
    PadExceedsPayload {
        /// The pad count, 1 to 3.
        pad: usize,
        /// Payload bytes there are, pad included.
        available: usize,
    },
    /// A packet that carries no data has some.
    UnexpectedPayload {
        /// What it is.
        operation: Operation,
        /// Bytes of payload it has, without padding.
        len: usize,
    },
    /// The AETH syndrome is reserved.
    ReservedSyndrome {
        /// The byte.
        syndrome: u8,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort {
                part,
                needed,
                available,
            } => {
                write!(
                    f,
                    "packet ends in its {part}: {available} bytes, needs at least {needed}"
                )
            }
            Self::Opcode(error) => error.fmt(f),
            Self::TransportVersion { version } => {
                write!(f, "transport header version {version}, only 0 is defined")
            }
            Self::NotWords { len } => {
                write!(f, "packet length of {len} bytes is not a multiple of 4")
            }
            Self::PadExceedsPayload { pad, available } => {
                write!(
                    f,
                    "pad count {pad} exceeds the {available} bytes of payload"
                )
            }
            Self::UnexpectedPayload { operation, len } => {
                write!(
                    f,
                    "{operation:?} carries no data, but {len} bytes follow its headers"
                )
            }
            Self::ReservedSyndrome { syndrome } => {
                write!(f, "acknowledgement syndrome {syndrome:#04x} is reserved")
            }
        }
    }
}

impl core::error::Error for ParseError {}

impl From<OpcodeError> for ParseError {
    #[inline]
    fn from(error: OpcodeError) -> Self {
        Self::Opcode(error)
    }
}

/// Why a header cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EmitError {
    /// The buffer is too short.
    BufferTooShort {
        /// Bytes the header takes.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// The specification has no such opcode.
    UndefinedOpcode {
        /// The transport service.
        transport: Transport,
        /// What it does not have.
        operation: Operation,
    },
    /// The extension headers present are not those that the opcode calls for.
    WrongExtensions {
        /// The opcode byte.
        opcode: u8,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooShort { needed, available } => {
                write!(f, "header takes {needed} bytes, the buffer has {available}")
            }
            Self::UndefinedOpcode {
                transport,
                operation,
            } => {
                write!(
                    f,
                    "the {transport:?} transport service does not define {operation:?}"
                )
            }
            Self::WrongExtensions { opcode } => {
                write!(
                    f,
                    "opcode {opcode:#04x} calls for other extension headers than those given"
                )
            }
        }
    }
}

impl core::error::Error for EmitError {}
