//! How READs and WRITEs are divided among requests: so that packets have one length, where that is
//! worth it.

mod support;

use support::queue_pair::queue_pair;
use support::scenario::PD;
use urxe_proto::{
    AckMode, Egress, Instant, PeerAbilities, QpType, QueuePair, SendData, SendOp, SendRequest,
    SendTarget, Sge, WcStatus,
};
use urxe_sim::{Rights, VecMemory};
use urxe_wire::{Header, Immediate, Operation, Packet, Psn, Qpn, Reth};

const GAINS: PeerAbilities = PeerAbilities::GAINS_BY_EQUAL_LENGTHS;
const NOW: Instant = Instant::from_nanos(1);
const MTU_BYTES: u32 = 1024;
/// What a batch of the UDP socket takes of them.
const BATCH_PACKETS: u32 = 61;
const PACKETS_MAX: u32 = 123;

/// A queue pair that reads and writes memory of another, each with memory of its own: of zeros, and
/// of sevens.
struct Pair {
    requester: QueuePair,
    memory: VecMemory,
    key: u32,
    other: QueuePair,
    its_memory: VecMemory,
    its_key: u32,
}

impl Pair {
    fn new(abilities: PeerAbilities) -> Self {
        let (left, right) = (Qpn::new(0x11), Qpn::new(0x12));
        let [requester, other] = [(left, right), (right, left)].map(|(number, peer)| {
            let mut qp = queue_pair(number, peer, QpType::Rc, Psn::new(0), 0);
            qp.set_egress(Egress {
                window_bytes: 1 << 20,
                batch_packets: BATCH_PACKETS,
            });
            qp.set_peer_abilities(abilities);
            qp
        });
        let length = (PACKETS_MAX * MTU_BYTES) as usize;
        let [(memory, key), (its_memory, its_key)] = [0, 7].map(|byte| {
            let mut memory = VecMemory::default();
            let key = memory.register(PD, Rights::ALL, vec![byte; length]);
            (memory, key)
        });
        Self {
            requester,
            memory,
            key,
            other,
            its_memory,
            its_key,
        }
    }

    fn its_va(&self, at: u64) -> u64 {
        self.its_memory.va(self.its_key, at)
    }

