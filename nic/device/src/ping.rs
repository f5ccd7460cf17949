//! What `urxe ping` asks, and how a device answers.
//!
//! The question is a management datagram of a vendor's class to queue pair 1 (IBTA vol 1, 16.5: classes
//! 0x30 to 0x4f carry an OUI, and who does not know it drops the datagram). So it is a proper RoCEv2 packet,
//! 256 bytes of payload as every management datagram has: harmless to other stacks, which stay silent. To
//! measure a path, a question may be longer, but only to a peer that is known to be urxe.
//!
//! An answer is never longer than its question and goes to where that came from, so that nobody can use
//! it to send more to a third party than to us. It tells the version of urxe and the length of the question.

use std::net::SocketAddr;
use std::str;

use urxe_udp::{Destination, Piece, Transmit};
use urxe_wire::icrc::Flow;
use urxe_wire::{
    Bth, CM_QKEY, Deth, Header, ICRC_LEN, Opcode, Operation, Packet, Psn, Qpn, Transport,
};

use crate::engine::Engine;
use crate::receive::Origin;

/// The queue pair for management (IBTA vol 1, 3.9).
const GENERAL_SERVICES: Qpn = Qpn::new(1);
/// Bytes of a management datagram (IBTA vol 1, 13.4.2).
const MAD_BYTES: usize = 256;
/// Base version, class, class version.
const MAD_START: [u8; 3] = [1, 0x3e, 1];
const METHOD_AT: usize = 3;
const METHOD_GET: u8 = 0x01;
const METHOD_GET_RESPONSE: u8 = 0x81;
/// Where the 64-bit transaction ID is.
const TRANSACTION_AT: usize = 8;
/// Where the OUI of vendor classes is. Ours is locally administered, "urx" with that bit (IEEE 802).
const OUI_AT: usize = 37;
const OUI: [u8; 3] = [0x76, 0x72, 0x78];
/// In an answer: the length of the question's UDP payload (16 bits), the length of the version, the version.
const ANSWER_AT: usize = 40;
const VERSION_AT: usize = ANSWER_AT + 3;
/// Bytes that the headers and the ICRC of a question take beside its payload.
const OVERHEAD_BYTES: usize = Bth::LEN + Deth::LEN + ICRC_LEN;

/// A question, to be sent to UDP port 4791.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingQuestion {
    /// Comes back in the answer.
    pub transaction: u64,
    /// The length of the UDP payload, bytes: at least [`Self::MIN_BYTES`], and a multiple of four.
    pub length_bytes: usize,
}

impl PingQuestion {
    /// The shortest question, and the only length that is fit for a peer that may not be urxe.
    pub const MIN_BYTES: usize = MAD_BYTES + OVERHEAD_BYTES;

