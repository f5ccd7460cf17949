//! Management datagrams of urxe's own.
//!
//! They are of a vendor's class, to queue pair 1 (IBTA vol 1, 16.5: classes 0x30 to 0x4f carry an
//! OUI, and a receiver that does not know it drops the datagram). So each is a proper RoCEv2
//! packet, harmless to other stacks, which stay silent.

use std::net::SocketAddr;

use urxe_proto::Instant;
use urxe_udp::{Destination, Framing, Piece, Transmit};
use urxe_wire::icrc::Flow;
use urxe_wire::{
    Bth, CM_QKEY, Deth, Gid, Header, ICRC_LEN, Opcode, Operation, Packet, Psn, Qpn, ROCE_UDP_PORT,
    Transport,
};

use crate::engine::Engine;
use crate::engine::origin::Origin;
use crate::engine::port::{LOCAL_BITS, SLOTS};

/// The queue pair for management (IBTA vol 1, 3.9).
const GENERAL_SERVICES: Qpn = Qpn::new(1);

/// The number that it has for a slot's peers over RoCE v1, which has no ports to tell slots apart
/// by. No queue pair of a program has it.
fn services_of_slot(port: u16) -> Qpn {
    Qpn::new(u32::from(port.wrapping_sub(ROCE_UDP_PORT) % SLOTS) << LOCAL_BITS | 1)
}

/// Whether this is the number of a queue pair for management.
pub(crate) fn is_services(number: Qpn) -> bool {
    number.get() % (1 << LOCAL_BITS) == 1
}
/// Bytes of a management datagram (IBTA vol 1, 13.4.2).
pub(crate) const MAD_BYTES: usize = 256;
/// Base version, class, class version.
const MAD_START: [u8; 3] = [1, 0x3e, 1];
const METHOD_AT: usize = 3;
/// Where the 64-bit transaction ID is.
const TRANSACTION_AT: usize = 8;
/// Where the OUI of vendor classes is. Ours is locally administered, "urx" with that bit (IEEE
/// 802).
const OUI_AT: usize = 37;
const OUI: [u8; 3] = [0x76, 0x72, 0x78];
/// Where our own data begins.
const DATA_AT: usize = 40;
/// Bytes that the headers and the ICRC take beside the management datagram.
pub(crate) const OVERHEAD_BYTES: usize = Bth::LEN + Deth::LEN + ICRC_LEN;

/// What a datagram is about (IBTA vol 1, 13.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Method {
    /// A question of `urxe ping`.
    Get = 0x01,
    /// Its answer.
    GetResponse = 0x81,
    /// Word of a queue pair that is gone.
    Send = 0x03,
}

/// A management datagram of urxe's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VendorMad<'a> {
    pub(crate) method: Method,
    pub(crate) transaction: u64,
    pub(crate) data: &'a [u8],
}

impl<'a> VendorMad<'a> {
    /// A datagram without data: all zeros.
    pub(crate) fn blank(method: Method, transaction: u64) -> Vec<u8> {
        let mut mad = vec![0; MAD_BYTES];
        mad[..MAD_START.len()].copy_from_slice(&MAD_START);
        mad[METHOD_AT] = method as u8;
        mad[TRANSACTION_AT..TRANSACTION_AT + 8].copy_from_slice(&transaction.to_be_bytes());
        mad[OUI_AT..OUI_AT + 3].copy_from_slice(&OUI);
        mad
    }

    /// Where the data of a blank one goes.
    pub(crate) fn data_mut(mad: &mut [u8]) -> &mut [u8] {
        &mut mad[DATA_AT..]
    }

    /// The datagram in a packet, if it is one of ours. Its ICRC is not checked.
    pub(crate) fn parse(packet: &Packet<'a>) -> Option<Self> {
        let is_ours = is_for_gsi(packet)
            && packet.payload.len() >= MAD_BYTES
            && packet.payload.starts_with(&MAD_START)
            && packet.payload[OUI_AT..OUI_AT + 3] == OUI;
        let method = [Method::Get, Method::GetResponse, Method::Send]
            .into_iter()
            .find(|method| packet.payload.get(METHOD_AT) == Some(&(*method as u8)))?;
        let transaction = packet.payload.get(TRANSACTION_AT..)?.first_chunk()?;
        is_ours.then(|| Self {
            method,
            transaction: u64::from_be_bytes(*transaction),
            data: &packet.payload[DATA_AT..],
        })
    }
}

