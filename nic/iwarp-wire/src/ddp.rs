//! DDP headers (RFC 5041, 4): of segments for tagged and for untagged buffers. RDMAP has its
//! control field in each, and an STag in the untagged one (RFC 5040, 4.1).

use crate::bytes::{put, u32_at, u64_at};
use crate::error::{ParseError, check_available};

/// Longest DDP header, bytes.
pub const MAX_DDP_HEADER_LEN: usize = Untagged::LEN;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// The queues of untagged buffers (RFC 5040, 4.2; RFC 7306, 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Queue {
    /// SENDs and immediate data.
    Send = 0,
    /// READ and atomic requests.
    Request = 1,
    /// TERMINATE.
    Terminate = 2,
    /// Atomic responses.
    AtomicResponse = 3,
}

impl Queue {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// The queue of a number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Send),
            1 => Some(Self::Request),
            2 => Some(Self::Terminate),
            3 => Some(Self::AtomicResponse),
            _ => None,
        }
    }
}

/// A segment for a tagged buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tagged {
    /// Whether it is the last of its message.
    pub is_last: bool,
    /// The RDMAP control field.
    pub control: u8,
    /// The buffer.
    pub stag: u32,
    /// Tagged offset: where in it.
    pub offset: u64,
}

impl Tagged {
    /// Length on the wire, bytes.
    pub const LEN: usize = 14;
}

/// A segment for an untagged buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Untagged {
    /// Whether it is the last of its message.
    pub is_last: bool,
    /// The RDMAP control field.
    pub control: u8,
    /// The STag that RDMAP has in it: the one to invalidate.
    pub invalidate: u32,
    /// Queue number.
    pub queue: u32,
    /// Message sequence number, from 1.
    pub msn: u32,
    /// Message offset: where in the message, bytes.
    pub offset: u32,
}

impl Untagged {
    /// Length on the wire, bytes.
    pub const LEN: usize = 18;
}

/// Either header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DdpHeader {
    /// For a tagged buffer.
    Tagged(Tagged),
    /// For an untagged buffer.
    Untagged(Untagged),
}

impl DdpHeader {
    /// Length of the header that begins with this byte.
    #[must_use]
    pub const fn len_of(first: u8) -> usize {
        if first & TAGGED != 0 {
            Tagged::LEN
        } else {
            Untagged::LEN
        }
    }

    /// Length on the wire, bytes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        match self {
            Self::Tagged(_) => Tagged::LEN,
            Self::Untagged(_) => Untagged::LEN,
        }
    }

    /// The RDMAP control field.
    #[must_use]
    pub const fn control(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.control,
            Self::Untagged(header) => header.control,
        }
    }

    /// Whether the segment is the last of its message.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.is_last,
            Self::Untagged(header) => header.is_last,
        }
    }

    /// Reads the header at the beginning of a segment.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::DdpVersion`]. Reserved bits are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        check_available(bytes, 1)?;
        let first = bytes[0];
        let version = first & VERSION_MASK;
        if version != VERSION {
            return Err(ParseError::DdpVersion { version });
        }
        check_available(bytes, Self::len_of(first))?;
        let (is_last, control) = (first & LAST != 0, bytes[1]);
        Ok(if first & TAGGED != 0 {
            Self::Tagged(Tagged {
                is_last,
                control,
                stag: u32_at(bytes, 2),
                offset: u64_at(bytes, 6),
            })
        } else {
            Self::Untagged(Untagged {
                is_last,
                control,
                invalidate: u32_at(bytes, 2),
                queue: u32_at(bytes, 6),
                msn: u32_at(bytes, 10),
                offset: u32_at(bytes, 14),
            })
        })
    }

    /// Writes it to the beginning of `out`; its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::buffer_len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let last = if self.is_last() { LAST } else { 0 };
        out[1] = self.control();
        match self {
            Self::Tagged(header) => {
                out[0] = TAGGED | last | VERSION;
                put(out, 2, &header.stag.to_be_bytes());
                put(out, 6, &header.offset.to_be_bytes());
            }
            Self::Untagged(header) => {
                out[0] = last | VERSION;
                put(out, 2, &header.invalidate.to_be_bytes());
                put(out, 6, &header.queue.to_be_bytes());
                put(out, 10, &header.msn.to_be_bytes());
                put(out, 14, &header.offset.to_be_bytes());
            }
        }
        self.buffer_len()
    }
}
