//! The invariant CRC: the four bytes that end every packet and cover all of it that no router
//! changes.
//!
//! It is the CRC-32 of Ethernet and zlib over eight bytes of ones, the IP header, the UDP header,
//! and everything from the BTH to the padding. The fields that change on the way are read as ones
//! (IBTA annex A17.3.3; checked against captures of Linux rxe). RoCE v1 has the global route header
//! in the place of IP and UDP (annex A16). Sending:
//!
//! ```
//! # use core::net::{Ipv4Addr, SocketAddrV4};
//! use urxe_wire::{ICRC_LEN, ROCE_UDP_PORT, icrc::Flow4};
//! let here = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 49152);
//! let there = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), ROCE_UDP_PORT);
//! let flow = Flow4::new(here, there); // once per peer
//! # let (headers, payload, pad) = ([4u8, 0x30, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 1], b"hello", [0u8; 3]);
//! let len = headers.len() + payload.len() + pad.len() + ICRC_LEN;
//! let mut icrc = flow.start(len, 0, &headers); // IPv4 ID 0
//! icrc.update(payload);
//! icrc.update(&pad);
//! let last_four_bytes = icrc.finish();
//! # let mut packet = [&headers[..], payload, &pad, &last_four_bytes].concat();
//! # use urxe_wire::icrc::{Verdict, verify4};
//! # assert_eq!(verify4(&flow, &packet, 0), Verdict::Exact);
//! # packet[13] ^= 1;
//! # assert_eq!(verify4(&flow, &packet, 0), Verdict::Bad);
//! ```
//!
//! # How it is fast
//!
//! A CRC is linear, so what the IP and UDP headers contribute is computed once per flow. A few
//! table lookups add the fields that differ from packet to packet: lengths, IPv4 ID, and the masked
//! BTH byte. The bytes of the packet itself then go through the CRC unmodified, in as many pieces
//! as they come in.
//!
//! Measured with rustc 1.95 on an AMD EPYC with AVX-512 and VPCLMULQDQ (best of 9 runs), one update
//! from one state to the next, ns:
//!
//! | bytes | libdeflate 1.26.1 | crc32fast 1.5.4 | zlib-ng (libz-ng-sys 1.1.32) | crc-fast 1.10.0, new digest |
//! |---:|---:|---:|---:|---:|
//! | 12 | 3 | 5 | 10 | 27 |
//! | 20 | 3 | 7 | 25 | 28 |
//! | 64 | 5 | 9 | 22 | 41 |
//! | 512 | 11 | 23 | 33 | 91 |
//! | 1024 | 19 | 40 | 38 | 95 |
//! | 4096 | 68 (61 GB/s) | 81 | 86 | 123 |
//! | 65536 | 1030 (64 GB/s) | 1064 | 1061 | 1090 |
//!
//! so it is libdeflate, of which nothing else is linked. It finds out at run time what the CPU has,
//! and uses the widest registers from 16 bytes on, where crc32fast begins at 2 KiB. Whole
//! operations on independent packets (they overlap), ns:
//!
//! | payload bytes | ICRC of a packet in one piece | header, then payload | [`verify4`] | [`verify4`] finding the ID |
//! |---:|---:|---:|---:|---:|
//! | 4 | 6 | 9 | 6 | 21 |
//! | 64 | 9 | 11 | 9 | 23 |
//! | 512 | 16 (33 GB/s) | 18 | 16 | 29 |
//! | 1024 | 24 | 26 | 24 | 38 |
//! | 4096 | 73 (56 GB/s) | 74 | 73 | 89 |

mod crc;
mod flow4;
mod flow6;
mod global;
mod linear;

use core::net::SocketAddr;

use crate::gid::Gid;

pub use crc::{Icrc, Verdict};
pub use flow4::{Flow4, verify4};
pub use flow6::{Flow6, verify6};
pub use global::{FlowV1, verify_v1};

/// What is common to the ICRCs of all packets from one address and port to another, or for RoCE v1
/// from one GID to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Over IPv4.
    V4(Flow4),
    /// Over IPv6.
    V6(Flow6),
    /// Over Ethernet alone: RoCE v1.
    V1(FlowV1),
}

impl Flow {
    /// The flow of RoCEv2 from `src` to `dst`; `None` if they are of different families.
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Option<Self> {
        match (src, dst) {
            (SocketAddr::V4(src), SocketAddr::V4(dst)) => Some(Self::V4(Flow4::new(src, dst))),
            (SocketAddr::V6(src), SocketAddr::V6(dst)) => Some(Self::V6(Flow6::new(src, dst))),
            _ => None,
        }
    }

    /// The flow of RoCE v1 from `source` to `destination`.
    pub fn v1(source: Gid, destination: Gid) -> Self {
        Self::V1(FlowV1::new(source, destination))
    }

    /// See [`Flow4::start`]. What has no ID ignores it.
    #[inline]
    pub fn start(&self, udp_payload_len: usize, ip_id: u16, first: &[u8]) -> Icrc {
        match self {
            Self::V4(flow) => flow.start(udp_payload_len, ip_id, first),
            Self::V6(flow) => flow.start(udp_payload_len, first),
            Self::V1(flow) => flow.start(udp_payload_len, first),
        }
    }

    /// See [`verify4`]. What has no ID ignores the hint.
    #[inline]
    pub fn verify(&self, udp_payload: &[u8], hint_id: u16) -> Verdict {
        match self {
            Self::V4(flow) => verify4(flow, udp_payload, hint_id),
            Self::V6(flow) => verify6(flow, udp_payload),
            Self::V1(flow) => verify_v1(flow, udp_payload),
        }
    }
}
