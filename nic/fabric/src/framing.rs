//! What surrounds a packet on the link.

use serde::Deserialize;
use urxe_wire::{Header, ICRC_LEN, pad_len};

/// The kind of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// InfiniBand: local routes, no loss, credits.
    Infiniband,
    /// Ethernet with RoCEv2 or TCP, over IPv4.
    Ethernet,
}

/// Ethernet: preamble and gap 20 (IEEE 802.3, 4A.4.2), header 14, FCS 4.
const ETHERNET_BYTES: u64 = 20 + 14 + 4;
/// Shortest Ethernet frame, with preamble and gap.
const ETHERNET_LEAST_BYTES: u64 = 64 + 20;
const IPV4_BYTES: u64 = 20;
const UDP_BYTES: u64 = 8;
/// TCP with the timestamp option (RFC 7323).
const TCP_BYTES: u64 = 32;
/// InfiniBand: local route header 8, VCRC 2 (IBTA volume 1, 6 and 7).
const INFINIBAND_BYTES: u64 = 8 + 2;

/// Bytes of a link that an RDMA packet takes. InfiniBand also has delimiters, whose length goes
/// with the encoding.
pub(crate) fn rdma_bytes(
    kind: LinkKind,
    delimiter_bytes: u64,
    header: &Header,
    payload_bytes: u32,
) -> u32 {
    let payload = payload_bytes as usize;
    let transport = (header.wire_len() + payload + pad_len(payload) + ICRC_LEN) as u64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a packet is a few kilobytes long"
    )]
    let bytes = match kind {
        LinkKind::Infiniband => transport + INFINIBAND_BYTES + delimiter_bytes,
        LinkKind::Ethernet => {
            (transport + UDP_BYTES + IPV4_BYTES + ETHERNET_BYTES).max(ETHERNET_LEAST_BYTES)
        }
    } as u32;
    bytes
}

/// Bytes of a link that a TCP segment takes.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a packet is a few kilobytes long"
)]
pub(crate) fn segment_bytes(payload_bytes: u32) -> u32 {
    let bytes = u64::from(payload_bytes) + TCP_BYTES + IPV4_BYTES + ETHERNET_BYTES;
    bytes.max(ETHERNET_LEAST_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_wire::{Bth, Opcode, Operation, Psn, Qpn, Transport};

    #[test]
    fn what_surrounds_a_full_packet() {
        let opcode = Opcode::new(Transport::Rc, Operation::SendMiddle);
        let header = Header::new(Bth::new(opcode, Qpn::new(1), Psn::new(1)));
        // BTH 12, ICRC 4.
        assert_eq!(
            rdma_bytes(LinkKind::Infiniband, 2, &header, 2_048),
            2_048 + 16 + 12
        );
        assert_eq!(
            rdma_bytes(LinkKind::Ethernet, 0, &header, 1_024),
            1_024 + 16 + 28 + 38
        );
        assert_eq!(segment_bytes(1_448), 1_538, "a full Ethernet frame");
        assert_eq!(segment_bytes(0), 90);
    }
}
