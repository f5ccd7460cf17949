//! Two queue pairs whose packets a test carries by hand.

use urxe_proto::{
    AckMode, CompletionKind, Instant, PeerAbilities, QpType, QueuePair, RecvRequest, SendData,
    SendOp, SendRequest, SendTarget, Sge, WcStatus,
};
use urxe_sim::{Rights, VecMemory};
use urxe_wire::{Aeth, Bth, Header, Opcode, Operation, Packet, Psn, Qpn, Syndrome, Transport};

use super::queue_pair::queue_pair;
use super::scenario::PD;

pub const NOW: Instant = Instant::from_nanos(1);
pub const LEFT: Qpn = Qpn::new(0x11);
pub const RIGHT: Qpn = Qpn::new(0x12);
/// The first packets of both ends.
pub const FIRST: Psn = Psn::new(0x00ff_fff0);
pub const MTU: usize = 1024;
pub const RECEIVE_BYTES: usize = 8 * MTU;

/// Two queue pairs, and a network of which a test is all there is.
pub struct Pair {
    pub left: QueuePair,
    pub right: QueuePair,
    pub memory: VecMemory,
    /// Where the left one's messages are, and the right one's receives.
    pub source: Sge,
    pub target: Sge,
}

impl Pair {
    pub fn new(qp_type: QpType) -> Self {
        let mut memory = VecMemory::default();
        let mut register = |byte, len: usize| {
            let key = memory.register(PD, Rights::ALL, vec![byte; len]);
            Sge {
                addr: memory.va(key, 0),
                len: u32::try_from(len).unwrap(),
                lkey: key,
            }
        };
        let (source, target) = (register(1, RECEIVE_BYTES), register(0, RECEIVE_BYTES));
        let of = |number, peer| queue_pair(number, peer, qp_type, FIRST, 0);
        Self {
            left: of(LEFT, RIGHT),
            right: of(RIGHT, LEFT),
            memory,
            source,
            target,
        }
    }

    /// Both know that the other is urxe.
    pub fn of_our_kind() -> Self {
        let mut pair = Self::new(QpType::Rc);
        pair.left.set_peer_abilities(PeerAbilities::URXE);
        pair.right.set_peer_abilities(PeerAbilities::URXE);
        pair
    }

    /// The left one posts a message.
    pub fn send(&mut self, len: usize) {
        let sge = Sge {
            len: u32::try_from(len).unwrap(),
            ..self.source
        };
        let request = SendRequest {
            wr_id: 0,
            op: SendOp::Send,
            data: SendData::Sges(&[sge]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.left.post_send(&request).unwrap();
    }

    pub fn receive(&mut self) {
        let request = RecvRequest {
            wr_id: 0,
            sges: &[self.target],
        };
        self.right.post_recv(&request).unwrap();
    }

    /// The next packets of the left one, whose payload is all ones.
    pub fn sent(&mut self, now: Instant) -> Vec<(Header, Vec<u8>)> {
        let mut sent = Vec::new();
        while let Some(transmit) = self
            .left
            .poll_transmit(now, AckMode::Flush, &mut self.memory)
        {
            let payload = vec![1; transmit.payload.len() as usize];
            sent.push((transmit.header, payload));
        }
        sent
    }

    pub fn bring_right(&mut self, now: Instant, header: Header, payload: &[u8]) {
        let packet = Packet { header, payload };
        self.right
            .handle_packet(now, &packet, None, &mut self.memory);
    }

    pub fn bring_left(&mut self, now: Instant, header: Header) {
        let packet = Packet {
            header,
            payload: &[],
        };
        self.left
            .handle_packet(now, &packet, None, &mut self.memory);
    }

    /// Takes what the right one has for the left one there. How many packets that was.
    pub fn answer(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(transmit) = self
            .right
            .poll_transmit(now, AckMode::Flush, &mut self.memory)
        {
            let payload: Vec<u8> = match transmit.payload {
                urxe_proto::Payload::Words(words) => {
                    words.into_iter().flat_map(u64::to_be_bytes).collect()
                }
                _ => Vec::new(),
            };
            let packet = Packet {
                header: transmit.header,
                payload: &payload,
            };
            self.left
                .handle_packet(now, &packet, None, &mut self.memory);
            count += 1;
        }
        count
    }

    /// How many messages the right one's program got.
    pub fn received(&mut self) -> usize {
        let next = || self.right.poll_completion();
        let all = std::iter::from_fn(next);
        all.filter(|completion| {
            assert_eq!(completion.status, WcStatus::Success);
            completion.kind == CompletionKind::Recv
        })
        .count()
    }

    /// A message of one packet, from end to end.
    pub fn exchange(&mut self) {
        self.receive();
        self.send(8);
        for (header, payload) in self.sent(NOW) {
            self.bring_right(NOW, header, &payload);
        }
        self.answer(NOW);
    }

    pub fn target(&self) -> &[u8] {
        self.memory.bytes(self.target.lkey)
    }
}

pub fn request(transport: Transport, operation: Operation, psn: Psn) -> Header {
    Header::new(Bth::new(Opcode::new(transport, operation), RIGHT, psn))
}

pub fn answer_of(psn: Psn, syndrome: Syndrome) -> Header {
    let opcode = Opcode::new(Transport::Rc, Operation::Acknowledge);
    let mut header = Header::new(Bth::new(opcode, LEFT, psn));
    header.aeth = Some(Aeth { syndrome, msn: 0 });
    header
}
