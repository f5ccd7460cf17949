//! The FLUSH extended header: what a FLUSH guarantees, and of which memory.

const PLACEMENT_MASK: u32 = 0xf;
const SELECTIVITY_SHIFT: u32 = 4;
const SELECTIVITY_MASK: u32 = 3;

/// FLUSH extended transport header (IBTA vol 1 release 1.5; Linux's
/// `drivers/infiniband/sw/rxe/rxe_hdr.h` has the bits). The upper 26 bits are reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feth {
    /// The placement type, four bits: [`Self::GLOBAL`], [`Self::PERSISTENT`], or both.
    pub placement: u8,
    /// The selectivity level, two bits: [`Self::RANGE`] or [`Self::REGION`].
    pub selectivity: u8,
}

impl Feth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Placement: what was written is visible to all of the responder's host.
    pub const GLOBAL: u8 = 1;
    /// Placement: what was written survives a loss of power.
    pub const PERSISTENT: u8 = 2;
    /// Selectivity: the range that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole region whose key the RETH has.
    pub const REGION: u8 = 1;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        let bits = u32::from_be_bytes(*raw);
        Self {
            placement: (bits & PLACEMENT_MASK) as u8,
            selectivity: (bits >> SELECTIVITY_SHIFT & SELECTIVITY_MASK) as u8,
        }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let placement = u32::from(self.placement) & PLACEMENT_MASK;
        let selectivity = u32::from(self.selectivity) & SELECTIVITY_MASK;
        (selectivity << SELECTIVITY_SHIFT | placement).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_where_linux_has_them() {
        let both = Feth {
            placement: Feth::GLOBAL | Feth::PERSISTENT,
            selectivity: Feth::REGION,
        };
        assert_eq!(both.emit(), [0, 0, 0, 0x13]);
        assert_eq!(Feth::parse(&[0xff, 0xff, 0xff, 0xd3]), both);
    }
}
