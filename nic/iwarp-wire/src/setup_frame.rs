//! The MPA request and reply frames (RFC 5044, 7.1.1; RFC 6581, 6 and 9).

use crate::bytes::{put, u16_at};
use crate::enhanced::Enhanced;
use crate::error::{ParseError, check_available};

/// Most private data, bytes; of an enhanced frame, IRD and ORD included (RFC 5044, 7.1.1).
pub const MAX_PRIVATE_DATA_LEN: usize = 512;

/// Longest set-up frame, bytes.
pub const MAX_SETUP_FRAME_LEN: usize = SetupFrame::HEADER_LEN + MAX_PRIVATE_DATA_LEN;

const KEY_LEN: usize = 16;
const REQUEST_KEY: &[u8; KEY_LEN] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; KEY_LEN] = b"MPA ID Rep Frame";
const FLAGS: usize = 16;
const REVISION: usize = 17;
const LENGTH: usize = 18;
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Which of the two frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameKind {
    /// That of the initiator.
    Request,
    /// That of the responder.
    Reply,
}

/// A request or reply. Both have one layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetupFrame<'a> {
    /// Which of the two.
    pub kind: FrameKind,
    /// Whether the sender wants markers in what it receives (flag M).
    pub wants_markers: bool,
    /// Whether the sender wants CRCs, both ways (flag C).
    pub wants_crc: bool,
    /// Whether the connection is rejected (flag R, of a reply).
    pub is_rejected: bool,
    /// 1, or 2 for enhanced set-up.
    pub revision: u8,
    /// IRD, ORD and control flags, if the frame has them (flag S, from revision 2 on).
    pub enhanced: Option<Enhanced>,
    /// Private data of the program.
    pub private_data: &'a [u8],
}

impl<'a> SetupFrame<'a> {
    /// Bytes before the private data.
    pub const HEADER_LEN: usize = 20;

    /// Length on the wire, bytes.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        Self::HEADER_LEN + self.data_len()
    }

    const fn data_len(&self) -> usize {
        let enhanced = if self.enhanced.is_some() {
            Enhanced::LEN
        } else {
            0
        };
        enhanced + self.private_data.len()
    }

    /// Reads a frame at the beginning of a stream; what follows it there is not looked at.
    ///
    /// # Errors
    /// Why it is none. [`ParseError::TooShort`] says how many bytes are needed next, at most
    /// [`MAX_SETUP_FRAME_LEN`]; bytes that can become no frame are refused before that.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let key = &bytes[..bytes.len().min(KEY_LEN)];
        let kind = match key {
            _ if REQUEST_KEY.starts_with(key) => FrameKind::Request,
            _ if REPLY_KEY.starts_with(key) => FrameKind::Reply,
            _ => return Err(ParseError::Key),
        };
        check_available(bytes, Self::HEADER_LEN)?;
        let revision = bytes[REVISION];
        if !matches!(revision, 1 | 2) {
            return Err(ParseError::Revision { revision });
        }
        let len = usize::from(u16_at(bytes, LENGTH));
        if len > MAX_PRIVATE_DATA_LEN {
            return Err(ParseError::PrivateDataTooLong { len });
        }
        let flags = bytes[FLAGS];
        // Revision 1 has no flag S: the bit is reserved there, and not looked at.
        let is_enhanced = revision >= 2 && flags & ENHANCED != 0;
        if is_enhanced && len < Enhanced::LEN {
            return Err(ParseError::EnhancedTooShort { len });
        }
        check_available(bytes, Self::HEADER_LEN + len)?;
        let data = &bytes[Self::HEADER_LEN..Self::HEADER_LEN + len];
        let (enhanced, private_data) = match data.split_first_chunk() {
            Some((raw, rest)) if is_enhanced => (Some(Enhanced::parse(raw)), rest),
            _ => (None, data),
        };
        Ok(Self {
            kind,
            wants_markers: flags & MARKERS != 0,
            wants_crc: flags & CRC != 0,
            is_rejected: flags & REJECTED != 0,
            revision,
            enhanced,
            private_data,
        })
    }

    /// Writes it to the beginning of `out`; its length.
    ///
    /// # Errors
    /// [`ParseError::PrivateDataTooLong`], or [`ParseError::TooShort`] if `out` is.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ParseError> {
        let len = self.data_len();
        let announced = u16::try_from(len).ok();
        let Some(announced) = announced.filter(|_| len <= MAX_PRIVATE_DATA_LEN) else {
            return Err(ParseError::PrivateDataTooLong { len });
        };
        check_available(out, self.buffer_len())?;
        let key = match self.kind {
            FrameKind::Request => REQUEST_KEY,
            FrameKind::Reply => REPLY_KEY,
        };
        put(out, 0, key);
        let flags = [
            (self.wants_markers, MARKERS),
            (self.wants_crc, CRC),
            (self.is_rejected, REJECTED),
            (self.enhanced.is_some(), ENHANCED),
        ];
        out[FLAGS] = flags
            .iter()
            .filter(|(set, _)| *set)
            .fold(0, |all, (_, bit)| all | bit);
        out[REVISION] = self.revision;
        put(out, LENGTH, &announced.to_be_bytes());
        let mut at = Self::HEADER_LEN;
        if let Some(enhanced) = &self.enhanced {
            put(out, at, &enhanced.emit());
            at += Enhanced::LEN;
        }
        put(out, at, self.private_data);
        Ok(self.buffer_len())
    }
}
