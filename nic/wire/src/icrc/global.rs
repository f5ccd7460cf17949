//! The ICRC of RoCE v1, over the global route header.

use super::crc::{Icrc, Verdict, congestion_mask, crc32};
use super::linear::FieldMap;
use crate::constants::ICRC_LEN;
use crate::gid::Gid;
use crate::grh::Grh;

/// What stands for the local route header, which Ethernet takes the place of (IBTA annex A16).
const ONES_LEN: usize = 8;
const PREFIX_LEN: usize = ONES_LEN + Grh::LEN;

static LENGTH: FieldMap = FieldMap::new((Grh::LEN - 6) as i64);

/// What is common to the ICRCs of all RoCE v1 packets from one GID to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowV1 {
    /// The CRC of the prefix with the length zero.
    prefix_crc: u32,
}

impl FlowV1 {
    /// The flow from `source` to `destination`. Takes about 30 ns: keep it.
    pub fn new(source: Gid, destination: Gid) -> Self {
        Self {
            prefix_crc: crc32(0, &prefix(source, destination)),
        }
    }

    /// Begins the ICRC of a packet with its first bytes; as [`Flow4::start`](super::Flow4::start),
    /// without an ID. `payload_len` is that of the global route header.
    #[inline]
    pub fn start(&self, payload_len: usize, first: &[u8]) -> Icrc {
        let crc = self.prefix_crc ^ LENGTH.apply(payload_len as u16) ^ congestion_mask(first);
        Icrc {
            crc: crc32(crc, first),
        }
    }
}

/// Checks the ICRC at the end of what follows the global route header in a packet of `flow`:
/// [`Verdict::Exact`] or [`Verdict::Bad`].
#[inline]
pub fn verify_v1(flow: &FlowV1, payload: &[u8]) -> Verdict {
    let Some((covered, received)) = payload.split_last_chunk::<ICRC_LEN>() else {
        return Verdict::Bad;
    };
    if flow.start(payload.len(), covered).finish() == *received {
        Verdict::Exact
    } else {
        Verdict::Bad
    }
}

/// The masked headers before the BTH, with the length zero: traffic class, flow label and hop limit
/// are read as ones, as routers may change them (IBTA vol 1, 7.8.1).
fn prefix(source: Gid, destination: Gid) -> [u8; PREFIX_LEN] {
    let header = Grh {
        traffic_class: 0xff,
        flow_label: 0xf_ffff,
        payload_len: 0,
        hop_limit: 0xff,
        source,
        destination,
    };
    let mut prefix = [0xff; PREFIX_LEN];
    prefix[ONES_LEN..].copy_from_slice(&header.emit());
    prefix
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// CRC-32 by the textbook, bit by bit.
    fn textbook(bytes: &[u8]) -> u32 {
        let mut crc = !0u32;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ if crc & 1 == 0 { 0 } else { 0xedb8_8320 };
            }
        }
        !crc
    }

    fn ends() -> (Gid, Gid) {
        let gid = |first, last| {
            let mut gid = Gid([0; 16]);
            (gid.0[0], gid.0[15]) = (first, last);
            gid
        };
        (gid(0xfe, 1), gid(0xfd, 2))
    }

    fn packet(len: usize, congestion: u8) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        packet[4] = congestion;
        packet
    }

    /// Every byte of the packet as the specification has it read: eight bytes of ones, then the
    /// global route header and the BTH with what changes on the way as ones.
    #[test]
    fn it_is_the_crc_of_the_masked_packet() {
        let (source, destination) = ends();
        for (len, congestion) in [(12, 0), (16, 0xc0), (300, 0x40), (4112, 0)] {
            let packet = packet(len, congestion);
            let header = Grh {
                traffic_class: 3,
                flow_label: 9,
                payload_len: (len + ICRC_LEN) as u16,
                hop_limit: 64,
                source,
                destination,
            };
            let mut masked = std::vec![0xff; 8];
            masked.extend(header.emit());
            masked.extend(&packet);
            masked[8] |= 0x0f;
            masked[9..12].fill(0xff);
            masked[15] = 0xff;
            masked[8 + 40 + 4] = 0xff;
            let flow = FlowV1::new(source, destination);
            let icrc = flow.start(len + ICRC_LEN, &packet).finish();
            assert_eq!(u32::from_le_bytes(icrc), textbook(&masked), "{len}");
            let whole = [&packet[..], &icrc].concat();
            assert_eq!(verify_v1(&flow, &whole), Verdict::Exact);
        }
    }

    #[test]
    fn another_address_or_one_wrong_bit_is_found() {
        let (source, destination) = ends();
        let flow = FlowV1::new(source, destination);
        let packet = packet(64, 0);
        let icrc = flow.start(68, &packet).finish();
        let whole = [&packet[..], &icrc].concat();
        assert_eq!(
            verify_v1(&FlowV1::new(destination, source), &whole),
            Verdict::Bad
        );
        for bit in 0..whole.len() * 8 {
            let mut wrong = whole.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // Of the BTH the byte of congestion marks may change on the way.
            let expected = if bit / 8 == 4 {
                Verdict::Exact
            } else {
                Verdict::Bad
            };
            assert_eq!(verify_v1(&flow, &wrong), expected, "{bit}");
        }
        assert_eq!(verify_v1(&flow, &whole[..3]), Verdict::Bad);
    }
}
