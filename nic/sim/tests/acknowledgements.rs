//! When an acknowledgement goes that may wait for company.

mod support;

use std::iter;

use support::pair::*;
use support::scenario::PD;
use urxe_proto::{
    ACK_HOLD_NS, AckMode, CompletionKind, RecvRequest, SendData, SendOp, SendRequest, Sge,
};
use urxe_sim::Rights;
use urxe_wire::{Operation, Packet};

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
fn it_waits_longer_only_for_a_host_that_has_replied() {
    let mut pair = Pair::new();
    assert_eq!(pair.wait_ns(), 0);
    for _ in 0..3 {
        pair.exchange();
    }
    for expected in [2_000, 1_000, 500, 0, 0] {
        assert_eq!(pair.wait_ns(), expected);
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
fn what_is_owed_leaves_before_a_reply_behind_earlier_requests() {
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
fn a_possible_reply_brings_an_acknowledgement_unasked() {
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

/// The first of a message of several packets has no acknowledgement, which would be there long
/// before the rest.
#[test]
fn a_replys_last_packet_brings_the_acknowledgement_also_resent() {
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
fn an_atomics_answer_leaves_before_a_reply_a_reads_need_not() {
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

/// An attacker that does not see the packets of a connection has to guess their PSN.
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