/// The payload of a UDP payload that is a datagram to queue pair 1. Its ICRC is not checked.
#[must_use]
pub fn gsi_payload(datagram: &[u8]) -> Option<&[u8]> {
    let packet = Packet::parse(datagram).ok()?;
    is_for_gsi(&packet).then_some(packet.payload)
}

fn is_for_gsi(packet: &Packet<'_>) -> bool {
    let bth = &packet.header.bth;
    bth.opcode == Opcode::new(Transport::Ud, Operation::SendOnly)
        && is_services(bth.dest_qp)
        && packet.header.deth.is_some_and(|deth| deth.qkey == CM_QKEY)
}

/// The UDP payload of a datagram from queue pair 1 to queue pair 1, for a socket at `source` whose
/// datagrams have the IPv4 ID 0; `None` if the addresses are of different families. `payload` is
/// whole words.
#[must_use]
pub fn gsi_datagram(
    payload: &[u8],
    source: SocketAddr,
    destination: SocketAddr,
) -> Option<Vec<u8>> {
    let flow = Flow::new(source, destination)?;
    services_datagram(payload, GENERAL_SERVICES, &flow)
}

/// The same to another number of that queue pair, in another flow.
fn services_datagram(payload: &[u8], dest_qp: Qpn, flow: &Flow) -> Option<Vec<u8>> {
    let bth = Bth::new(
        Opcode::new(Transport::Ud, Operation::SendOnly),
        dest_qp,
        Psn::new(0),
    );
    let header = Header {
        deth: Some(Deth {
            qkey: CM_QKEY,
            src_qp: GENERAL_SERVICES,
        }),
        ..Header::new(bth)
    };
    let mut datagram = vec![0; header.wire_len()];
    header.emit(payload.len(), &mut datagram).ok()?;
    let length = datagram.len() + payload.len() + ICRC_LEN;
    let mut icrc = flow.start(length, 0, &datagram);
    icrc.update(payload);
    datagram.extend_from_slice(payload);
    datagram.extend(icrc.finish());
    Some(datagram)
}

impl Engine {
    /// Acts on a packet that is for no queue pair, if it is one of ours. Whether it was.
    #[cold]
    pub(crate) fn handle_vendor_mad(
        &mut self,
        now: Instant,
        origin: &Origin,
        packet: &Packet<'_>,
        datagram: &[u8],
    ) -> bool {
        let Some(mad) = VendorMad::parse(packet) else {
            return false;
        };
        if !origin.has_good_icrc(datagram) {
            self.stats.rx_icrc_errors += 1;
            return true;
        }
        match mad.method {
            Method::Get => self.answer_ping(origin, &mad, datagram.len()),
            Method::Send => self.handle_farewell(now, origin, &mad),
            Method::GetResponse => {}
        }
        true
    }

    /// Sends a management datagram from one of the device's sockets. What does not get out is lost,
    /// as anywhere on the way.
    pub(crate) fn send_vendor_mad(&self, port: usize, mad: &[u8], to: &Destination) {
        let socket = self.ports().get(port).and_then(|port| port.socket.as_ref());
        let Some(socket) = socket else {
            return;
        };
        let (from, peer) = (socket.local_address(), to.address());
        let bytes = if socket.has_frames_only() {
            let flow = Flow::v1(Gid::from(from.ip()), Gid::from(peer.ip()));
            services_datagram(mad, services_of_slot(peer.port()), &flow)
        } else {
            gsi_datagram(mad, from, peer)
        };
        if let Some(bytes) = bytes {
            let _ = socket.send(&Transmit {
                destination: to,
                segment_size: None,
                tos: 0,
                framing: Framing::Never,
                whole: None,
                iov: &[Piece::new(&bytes)],
            });
        }
    }
}