    /// The UDP payload, for a socket at `source` whose datagrams have the IPv4 ID 0; `None` if the addresses
    /// are of different families or the length is not one of a question.
    #[must_use]
    pub fn datagram(&self, source: SocketAddr, destination: SocketAddr) -> Option<Vec<u8>> {
        let mut payload = mad(METHOD_GET, self.transaction);
        payload.resize(
            MAD_BYTES.max(self.length_bytes.checked_sub(OVERHEAD_BYTES)?),
            0,
        );
        gsi_datagram(&payload, source, destination)
            .filter(|datagram| datagram.len() == self.length_bytes)
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingAnswer {
    /// That of the question.
    pub transaction: u64,
    /// How many bytes of UDP payload arrived.
    pub length_bytes: usize,
    /// The version of urxe there.
    pub version: String,
}

impl PingAnswer {
    /// The answer in a UDP payload, if it is one.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let packet = Packet::parse(datagram).ok()?;
        let (METHOD_GET_RESPONSE, transaction) = read_mad(&packet)? else {
            return None;
        };
        let payload = packet.payload;
        let version_len = usize::from(payload[ANSWER_AT + 2]);
        let version = payload.get(VERSION_AT..VERSION_AT + version_len)?;
        Some(Self {
            transaction,
            length_bytes: usize::from(u16::from_be_bytes([
                payload[ANSWER_AT],
                payload[ANSWER_AT + 1],
            ])),
            version: str::from_utf8(version).ok()?.to_owned(),
        })
    }

    fn datagram(&self, source: SocketAddr, destination: SocketAddr) -> Option<Vec<u8>> {
        let mut payload = mad(METHOD_GET_RESPONSE, self.transaction);
        let length = u16::try_from(self.length_bytes).ok()?;
        payload[ANSWER_AT..ANSWER_AT + 2].copy_from_slice(&length.to_be_bytes());
        payload[ANSWER_AT + 2] = u8::try_from(self.version.len()).ok()?;
        let room = payload.get_mut(VERSION_AT..VERSION_AT + self.version.len())?;
        room.copy_from_slice(self.version.as_bytes());
        gsi_datagram(&payload, source, destination)
    }
}

fn mad(method: u8, transaction: u64) -> Vec<u8> {
    let mut mad = vec![0; MAD_BYTES];
    mad[..MAD_START.len()].copy_from_slice(&MAD_START);
    mad[METHOD_AT] = method;
    mad[TRANSACTION_AT..TRANSACTION_AT + 8].copy_from_slice(&transaction.to_be_bytes());
    mad[OUI_AT..OUI_AT + 3].copy_from_slice(&OUI);
    mad
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
        && bth.dest_qp == GENERAL_SERVICES
        && packet.header.deth.is_some_and(|deth| deth.qkey == CM_QKEY)
}

/// Method and transaction of a datagram of ours.
fn read_mad(packet: &Packet<'_>) -> Option<(u8, u64)> {
    let is_ours = is_for_gsi(packet)
        && packet.payload.len() >= MAD_BYTES
        && packet.payload.starts_with(&MAD_START)
        && packet.payload[OUI_AT..OUI_AT + 3] == OUI;
    let transaction = packet
        .payload
        .get(TRANSACTION_AT..TRANSACTION_AT + 8)?
        .try_into()
        .ok()?;
    is_ours.then(|| (packet.payload[METHOD_AT], u64::from_be_bytes(transaction)))
}

/// The UDP payload of a datagram from queue pair 1 to queue pair 1, for a socket at `source` whose datagrams have
/// the IPv4 ID 0; `None` if the addresses are of different families. `payload` is whole words.
#[must_use]
pub fn gsi_datagram(
    payload: &[u8],
    source: SocketAddr,
    destination: SocketAddr,
) -> Option<Vec<u8>> {
    let bth = Bth::new(
        Opcode::new(Transport::Ud, Operation::SendOnly),
        GENERAL_SERVICES,
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
    let flow = Flow::new(source, destination)?;
    let mut icrc = flow.start(length, 0, &datagram);
    icrc.update(payload);
    datagram.extend_from_slice(payload);
    datagram.extend(icrc.finish());
    Some(datagram)
}

impl Engine {
    /// Answers if the packet, which is for no queue pair, is a question of `urxe ping`. Whether it was one.
    #[cold]
    pub(crate) fn answer_ping(
        &mut self,
        origin: &Origin,
        packet: &Packet<'_>,
        datagram: &[u8],
    ) -> bool {
        let Some((METHOD_GET, transaction)) = read_mad(packet) else {
            return false;
        };
        let Origin { source, local, .. } = *origin;
        let port = self.ports().get(origin.port);
        let Some(socket) = port.and_then(|port| port.socket.as_ref()) else {
            return false;
        };
        if !Flow::new(source, local)
            .is_some_and(|flow| flow.verify(datagram, origin.ip_id).is_good())
        {
            return false;
        }
        let answer = PingAnswer {
            transaction,
            length_bytes: datagram.len(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        if let Some(bytes) = answer.datagram(local, source) {
            let iov = [Piece::new(&bytes)];
            // What does not get out is lost, as anywhere on the way.
            let _ = socket.send(&Transmit {
                destination: &Destination::new(source),
                segment_size: None,
                tos: 0,
                iov: &iov,
            });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (SocketAddr, SocketAddr) {
        (
            "192.0.2.1:40000".parse().unwrap(),
            "192.0.2.2:4791".parse().unwrap(),
        )
    }

    #[test]
    fn a_question_is_a_roce_packet_of_its_length() {
        let (here, there) = ends();
        for length_bytes in [PingQuestion::MIN_BYTES, 1060, 4132] {
            let question = PingQuestion {
                transaction: 5,
                length_bytes,
            };
            let datagram = question.datagram(here, there).unwrap();
            assert_eq!(datagram.len(), length_bytes);
            let packet = Packet::parse(&datagram).unwrap();
            assert_eq!(read_mad(&packet), Some((METHOD_GET, 5)));
            let flow = Flow::new(here, there).unwrap();
            assert!(flow.verify(&datagram, 0).is_good());
            assert_eq!(PingAnswer::parse(&datagram), None, "no answer");
        }
        let short = PingQuestion {
            transaction: 5,
            length_bytes: 100,
        };
        assert_eq!(short.datagram(here, there), None);
    }

    #[test]
    fn an_answer_is_read_as_it_was_written_and_no_longer_than_a_question() {
        let (here, there) = ends();
        let answer = PingAnswer {
            transaction: 7,
            length_bytes: 1060,
            version: "1.2.3".into(),
        };
        let datagram = answer.datagram(there, here).unwrap();
        assert_eq!(datagram.len(), PingQuestion::MIN_BYTES);
        assert_eq!(PingAnswer::parse(&datagram), Some(answer));
        assert_eq!(PingAnswer::parse(&datagram[..100]), None);
    }
}
