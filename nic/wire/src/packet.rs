//! A received packet: its headers, and its payload in place.

use crate::aeth::{NakCode, Syndrome};
use crate::constants::ICRC_LEN;
use crate::error::{ParseError, Part};
use crate::header::Header;
use crate::opcode::Opcode;
use crate::operation::Operation;

/// Bytes with which a NAK of urxe tells what of the following packets has arrived: see
/// `urxe_proto`'s `rc/early.rs`.
pub const HELD_LEN: usize = 24;

/// A packet, borrowed from the UDP payload that it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// All its headers.
    pub header: Header,
    /// Its data, without padding.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a whole UDP payload: headers, data, padding, and the ICRC, which is not checked here.
    /// See the `icrc` module for that.
    ///
    /// # Errors
    /// Says what is wrong with it. Nothing in `udp_payload`, whatever its length, makes this panic.
    #[inline]
    pub fn parse(udp_payload: &'a [u8]) -> Result<Self, ParseError> {
        let (header, pad, rest) = Header::parse(udp_payload)?;
        let available = udp_payload.len();
        let Some((padded, _icrc)) = rest.split_last_chunk::<ICRC_LEN>() else {
            let needed = available - rest.len() + ICRC_LEN;
            return Err(ParseError::TooShort {
                part: Part::Icrc,
                needed,
                available,
            });
        };
        if !available.is_multiple_of(4) {
            return Err(ParseError::NotWords { len: available });
        }
        let Some(payload) = padded
            .len()
            .checked_sub(pad)
            .and_then(|len| padded.get(..len))
        else {
            return Err(ParseError::PadExceedsPayload {
                pad,
                available: padded.len(),
            });
        };
        if let Opcode::Queue { operation, .. } = header.bth.opcode
            && !payload.is_empty()
            && !operation.carries_payload()
            && !(payload.len() == HELD_LEN && may_tell_what_is_held(&header))
        {
            return Err(ParseError::UnexpectedPayload {
                operation,
                len: payload.len(),
            });
        }
        Ok(Self { header, payload })
    }
}

/// Whether it is a NAK for a PSN sequence error, in which urxe tells urxe what has arrived of what
/// follows. The specification gives acknowledgements no payload.
fn may_tell_what_is_held(header: &Header) -> bool {
    let is_ack = header.bth.opcode.operation() == Some(Operation::Acknowledge);
    is_ack
        && header
            .aeth
            .is_some_and(|aeth| aeth.syndrome == Syndrome::Nak(NakCode::PsnSequenceError))
}
