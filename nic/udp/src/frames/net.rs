//! Ranges of IPv4 addresses.

use std::net::Ipv4Addr;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) address: u32,
    pub(super) bits: u8,
}

impl Net {
    /// The addresses that have the first `bits` bits in common with this one.
    pub(super) fn new(ip: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.min(32);
        Self {
            address: ip.to_bits() & mask(bits),
            bits,
        }
    }

    pub(super) const fn address(self) -> u32 {
        self.address
    }

    pub(super) const fn mask(self) -> u32 {
        mask(self.bits)
    }

    pub(super) fn contains(self, ip: Ipv4Addr) -> bool {
        ip.to_bits() & self.mask() == self.address
    }

    /// Whether one lies in the other.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let common = self.mask() & other.mask();
        self.address & common == other.address & common
    }
}

const fn mask(bits: u8) -> u32 {
    match u32::MAX.checked_shl(32 - bits as u32) {
        Some(mask) => mask,
        None => 0,
    }
}
