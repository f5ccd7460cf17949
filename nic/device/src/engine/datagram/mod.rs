//! Datagrams: each goes to an address of its own, and may come from any peer.

pub(crate) mod paths;

use std::net::IpAddr;

use urxe_proto::{GRH_BYTES, Instant};
use urxe_wire::{Gid, Grh, Packet};

use crate::engine::origin::Origin;
use crate::engine::transmit::payload::MemoryGone;
use crate::engine::transmit::turn::Turn;
use crate::engine::turns::PACKETS_PER_TURN;
use crate::engine::{AckMode, Engine};

/// Length of a UDP header.
const UDP_BYTES: usize = 8;
/// Time to live shown in the global route header: a UDP socket does not tell that of the packet.
const HOP_LIMIT: u8 = 64;

impl Engine {
    /// A packet for a queue pair that has no peer, or not this one.
    #[cold]
    pub(crate) fn handle_unconnected(
        &mut self,
        index: u16,
        packet: &Packet<'_>,
        origin: &Origin,
        datagram: &[u8],
    ) {
        let Some(slot) = self.qps.get_mut(index) else {
            return;
        };
        let (Some(paths), Some(deth)) = (&mut slot.datagrams, packet.header.deth) else {
            self.stats.rx_wrong_source += 1;
            return;
        };
        if !paths.verify(origin, datagram) {
            self.stats.rx_icrc_errors += 1;
            return;
        }
        // A sender that does not know the Q_Key does not tell where others are.
        if deth.qkey == slot.qp.attributes().qkey {
            paths.learn(origin.source, deth.src_qp);
        }
        self.deliver_datagram(index, packet, &grh(origin, datagram.len()));
    }

    /// Gives a queue pair a datagram that was checked.
    pub(crate) fn deliver_datagram(
        &mut self,
        index: u16,
        packet: &Packet<'_>,
        grh: &[u8; GRH_BYTES],
    ) {
        if let Some(slot) = self.qps.get_mut(index) {
            self.srqs
                .handle_datagram(slot, packet, grh, &mut self.memory, &self.events);
            slot.deliver(&self.events);
        }
    }

    /// Gives a datagram queue pair its turn to send. Returns how many packets it made.
    #[cold]
    pub(crate) fn transmit_datagrams(
        &mut self,
        index: u16,
        now: Instant,
        mode: AckMode,
        turn: &Turn,
    ) -> u32 {
        let (Some(slot), Some(sockets)) = (self.qps.get_mut(index), &self.sockets) else {
            return 0;
        };
        let Some(paths) = &mut slot.datagrams else {
            return 0;
        };
        slot.is_ready = false;
        let mut has_more = true;
        let mut polled = 0;
        while polled < PACKETS_PER_TURN {
            let Some(transmit) = slot.qp.poll_transmit(now, mode, &mut self.memory) else {
                has_more = false;
                break;
            };
            polled += 1;
            let bth = transmit.header.bth;
            let path = transmit
                .address
                .and_then(|address| paths.outbound(sockets, address, bth.dest_qp).ok());
            // An address that is gone is a network that loses the datagram.
            let Some(path) = path else {
                self.stats.tx_dropped += 1;
                continue;
            };
            let pushed = self.outgoing.push(
                &transmit,
                turn,
                path,
                &self.memory,
                &sockets.ports,
                &mut self.stats,
            );
            if let Err(MemoryGone(bth)) = pushed {
                slot.qp.handle_memory_fault(&bth);
            }
            if self.outgoing.is_blocked() {
                break;
            }
        }
        slot.deliver(&self.events);
        if has_more {
            self.mark_ready(index);
        }
        polled
    }
}

