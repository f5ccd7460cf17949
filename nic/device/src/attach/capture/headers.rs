//! The IP and UDP headers of a datagram, as they are on the wire, or those of a frame of RoCE v1.
//!
//! A socket does not show them. Addresses, ports, lengths, type of service and the IPv4 flags are
//! known; the IPv4 ID is known for what is sent, and follows from the ICRC for what is received;
//! the UDP checksum follows from all of that. Not known, and written as what Linux sends by
//! default: the time to live (64), the flow label (0). A UDP checksum that the peer left out (Linux
//! rxe does) is written all the same.

use std::net::SocketAddr;

use urxe_udp::FrameHeader;
use urxe_wire::{Gid, Grh, ROCE_V1_ETHERTYPE};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const HOP_LIMIT: u8 = 64;
/// Don't fragment: RoCEv2 packets are never in pieces.
const IPV4_FLAGS: u16 = 0x4000;

/// What headers are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addressing {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) tos: u8,
    /// The IPv4 identification.
    pub(super) id: u16,
}

/// An IP packet with the UDP datagram `payload`. Empty if the addresses are of different families
/// or the payload does not fit an IP packet.
pub(super) fn ip_packet(addressing: &Addressing, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(IPV6_BYTES + UDP_BYTES + payload.len());
    let Ok(udp_len) = u16::try_from(UDP_BYTES + payload.len()) else {
        return packet;
    };
    let pseudo_sum = match (addressing.source, addressing.destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            let [source, destination] = [source.ip().octets(), destination.ip().octets()];
            let Some(total_len) = udp_len.checked_add(IPV4_BYTES as u16) else {
                return packet;
            };
            packet.extend([0x45, addressing.tos]);
            for word in [total_len, addressing.id, IPV4_FLAGS] {
                packet.extend(word.to_be_bytes());
            }
            packet.extend([HOP_LIMIT, UDP_PROTOCOL, 0, 0]);
            packet.extend(source);
            packet.extend(destination);
            let checksum = folded(sum(&packet));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            sum(&source) + sum(&destination)
        }
        (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
            let [source, destination] = [source.ip().octets(), destination.ip().octets()];
            packet.extend((0x6000_0000 | u32::from(addressing.tos) << 20).to_be_bytes());
            packet.extend(udp_len.to_be_bytes());
            packet.extend([UDP_PROTOCOL, HOP_LIMIT]);
            packet.extend(source);
            packet.extend(destination);
            sum(&source) + sum(&destination)
        }
        _ => return packet,
    };
    let udp_start = packet.len();
    for word in [
        addressing.source.port(),
        addressing.destination.port(),
        udp_len,
        0,
    ] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(payload);
    let total =
        pseudo_sum + u64::from(UDP_PROTOCOL) + u64::from(udp_len) + sum(&packet[udp_start..]);
    // Zero would mean "none" (RFC 768).
    let checksum = match folded(total) {
        0 => u16::MAX,
        checksum => checksum,
    };
    packet[udp_start + 6..udp_start + 8].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The sum of all words (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| {
        let [high, low] = [word[0], word.get(1).copied().unwrap_or(0)];
        u64::from(u16::from_be_bytes([high, low]))
    });
    words.sum()
}

/// The Internet checksum of a sum.
fn folded(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// A frame of RoCE v1 with so much behind its global route header.
pub(super) fn ethernet_frame(
    frame: &FrameHeader,
    source: SocketAddr,
    destination: SocketAddr,
    payload: &[u8],
) -> Vec<u8> {
    let route = Grh {
        traffic_class: frame.traffic_class,
        flow_label: frame.flow_label,
        payload_len: u16::try_from(payload.len()).unwrap_or(u16::MAX),
        hop_limit: frame.hop_limit,
        source: Gid::from(source.ip()),
        destination: Gid::from(destination.ip()),
    };
    let ether_type = ROCE_V1_ETHERTYPE.to_be_bytes();
    [
        &frame.destination_mac[..],
        &frame.source_mac,
        &ether_type,
        &route.emit(),
        payload,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addressing(source: &str, destination: &str) -> Addressing {
        Addressing {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            tos: 0x6a,
            id: 3,
        }
    }

    #[test]
    fn an_ipv4_packet_has_right_lengths_and_checksums() {
        let from_to = addressing("192.0.2.1:50000", "192.0.2.2:4791");
        let packet = ip_packet(&from_to, b"odd");
        assert_eq!(packet.len(), 31);
        assert_eq!(packet[..10], [0x45, 0x6a, 0, 31, 0, 3, 0x40, 0, 64, 17]);
        assert_eq!(packet[20..26], [0xc3, 0x50, 0x12, 0xb7, 0, 11]);
        // What is right adds up to all ones, checksum included.
        assert_eq!(folded(sum(&packet[..20])), 0);
        let pseudo = sum(&packet[12..20]) + 17 + 11;
        assert_eq!(folded(pseudo + sum(&packet[20..])), 0);
    }

    #[test]
    fn an_ipv6_packet_has_right_lengths_and_checksum() {
        let from_to = addressing("[2001:db8::1]:4792", "[2001:db8::2]:4791");
        let packet = ip_packet(&from_to, &[7; 16]);
        assert_eq!(packet.len(), 64);
        assert_eq!(packet[..8], [0x66, 0xa0, 0, 0, 0, 24, 17, 64]);
        let pseudo = sum(&packet[8..40]) + 17 + 24;
        assert_eq!(folded(pseudo + sum(&packet[40..])), 0);
    }

    #[test]
    fn a_frame_of_roce_v1_has_its_route_header_behind_that_of_ethernet() {
        let header = FrameHeader {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            traffic_class: 0,
            flow_label: 5,
            hop_limit: 64,
        };
        let [from, to] = ["192.0.2.1:1", "192.0.2.2:2"].map(|text| text.parse().unwrap());
        let frame = ethernet_frame(&header, from, to, b"payload.");
        assert_eq!(
            frame[..14],
            [4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 0x89, 0x15]
        );
        assert_eq!(frame[14..22], [0x60, 0, 0, 5, 0, 8, 0x1b, 64]);
        assert_eq!(frame[34..38], [192, 0, 2, 1]);
        assert_eq!(frame[50..], *b"\xc0\x00\x02\x02payload.");
    }

    #[test]
    fn what_cannot_be_a_packet_is_none() {
        let mixed = addressing("192.0.2.1:1", "[2001:db8::2]:4791");
        assert!(ip_packet(&mixed, b"x").is_empty());
        let long = vec![0; 1 << 16];
        assert!(ip_packet(&addressing("192.0.2.1:1", "192.0.2.2:2"), &long).is_empty());
    }
}
