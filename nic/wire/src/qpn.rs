//! Queue pair numbers.

/// A queue pair number, 24 bits. 0 is the subnet management QP, 1 the general services (CM) QP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services QP, which the connection manager's MADs go to and come from.
    pub const GSI: Self = Self(1);
    /// The destination QP of a UD multicast packet (IBTA vol 1, 10.5.2).
    pub const MULTICAST: Self = Self(0x00ff_ffff);

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

impl core::fmt::Debug for Qpn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Qpn({:#08x})", self.0)
    }
}

impl core::fmt::Display for Qpn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}
