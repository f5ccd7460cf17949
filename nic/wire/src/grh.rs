//! The global route header: what RoCE v1 has in the place of IP and UDP, directly behind the
//! Ethernet header of a frame of type [`ROCE_V1_ETHERTYPE`](crate::ROCE_V1_ETHERTYPE).

use core::ops::Range;

use crate::bytes;
use crate::gid::Gid;

/// Version, traffic class and flow label: four, eight and twenty bits.
const FIRST: Range<usize> = 0..4;
const PAYLOAD_LEN: Range<usize> = 4..6;
const NEXT_HEADER: usize = 6;
const HOP_LIMIT: usize = 7;
const SOURCE: Range<usize> = 8..24;
const DESTINATION: Range<usize> = 24..40;

const VERSION: u32 = 6;
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// Global route header (IBTA vol 1, 8.3). It has the layout of an IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes from the BTH to the ICRC, both included.
    pub payload_len: u16,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
}

impl Grh {
    /// Length on the wire, bytes.
    pub const LEN: usize = 40;

    /// What follows is a BTH (IBTA vol 1, 8.3.1).
    pub const NEXT_HEADER: u8 = 0x1b;

    /// Reads a header; `None` if its version is not 6, or what follows it is not a BTH.
    #[inline]
    #[must_use]
    pub fn parse(raw: &[u8; Self::LEN]) -> Option<Self> {
        let first = bytes::get(raw, FIRST) as u32;
        if first >> 28 != VERSION || raw[NEXT_HEADER] != Self::NEXT_HEADER {
            return None;
        }
        let mut header = Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & FLOW_LABEL_MASK,
            payload_len: bytes::get(raw, PAYLOAD_LEN) as u16,
            hop_limit: raw[HOP_LIMIT],
            source: Gid::default(),
            destination: Gid::default(),
        };
        header.source.0.copy_from_slice(&raw[SOURCE]);
        header.destination.0.copy_from_slice(&raw[DESTINATION]);
        Some(header)
    }

    /// The bytes on the wire.
    #[inline]
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        let first =
            VERSION << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL_MASK;
        bytes::put(&mut raw, FIRST, u64::from(first));
        bytes::put(&mut raw, PAYLOAD_LEN, u64::from(self.payload_len));
        raw[NEXT_HEADER] = Self::NEXT_HEADER;
        raw[HOP_LIMIT] = self.hop_limit;
        raw[SOURCE].copy_from_slice(&self.source.0);
        raw[DESTINATION].copy_from_slice(&self.destination.0);
        raw
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn header() -> Grh {
        Grh {
            traffic_class: 0xa5,
            flow_label: 0x1_2345,
            payload_len: 0x1020,
            hop_limit: 63,
            source: Gid::from(Ipv4Addr::new(192, 0, 2, 1)),
            destination: Gid([0xfe; 16]),
        }
    }

    #[test]
    fn the_fields_stand_where_ipv6_has_them() {
        let raw = header().emit();
        assert_eq!(raw[..8], [0x6a, 0x51, 0x23, 0x45, 0x10, 0x20, 0x1b, 63]);
        assert_eq!(raw[18..24], [0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(raw[24..], [0xfe; 16]);
        assert_eq!(Grh::parse(&raw), Some(header()));
    }

    #[test]
    fn what_is_no_header_of_a_roce_packet_is_none() {
        for (at, byte) in [(0, 0x40), (0, 0x50), (6, 17), (6, 58)] {
            let mut raw = header().emit();
            raw[at] = byte;
            assert_eq!(Grh::parse(&raw), None, "{at}: {byte}");
        }
    }
}
