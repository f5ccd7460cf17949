//! When an acknowledgement goes that may wait for company.

mod support;

use std::iter;

use support::queue_pair::queue_pair;
use support::scenario::PD;
use urxe_proto::{
    ACK_HOLD_NS, AckMode, CompletionKind, Instant, QpType, QueuePair, RecvRequest, SendData,
    SendOp, SendRequest, SendTarget, Sge, Transmit,
};
use urxe_sim::{Rights, VecMemory};
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
    request(qp, SendOp::Send, true);
}

/// An empty message, or an empty READ.
fn request(qp: &mut QueuePair, op: SendOp, signaled: bool) {
    qp.post_send(&empty(op, signaled)).unwrap();
}

fn empty(op: SendOp, signaled: bool) -> SendRequest<'static> {
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

    /// A message each way; the acknowledgement goes with the reply.
    fn exchange(&mut self) {
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

/// What goes from right to left, and what the left completes.
fn exchanged(pair: &mut Pair) -> (Vec<Operation>, Vec<CompletionKind>) {
    let sent = iter::from_fn(|| pair.answer(NOW, AckMode::Hold)).collect();
    let completed = iter::from_fn(|| pair.left.poll_completion());
    (sent, completed.map(|completion| completion.kind).collect())
}

/// The program at the left counts on having the completion of its message before the reply.
#[test]
fn what_is_owed_leaves_before_a_reply_and_behind_what_was_posted_earlier() {
    use {CompletionKind as Kind, Operation as O};
    let cases = [
        (
            Pair::new(),
            &[O::SendOnly, O::Acknowledge, O::SendOnly][..],
            [Kind::Recv, Kind::Send, Kind::Recv],
        ),
        // In the header of whatever leaves next.
        (
            of_our_kind(),
            &[O::SendOnly, O::SendOnly],
            [Kind::Send, Kind::Recv, Kind::Recv],
        ),
    ];
    for (mut pair, sent, completed) in cases {
        let empty = RecvRequest {
            wr_id: 0,
            sges: &[],
        };
        pair.left.post_recv(&empty).unwrap();
        send(&mut pair.right);
        pair.ask();
        send(&mut pair.right);
        assert_eq!(exchanged(&mut pair), (sent.to_vec(), completed.to_vec()));
    }
}

#[test]
fn what_may_be_a_reply_brings_an_acknowledgement_that_was_not_asked_for() {
    for mut pair in [Pair::new(), of_our_kind()] {
        let empty = RecvRequest {
            wr_id: 0,
            sges: &[],
        };
        pair.left.post_recv(&empty).unwrap();
        pair.right.post_recv(&empty).unwrap();
        (0..12).for_each(|_| send(&mut pair.left));
        assert!(!send_next(&mut pair, NOW), "many wait behind it");
        send(&mut pair.right);
        let (_, completed) = exchanged(&mut pair);
        assert_eq!(completed, [CompletionKind::Send, CompletionKind::Recv]);
    }
}

/// The first of a message of several packets has no acknowledgement, which would be there long before the rest.
#[test]
fn the_last_packet_of_a_reply_brings_the_acknowledgement_and_so_does_one_that_is_sent_again() {
    const LEN: usize = 2 * 1024;
    let mut pair = of_our_kind();
    pair.ask();
    let rights = Rights::default();
    let lkey = pair.memory.register(PD, rights, vec![0; LEN]);
    let sges = [Sge {
        addr: pair.memory.va(lkey, 0),
        len: LEN as u32,
        lkey,
    }];
    let reply = SendRequest {
        data: SendData::Sges(&sges),
        ..empty(SendOp::Send, true)
    };
    pair.right.post_send(&reply).unwrap();
    let mut acknowledging = |now| {
        let mut all = Vec::new();
        while let Some(sent) = pair
            .right
            .poll_transmit(now, AckMode::Hold, &mut pair.memory)
        {
            all.push(sent.header.bth.acknowledges.is_some());
        }
        if let Some(at) = pair.right.poll_timeout() {
            pair.right.handle_timeout(at);
        }
        all
    };
    assert_eq!(acknowledging(NOW), [false, true]);
    assert_eq!(acknowledging(NOW.after(1_000_000_000)), [false, true]);
}

#[test]
fn the_answer_to_an_atomic_leaves_before_a_reply_and_that_to_a_read_need_not() {
    let mut pair = Pair::new();
    let receive = RecvRequest {
        wr_id: 0,
        sges: &[],
    };
    (0..2).for_each(|_| pair.left.post_recv(&receive).unwrap());
    request(&mut pair.left, SendOp::Read { va: 0, rkey: 0 }, true);
    send_next(&mut pair, NOW);
    send(&mut pair.right);
    for expected in [Operation::SendOnly, Operation::ReadResponseOnly] {
        assert_eq!(pair.answer(NOW, AckMode::Hold), Some(expected));
    }
    let counter = vec![0; 8];
    let rkey = pair.memory.register(PD, Rights::ALL, counter);
    let va = pair.memory.va(rkey, 0);
    let sges = [Sge {
        addr: va,
        len: 8,
        lkey: rkey,
    }];
    let add = SendRequest {
        data: SendData::Sges(&sges),
        ..empty(SendOp::FetchAdd { va, rkey, add: 1 }, true)
    };
    pair.left.post_send(&add).unwrap();
    // The acknowledgement of the first message, and the atomic.
    (0..2).for_each(|_| _ = send_next(&mut pair, NOW));
    send(&mut pair.right);
    for expected in [Operation::AtomicAcknowledge, Operation::SendOnly] {
        assert_eq!(pair.answer(NOW, AckMode::Hold), Some(expected));
    }
}

/// Who does not see the packets of a connection has to guess their PSN.
#[test]
fn an_acknowledgement_in_a_packet_from_far_away_is_not_believed() {
    for (ahead, is_believed) in [(0, true), (100, true), (1_000, false), (0xff_ff00, false)] {
        let mut pair = of_our_kind();
        pair.ask();
        send(&mut pair.right);
        let sent = pair
            .right
            .poll_transmit(NOW, AckMode::Hold, &mut pair.memory);
        let mut header = sent.unwrap().header;
        assert!(header.bth.acknowledges.is_some());
        header.bth.psn = header.bth.psn.add(ahead);
        let packet = Packet {
            header,
            payload: &[],
        };
        pair.left
            .handle_packet(NOW, &packet, None, &mut pair.memory);
        let completed = pair.left.poll_completion();
        let is_sent = completed.is_some_and(|done| done.kind == CompletionKind::Send);
        assert_eq!(is_sent, is_believed, "{ahead} ahead");
    }
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

/// Two of our kind, which know of each other.
fn of_our_kind() -> Pair {
    let mut pair = Pair::new();
    for end in [&mut pair.left, &mut pair.right] {
        end.set_keeps_early(true);
    }
    pair
}

/// The same, and the left knows how long a round trip takes.
fn acquainted() -> Pair {
    let mut pair = of_our_kind();
    assert!(ask_quietly(&mut pair, NOW), "nothing is known yet");
    let answer = pair.answer(NOW, AckMode::Flush);
    assert_eq!(answer, Some(Operation::Acknowledge));
    pair
}

/// A message from left to right at `now`, of which the left wants no completion. Whether it asks for an acknowledgement.
fn ask_quietly(pair: &mut Pair, now: Instant) -> bool {
    let empty = RecvRequest {
        wr_id: 0,
        sges: &[],
    };
    pair.right.post_recv(&empty).unwrap();
    request(&mut pair.left, SendOp::Send, false);
    send_next(pair, now)
}

/// The left's next packet goes. Whether it asks for an acknowledgement.
fn send_next(pair: &mut Pair, now: Instant) -> bool {
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

#[test]
fn of_messages_without_completions_one_in_many_asks() {
    let mut pair = acquainted();
    for _ in 0..3 {
        for before in 0..31 {
            assert!(!ask_quietly(&mut pair, NOW));
            assert_eq!(
                pair.left.awaits_answer(),
                before >= 6,
                "so much is soon asked for"
            );
            assert!(!pair.left.is_streaming());
        }
        assert!(ask_quietly(&mut pair, NOW) && pair.left.awaits_answer());
        let answer = pair.answer(NOW, AckMode::Flush);
        assert_eq!(answer, Some(Operation::Acknowledge));
        assert!(!pair.left.awaits_answer(), "it covers them all");
    }
}

#[test]
fn messages_behind_many_that_do_not_ask_are_a_stream() {
    let mut pair = acquainted();
    for _ in 0..31 {
        assert!(!ask_quietly(&mut pair, NOW));
    }
    for _ in 0..7 {
        assert!(ask_quietly(&mut pair, NOW) && !pair.left.is_streaming());
    }
    assert!(ask_quietly(&mut pair, NOW) && pair.left.is_streaming());
}

#[test]
fn no_packet_of_a_message_without_a_completion_asks_unless_many_are_in_flight() {
    const PACKETS: u32 = 5;
    const LEN: u32 = PACKETS * 1024;
    let mut pair = acquainted();
    let lkey = pair
        .memory
        .register(PD, Rights::default(), vec![0; LEN as usize]);
    let addr = pair.memory.va(lkey, 0);
    let sge = Sge {
        addr,
        len: LEN,
        lkey,
    };
    for message in 0..8 {
        pair.left
            .post_send(&SendRequest {
                data: SendData::Sges(&[sge]),
                ..empty(SendOp::Send, false)
            })
            .unwrap();
        let asking = (0..PACKETS).filter(|_| {
            let packet = pair
                .left
                .poll_transmit(NOW, AckMode::Hold, &mut pair.memory);
            packet.unwrap().header.bth.ack_request
        });
        assert_eq!(asking.count() > 0, message >= 5, "message {message}");
    }
}

#[test]
fn messages_without_completions_do_not_keep_one_waiting_that_was_posted_before_them() {
    for behind in [4, 10, 20] {
        let mut pair = acquainted();
        for signaled in iter::once(true).chain(iter::repeat_n(false, behind)) {
            let empty = RecvRequest {
                wr_id: 0,
                sges: &[],
            };
            pair.right.post_recv(&empty).unwrap();
            request(&mut pair.left, SendOp::Send, signaled);
        }
        let asking = (0..=behind).filter(|_| send_next(&mut pair, NOW));
        assert!(asking.count() > 0, "{behind} messages behind it");
        let answer = pair.answer(NOW, AckMode::Flush);
        assert_eq!(answer, Some(Operation::Acknowledge));
    }
}

#[test]
fn a_message_behind_a_stream_asks() {
    let mut pair = acquainted();
    for _ in 0..12 {
        send(&mut pair.left);
    }
    for _ in 0..12 {
        pair.left
            .poll_transmit(NOW, AckMode::Hold, &mut pair.memory);
    }
    assert!(pair.left.is_streaming());
    assert!(ask_quietly(&mut pair, NOW));
}

/// How many packets may be in flight after so many that nobody asked an acknowledgement for went unanswered.
fn window_after_silence(quiet: usize) -> usize {
    let mut pair = acquainted();
    for _ in 0..quiet {
        assert!(!ask_quietly(&mut pair, NOW));
    }
    let probe = pair.left.poll_timeout().unwrap();
    pair.left.handle_timeout(probe);
    for _ in quiet..200 {
        request(&mut pair.left, SendOp::Send, false);
    }
    let Pair { left, memory, .. } = &mut pair;
    (0..200)
        .take_while(|_| left.poll_transmit(probe, AckMode::Hold, memory).is_some())
        .count()
}

#[test]
fn many_that_went_unanswered_were_lost_though_they_did_not_ask() {
    let window = window_after_silence(3);
    assert!(window_after_silence(10) < window, "{window} after few");
}

#[test]
fn what_was_not_asked_for_goes_when_it_is_old_or_the_last_thing_that_is_said() {
    let end = NOW.after(ACK_HOLD_NS);
    let mut pair = acquainted();
    assert!(!ask_quietly(&mut pair, NOW));
    assert!(!pair.right.owes_response(), "to nobody who waits");
    assert_eq!(pair.right.poll_retry_timeout(), Some(end));
    for mode in [AckMode::Hold, AckMode::Idle] {
        assert_eq!(pair.answer(NOW.after(ACK_HOLD_NS - 1), mode), None);
    }
    let along = NOW.after(ACK_HOLD_NS / 2 - 1);
    assert_eq!(pair.answer(along, AckMode::Flush), None);
    assert_eq!(
        pair.answer(end, AckMode::Hold),
        Some(Operation::Acknowledge)
    );
    assert_eq!(pair.right.poll_retry_timeout(), None);
    assert!(!ask_quietly(&mut pair, end));
    assert_eq!(pair.answer(end, AckMode::All), Some(Operation::Acknowledge));
    assert!(!ask_quietly(&mut pair, end));
    let along = end.after(ACK_HOLD_NS / 2);
    assert_eq!(
        pair.answer(along, AckMode::Flush),
        Some(Operation::Acknowledge),
        "with something that is sent"
    );
}

#[test]
fn who_waits_for_a_completion_or_has_another_kind_of_peer_asks() {
    let mut pair = Pair::new();
    assert!(ask_quietly(&mut pair, NOW), "it may not be of our kind");
    let mut pair = acquainted();
    assert!(!ask_quietly(&mut pair, NOW));
    pair.ask();
    let answer = pair.answer(NOW, AckMode::Flush);
    assert_eq!(answer, Some(Operation::Acknowledge));
    assert!(!pair.left.awaits_answer());
}

#[test]
fn who_was_late_is_asked_for_a_while() {
    const WHILE_NS: u64 = 100_000_000;
    let mut pair = acquainted();
    assert!(!ask_quietly(&mut pair, NOW));
    let probe = pair.left.poll_timeout().unwrap();
    pair.left.handle_timeout(probe);
    assert!(send_next(&mut pair, probe), "what is sent again asks");
    let answer = |pair: &mut Pair, now| pair.answer(now, AckMode::Flush);
    assert_eq!(answer(&mut pair, probe), Some(Operation::Acknowledge));
    let until = probe.after(WHILE_NS);
    for now in [probe, probe.after(WHILE_NS - 1)] {
        assert!(ask_quietly(&mut pair, now));
        assert_eq!(answer(&mut pair, now), Some(Operation::Acknowledge));
    }
    assert!(!ask_quietly(&mut pair, until));
    assert_eq!(
        pair.left.stats().probes,
        1,
        "the others were answered in time"
    );
}

#[test]
fn a_read_has_its_answer_and_an_acknowledgement_only_once_that_is_old() {
    let mut pair = acquainted();
    let read = SendOp::Read { va: 0, rkey: 0 };
    for _ in 0..3 {
        request(&mut pair.left, read, true);
        send_next(&mut pair, NOW);
        let answer = pair.answer(NOW, AckMode::Flush);
        assert_eq!(answer, Some(Operation::ReadResponseOnly));
        for mode in [AckMode::Idle, AckMode::Flush] {
            assert_eq!(pair.answer(NOW, mode), None);
        }
    }
    let end = NOW.after(ACK_HOLD_NS);
    assert_eq!(
        pair.answer(end, AckMode::Hold),
        Some(Operation::Acknowledge),
        "the answer may be lost"
    );
}
