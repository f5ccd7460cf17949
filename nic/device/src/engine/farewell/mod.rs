//! Word to the peer of a queue pair that ends.
//!
//! Hardware drops packets for a queue pair that does not exist, and their sender uses up its
//! retries: half a minute in MPI libraries, for ever with a timeout of 0. A process that is about
//! to end meets that often where processors are shared: its peers were done a few milliseconds
//! before, and what it sends last is never acknowledged. So a queue pair of ours that ends says so
//! to a peer of our own kind, and a peer that sends to it afterwards is told again. The peer
//! believes it when it hears nothing for the transport timeout besides, or half a second
//! ([`urxe_proto::QueuePair::handle_peer_gone`]), and its requests fail as after the last retry. A
//! word that is old, or forged, costs no more than a few probes. Only from the port that the number
//! of the gone queue pair tells can it come.

pub(crate) mod ended;

use urxe_proto::{Instant, QpState, QpType};
use urxe_wire::{Packet, Psn, Qpn};

use crate::engine::Engine;
use crate::engine::origin::Origin;
use crate::engine::vendor_mad::{Method, VendorMad};
use ended::Farewell;

/// Least time between two answers to peers that still send to one of them, nanoseconds.
const ANSWER_GAP_NS: u64 = 1_000_000;

/// In the data: the receiver's queue pair, the one that is gone, and the PSN that it expected. 32
/// bits each.
fn mad(peer: Qpn, gone: Qpn, expected: Psn) -> Vec<u8> {
    let mut mad = VendorMad::blank(Method::Send, 0);
    let words = [peer.get(), gone.get(), expected.get()];
    for (to, word) in VendorMad::data_mut(&mut mad).chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    mad
}

fn read(mad: &VendorMad<'_>) -> Option<(Qpn, Qpn, Psn)> {
    let mut words = mad
        .data
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from_be_bytes(*word));
    Some((
        Qpn::new(words.next()?),
        Qpn::new(words.next()?),
        Psn::new(words.next()?),
    ))
}

impl Engine {
    /// The queue pair at `index` ends: tells its peer, if there is one that would understand.
    pub(crate) fn bid_farewell(&mut self, index: u16, now: Instant) {
        let Some(slot) = self.qps.get(index) else {
            return;
        };
        let receives_requests = matches!(slot.qp.config().qp_type, QpType::Rc | QpType::XrcTarget);
        let was_connected = matches!(
            slot.qp.state(),
            QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueDrain
        );
        let Some(path) = slot
            .path
            .as_ref()
            .filter(|path| receives_requests && was_connected && path.is_to_our_kind())
        else {
            return;
        };
        let (number, attributes) = (slot.qp.number(), slot.qp.query());
        let farewell = Farewell {
            port: path.port,
            to: path.destination,
            peer: attributes.dest_qp,
            said_at: now,
        };
        let mad = mad(farewell.peer, number, attributes.rq_psn);
        self.send_vendor_mad(farewell.port, &mad, &farewell.to);
        self.ended.remember(number, farewell);
    }

    /// All queue pairs end with the process.
    pub(crate) fn bid_all_farewell(&mut self, now: Instant) {
        for index in self.qps.indices() {
            self.bid_farewell(index, now);
        }
    }

    /// A request came for a queue pair that does not exist. If it did, and this is its peer, that
    /// is told again.
    #[cold]
    pub(crate) fn answer_for_ended(
        &mut self,
        now: Instant,
        origin: &Origin,
        packet: &Packet<'_>,
        datagram: &[u8],
    ) {
        let bth = &packet.header.bth;
        let is_request = bth.opcode.operation().is_some_and(|op| !op.is_response());
        let Some(farewell) = self
            .ended
            .by_number
            .get_mut(&bth.dest_qp)
            .filter(|farewell| {
                is_request
                    && farewell.port == origin.port
                    && farewell.to.address() == origin.source
                    && now.since(farewell.said_at) >= ANSWER_GAP_NS
            })
        else {
            return;
        };
        if !origin.has_good_icrc(datagram) {
            self.stats.rx_icrc_errors += 1;
            return;
        }
        farewell.said_at = now;
        let (port, to) = (farewell.port, farewell.to);
        let mad = mad(farewell.peer, bth.dest_qp, bth.psn);
        self.send_vendor_mad(port, &mad, &to);
    }

    /// A peer says that a queue pair is gone.
    pub(crate) fn handle_farewell(&mut self, now: Instant, origin: &Origin, mad: &VendorMad<'_>) {
        let Some((number, gone, psn)) = read(mad) else {
            return;
        };
        let Some(index) = self.qps.find(number) else {
            return;
        };
        if let Some(slot) = self.qps.get_mut(index)
            && let Some(path) = &slot.path
            && path.is_from_peer(origin.port, origin.source)
            && path.is_from_derived_port(origin)
        {
            slot.qp.handle_peer_gone(now, gone, psn);
            self.mark_ready(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use urxe_udp::Destination;

    use super::ended::{Ended, REMEMBERED};
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let (peer, gone, psn) = (Qpn::new(0x12_3456), Qpn::new(0xab_cdef), Psn::new(7));
        let bytes = mad(peer, gone, psn);
        let mad = VendorMad {
            method: Method::Send,
            transaction: 0,
            data: &bytes[40..],
        };
        assert_eq!(read(&mad), Some((peer, gone, psn)));
        assert_eq!(read(&VendorMad { data: &[], ..mad }), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut ended = Ended::default();
        for number in 0..REMEMBERED as u32 + 1 {
            let farewell = Farewell {
                port: 0,
                to: Destination::new("192.0.2.1:4791".parse().unwrap()),
                peer: Qpn::new(1),
                said_at: Instant::default(),
            };
            ended.remember(Qpn::new(number), farewell.clone());
            ended.remember(Qpn::new(number), farewell);
        }
        assert_eq!(ended.by_number.len(), REMEMBERED);
        assert!(!ended.by_number.contains_key(&Qpn::new(0)));
    }
}
