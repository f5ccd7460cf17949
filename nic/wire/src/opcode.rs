//! The opcode byte: a transport service and an operation, or a congestion notification.

use crate::error::OpcodeError;
use crate::operation::Operation;
use crate::transport::Transport;

const TRANSPORT_MASK: u8 = 0xe0;
const OPERATION_MASK: u8 = 0x1f;
const CNP: u8 = 0x81;

/// The opcode of a packet.
///
/// An enum, because a congestion notification (CNP) belongs to no transport service and has no
/// operation: [`Opcode::operation`] and [`Opcode::transport`] are `None` for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opcode {
    /// A packet of a queue pair.
    Queue {
        /// The transport service.
        transport: Transport,
        /// What it asks or answers.
        operation: Operation,
    },
    /// A congestion notification packet (IBTA annex A17.9.3).
    Cnp,
}

impl Opcode {
    /// The congestion notification packet.
    pub const CNP: Self = Self::Cnp;

    /// The opcode of `operation` over `transport`. Whether the two go together is for
    /// [`Opcode::is_defined`] to say; a header with an opcode that is not defined does not emit.
    #[inline]
    pub const fn new(transport: Transport, operation: Operation) -> Self {
        Self::Queue {
            transport,
            operation,
        }
    }

    /// The operation; `None` for a CNP.
    #[inline]
    pub const fn operation(self) -> Option<Operation> {
        match self {
            Self::Queue { operation, .. } => Some(operation),
            Self::Cnp => None,
        }
    }

    /// The transport service; `None` for a CNP.
    #[inline]
    pub const fn transport(self) -> Option<Transport> {
        match self {
            Self::Queue { transport, .. } => Some(transport),
            Self::Cnp => None,
        }
    }

    /// Whether the specification defines this opcode.
    #[inline]
    pub const fn is_defined(self) -> bool {
        match self {
            Self::Queue {
                transport,
                operation,
            } => transport.defines(operation),
            Self::Cnp => true,
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::Queue {
                transport,
                operation,
            } => transport as u8 | operation.code(),
            Self::Cnp => CNP,
        }
    }
}

impl From<Opcode> for u8 {
    #[inline]
    fn from(opcode: Opcode) -> Self {
        opcode.code()
    }
}

impl TryFrom<u8> for Opcode {
    type Error = OpcodeError;

    #[inline]
    fn try_from(byte: u8) -> Result<Self, OpcodeError> {
        let transport = match byte & TRANSPORT_MASK {
            0x00 => Transport::Rc,
            0x20 => Transport::Uc,
            0x60 => Transport::Ud,
            0xa0 => Transport::Xrc,
            _ if byte == CNP => return Ok(Self::Cnp),
            0x40 => return Err(OpcodeError::ReliableDatagram { opcode: byte }),
            0xc0 | 0xe0 => return Err(OpcodeError::ManufacturerSpecific { opcode: byte }),
            _ => return Err(OpcodeError::ReservedTransport { opcode: byte }),
        };
        let Some(operation) = Operation::from_code(byte & OPERATION_MASK) else {
            return Err(OpcodeError::ReservedOperation { opcode: byte });
        };
        if !transport.defines(operation) {
            return Err(OpcodeError::NotForTransport {
                transport,
                operation,
            });
        }
        Ok(Self::Queue {
            transport,
            operation,
        })
    }
}
