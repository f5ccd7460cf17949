//! Which packets ask for an acknowledgement, and what is acknowledged without.

mod support;

use support::pair::*;
use support::scenario::PD;
use urxe_proto::{ACK_HOLD_NS, AckMode, SendData, SendOp, SendRequest, Sge};
use urxe_sim::Rights;
use urxe_wire::Operation;

/// Whether each packet asks that the left sends now.
fn asking(pair: &mut Pair) -> Vec<bool> {
    std::iter::from_fn(|| {
        let packet = pair
            .left
            .poll_transmit(NOW, AckMode::Hold, &mut pair.memory);
        packet.map(|packet| packet.header.bth.ack_request)
    })
    .collect()
}

#[test]
fn each_message_asks_with_a_completion_or_without() {
    for mut pair in [Pair::new(), of_our_kind()] {
        for index in 0..100 {
            request(&mut pair.left, SendOp::Send, index % 2 == 0);
        }
        assert_eq!(asking(&mut pair), [true; 100]);
        assert!(pair.left.awaits_answer());
    }
}

#[test]
fn a_long_message_asks_in_its_middle_and_at_its_end() {
    const PACKETS: usize = 100;
    const LEN: u32 = PACKETS as u32 * 1024;
    let mut pair = Pair::new();
    let lkey = pair
        .memory
        .register(PD, Rights::default(), vec![0; LEN as usize]);
    let sge = Sge {
        addr: pair.memory.va(lkey, 0),
        len: LEN,
        lkey,
    };
    pair.left
        .post_send(&SendRequest {
            data: SendData::Sges(&[sge]),
            ..empty(SendOp::Send, true)
        })
        .unwrap();
    let asking = asking(&mut pair);
    assert_eq!(asking.len(), PACKETS);
    // Each quarter of the window that a connection starts with.
    let at: Vec<_> = (0..PACKETS).filter(|packet| asking[*packet]).collect();
    assert_eq!(at, [31, 63, 95, 99]);
}

#[test]
fn a_read_is_acknowledged_only_once_its_answer_is_old() {
    let mut pair = of_our_kind();
    let read = SendOp::Read { va: 0, rkey: 0 };
    for _ in 0..3 {
        request(&mut pair.left, read, true);
        send_next(&mut pair, NOW);
        let answer = pair.answer(NOW, AckMode::Flush);
        assert_eq!(answer, Some(Operation::ReadResponseOnly));
        for mode in [AckMode::Idle, AckMode::Flush] {
            assert_eq!(pair.answer(NOW.after(ACK_HOLD_NS - 1), mode), None);
        }
        assert!(!pair.right.owes_response(), "no program waits for it");
    }
    let end = NOW.after(ACK_HOLD_NS);
    assert_eq!(pair.right.poll_retry_timeout(), Some(end));
    let answer = pair.answer(end, AckMode::Hold);
    assert_eq!(answer, Some(Operation::Acknowledge), "it may be lost");
    assert_eq!(pair.right.poll_retry_timeout(), None);
    request(&mut pair.left, read, true);
    send_next(&mut pair, end);
    pair.answer(end, AckMode::Flush);
    let answer = pair.answer(end, AckMode::All);
    assert_eq!(answer, Some(Operation::Acknowledge), "the last words");
}
