//! The one source of randomness.

use oorandom::Rand64;

/// A seeded generator: the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(Rand64);

impl Random {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Rand64::new(u128::from(seed)))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.rand_u64()
    }

    /// A number from 0 to `end` - 1; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 {
            0
        } else {
            self.0.rand_range(0..end)
        }
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// An index below `len`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below len, which is a usize"
    )]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `parts_per_million` times in a million.
    pub fn chance(&mut self, parts_per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(parts_per_million)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}
