//! When an acknowledgement goes that may wait for company.

mod support;

use support::queue_pair::queue_pair;
use urxe_proto::{
    ACK_HOLD_NS, AckMode, Instant, QpType, QueuePair, RecvRequest, SendData, SendOp, SendRequest,
    SendTarget, Transmit,
};
use urxe_sim::VecMemory;
use urxe_wire::{Operation, Packet, Psn, Qpn};

/// When it all happens: nothing is held so long that it is late.
const NOW: Instant = Instant::from_nanos(1);

/// Two queue pairs that exchange empty messages.
struct Pair {
    left: QueuePair,
    right: QueuePair,
    memory: VecMemory,
}

fn send(qp: &mut QueuePair) {
    qp.post_send(&SendRequest {
        wr_id: 0,
        op: SendOp::Send,
        data: SendData::Sges(&[]),
        signaled: true,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    })
    .unwrap();
}

/// The next packet goes from one to the other, if there is one. What it is.
fn carry(
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
    fn new() -> Self {
        let (left, right) = (Qpn::new(0x11), Qpn::new(0x12));
        let of = |number, peer| queue_pair(number, peer, QpType::Rc, Psn::new(0), 0);
        Self {
            left: of(left, right),
            right: of(right, left),
            memory: VecMemory::default(),
        }
    }

    /// A message from left to right, which owes an acknowledgement then.
    fn ask(&mut self) {
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
    fn answer(&mut self, now: Instant, mode: AckMode) -> Option<Operation> {
        carry(&mut self.right, &mut self.left, now, mode, &mut self.memory)
    }

    /// A message each way; the acknowledgement goes behind the reply.
    fn exchange(&mut self) {
        self.ask();
        send(&mut self.right);
        assert_eq!(self.answer(NOW, AckMode::Flush), Some(Operation::SendOnly));
        assert_eq!(
            self.answer(NOW, AckMode::Flush),
            Some(Operation::Acknowledge)
        );
        let back = carry(
            &mut self.left,
            &mut self.right,
            NOW,
            AckMode::Flush,
            &mut self.memory,
        );
        assert_eq!(back, Some(Operation::Acknowledge));
    }

    /// How many looks in vain the next acknowledgement waits.
    fn looks(&mut self) -> usize {
        self.ask();
        (1..100)
            .find(|_| self.answer(NOW, AckMode::Idle).is_some())
            .expect("it goes some time")
    }
}

#[test]
fn it_goes_at_the_first_look_in_vain() {
    let mut pair = Pair::new();
    pair.ask();
    assert_eq!(pair.answer(NOW, AckMode::Hold), None);
    assert_eq!(
        pair.answer(NOW, AckMode::Idle),
        Some(Operation::Acknowledge)
    );
}

#[test]
fn it_waits_longer_for_who_has_replied_and_no_longer_for_who_has_not() {
    let mut pair = Pair::new();
    assert_eq!(pair.looks(), 1);
    for _ in 0..3 {
        pair.exchange();
    }
    for expected in [8, 4, 2, 1, 1] {
        assert_eq!(pair.looks(), expected);
    }
}

#[test]
fn however_often_replies_came_it_waits_no_longer_than_promised() {
    let mut pair = Pair::new();
    for _ in 0..10 {
        pair.exchange();
    }
    pair.ask();
    let just_before = NOW.after(ACK_HOLD_NS - 1);
    assert_eq!(pair.answer(just_before, AckMode::Hold), None);
    assert_eq!(pair.right.poll_timeout(), Some(NOW.after(ACK_HOLD_NS)));
    assert_eq!(
        pair.answer(NOW.after(ACK_HOLD_NS), AckMode::Hold),
        Some(Operation::Acknowledge)
    );
}

/// Which of `count` messages that are posted at once ask for an acknowledgement.
fn asking(count: usize) -> Vec<usize> {
    let mut pair = Pair::new();
    for _ in 0..count {
        send(&mut pair.left);
    }
    (0..count)
        .filter(|_| {
            let packet = pair
                .left
                .poll_transmit(NOW, AckMode::Hold, &mut pair.memory);
            packet.unwrap().header.bth.ack_request
        })
        .collect()
}

#[test]
fn who_posts_far_ahead_asks_now_and_then_and_for_the_last_messages() {
    assert_eq!(asking(1), [0]);
    assert_eq!(asking(4), [0, 1, 2, 3]);
    assert_eq!(asking(12), [8, 9, 10, 11]);
    let many = asking(100);
    assert!(many.ends_with(&[96, 97, 98, 99]));
    let gaps = many.windows(2).map(|pair| pair[1] - pair[0]);
    // A quarter of the window that a connection starts with.
    assert_eq!(gaps.max(), Some(32));
}
