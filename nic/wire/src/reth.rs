//! The RDMA extended header: where a WRITE goes or a READ comes from.

use core::ops::Range;

use crate::bytes;

const VA: Range<usize> = 0..8;
const RKEY: Range<usize> = 8..12;
const DMA_LEN: Range<usize> = 12..16;

/// RDMA extended transport header (IBTA vol 1, 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Address in the responder's memory.
    pub va: u64,
    /// The key of the memory region it lies in.
    pub rkey: u32,
    /// Length of the whole message, bytes.
    pub len: u32,
}

impl Reth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 16;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            va: bytes::get(raw, VA),
            rkey: bytes::get(raw, RKEY) as u32,
            len: bytes::get(raw, DMA_LEN) as u32,
        }
    }

    /// Whether a header is that of a message behind the one of `before`, of the same length, for
    /// the bytes that follow.
    #[inline]
    pub fn follows(raw: &[u8; Self::LEN], before: &[u8; Self::LEN]) -> bool {
        let va = bytes::get(before, VA).wrapping_add(bytes::get(before, DMA_LEN));
        raw[RKEY.start..] == before[RKEY.start..] && bytes::get(raw, VA) == va
    }

    /// Writes another address into the bytes of a header.
    #[inline]
    pub fn put_va(raw: &mut [u8; Self::LEN], va: u64) {
        bytes::put(raw, VA, va);
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        bytes::put(&mut raw, VA, self.va);
        bytes::put(&mut raw, RKEY, u64::from(self.rkey));
        bytes::put(&mut raw, DMA_LEN, u64::from(self.len));
        raw
    }
}