    fn post(&mut self, op: SendOp, length: u32) {
        let sge = Sge {
            addr: self.memory.va(self.key, 0),
            len: length,
            lkey: self.key,
        };
        let request = SendRequest {
            wr_id: 7,
            op,
            data: SendData::Sges(&[sge]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.requester.post_send(&request).unwrap();
    }

    fn post_read(&mut self, length: u32) {
        let (va, rkey) = (self.its_va(0), self.its_key);
        self.post(SendOp::Read { va, rkey }, length);
    }

    fn post_write(&mut self, at: u64, length: u32) {
        let (va, rkey) = (self.its_va(at), self.its_key);
        self.post(SendOp::Write { va, rkey }, length);
    }

    /// The next request; the other gets it, with zeros.
    fn next_request(&mut self) -> Option<(Header, u32)> {
        let sent = self
            .requester
            .poll_transmit(NOW, AckMode::Flush, &mut self.memory)?;
        let payload = vec![0; sent.payload.len() as usize];
        let packet = Packet {
            header: sent.header,
            payload: &payload,
        };
        self.other
            .handle_packet(NOW, &packet, None, &mut self.its_memory);
        Some((packet.header, payload.len() as u32))
    }

    /// What the next READ request asks for, bytes.
    fn ask(&mut self) -> Option<u32> {
        let (header, _) = self.next_request()?;
        header.reth.map(|reth| reth.len)
    }

    /// The packets of a WRITE to there, which is carried out.
    fn write(&mut self, at: u64, length: u32) -> Vec<(Header, u32)> {
        self.post_write(at, length);
        let packets = std::iter::from_fn(|| self.next_request()).collect();
        while self.answer().is_some() {}
        let completion = self.requester.poll_completion().expect("it is complete");
        assert_eq!(
            (completion.wr_id, completion.status),
            (7, WcStatus::Success)
        );
        assert_eq!(self.requester.poll_completion(), None);
        packets
    }

    /// The length of the next packet of an answer, headers included; the requester gets it.
    fn answer(&mut self) -> Option<usize> {
        let sent = self
            .other
            .poll_transmit(NOW, AckMode::Flush, &mut self.its_memory)?;
        let payload = vec![7; sent.payload.len() as usize];
        let packet = Packet {
            header: sent.header,
            payload: &payload,
        };
        self.requester
            .handle_packet(NOW, &packet, None, &mut self.memory);
        Some(packet.header.wire_len() + payload.len())
    }
}

/// How many packets each request of a READ of `packets` asks for.
fn divided(packets: u32, abilities: PeerAbilities) -> Vec<u32> {
    let mut pair = Pair::new(abilities);
    pair.post_read(packets * MTU_BYTES);
    std::iter::from_fn(|| pair.ask().map(|bytes| bytes / MTU_BYTES)).collect()
}

#[test]
fn a_short_read_is_asked_for_in_pairs() {
    assert_eq!(divided(1, GAINS), [1]);
    assert_eq!(divided(2, GAINS), [2]);
    assert_eq!(divided(3, GAINS), [2, 1]);
    assert_eq!(divided(4, GAINS), [2, 2]);
    assert_eq!(divided(16, GAINS), [2; 8]);
}

#[test]
fn long_reads_and_reads_from_other_devices_are_not_divided() {
    assert_eq!(divided(17, GAINS), [17]);
    assert_eq!(divided(4, PeerAbilities::empty()), [4]);
}

#[test]
fn the_packets_of_its_answer_have_one_length() {
    let mut pair = Pair::new(GAINS);
    pair.post_read(16 * MTU_BYTES);
    while pair.ask().is_some() {}
    let lengths: Vec<usize> = std::iter::from_fn(|| pair.answer()).collect();
    assert_eq!(lengths, [lengths[0]; 16]);
    let completion = pair.requester.poll_completion().expect("it is complete");
    assert_eq!(completion.wr_id, 7);
    assert_eq!(pair.memory.bytes(pair.key)[..16 * 1024], [7; 16 * 1024]);
}

#[test]
fn of_reads_that_wait_for_each_other_as_many_go_as_may() {
    let mut pair = Pair::new(GAINS);
    (0..3).for_each(|_| pair.post_read(16 * MTU_BYTES));
    // The peer takes 16 at a time.
    assert_eq!(std::iter::from_fn(|| pair.ask()).count(), 16);
    while pair.answer().is_some() {}
    assert_eq!(std::iter::from_fn(|| pair.ask()).count(), 8);
}

fn operations(packets: &[(Header, u32)]) -> Vec<Operation> {
    let operation = |(header, _): &(Header, u32)| header.bth.opcode.operation();
    packets.iter().filter_map(operation).collect()
}

#[test]
fn packets_of_a_repeated_short_write_are_messages_of_one_length() {
    use Operation::{WriteFirst, WriteLast, WriteMiddle, WriteOnly};
    let mut pair = Pair::new(GAINS);
    let length = 3 * MTU_BYTES;
    let whole = [WriteFirst, WriteMiddle, WriteLast];
    assert_eq!(operations(&pair.write(0, length)), whole);
    // Not all of this was.
    assert_eq!(operations(&pair.write(1, length)), whole);
    let packets = pair.write(1, length);
    assert_eq!(operations(&packets), [WriteOnly; 3]);
    let asks: Vec<_> = packets
        .iter()
        .map(|(header, _)| header.bth.ack_request)
        .collect();
    assert_eq!(asks, [false, false, true]);
    for (packet, (header, len)) in (0..).zip(&packets) {
        let at = packet * u64::from(MTU_BYTES);
        let reth = Reth {
            va: pair.its_va(1 + at),
            rkey: pair.its_key,
            len: MTU_BYTES,
        };
        assert_eq!((header.reth, *len), (Some(reth), MTU_BYTES));
    }
    let (zeros, sevens) = pair
        .its_memory
        .bytes(pair.its_key)
        .split_at(1 + length as usize);
    assert!(zeros.iter().all(|&byte| byte == 0) && sevens.iter().all(|&byte| byte == 7));
}

#[test]
fn a_write_is_divided_evenly() {
    let mut pair = Pair::new(GAINS);
    pair.write(0, 16 * MTU_BYTES);
    let mut lengths = |length| -> Vec<u32> {
        let packets = pair.write(0, length);
        packets.iter().map(|(_, length)| *length).collect()
    };
    assert_eq!(lengths(2048), [1024; 2]);
    // 513 words are 3 times 171; the last of them is not full.
    assert_eq!(lengths(2049), [684, 684, 681]);
    assert_eq!(lengths(2084), [696, 696, 692]);
    let last = 16 * MTU_BYTES - 16;
    assert_eq!(lengths(last), [[1024; 15].as_slice(), &[1008]].concat());
}

/// Whether a WRITE of so many packets is as many messages, behind another that is not acknowledged
/// or with nothing in flight.
fn is_in_pieces(packets: u32, abilities: PeerAbilities, is_behind_another: bool) -> bool {
    let mut pair = Pair::new(abilities);
    let length = packets * MTU_BYTES;
    pair.write(0, length);
    if is_behind_another {
        pair.post_write(0, MTU_BYTES);
        assert!(pair.next_request().is_some());
    }
    pair.post_write(0, length);
    let sent: Vec<_> = std::iter::from_fn(|| pair.next_request()).collect();
    operations(&sent) == vec![Operation::WriteOnly; packets as usize]
}

#[test]
fn long_writes_and_those_to_other_devices_are_one_message() {
    assert!(is_in_pieces(2, GAINS, false));
    assert!(is_in_pieces(BATCH_PACKETS + 1, GAINS, false));
    assert!(!is_in_pieces(BATCH_PACKETS + 2, GAINS, false));
    assert!(!is_in_pieces(2, PeerAbilities::empty(), false));
}

#[test]
fn a_write_behind_others_is_divided_up_to_two_batches() {
    assert!(is_in_pieces(2 * BATCH_PACKETS, GAINS, true));
    assert!(!is_in_pieces(2 * BATCH_PACKETS + 1, GAINS, true));
    assert!(!is_in_pieces(2, PeerAbilities::empty(), true));
}

/// Its completion at the other end tells the length of all.
#[test]
fn a_write_with_immediate_is_one_message() {
    let mut pair = Pair::new(GAINS);
    pair.write(0, 2 * MTU_BYTES);
    let op = SendOp::WriteImm {
        va: pair.its_va(0),
        rkey: pair.its_key,
        immediate: Immediate([0; 4]),
    };
    pair.post(op, 2 * MTU_BYTES);
    let packets: Vec<_> = std::iter::from_fn(|| pair.next_request()).collect();
    assert_eq!(
        operations(&packets),
        [Operation::WriteFirst, Operation::WriteLastImm]
    );
}
