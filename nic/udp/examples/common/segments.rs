//! What a packet of a bare loop is made of: a header, payload and an ICRC.

use std::net::SocketAddr;

use urxe_udp::{Piece, Socket};
use urxe_wire::icrc::Flow4;

/// BTH, in front of every segment's payload.
pub(crate) const HEADER_BYTES: usize = 12;
pub(crate) const ICRC_BYTES: usize = 4;
/// What lies between two payloads: the ICRC of one segment and the header of the next.
pub(crate) type Between = [u8; ICRC_BYTES + HEADER_BYTES];

const DATAGRAM_BYTES: usize = 1 << 16;
/// What IPv4 and UDP take of it.
const DATAGRAM_HEADERS_BYTES: usize = 28;
/// As many datagrams as urxe sends at once.
const SEGMENTS_MAX: usize = 64;

/// How a batch is cut.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) payload_bytes: usize,
    pub(crate) segment_bytes: usize,
    pub(crate) segments: usize,
}

impl Cut {
    pub(crate) fn new(payload_bytes: usize) -> Self {
        let segment_bytes = HEADER_BYTES + payload_bytes + ICRC_BYTES;
        let fit = (DATAGRAM_BYTES - 1 - DATAGRAM_HEADERS_BYTES) / segment_bytes;
        Self {
            payload_bytes,
            segment_bytes,
            segments: fit.min(SEGMENTS_MAX),
        }
    }

    /// Writes the headers around the payloads of a batch, and the ICRCs if it has any.
    pub(crate) fn fill(
        &self,
        between: &mut [Between],
        payloads: &[u8],
        psn: u32,
        summed_for: Option<&Flow4>,
    ) {
        for (at, payload) in payloads.chunks_exact(self.payload_bytes).enumerate() {
            let psn = psn.wrapping_add(at as u32) & 0x00ff_ffff;
            let header = &mut between[at][ICRC_BYTES..];
            header[..4].copy_from_slice(&[0x07, 0, 0xff, 0xff]);
            header[8..].copy_from_slice(&psn.to_be_bytes());
            if let Some(flow) = summed_for {
                let sum = icrc(flow, header, payload);
                between[at + 1][..ICRC_BYTES].copy_from_slice(&sum);
            }
        }
    }

    /// The pieces of memory that such a batch is.
    pub(crate) fn pieces<'a>(&self, between: &'a [Between], payloads: &'a [u8]) -> Vec<Piece<'a>> {
        let mut pieces = Vec::with_capacity(2 * self.segments + 1);
        pieces.push(Piece::new(&between[0][ICRC_BYTES..]));
        let count = payloads.len() / self.payload_bytes;
        for (at, payload) in payloads.chunks_exact(self.payload_bytes).enumerate() {
            pieces.push(Piece::new(payload));
            let is_last = at + 1 == count;
            let len = ICRC_BYTES + if is_last { 0 } else { HEADER_BYTES };
            pieces.push(Piece::new(&between[at + 1][..len]));
        }
        pieces
    }
}

/// What the ICRC of packets from one socket to the other has of their addresses.
pub(crate) fn flow(from: &Socket, to: &Socket) -> Flow4 {
    match (from.local_address(), to.local_address()) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => Flow4::new(from, to),
        _ => panic!("the link has IPv4 addresses"),
    }
}

/// The ICRC of a segment, as a packet without an IP identification has it.
pub(crate) fn icrc(flow: &Flow4, header: &[u8], payload: &[u8]) -> [u8; ICRC_BYTES] {
    let segment_bytes = header.len() + payload.len() + ICRC_BYTES;
    let mut icrc = flow.start(segment_bytes, 0, header);
    icrc.update(payload);
    icrc.finish()
}