/// What precedes a received datagram in the program's memory: of IPv6, the header; of IPv4, the
/// header in the last 20 bytes (IBTA A17.4.5), as Linux rxe and hardware have it. What a UDP socket
/// does not tell (time to live, flow label) is made up. Of RoCE v1, the header as it came.
pub(crate) fn grh(origin: &Origin, udp_payload_len: usize) -> [u8; GRH_BYTES] {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX);
    if let Some(frame) = origin.frame {
        let header = Grh {
            traffic_class: frame.traffic_class,
            flow_label: frame.flow_label,
            payload_len: length(udp_payload_len),
            hop_limit: frame.hop_limit,
            source: Gid::from(origin.source.ip()),
            destination: Gid::from(origin.local.ip()),
        };
        return header.emit();
    }
    let mut grh = [0; GRH_BYTES];
    let udp_len = UDP_BYTES + udp_payload_len;
    let protocol = 17;
    match (origin.source.ip(), origin.local.ip()) {
        (IpAddr::V4(source), IpAddr::V4(local)) => {
            let ip = &mut grh[20..];
            ip[0] = 0x45;
            ip[1] = origin.tos;
            ip[2..4].copy_from_slice(&length(20 + udp_len).to_be_bytes());
            ip[6] = 0x40;
            ip[8] = HOP_LIMIT;
            ip[9] = protocol;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..].copy_from_slice(&local.octets());
            // Programs tell the two by it (ibv_init_ah_from_wc).
            let checksum = header_checksum(ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, local) => {
            let octets = |ip| match ip {
                IpAddr::V6(ip) => ip.octets(),
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            };
            grh[0] = 0x60 | origin.tos >> 4;
            grh[1] = origin.tos << 4;
            grh[4..6].copy_from_slice(&length(udp_len).to_be_bytes());
            grh[6] = protocol;
            grh[7] = HOP_LIMIT;
            grh[8..24].copy_from_slice(&octets(source));
            grh[24..].copy_from_slice(&octets(local));
        }
    }
    grh
}

/// The checksum of an IPv4 header (RFC 791, 3.1) whose own field is zero.
fn header_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use urxe_udp::FrameHeader;

    use super::*;

    fn origin(source: &str, local: &str) -> Origin {
        Origin {
            port: 0,
            local: local.parse().unwrap(),
            source: source.parse().unwrap(),
            tos: 0xb8,
            ip_id: 0,
            frame: None,
        }
    }

    #[test]
    fn an_ipv4_header_stands_in_the_last_20_bytes() {
        // The header of RFC 1071's usual example, with our protocol and flags.
        let grh = grh(&origin("10.66.0.2:4791", "10.66.0.1:4791"), 40);
        assert_eq!(grh[..20], [0; 20]);
        let expected = [
            0x45, 0xb8, 0, 68, 0, 0, 0x40, 0, 64, 17, grh[30], grh[31], 10, 66, 0, 2, 10, 66, 0, 1,
        ];
        assert_eq!(grh[20..], expected);
        assert_eq!(
            header_checksum(&grh[20..]),
            0,
            "with its checksum it sums up"
        );
    }

    #[test]
    fn the_header_of_roce_v1_is_shown_as_it_came() {
        let frame = FrameHeader {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            traffic_class: 0x6b,
            flow_label: 0xa_12b7,
            hop_limit: 63,
        };
        let origin = Origin {
            frame: Some(frame),
            ..origin("10.66.0.2:4791", "10.66.0.1:4791")
        };
        let grh = grh(&origin, 40);
        assert_eq!(grh[..8], [0x66, 0xba, 0x12, 0xb7, 0, 40, 0x1b, 63]);
        assert_eq!(grh[18..24], [0xff, 0xff, 10, 66, 0, 2]);
        assert_eq!(grh[34..], [0xff, 0xff, 10, 66, 0, 1]);
    }

    #[test]
    fn an_ipv6_header_is_shown_whole() {
        let grh = grh(&origin("[fd00::2]:4791", "[fd00::1]:4791"), 40);
        assert_eq!(grh[..8], [0x6b, 0x80, 0, 0, 0, 48, 17, 64]);
        assert_eq!((grh[8], grh[23], grh[39]), (0xfd, 2, 1));
    }
}
