//! The ICRC over IPv6.

use core::net::SocketAddrV6;

use super::crc::{Icrc, Verdict, congestion_mask, crc32};
use super::linear::FieldMap;
use crate::constants::ICRC_LEN;

const ONES_LEN: usize = 8;
const IP_LEN: usize = 40;
const UDP_LEN: usize = 8;
const PREFIX_LEN: usize = ONES_LEN + IP_LEN + UDP_LEN;

/// IPv6's payload length and UDP's length are the same number.
static LENGTH: FieldMap =
    FieldMap::new((IP_LEN - 6 + UDP_LEN) as i64).and(&FieldMap::new((UDP_LEN - 6) as i64));

/// What is common to the ICRCs of all packets from one IPv6 address and port to another. No
/// extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow6 {
    /// The CRC of the prefix with lengths zero.
    prefix_crc: u32,
}

impl Flow6 {
    /// The flow from `src` to `dst`; flow label and scope do not matter. Takes about 30 ns: keep
    /// it.
    pub fn new(src: SocketAddrV6, dst: SocketAddrV6) -> Self {
        Self {
            prefix_crc: crc32(0, &prefix(src, dst)),
        }
    }

    /// Begins the ICRC of a packet with its first bytes; as [`Flow4::start`](super::Flow4::start),
    /// without an ID.
    #[inline]
    pub fn start(&self, udp_payload_len: usize, first: &[u8]) -> Icrc {
        let crc = self.prefix_crc
            ^ LENGTH.apply(UDP_LEN.wrapping_add(udp_payload_len) as u16)
            ^ congestion_mask(first);
        Icrc {
            crc: crc32(crc, first),
        }
    }
}

/// Checks the ICRC at the end of a UDP payload of `flow`: [`Verdict::Exact`] or [`Verdict::Bad`].
#[inline]
pub fn verify6(flow: &Flow6, udp_payload: &[u8]) -> Verdict {
    let Some((covered, received)) = udp_payload.split_last_chunk::<ICRC_LEN>() else {
        return Verdict::Bad;
    };
    if flow.start(udp_payload.len(), covered).finish() == *received {
        Verdict::Exact
    } else {
        Verdict::Bad
    }
}

/// The masked headers before the BTH, with lengths zero.
fn prefix(src: SocketAddrV6, dst: SocketAddrV6) -> [u8; PREFIX_LEN] {
    let mut prefix = [0; PREFIX_LEN];
    prefix[..ONES_LEN].fill(0xff);
    let ip = &mut prefix[ONES_LEN..ONES_LEN + IP_LEN];
    ip[0] = 0x6f; // version 6; traffic class and flow label, masked
    ip[1..4].fill(0xff);
    ip[6] = 17; // UDP
    ip[7] = 0xff; // hop limit, masked
    ip[8..24].copy_from_slice(&src.ip().octets());
    ip[24..40].copy_from_slice(&dst.ip().octets());
    let udp = &mut prefix[ONES_LEN + IP_LEN..];
    udp[..2].copy_from_slice(&src.port().to_be_bytes());
    udp[2..4].copy_from_slice(&dst.port().to_be_bytes());
    udp[6..8].fill(0xff); // checksum, masked
    prefix
}
