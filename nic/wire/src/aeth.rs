//! The acknowledge extended header: how far the responder got, or why it did not.

use core::ops::Range;

use crate::bytes;
use crate::error::ParseError;

const SYNDROME: usize = 0;
const MSN: Range<usize> = 1..4;

const KIND_MASK: u8 = 0xe0;
const VALUE_MASK: u8 = 0x1f;
const ACK: u8 = 0x00;
const RNR_NAK: u8 = 0x20;
const NAK: u8 = 0x60;

/// Why a responder refuses a request (IBTA vol 1, table 47).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A packet before this one is missing; send again from the PSN of the NAK.
    PsnSequenceError = 0,
    /// The request makes no sense, or is longer than what it goes to.
    InvalidRequest = 1,
    /// The rkey, the address range or the access rights do not allow it.
    RemoteAccessError = 2,
    /// The responder failed for its own reasons.
    RemoteOperationalError = 3,
    /// Reliable datagram only.
    InvalidRdRequest = 4,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// All is well up to this PSN.
    Ack {
        /// End-to-end flow control credits, five bits in their wire encoding;
        /// [`Syndrome::UNLIMITED_CREDITS`] for none.
        credits: u8,
    },
    /// Receiver not ready: no receive posted; wait and send again.
    RnrNak {
        /// Five bits: how long to wait, see [`rnr_timer_us`](crate::rnr_timer_us).
        timer: u8,
    },
    /// Negative.
    Nak(NakCode),
}

impl Syndrome {
    /// The credit code by which a responder opts out of end-to-end flow control.
    pub const UNLIMITED_CREDITS: u8 = 0x1f;

    /// An acknowledgement without flow control.
    pub const ACK: Self = Self::Ack {
        credits: Self::UNLIMITED_CREDITS,
    };

    /// The byte on the wire. Credits and timer are cut to five bits.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack { credits } => ACK | credits & VALUE_MASK,
            Self::RnrNak { timer } => RNR_NAK | timer & VALUE_MASK,
            Self::Nak(code) => NAK | code as u8,
        }
    }

    /// Reads the byte.
    ///
    /// # Errors
    /// [`ParseError::ReservedSyndrome`].
    #[inline]
    pub const fn from_code(byte: u8) -> Result<Self, ParseError> {
        let value = byte & VALUE_MASK;
        Ok(match (byte & KIND_MASK, value) {
            (ACK, credits) => Self::Ack { credits },
            (RNR_NAK, timer) => Self::RnrNak { timer },
            (NAK, 0) => Self::Nak(NakCode::PsnSequenceError),
            (NAK, 1) => Self::Nak(NakCode::InvalidRequest),
            (NAK, 2) => Self::Nak(NakCode::RemoteAccessError),
            (NAK, 3) => Self::Nak(NakCode::RemoteOperationalError),
            (NAK, 4) => Self::Nak(NakCode::InvalidRdRequest),
            _ => return Err(ParseError::ReservedSyndrome { syndrome: byte }),
        })
    }
}

/// Acknowledge extended transport header (IBTA vol 1, 9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// The message sequence number: messages completed by the responder, 24 bits that wrap.
    pub msn: u32,
}

impl Aeth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Reads a header.
    ///
    /// # Errors
    /// [`ParseError::ReservedSyndrome`].
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        Ok(Self {
            syndrome: Syndrome::from_code(raw[SYNDROME])?,
            msn: bytes::get(raw, MSN) as u32,
        })
    }

    /// The bytes on the wire. The MSN is cut to 24 bits.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        bytes::put(&mut raw, MSN, u64::from(self.msn));
        raw[SYNDROME] = self.syndrome.code();
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_reads_as_itself_or_is_reserved() {
        let mut reserved = 0;
        for byte in 0..=u8::MAX {
            match Syndrome::from_code(byte) {
                Ok(syndrome) => assert_eq!(syndrome.code(), byte),
                Err(error) => {
                    assert_eq!(error, ParseError::ReservedSyndrome { syndrome: byte });
                    reserved += 1;
                }
            }
        }
        // 32 ACKs, 32 RNR NAKs and 5 NAKs mean something.
        assert_eq!(reserved, 256 - 32 - 32 - 5);
    }
}
