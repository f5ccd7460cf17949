//! Packets of one cable as they would be on a real one, for Wireshark: Ethernet, IPv4, UDP, RoCEv2
//! with its ICRC.
//!
//! Their payload is zeroes: no data is simulated.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use urxe_wire::icrc::Flow;
use urxe_wire::{ICRC_LEN, MAX_HEADER_LEN, ROCE_UDP_PORT, pad_len};

use crate::body::Body;
use crate::packet::{MARKED, Packet};
use crate::port::NOTIFICATIONS;
use crate::units::PS_PER_NS;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;
/// DSCP 34 and 48, as the upper six bits of the type of service.
const DATA_TOS: u8 = 34 << 2;
const NOTIFICATION_TOS: u8 = 48 << 2;
/// RFC 3168: ECN capable (ECT(0)), and "congestion experienced".
const ECN_CAPABLE: u8 = 2;
const ECN_MARKED: u8 = 3;

/// A recorded packet.
#[derive(Clone, Debug)]
pub struct Frame {
    /// When its first bit was there, or its last came in, nanoseconds.
    pub at_ns: u64,
    /// From the Ethernet header to the ICRC, without the FCS.
    pub bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Capture {
    port: u32,
    left: usize,
    frames: Vec<Frame>,
}

impl Capture {
    pub(crate) const fn new(port: u32, packets: usize) -> Self {
        Self {
            port,
            left: packets,
            frames: Vec::new(),
        }
    }

    /// The packets that were recorded since the last time, in the order of time.
    pub(crate) fn take(&mut self) -> Vec<Frame> {
        let mut frames = core::mem::take(&mut self.frames);
        frames.sort_by_key(|frame| frame.at_ns);
        frames
    }

    /// Records a packet that passes a port at some time, in picoseconds, if it is the port of this
    /// capture.
    pub(crate) fn record(&mut self, port: u32, packet: &Packet, body: &Body, at: u64) {
        if self.port != port || self.left == 0 {
            return;
        }
        if let Some(bytes) = frame(packet, body) {
            self.left -= 1;
            self.frames.push(Frame {
                at_ns: at / PS_PER_NS,
                bytes,
            });
        }
    }
}

/// 10.x.y.z of a host.
fn address(host: u32) -> Ipv4Addr {
    let [_, high, middle, low] = (host + 1).to_be_bytes();
    Ipv4Addr::new(10, high, middle, low)
}

/// A locally administered address of a host.
fn mac(host: u32) -> [u8; 6] {
    let [a, b, c, d] = (host + 1).to_be_bytes();
    [0x02, 0, a, b, c, d]
}

fn frame(packet: &Packet, body: &Body) -> Option<Vec<u8>> {
    let (header, words) = match body {
        Body::Rdma(header) => (header, None),
        Body::Held { header, words } => (header, Some(words)),
        Body::Segment { .. } | Body::Acknowledgement { .. } => return None,
    };
    let (from, to) = (packet.flow.source(), packet.flow.destination());
    let (source, destination) = (address(from), address(to));
    let udp_source = packet.flow.udp_source();
    let payload = usize::from(packet.payload_bytes);
    let mut roce = Vec::from([0; MAX_HEADER_LEN]);
    let header_len = header.emit(payload, &mut roce).ok()?;
    roce.truncate(header_len);
    for word in words.into_iter().flatten() {
        roce.extend_from_slice(&word.to_be_bytes());
    }
    roce.resize(header_len + payload + pad_len(payload), 0);
    let flow = Flow::new(
        SocketAddr::new(source.into(), udp_source),
        SocketAddr::new(destination.into(), ROCE_UDP_PORT),
    )?;
    let icrc = flow.start(roce.len() + ICRC_LEN, 0, &roce).finish();
    roce.extend_from_slice(&icrc);

    let mut frame = Vec::with_capacity(42 + roce.len());
    frame.extend_from_slice(&mac(to));
    frame.extend_from_slice(&mac(from));
    frame.extend_from_slice(&ETHERTYPE_IPV4);
    frame.extend_from_slice(&ipv4(packet, source, destination, 28 + roce.len()));
    frame.extend_from_slice(&udp_source.to_be_bytes());
    frame.extend_from_slice(&ROCE_UDP_PORT.to_be_bytes());
    frame.extend_from_slice(&((8 + roce.len()) as u16).to_be_bytes());
    // RoCEv2 packets may go without a UDP checksum (IBTA annex A17.4.5).
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&roce);
    Some(frame)
}

fn ipv4(packet: &Packet, source: Ipv4Addr, destination: Ipv4Addr, len: usize) -> [u8; 20] {
    let tos = match (packet.priority, packet.is(MARKED)) {
        (NOTIFICATIONS, _) => NOTIFICATION_TOS,
        (_, true) => DATA_TOS | ECN_MARKED,
        _ => DATA_TOS | ECN_CAPABLE,
    };
    let mut header = [0; 20];
    header[0] = 0x45;
    header[1] = tos;
    header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    // Do not fragment.
    header[6] = 0x40;
    header[8] = HOP_LIMIT;
    header[9] = PROTOCOL_UDP;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    header
}
