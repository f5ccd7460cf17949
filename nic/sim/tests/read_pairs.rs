//! How a READ is divided among requests: so that the packets of its answer have one length, where that is worth a request.

mod support;

use support::queue_pair::queue_pair;
use support::scenario::PD;
use urxe_proto::{
    AckMode, Instant, QpType, QueuePair, SendData, SendOp, SendRequest, SendTarget, Sge,
};
use urxe_sim::{Rights, VecMemory};
use urxe_wire::{Packet, Psn, Qpn};

const NOW: Instant = Instant::from_nanos(1);
const MTU_BYTES: u32 = 1024;
const PACKETS_MAX: u32 = 64;

/// A queue pair that reads from another, each with memory of its own.
struct Pair {
    reader: QueuePair,
    memory: VecMemory,
    key: u32,
    other: QueuePair,
    its_memory: VecMemory,
    its_key: u32,
}

impl Pair {
    fn new(is_our_kind: bool) -> Self {
        let (left, right) = (Qpn::new(0x11), Qpn::new(0x12));
        let [reader, other] = [(left, right), (right, left)].map(|(number, peer)| {
            let mut qp = queue_pair(number, peer, QpType::Rc, Psn::new(0), 0);
            qp.set_window_bytes(1 << 20);
            qp.set_keeps_early(is_our_kind);
            qp
        });
        let length = (PACKETS_MAX * MTU_BYTES) as usize;
        let [(memory, key), (its_memory, its_key)] = [0, 7].map(|byte| {
            let mut memory = VecMemory::default();
            let key = memory.register(PD, Rights::ALL, vec![byte; length]);
            (memory, key)
        });
        Self {
            reader,
            memory,
            key,
            other,
            its_memory,
            its_key,
        }
    }

    fn post(&mut self, length: u32) {
        let (va, rkey) = (self.its_memory.va(self.its_key, 0), self.its_key);
        let sge = Sge {
            addr: self.memory.va(self.key, 0),
            len: length,
            lkey: self.key,
        };
        let request = SendRequest {
            wr_id: 7,
            op: SendOp::Read { va, rkey },
            data: SendData::Sges(&[sge]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.reader.post_send(&request).unwrap();
    }

    /// What the next request asks for, bytes; the other gets it.
    fn ask(&mut self) -> Option<u32> {
        let sent = self
            .reader
            .poll_transmit(NOW, AckMode::Flush, &mut self.memory)?;
        let packet = Packet {
            header: sent.header,
            payload: &[],
        };
        self.other
            .handle_packet(NOW, &packet, None, &mut self.its_memory);
        packet.header.reth.map(|reth| reth.len)
    }

    /// The length of the next packet of an answer, headers included; the reader gets it.
    fn answer(&mut self) -> Option<usize> {
        let sent = self
            .other
            .poll_transmit(NOW, AckMode::Flush, &mut self.its_memory)?;
        let payload = vec![7; sent.payload.len() as usize];
        let packet = Packet {
            header: sent.header,
            payload: &payload,
        };
        self.reader
            .handle_packet(NOW, &packet, None, &mut self.memory);
        Some(packet.header.wire_len() + payload.len())
    }
}

/// How many packets each request of a READ of `packets` asks for.
fn divided(packets: u32, is_our_kind: bool) -> Vec<u32> {
    let mut pair = Pair::new(is_our_kind);
    pair.post(packets * MTU_BYTES);
    std::iter::from_fn(|| pair.ask().map(|bytes| bytes / MTU_BYTES)).collect()
}

#[test]
fn a_short_read_is_asked_for_in_pairs() {
    assert_eq!(divided(1, true), [1]);
    assert_eq!(divided(2, true), [2]);
    assert_eq!(divided(3, true), [2, 1]);
    assert_eq!(divided(4, true), [2, 2]);
    assert_eq!(divided(16, true), [2; 8]);
}

#[test]
fn long_reads_and_those_from_other_devices_are_asked_for_at_once() {
    assert_eq!(divided(17, true), [17]);
    assert_eq!(divided(4, false), [4]);
}

#[test]
fn the_packets_of_its_answer_have_one_length() {
    let mut pair = Pair::new(true);
    pair.post(16 * MTU_BYTES);
    while pair.ask().is_some() {}
    let lengths: Vec<usize> = std::iter::from_fn(|| pair.answer()).collect();
    assert_eq!(lengths, [lengths[0]; 16]);
    let completion = pair.reader.poll_completion().expect("it is complete");
    assert_eq!(completion.wr_id, 7);
    assert_eq!(pair.memory.bytes(pair.key)[..16 * 1024], [7; 16 * 1024]);
}

#[test]
fn of_reads_that_wait_for_each_other_as_many_go_as_may() {
    let mut pair = Pair::new(true);
    (0..3).for_each(|_| pair.post(16 * MTU_BYTES));
    // The peer takes 16 at a time.
    assert_eq!(std::iter::from_fn(|| pair.ask()).count(), 16);
    while pair.answer().is_some() {}
    assert_eq!(std::iter::from_fn(|| pair.ask()).count(), 8);
}
