//! Immediate data (RFC 7306, 6.2): 8 bytes. Those of verbs are 4; they are the first 4 here, and
//! zeros follow.

use crate::bytes::put;
use crate::error::{ParseError, check_len};

/// Immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImmediateData(pub [u8; 4]);

impl ImmediateData {
    /// Length on the wire, bytes.
    pub const LEN: usize = 8;

    /// Reads it. The last 4 bytes have no meaning to verbs, and are not looked at.
    ///
    /// # Errors
    /// [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        check_len(bytes, Self::LEN)?;
        let mut raw = [0; 4];
        raw.copy_from_slice(&bytes[..4]);
        Ok(Self(raw))
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, &self.0);
        out
    }
}
