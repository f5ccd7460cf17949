//! Partition keys.

/// A partition key: 15 bits name the partition, the top bit says full member (IBTA vol 1, 10.9.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pkey(pub u16);

impl Pkey {
    /// The default partition with full membership, the only one that RoCE devices usually have.
    pub const DEFAULT: Self = Self(0xffff);

    /// Whether two members may talk: the same partition, and at least one of them a full member.
    #[inline]
    pub const fn matches(self, other: Self) -> bool {
        (self.0 ^ other.0) & 0x7fff == 0 && (self.0 | other.0) & 0x8000 != 0 && self.0 & 0x7fff != 0
    }
}

impl Default for Pkey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_full_member_is_enough() {
        assert!(Pkey::DEFAULT.matches(Pkey::DEFAULT));
        assert!(Pkey::DEFAULT.matches(Pkey(0x7fff)));
        assert!(!Pkey(0x7fff).matches(Pkey(0x7fff)), "two limited members");
        assert!(!Pkey(0x8001).matches(Pkey(0x8002)));
        assert!(
            !Pkey(0x8000).matches(Pkey(0x8000)),
            "partition 0 is invalid"
        );
    }
}
