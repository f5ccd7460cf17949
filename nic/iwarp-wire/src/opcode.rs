//! The RDMAP control field (RFC 5040, 4.1 and 4.2; RFC 7306, 4): version and opcode.

use crate::error::ParseError;

const VERSION_SHIFT: u8 = 6;
const VERSION: u8 = 1;
const OPCODE_MASK: u8 = 0xf;

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA WRITE.
    Write = 0,
    /// RDMA READ request.
    ReadRequest = 1,
    /// RDMA READ response.
    ReadResponse = 2,
    /// SEND.
    Send = 3,
    /// SEND that invalidates.
    SendInvalidate = 4,
    /// SEND with solicited event.
    SendSolicited = 5,
    /// SEND that invalidates, with solicited event.
    SendSolicitedInvalidate = 6,
    /// TERMINATE.
    Terminate = 7,
    /// Immediate data.
    Immediate = 8,
    /// Immediate data with solicited event.
    ImmediateSolicited = 9,
    /// Atomic request.
    AtomicRequest = 10,
    /// Atomic response.
    AtomicResponse = 11,
}

impl Opcode {
    /// All, by number.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// Reads the control field.
    ///
    /// # Errors
    /// [`ParseError::RdmapVersion`], [`ParseError::Opcode`].
    pub fn parse(control: u8) -> Result<Self, ParseError> {
        let version = control >> VERSION_SHIFT;
        if version != VERSION {
            return Err(ParseError::RdmapVersion { version });
        }
        let opcode = control & OPCODE_MASK;
        let known = Self::ALL.get(usize::from(opcode)).copied();
        known.ok_or(ParseError::Opcode { opcode })
    }

    /// The control field.
    #[must_use]
    pub const fn emit(self) -> u8 {
        VERSION << VERSION_SHIFT | self as u8
    }

    /// Whether its messages go to tagged buffers (RFC 5040, 4.1).
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// Whether its completion at the receiver is a solicited event.
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited
        )
    }

    /// Whether it invalidates an STag of the receiver.
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}
