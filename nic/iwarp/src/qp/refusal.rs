//! Why a segment is refused, and what that is called: in a TERMINATE (RFC 5040, 7.1 and 7.2;
//! RFC 5041, 7.1), in a completion and as an event.

use smallvec::SmallVec;
use urxe_iwarp_wire::{Fault, ParseError};
use urxe_proto::{AccessError, QpEvent, WcStatus};

/// What ends the connection.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) fault: Fault,
    /// How the receive request that the message took completes, if it took one.
    pub(super) receive: WcStatus,
    /// The RDMAP header in which it was.
    pub(super) rdmap: Option<SmallVec<[u8; 64]>>,
    /// Whether a TERMINATE tells the peer; not where it was in a TERMINATE.
    pub(super) is_answered: bool,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            receive: WcStatus::WrFlush,
            rdmap: None,
            is_answered: true,
        }
    }
}

impl Refusal {
    /// With a status for the receive request.
    pub(super) fn with_receive(fault: Fault, receive: WcStatus) -> Self {
        Self {
            receive,
            ..fault.into()
        }
    }

    /// With the RDMAP header.
    pub(super) fn with_header(fault: Fault, rdmap: &[u8]) -> Self {
        Self {
            rdmap: Some(SmallVec::from_slice(rdmap)),
            ..fault.into()
        }
    }

    /// The event that the program sees.
    pub(super) fn event(&self) -> QpEvent {
        match self.fault {
            fault if fault.is_about_access() => QpEvent::AccessError,
            Fault::RdmapCatastrophic
            | Fault::DdpCatastrophic
            | Fault::MpaCrc
            | Fault::MpaMarker => QpEvent::Fatal,
            _ => QpEvent::RequestError,
        }
    }
}

/// A tagged buffer that the peer may not write (RFC 5041, 7.2). DDP has no code for missing rights;
/// RDMAP has.
pub(super) const fn of_tagged(error: AccessError) -> Fault {
    match error {
        AccessError::UnknownKey | AccessError::WindowState => Fault::TaggedInvalidStag,
        AccessError::WrongPd => Fault::TaggedNotAssociated,
        AccessError::OutOfBounds | AccessError::Misaligned => Fault::TaggedBounds,
        AccessError::Denied => Fault::ProtectionAccess,
        AccessError::Fault => Fault::DdpCatastrophic,
    }
}

/// A buffer that the peer may not read or use for an atomic (RFC 5040, 4.8; RFC 7306, 8.2).
pub(super) const fn of_request(error: AccessError) -> Fault {
    match error {
        AccessError::UnknownKey | AccessError::WindowState => Fault::ProtectionInvalidStag,
        AccessError::WrongPd => Fault::ProtectionNotAssociated,
        AccessError::OutOfBounds => Fault::ProtectionBounds,
        AccessError::Denied => Fault::ProtectionAccess,
        AccessError::Misaligned => Fault::ProtectionUnspecified,
        AccessError::Fault => Fault::RdmapCatastrophic,
    }
}

/// A header that makes no sense.
pub(super) const fn of_header(error: ParseError, is_tagged: bool) -> Fault {
    match error {
        ParseError::DdpVersion { .. } if is_tagged => Fault::TaggedVersion,
        ParseError::DdpVersion { .. } => Fault::UntaggedVersion,
        ParseError::RdmapVersion { .. } => Fault::OperationVersion,
        ParseError::Opcode { .. } | ParseError::AtomicOperation { .. } => {
            Fault::OperationUnexpectedOpcode
        }
        _ => Fault::OperationUnspecified,
    }
}

/// How a request ends of which the peer says this.
pub(super) fn status_of(fault: Fault) -> WcStatus {
    match fault {
        fault if fault.is_about_access() => WcStatus::RemoteAccess,
        Fault::OperationVersion
        | Fault::OperationUnexpectedOpcode
        | Fault::UntaggedNoBuffer
        | Fault::UntaggedTooLong => WcStatus::RemoteInvalidRequest,
        _ => WcStatus::RemoteOperation,
    }
}
