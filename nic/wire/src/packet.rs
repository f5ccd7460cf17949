//! A received packet: its headers, and its payload in place.

use crate::{Header, ICRC_LEN, Opcode, ParseError, Part};

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
        {
            return Err(ParseError::UnexpectedPayload {
                operation,
                len: payload.len(),
            });
        }
        Ok(Self { header, payload })
    }
}
