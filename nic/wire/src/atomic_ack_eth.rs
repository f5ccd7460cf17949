//! The atomic acknowledge extended header: what an atomic operation found.

/// Atomic acknowledge extended transport header (IBTA vol 1, 9.3.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicAckEth {
    /// The number in the responder's memory before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 8;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            original: u64::from_be_bytes(*raw),
        }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.original.to_be_bytes()
    }
}
