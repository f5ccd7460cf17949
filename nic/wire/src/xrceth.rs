//! The XRC extended header.

use core::ops::Range;

use crate::bytes;

const SRQN: Range<usize> = 1..4;

/// A shared receive queue number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Srqn(u32);

impl Srqn {
    /// Takes the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00ff_ffff)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// XRC extended transport header (IBTA annex A14.4.1.1): the shared receive queue that a request is
/// for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcEth {
    /// The shared receive queue.
    pub srqn: Srqn,
}

impl XrcEth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            srqn: Srqn::new(bytes::get(raw, SRQN) as u32),
        }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        bytes::put(&mut raw, SRQN, u64::from(self.srqn.get()));
        raw
    }
}
