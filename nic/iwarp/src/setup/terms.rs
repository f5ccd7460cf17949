//! What an end offers, what both agree on, and why they do not.

use core::fmt;

use urxe_iwarp_wire::{Fault, IRD_ORD_LARGEST, IRD_ORD_MAX, ParseError};

/// What this end wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whether it wants markers in what it receives.
    pub wants_markers: bool,
    /// Whether it wants CRCs. Both ends use them if one wants them (RFC 5044, 7.1.1).
    pub wants_crc: bool,
    /// READs and atomics that it answers at a time; above [`IRD_ORD_LARGEST`], that many.
    pub ird: u16,
    /// READs and atomics that it has outstanding at most; above [`IRD_ORD_LARGEST`], that many.
    pub ord: u16,
    /// Of an initiator, whether it asks for enhanced set-up (revision 2). A responder answers with
    /// the revision of the request.
    pub is_enhanced: bool,
    /// Of an initiator with enhanced set-up, whether either end may send first. A responder takes
    /// part if it is asked to.
    pub is_peer_to_peer: bool,
}

impl Offer {
    /// With the IRD and ORD that can be said.
    pub(super) fn sayable(self) -> Self {
        Self {
            ird: self.ird.min(IRD_ORD_LARGEST),
            ord: self.ord.min(IRD_ORD_LARGEST),
            ..self
        }
    }
}

/// The frame that tells a responder that it may send (RFC 6581, 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtrKind {
    /// An RDMA WRITE of no bytes.
    Write,
    /// An RDMA READ of no bytes.
    Read,
}

/// What this end has to do before its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstFrame {
    /// Nothing: it is the initiator.
    Free,
    /// It sends this, as the initiator of a connection between peers.
    Send(RtrKind),
    /// It waits for the first FPDU, as the responder (RFC 5044, 7.1.2).
    Await,
}

/// What both ends agreed on, as this end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether there are markers in what it sends.
    pub sends_markers: bool,
    /// Whether there are markers in what it receives.
    pub receives_markers: bool,
    /// Whether CRCs are computed and checked.
    pub has_crc: bool,
    /// READs and atomics that it answers at a time.
    pub ird: u16,
    /// READs and atomics that it has outstanding at most.
    pub ord: u16,
    /// What comes before its first message.
    pub first: FirstFrame,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The frame of the peer was none.
    Frame(ParseError),
    /// The program's private data is longer than peers take.
    PrivateDataTooLong {
        /// Its length, bytes.
        len: usize,
        /// Bytes that are allowed in this frame.
        allowed: usize,
    },
    /// A request came where a reply was due, or the other way round.
    WrongKind,
    /// The reply has another revision than the request. The peer may know the other one: a new
    /// connection can try it.
    Revision {
        /// That of the reply.
        revision: u8,
    },
    /// The peer wants more READs outstanding than this end answers.
    InsufficientIrd,
    /// Both ends have no RTR frame in common.
    NoMatchingRtr,
    /// The peer rejected the connection.
    Rejected,
    /// The stream ended.
    Ended,
    /// Time ran out.
    TimedOut,
}

impl SetupError {
    /// What a TERMINATE says of it, if one goes to the peer (RFC 6581, 8).
    #[must_use]
    pub const fn fault(self) -> Option<Fault> {
        match self {
            Self::InsufficientIrd => Some(Fault::MpaInsufficientIrd),
            Self::NoMatchingRtr => Some(Fault::MpaNoMatchingRtr),
            _ => None,
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::PrivateDataTooLong { len, allowed } => write!(
                f,
                "{len} bytes of private data, at most {allowed} are allowed here"
            ),
            Self::WrongKind => f.write_str("MPA request and reply are exchanged"),
            Self::Revision { revision } => {
                write!(f, "the peer replied with MPA revision {revision}")
            }
            Self::InsufficientIrd => {
                f.write_str("the peer wants more READs outstanding than this end answers")
            }
            Self::NoMatchingRtr => f.write_str("both ends have no first frame (RTR) in common"),
            Self::Rejected => f.write_str("the peer rejected the connection"),
            Self::Ended => f.write_str("the stream ended before the connection was set up"),
            Self::TimedOut => f.write_str("the peer did not answer in time"),
        }
    }
}

impl core::error::Error for SetupError {}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A frame is missing.
    Pending,
    /// The connection is there, once all output is sent. What follows in the stream are FPDUs.
    Established(Terms),
    /// There is none. What output is left is for the peer; then the stream is to be closed.
    Failed(SetupError),
}

/// The lower of what one end has outstanding and what the other answers, which may have said that
/// this is not negotiated here (RFC 6581, 9.1).
pub(super) fn at_most(ord: u16, peer_ird: u16) -> u16 {
    if peer_ird == IRD_ORD_MAX {
        ord
    } else {
        ord.min(peer_ird)
    }
}
