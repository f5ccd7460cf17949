//! Messages without completions: when one asks for an acknowledgement.

mod support;

use std::iter;
use support::pair::*;
use support::scenario::PD;
use urxe_proto::{ACK_HOLD_NS, AckMode, RecvRequest, SendData, SendOp, SendRequest, Sge};
use urxe_sim::Rights;
use urxe_wire::Operation;

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
fn a_program_far_ahead_asks_now_and_then_and_at_its_end() {
    assert_eq!(asking(1), [0]);
    assert_eq!(asking(4), [0, 1, 2, 3]);
    assert_eq!(asking(12), [8, 9, 10, 11]);
    let many = asking(100);
    assert!(many.ends_with(&[96, 97, 98, 99]));
    let gaps = many.windows(2).map(|pair| pair[1] - pair[0]);
    // A quarter of the window that a connection starts with.
    assert_eq!(gaps.max(), Some(32));
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
fn no_packet_of_a_quiet_message_asks_unless_many_are_in_flight() {
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
fn quiet_messages_do_not_delay_one_posted_before_them() {
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

/// How many packets may be in flight after so many went unanswered that no acknowledgement was
/// asked for.
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
fn an_unasked_acknowledgement_goes_when_it_is_old_or_last() {
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
fn a_read_is_acknowledged_only_once_its_answer_is_old() {
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
