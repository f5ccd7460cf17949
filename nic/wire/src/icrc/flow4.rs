//! The ICRC over IPv4.

use core::net::SocketAddrV4;

use super::crc::{Icrc, Verdict, congestion_mask, crc32};
use super::linear::{FieldMap, find_field};
use crate::constants::ICRC_LEN;

const ONES_LEN: usize = 8;
const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const PREFIX_LEN: usize = ONES_LEN + IP_LEN + UDP_LEN;

/// Bytes of the prefix behind the IPv4 ID.
const AFTER_ID: usize = IP_LEN - 6 + UDP_LEN;

static TOTAL_LENGTH: FieldMap = FieldMap::new((IP_LEN - 4 + UDP_LEN) as i64);
static ID: FieldMap = FieldMap::new(AFTER_ID as i64);
static UDP_LENGTH: FieldMap = FieldMap::new((UDP_LEN - 6) as i64);

/// What is common to the ICRCs of all packets from one IPv4 address and port to another.
///
/// The packets have no IP options and the "don't fragment" flag set, as those of Linux rxe, of
/// hardware, and of a UDP socket with `IP_PMTUDISC_DO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow4 {
    /// The CRC of the prefix with lengths and ID zero.
    prefix_crc: u32,
}

impl Flow4 {
    /// The flow from `src` to `dst`. Takes about 30 ns: keep it.
    pub fn new(src: SocketAddrV4, dst: SocketAddrV4) -> Self {
        Self {
            prefix_crc: crc32(0, &prefix(src, dst)),
        }
    }

    /// Begins the ICRC of a packet with its first bytes.
    ///
    /// `udp_payload_len` counts everything from the BTH to the ICRC, both included, at most 65507
    /// bytes. `ip_id` is the identification that the packet will have. `first` begins with the
    /// whole BTH, and more may follow in the same slice.
    #[inline]
    pub fn start(&self, udp_payload_len: usize, ip_id: u16, first: &[u8]) -> Icrc {
        let crc = self.prefix_crc
            ^ TOTAL_LENGTH.apply((IP_LEN + UDP_LEN).wrapping_add(udp_payload_len) as u16)
            ^ UDP_LENGTH.apply(UDP_LEN.wrapping_add(udp_payload_len) as u16)
            ^ if ip_id == 0 { 0 } else { ID.apply(ip_id) }
            ^ congestion_mask(first);
        Icrc {
            crc: crc32(crc, first),
        }
    }
}

/// Checks the ICRC at the end of a UDP payload of `flow`.
///
/// A UDP socket does not tell the IPv4 ID. If the ICRC is not the one for `hint_id`, this finds the
/// ID that it would be right for. Peers that count IDs up have the best hint in the last ID plus
/// one; the others, in zero.
#[inline]
pub fn verify4(flow: &Flow4, udp_payload: &[u8], hint_id: u16) -> Verdict {
    let Some((covered, &received)) = udp_payload.split_last_chunk::<ICRC_LEN>() else {
        return Verdict::Bad;
    };
    let icrc = flow.start(udp_payload.len(), hint_id, covered);
    let difference = icrc.crc ^ u32::from_le_bytes(received);
    if difference == 0 {
        return Verdict::Exact;
    }
    match find_field(difference, AFTER_ID.wrapping_add(covered.len())) {
        Some(id_change) => Verdict::SomeId(hint_id ^ id_change),
        None => Verdict::Bad,
    }
}

/// The masked headers before the BTH, with lengths and ID zero.
fn prefix(src: SocketAddrV4, dst: SocketAddrV4) -> [u8; PREFIX_LEN] {
    let mut prefix = [0; PREFIX_LEN];
    prefix[..ONES_LEN].fill(0xff);
    let ip = &mut prefix[ONES_LEN..ONES_LEN + IP_LEN];
    ip[0] = 0x45; // version 4, five words
    ip[1] = 0xff; // type of service, masked
    ip[6] = 0x40; // don't fragment
    ip[8] = 0xff; // time to live, masked
    ip[9] = 17; // UDP
    ip[10..12].fill(0xff); // header checksum, masked
    ip[12..16].copy_from_slice(&src.ip().octets());
    ip[16..20].copy_from_slice(&dst.ip().octets());
    let udp = &mut prefix[ONES_LEN + IP_LEN..];
    udp[..2].copy_from_slice(&src.port().to_be_bytes());
    udp[2..4].copy_from_slice(&dst.port().to_be_bytes());
    udp[6..8].fill(0xff); // checksum, masked
    prefix
}
