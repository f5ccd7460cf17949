use alloc::vec::Vec;

use urxe_wire::Qpn;

use super::*;
use crate::memory::{PdId, RemoteRange, Via};

fn read(first: u32, packets: u32) -> Reply {
    Reply::Read(ReadJob {
        first: Psn::new(first),
        via: Via {
            pd: PdId(1),
            qp: Qpn::new(5),
        },
        range: RemoteRange {
            rkey: 1,
            va: 0,
            len: packets * 1024,
        },
        packets,
        until: packets,
        sent: 0,
        msn: 1,
        repeated: false,
    })
}

#[test]
fn a_long_answer_and_many_are_a_stream() {
    let is_streaming = |replies: &[Reply]| {
        let mut acknowledger = Acknowledger::default();
        replies
            .iter()
            .for_each(|reply| acknowledger.push_reply(*reply));
        acknowledger.is_streaming()
    };
    assert!(!is_streaming(&[]));
    assert!(!is_streaming(&[read(0, ANSWER_PACKETS)]));
    assert!(is_streaming(&[read(0, ANSWER_PACKETS + 1)]));
    let in_pairs = |pairs: u32| (0..pairs).map(|pair| read(2 * pair, 2)).collect::<Vec<_>>();
    assert!(!is_streaming(&in_pairs(ANSWER_PACKETS / 2)));
    assert!(is_streaming(&in_pairs(ANSWER_PACKETS / 2 + 1)));
}

const NOW: Instant = Instant::from_nanos(1);

/// How long an owed ACK waits from then on while the host looks for packets in vain, each half a
/// microsecond.
fn wait_ns(acknowledger: &mut Acknowledger, from: Instant) -> u64 {
    let mut looks = (0..).map(|look| look * 500);
    let goes = |after: &u64| acknowledger.ack_may_go(from.after(*after), AckMode::Idle);
    let wait_ns = looks.find(goes).expect("it goes some time");
    acknowledger.note_sent();
    wait_ns
}

/// No reply can come before a message's end.
#[test]
fn what_asks_before_a_messages_end_changes_nothing_for_its_end() {
    let mut acknowledger = Acknowledger::default();
    for _ in 0..4 {
        acknowledger.owe(NOW, true);
        acknowledger.note_request();
        acknowledger.note_sent();
    }
    acknowledger.owe(NOW, false);
    assert_eq!(wait_ns(&mut acknowledger, NOW), 4_000, "as long as it paid");
    let later = NOW.after(5_000);
    for _ in 1..HOLD_MAX {
        acknowledger.owe(later, false);
    }
    assert!(!acknowledger.is_ack_pressing(later));
    acknowledger.owe(later, true);
    assert!(!acknowledger.is_ack_pressing(later));
    assert_eq!(wait_ns(&mut acknowledger, later), 4_000, "no less");
}

#[test]
fn many_that_ask_before_a_messages_end_have_one_soon() {
    let mut acknowledger = Acknowledger::default();
    for _ in 0..HOLD_MAX {
        assert!(!acknowledger.is_ack_pressing(NOW));
        acknowledger.owe(NOW, false);
    }
    assert!(acknowledger.is_ack_pressing(NOW));
}
