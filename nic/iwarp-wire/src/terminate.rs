//! The TERMINATE message (RFC 5040, 4.8): what was wrong, and the headers of the segment in which
//! it was.

use crate::atomic::AtomicRequest;
use crate::bytes::{put, u16_at};
use crate::ddp::{DdpHeader, MAX_DDP_HEADER_LEN, Untagged};
use crate::error::{ParseError, check_available};
use crate::fault::Fault;
use crate::opcode::Opcode;
use crate::read_request::ReadRequest;

/// Longest TERMINATE message, bytes.
pub const MAX_TERMINATE_LEN: usize =
    Terminate::CONTROL_LEN + LENGTH_LEN + MAX_DDP_HEADER_LEN + AtomicRequest::LEN;

const LENGTH_LEN: usize = 2;
/// Header control bits: the length of the segment, its DDP header, its RDMAP header are there.
const HAS_LENGTH: u8 = 0x80;
const HAS_DDP: u8 = 0x40;
const HAS_RDMAP: u8 = 0x20;
/// All of them.
const HAS_ANY: u8 = HAS_LENGTH | HAS_DDP | HAS_RDMAP;

/// A TERMINATE message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terminate<'a> {
    /// What was wrong.
    pub fault: Fault,
    /// Of the segment in which it was, if it was in one: its length in bytes, and its DDP header as
    /// it came.
    pub segment: Option<(u16, &'a [u8])>,
    /// Its RDMAP header, as it came: that of a READ or atomic request. Without a segment there is
    /// none.
    pub rdmap: Option<&'a [u8]>,
}

impl<'a> Terminate<'a> {
    /// Bytes of the control field.
    pub const CONTROL_LEN: usize = 4;

    /// Reads it. A DDP header that is announced and cut is an error; a segment without a DDP header
    /// is taken as none. An RDMAP header that is announced counts only where the DDP header is that
    /// of a READ or atomic request, and where it is there as a whole: Linux siw announces one with
    /// every protection error.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        check_available(bytes, Self::CONTROL_LEN)?;
        let (mut layer, mut kind, mut has) = (bytes[0] >> 4, bytes[0] & 0xf, bytes[2]);
        let reversed = has.reverse_bits();
        if has & HAS_ANY == 0 && reversed & HAS_ANY != 0 {
            (layer, kind, has) = (kind, layer, reversed);
        }
        let fault = Fault::from_wire(layer, kind, bytes[1]);
        let mut at = Self::CONTROL_LEN;
        if has & HAS_LENGTH == 0 || has & HAS_DDP == 0 {
            return Ok(Self {
                fault,
                segment: None,
                rdmap: None,
            });
        }
        check_available(bytes, at + LENGTH_LEN + 1)?;
        let len = u16_at(bytes, at);
        at += LENGTH_LEN;
        let header_len = DdpHeader::len_of(bytes[at]);
        check_available(bytes, at + header_len)?;
        let header = &bytes[at..at + header_len];
        at += header_len;
        let rdmap_len = match Opcode::parse(header[1]) {
            _ if has & HAS_RDMAP == 0 || header_len != Untagged::LEN => None,
            Ok(Opcode::ReadRequest) => Some(ReadRequest::LEN),
            Ok(Opcode::AtomicRequest) => Some(AtomicRequest::LEN),
            _ => None,
        };
        Ok(Self {
            fault,
            segment: Some((len, header)),
            rdmap: rdmap_len.and_then(|len| bytes.get(at..at + len)),
        })
    }

    /// Writes it to the beginning of `out`; its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`MAX_TERMINATE_LEN`], or the headers are none.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let (layer, kind, code) = self.fault.to_wire();
        let mut has = 0;
        let mut at = Self::CONTROL_LEN;
        if let Some((len, header)) = self.segment {
            has |= HAS_LENGTH | HAS_DDP;
            put(out, at, &len.to_be_bytes());
            at += LENGTH_LEN;
            put(out, at, header);
            at += header.len();
            if let Some(rdmap) = self.rdmap {
                has |= HAS_RDMAP;
                put(out, at, rdmap);
                at += rdmap.len();
            }
        }
        put(out, 0, &[layer << 4 | kind, code, has, 0]);
        at
    }
}
