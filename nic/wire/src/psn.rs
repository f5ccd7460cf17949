//! Packet sequence numbers: 24 bits that wrap.

/// A packet sequence number (IBTA vol 1, 9.7.1).
///
/// PSNs wrap, so there is no `Ord`: which of two comes first is a question about their distance,
/// answered by [`Psn::distance_from`], [`Psn::is_before`] and [`Psn::is_after`], and only
/// meaningful while they are less than 2^23 apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

const MASK: u32 = 0x00ff_ffff;

impl Psn {
    /// The number of different PSNs, 2^24.
    pub const COUNT: u32 = MASK + 1;

    /// Takes the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `count` packets later.
    #[inline]
    #[must_use]
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The PSN `count` packets earlier.
    #[inline]
    #[must_use]
    pub const fn sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// The PSN of the packet after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// How many packets this one is after `other`: `self - other` as a signed 24-bit number, -2^23
    /// to 2^23 - 1.
    #[inline]
    pub const fn distance_from(self, other: Self) -> i32 {
        // Shifting the difference to the top of the word lets the arithmetic shift back extend its
        // sign.
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Whether this packet precedes `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether this packet follows `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }
}

/// The low 22 bits of a PSN: where both ends know what it is near.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PartialPsn(u32);

impl PartialPsn {
    const MASK: u32 = 0x003f_ffff;

    /// The low bits of `psn`.
    #[inline]
    pub const fn of(psn: Psn) -> Self {
        Self::new(psn.0)
    }

    /// Takes the low 22 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The number, below 2^22.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN that it is a part of, if that is at most 2^21 from `other`.
    #[inline]
    pub const fn near(self, other: Psn) -> Psn {
        let distance = (self.0.wrapping_sub(other.0) << 10).cast_signed() >> 10;
        other.add(distance.cast_unsigned())
    }
}

impl core::fmt::Debug for Psn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl core::fmt::Display for Psn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_24_bits() {
        assert_eq!(Psn::new(0x0100_0001).get(), 1);
        assert_eq!(Psn::new(0x00ff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), Psn::new(0x00ff_ffff));
        assert_eq!(Psn::new(0x00ff_fffe).add(5), Psn::new(3));
    }

    #[test]
    fn a_part_is_enough_for_what_is_near() {
        for base in [0, 5, 0x3f_fffe, 0x40_0000, 0x80_0000, 0xff_ffff] {
            let base = Psn::new(base);
            for distance in [0, 1, 70, 0x1f_ffff] {
                for psn in [base.add(distance), base.sub(distance)] {
                    assert_eq!(PartialPsn::of(psn).near(base), psn);
                }
            }
        }
        assert_eq!(PartialPsn::new(0xffc0_0001).get(), 1);
    }

    #[test]
    fn distance_is_signed_and_crosses_the_wrap() {
        let last = Psn::new(0x00ff_ffff);
        assert_eq!(last.next().distance_from(last), 1);
        assert_eq!(last.distance_from(last.next()), -1);
        assert!(last.is_before(Psn::new(3)) && Psn::new(3).is_after(last));
        assert_eq!(Psn::new(0x80_0000).distance_from(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).distance_from(Psn::new(0)), 0x7f_ffff);
        assert!(!last.is_before(last) && !last.is_after(last));
    }
}
