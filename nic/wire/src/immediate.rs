//! Immediate data.

/// Immediate data (IBTA vol 1, 9.3.6): four bytes that the receiver finds in its completion. Raw,
/// as on the wire: verbs programs see them as a number in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Immediate(pub [u8; 4]);

impl Immediate {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self(*raw)
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.0
    }
}
