//! What the rounds of a program that polls send: in time that the test makes pass, where no other
//! thread moves anything.

use urxe_proto::{CompletionKind, SendOp, WcStatus};

use super::alone::{connected, write};
use crate::objects::qp::Qp;
use crate::process::clock::staged::Clock;
use crate::support::{End, post, post_recv, post_unsignaled};

const LEN: usize = 64;

/// Polls once. How many completions there were.
fn poll(end: &End) -> usize {
    end.cq.poll(16, |completion| {
        assert_eq!(completion.status, WcStatus::Success)
    })
}

/// Posts a message for which the receiver has room.
fn send(ends: &[End; 2], qps: &[Qp; 2], from: usize) {
    post_recv(&qps[1 - from], 0, &[ends[1 - from].sge(0, LEN)]);
    post(&qps[from], 0, SendOp::Send, &[ends[from].sge(0, LEN)]);
}

#[test]
fn the_first_poll_in_vain_sends_what_is_owed() {
    let _clock = Clock::new();
    let (ends, qps) = connected(LEN);
    for _ in 0..100 {
        send(&ends, &qps, 0);
        assert_eq!(poll(&ends[1]), 1, "loopback delivers at once");
        assert_eq!(poll(&ends[1]), 0);
        assert_eq!(poll(&ends[0]), 1, "the acknowledgement has come");
    }
}

/// Programs are state machines that completions advance.
#[test]
fn a_reply_acknowledges_its_message_in_its_only_packet() {
    let _clock = Clock::new();
    let (ends, qps) = connected(LEN);
    // They hear of each other.
    for from in [0, 1] {
        send(&ends, &qps, from);
        (0..2).for_each(|_| ends.iter().for_each(|end| _ = poll(end)));
    }
    let mut from = 0;
    send(&ends, &qps, from);
    for _ in 0..100 {
        let to = 1 - from;
        let mut seen = Vec::new();
        ends[to]
            .cq
            .poll(16, |completion| seen.push(completion.kind));
        assert_eq!(seen.pop(), Some(CompletionKind::Recv));
        assert!(seen.len() <= 1, "{seen:?} before");
        let before = ends[to].nic.stats();
        send(&ends, &qps, to);
        let after = ends[to].nic.stats();
        assert_eq!(after.tx_packets - before.tx_packets, 1);
        let mut seen = Vec::new();
        ends[from]
            .cq
            .poll(1, |completion| seen.push(completion.kind));
        assert_eq!(seen, [CompletionKind::Send], "its message is done");
        from = to;
    }
}

#[test]
fn messages_without_completions_share_acknowledgements() {
    const MESSAGES: u64 = 1_000;
    let _clock = Clock::new();
    let (ends, qps) = connected(LEN);
    for _ in 0..MESSAGES {
        for (from, to) in [(0, 1), (1, 0)] {
            post_recv(&qps[to], 0, &[ends[to].sge(0, LEN)]);
            post_unsignaled(&qps[from], SendOp::Send, &[ends[from].sge(0, LEN)]);
            assert_eq!(poll(&ends[to]), 1, "loopback delivers at once");
        }
    }
    for end in &ends {
        let packets = end.nic.stats().tx_packets;
        // One in 32.
        assert!(packets < MESSAGES + MESSAGES / 16, "{packets}");
    }
}

#[test]
fn messages_of_a_program_that_polls_share_system_calls() {
    const BURST: usize = 64;
    let _clock = Clock::new();
    let (ends, qps) = connected(LEN);
    let burst = || {
        let before = ends[0].nic.stats().tx_batches;
        (0..BURST).for_each(|_| write(&ends[0], &qps[0], &ends[1], LEN));
        let calls = ends[0].nic.stats().tx_batches - before;
        let mut done = 0;
        while done < BURST {
            poll(&ends[1]);
            done += poll(&ends[0]);
        }
        calls
    };
    // In the first one it is not known yet to post many.
    burst();
    for _ in 0..100 {
        let calls = burst();
        assert!(calls <= 4, "{calls} for {BURST} messages");
    }
}
