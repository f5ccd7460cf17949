//! The invalidate extended header.

/// Invalidate extended transport header (IBTA vol 1, 9.3.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ieth {
    /// The receiver's key that the SEND makes invalid.
    pub rkey: u32,
}

impl Ieth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            rkey: u32::from_be_bytes(*raw),
        }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.rkey.to_be_bytes()
    }
}
