//! What `urxe ping` asks, and how a device answers.
//!
//! The question is a management datagram ([`crate::engine::vendor_mad`]), 256 bytes of payload as
//! every one has. To measure a path, a question may be longer, but only to a peer that is known to
//! be urxe.
//!
//! An answer is never longer than its question and goes to where that came from, so that no
//! attacker can use it to send more to a third party than to us. It tells the version of urxe and
//! the length of the question.

use std::net::SocketAddr;
use std::str;

use urxe_udp::Destination;
use urxe_wire::Packet;

use crate::engine::Engine;
use crate::engine::origin::Origin;
use crate::engine::vendor_mad::{MAD_BYTES, Method, OVERHEAD_BYTES, VendorMad, gsi_datagram};

/// In an answer's data: the length of the question's UDP payload (16 bits), the length of the
/// version, the version.
const VERSION_AT: usize = 3;

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

    /// The UDP payload, for a socket at `source` whose datagrams have the IPv4 ID 0; `None` if the
    /// addresses are of different families or the length is not one of a question.
    #[must_use]
    pub fn datagram(&self, source: SocketAddr, destination: SocketAddr) -> Option<Vec<u8>> {
        let mut payload = VendorMad::blank(Method::Get, self.transaction);
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
        let mad = VendorMad::parse(&packet).filter(|mad| mad.method == Method::GetResponse)?;
        let version_len = usize::from(mad.data[VERSION_AT - 1]);
        let version = mad.data.get(VERSION_AT..VERSION_AT + version_len)?;
        Some(Self {
            transaction: mad.transaction,
            length_bytes: usize::from(u16::from_be_bytes([mad.data[0], mad.data[1]])),
            version: str::from_utf8(version).ok()?.to_owned(),
        })
    }

    fn mad(&self) -> Option<Vec<u8>> {
        let mut mad = VendorMad::blank(Method::GetResponse, self.transaction);
        let data = VendorMad::data_mut(&mut mad);
        let length = u16::try_from(self.length_bytes).ok()?;
        data[..2].copy_from_slice(&length.to_be_bytes());
        data[VERSION_AT - 1] = u8::try_from(self.version.len()).ok()?;
        let room = data.get_mut(VERSION_AT..VERSION_AT + self.version.len())?;
        room.copy_from_slice(self.version.as_bytes());
        Some(mad)
    }
}

impl Engine {
    /// Answers a question of `urxe ping`, whose UDP payload had so many bytes.
    pub(crate) fn answer_ping(&self, origin: &Origin, mad: &VendorMad<'_>, length_bytes: usize) {
        let answer = PingAnswer {
            transaction: mad.transaction,
            length_bytes,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        if let Some(mad) = answer.mad() {
            self.send_vendor_mad(origin.port, &mad, &Destination::new(origin.source));
        }
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::icrc::Flow;

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
            let mad = VendorMad::parse(&packet).unwrap();
            assert_eq!((mad.method, mad.transaction), (Method::Get, 5));
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
    fn an_answer_reads_as_written_and_is_no_longer_than_a_question() {
        let (here, there) = ends();
        let answer = PingAnswer {
            transaction: 7,
            length_bytes: 1060,
            version: "1.2.3".into(),
        };
        let datagram = gsi_datagram(&answer.mad().unwrap(), there, here).unwrap();
        assert_eq!(datagram.len(), PingQuestion::MIN_BYTES);
        assert_eq!(PingAnswer::parse(&datagram), Some(answer));
        assert_eq!(PingAnswer::parse(&datagram[..100]), None);
    }
}
