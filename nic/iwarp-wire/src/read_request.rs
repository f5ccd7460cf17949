//! The RDMA READ request (RFC 5040, 4.4).

use crate::bytes::{put, u32_at, u64_at};
use crate::error::{ParseError, check_len};

/// What is to be read, and where the response is to go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadRequest {
    /// STag of the buffer that the response is for.
    pub sink_stag: u32,
    /// Offset in it.
    pub sink_offset: u64,
    /// Bytes to read.
    pub len: u32,
    /// STag of the buffer to read.
    pub source_stag: u32,
    /// Offset in it.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Length on the wire, bytes.
    pub const LEN: usize = 28;

    /// Reads it.
    ///
    /// # Errors
    /// [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        check_len(bytes, Self::LEN)?;
        Ok(Self {
            sink_stag: u32_at(bytes, 0),
            sink_offset: u64_at(bytes, 4),
            len: u32_at(bytes, 12),
            source_stag: u32_at(bytes, 16),
            source_offset: u64_at(bytes, 20),
        })
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, &self.sink_stag.to_be_bytes());
        put(&mut out, 4, &self.sink_offset.to_be_bytes());
        put(&mut out, 12, &self.len.to_be_bytes());
        put(&mut out, 16, &self.source_stag.to_be_bytes());
        put(&mut out, 20, &self.source_offset.to_be_bytes());
        out
    }
}
