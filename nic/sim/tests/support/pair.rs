//! Two connected queue pairs whose packets a test carries by hand.

use super::queue_pair::queue_pair;
use urxe_proto::{
    AckMode, Instant, PeerAbilities, QpType, QueuePair, RecvRequest, SendData, SendOp, SendRequest,
    SendTarget, Transmit,
};
use urxe_sim::VecMemory;
use urxe_wire::{Operation, Packet, Psn, Qpn};

/// When it all happens: nothing is held so long that it is late.
pub const NOW: Instant = Instant::from_nanos(1);

/// Two queue pairs that exchange empty messages.
pub struct Pair {
    pub left: QueuePair,
    pub right: QueuePair,
    pub memory: VecMemory,
}

pub fn send(qp: &mut QueuePair) {
    request(qp, SendOp::Send, true);
}

/// An empty message, or an empty READ.
pub fn request(qp: &mut QueuePair, op: SendOp, signaled: bool) {
    qp.post_send(&empty(op, signaled)).unwrap();
}

pub fn empty(op: SendOp, signaled: bool) -> SendRequest<'static> {
    SendRequest {
        wr_id: 0,
        op,
        data: SendData::Sges(&[]),
        signaled,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    }
}

/// The next packet goes from one to the other, if there is one. What it is.
pub fn carry(
    from: &mut QueuePair,
    to: &mut QueuePair,
    now: Instant,
    mode: AckMode,
    memory: &mut VecMemory,
) -> Option<Operation> {
    let Transmit { header, .. } = from.poll_transmit(now, mode, memory)?;
    let packet = Packet {
        header,
        payload: &[],
    };
    to.handle_packet(now, &packet, None, memory);
    header.bth.opcode.operation()
}

impl Pair {
    pub fn new() -> Self {
        let (left, right) = (Qpn::new(0x11), Qpn::new(0x12));
        let of = |number, peer| queue_pair(number, peer, QpType::Rc, Psn::new(0), 0);
        Self {
            left: of(left, right),
            right: of(right, left),
            memory: VecMemory::default(),
        }
    }

    /// A message from left to right, which owes an acknowledgement then.
    pub fn ask(&mut self) {
        let empty = RecvRequest {
            wr_id: 0,
            sges: &[],
        };
        self.left.post_recv(&empty).unwrap();
        self.right.post_recv(&empty).unwrap();
        send(&mut self.left);
        let went = carry(
            &mut self.left,
            &mut self.right,
            NOW,
            AckMode::Hold,
            &mut self.memory,
        );
        assert_eq!(went, Some(Operation::SendOnly));
    }

    /// What goes from right to left, if anything.
    pub fn answer(&mut self, now: Instant, mode: AckMode) -> Option<Operation> {
        carry(&mut self.right, &mut self.left, now, mode, &mut self.memory)
    }

    /// A message each way; the acknowledgement goes with the reply.
    pub fn exchange(&mut self) {
        self.ask();
        send(&mut self.right);
        for expected in [Operation::Acknowledge, Operation::SendOnly] {
            assert_eq!(self.answer(NOW, AckMode::Flush), Some(expected));
        }
        let back = carry(
            &mut self.left,
            &mut self.right,
            NOW,
            AckMode::Flush,
            &mut self.memory,
        );
        assert_eq!(back, Some(Operation::Acknowledge));
    }

    /// How long the next acknowledgement waits while the host looks for packets in vain, each half
    /// a microsecond.
    pub fn wait_ns(&mut self) -> u64 {
        self.ask();
        (0..100)
            .map(|look| look * 500)
            .find(|after| self.answer(NOW.after(*after), AckMode::Idle).is_some())
            .expect("it goes some time")
    }
}

/// Two of our kind, which know of each other.
pub fn of_our_kind() -> Pair {
    let mut pair = Pair::new();
    for end in [&mut pair.left, &mut pair.right] {
        end.set_peer_abilities(PeerAbilities::URXE);
    }
    pair
}

/// The same, and the left knows how long a round trip takes.
pub fn acquainted() -> Pair {
    let mut pair = of_our_kind();
    assert!(ask_quietly(&mut pair, NOW), "nothing is known yet");
    let answer = pair.answer(NOW, AckMode::Flush);
    assert_eq!(answer, Some(Operation::Acknowledge));
    pair
}

/// A message from left to right at `now`, of which the left wants no completion. Whether it asks
/// for an acknowledgement.
pub fn ask_quietly(pair: &mut Pair, now: Instant) -> bool {
    let empty = RecvRequest {
        wr_id: 0,
        sges: &[],
    };
    pair.right.post_recv(&empty).unwrap();
    request(&mut pair.left, SendOp::Send, false);
    send_next(pair, now)
}

/// The left's next packet goes. Whether it asks for an acknowledgement.
pub fn send_next(pair: &mut Pair, now: Instant) -> bool {
    let sent = pair
        .left
        .poll_transmit(now, AckMode::Hold, &mut pair.memory)
        .unwrap();
    let packet = Packet {
        header: sent.header,
        payload: &[],
    };
    pair.right
        .handle_packet(now, &packet, None, &mut pair.memory);
    packet.header.bth.ack_request
}
