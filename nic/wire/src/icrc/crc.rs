//! The CRC, and what it says of a packet.

use super::linear;
use crate::bth::CONGESTION;
use crate::constants::ICRC_LEN;

/// A CRC under way. Made by [`Flow4::start`](super::Flow4::start) or
/// [`Flow6::start`](super::Flow6::start).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Icrc {
    pub(super) crc: u32,
}

impl Icrc {
    /// Covers the next bytes of the packet.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc = crc32(self.crc, bytes);
    }

    /// The bytes that end the packet (little-endian, alone among all fields).
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.crc.to_le_bytes()
    }
}

/// What a receiver can say about a packet's ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Verdict {
    /// Right, for the IPv4 ID that was expected (or for IPv6, which has none).
    Exact,
    /// Right if the packet had this IPv4 ID, which a UDP socket does not tell. It leaves 16 of the
    /// 32 bits of protection.
    SomeId(u16),
    /// Wrong whatever the ID, or the packet is too short to have one.
    Bad,
}

impl Verdict {
    /// Whether the packet may be believed.
    #[inline]
    pub const fn is_good(self) -> bool {
        !matches!(self, Self::Bad)
    }
}

/// Continues a CRC-32, given and returned in its finished (inverted) form.
#[inline]
pub(super) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = libdeflater::Crc::with_initial(crc);
    crc.update(bytes);
    crc.sum()
}

/// The correction to the CRC before the BTH that makes its byte 4, which is masked, count as all
/// ones.
///
/// A change `c` of the byte after four others equals a change of the state before them that becomes
/// `c` by then.
#[inline]
pub(super) fn congestion_mask(first: &[u8]) -> u32 {
    match first.get(CONGESTION) {
        Some(0) | None => linear::UNMASK_ZERO,
        Some(&byte) => linear::UNMASK.apply(u16::from(byte ^ 0xff)),
    }
}
