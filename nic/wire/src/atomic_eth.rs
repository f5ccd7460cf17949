//! The atomic extended header: what a compare-and-swap or fetch-and-add asks for.

use core::ops::Range;

use crate::bytes;

const VA: Range<usize> = 0..8;
const RKEY: Range<usize> = 8..12;
const SWAP_OR_ADD: Range<usize> = 12..20;
const COMPARE: Range<usize> = 20..28;

/// Atomic extended transport header (IBTA vol 1, 9.3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Address in the responder's memory, a multiple of 8.
    pub va: u64,
    /// The key of the memory region it lies in.
    pub rkey: u32,
    /// The number to store (compare-and-swap) or to add (fetch-and-add).
    pub swap_or_add: u64,
    /// The number that must be there for compare-and-swap to store; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 28;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            va: bytes::get(raw, VA),
            rkey: bytes::get(raw, RKEY) as u32,
            swap_or_add: bytes::get(raw, SWAP_OR_ADD),
            compare: bytes::get(raw, COMPARE),
        }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        bytes::put(&mut raw, VA, self.va);
        bytes::put(&mut raw, RKEY, u64::from(self.rkey));
        bytes::put(&mut raw, SWAP_OR_ADD, self.swap_or_add);
        bytes::put(&mut raw, COMPARE, self.compare);
        raw
    }
}
