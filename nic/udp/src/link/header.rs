//! What stands before a payload in a frame: the Ethernet header, and one of the layout of IPv6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::received::FrameHeader;

pub(super) const ETHERNET_BYTES: usize = 14;
const ROUTE_BYTES: usize = 40;
pub(super) const HEADER_BYTES: usize = ETHERNET_BYTES + ROUTE_BYTES;

/// Hop limit of what is sent. No router passes it on, whatever it is.
pub(super) const HOP_LIMIT: u8 = 64;

/// The upper four of the flow label's 20 bits where the others are the port that a UDP datagram of
/// this sender would come from: see [`super`].
const PORT_MARK: u32 = 0xa;

/// What is common to all headers of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) ether_type: u16,
    pub(super) next_header: u8,
}

/// Who sends a frame to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) from_mac: [u8; 6],
    pub(super) to_mac: [u8; 6],
    pub(super) from: SocketAddr,
    pub(super) to: IpAddr,
}

/// The 128 bits that stand for an address; for one of IPv4 its mapped form.
pub(super) fn bits_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl Kind {
    /// The header of a frame with so many bytes of payload.
    pub(super) fn emit(self, ends: &Ends, traffic_class: u8, length: usize) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..6].copy_from_slice(&ends.to_mac);
        out[6..12].copy_from_slice(&ends.from_mac);
        out[12..14].copy_from_slice(&self.ether_type.to_be_bytes());
        let route = &mut out[ETHERNET_BYTES..];
        let label = PORT_MARK << 16 | u32::from(ends.from.port());
        let first = 6 << 28 | u32::from(traffic_class) << 20 | label;
        route[..4].copy_from_slice(&first.to_be_bytes());
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        route[4..6].copy_from_slice(&length.to_be_bytes());
        route[6] = self.next_header;
        route[7] = HOP_LIMIT;
        route[8..24].copy_from_slice(&bits_of(ends.from.ip()));
        route[24..40].copy_from_slice(&bits_of(ends.to));
        out
    }

    /// What a header says, the source's address (its port is 0 where the label tells none) and the
    /// length of the payload. `None`: it is of another kind.
    pub(super) fn parse(
        self,
        raw: &[u8; HEADER_BYTES],
        scope_id: u32,
    ) -> Option<(FrameHeader, SocketAddr, usize)> {
        let two = |at: usize| u16::from_be_bytes([raw[at], raw[at + 1]]);
        let (ethernet, route) = raw.split_first_chunk::<ETHERNET_BYTES>()?;
        let first = u32::from_be_bytes(*route.first_chunk()?);
        if two(12) != self.ether_type || first >> 28 != 6 || route[6] != self.next_header {
            return None;
        }
        let label = first & 0xf_ffff;
        let port = if label >> 16 == PORT_MARK {
            label as u16
        } else {
            0
        };
        let bits: [u8; 16] = *route[8..].first_chunk()?;
        let mut source = SocketAddr::new(Ipv6Addr::from(bits).to_canonical(), port);
        if let SocketAddr::V6(v6) = &mut source
            && v6.ip().is_unicast_link_local()
        {
            v6.set_scope_id(scope_id);
        }
        let header = FrameHeader {
            destination_mac: *ethernet.first_chunk()?,
            source_mac: *ethernet[6..].first_chunk()?,
            traffic_class: (first >> 20) as u8,
            flow_label: label,
            hop_limit: route[7],
        };
        Some((header, source, two(ETHERNET_BYTES + 4).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind {
        ether_type: 0x8915,
        next_header: 0x1b,
    };

    fn ends(from: &str, to: &str) -> Ends {
        Ends {
            from_mac: [2, 0, 0, 0, 0, 1],
            to_mac: [2, 0, 0, 0, 0, 2],
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
        }
    }

    #[test]
    fn a_header_reads_as_written() {
        for (from, to) in [
            ("192.0.2.1:4792", "192.0.2.2"),
            ("[2001:db8::1]:4791", "2001:db8::2"),
            ("[fe80::1%7]:4791", "fe80::2"),
        ] {
            let ends = ends(from, to);
            let raw = KIND.emit(&ends, 0x6b, 300);
            let (header, source, length) = KIND.parse(&raw, 7).unwrap();
            assert_eq!((source, length), (ends.from, 300));
            assert_eq!(
                (header.source_mac, header.destination_mac),
                (ends.from_mac, ends.to_mac)
            );
            assert_eq!((header.traffic_class, header.hop_limit), (0x6b, HOP_LIMIT));
        }
        let raw = KIND.emit(&ends("192.0.2.1:4792", "192.0.2.2"), 0, 16);
        assert_eq!(
            raw[12..22],
            [0x89, 0x15, 0x60, 0x0a, 0x12, 0xb8, 0, 16, 0x1b, 64]
        );
        assert_eq!(raw[32..38], [0xff, 0xff, 192, 0, 2, 1]);
    }

    #[test]
    fn another_sender_has_no_port_and_another_kind_is_none() {
        let raw = KIND.emit(&ends("192.0.2.1:4792", "192.0.2.2"), 0, 16);
        let mut plain = raw;
        plain[15..18].fill(0);
        let (_, source, _) = KIND.parse(&plain, 0).unwrap();
        assert_eq!(source, "192.0.2.1:0".parse().unwrap());
        for (at, byte) in [(12, 8), (14, 0x40), (20, 17)] {
            let mut other = raw;
            other[at] = byte;
            assert_eq!(KIND.parse(&other, 0), None, "{at}");
        }
    }
}
