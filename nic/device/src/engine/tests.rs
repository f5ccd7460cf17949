use urxe_proto::WcStatus;
use urxe_wire::Mtu;

use super::turns::*;

use crate::nic::tests::alone::{connected_by, run_until_nobody_is_amid, write};
use crate::objects::qp::Qp;
use crate::process::clock::staged::Clock;
use crate::support::{End, post};

/// Two devices of which the second, with a large window, has many turns to send, and which the
/// first has `asked` for something.
fn one_with_many_turns(len: usize, ask: impl FnOnce(&[End; 2], &Qp)) -> ([End; 2], [Qp; 2]) {
    let (ends, qps) = connected_by(Mtu::B1024, len);
    for _ in 0..20 {
        write(&ends[1], &qps[1], &ends[0], len);
        run_until_nobody_is_amid(&ends);
    }
    ask(&ends, &qps[0]);
    write(&ends[1], &qps[1], &ends[0], len);
    (ends, qps)
}

/// A peer that sends as much heard nothing until the window was full: on a slow link it stood still
/// for 10 ms.
#[test]
fn an_acknowledgement_leaves_between_turns_of_requests() {
    const LEN: usize = 4 << 20;
    // On a busy machine the peer would ask again, and send less.
    let _clock = Clock::new();
    let (ends, _qps) = one_with_many_turns(LEN, |ends, qp| write(&ends[0], qp, &ends[1], LEN));
    let [left, right] = ends.each_ref().map(|end| &end.nic);
    let mut turns = 0;
    while left.stats().tx_packets > right.stats().rx_packets {
        let before = right.stats().tx_packets;
        right.run_looking();
        turns = (right.stats().tx_packets - before) / u64::from(PACKETS_PER_TURN);
    }
    let owes = right
        .engine()
        .qps
        .iter()
        .any(|slot| slot.qp.owes_response());
    assert!(turns > 0, "the window was full");
    assert!(!owes);
}

/// It was not while requests kept coming, and gave up.
#[test]
fn a_peer_that_reads_is_answered_between_turns_of_requests() {
    const LEN: usize = 4 << 20;
    const READ: usize = 64 << 10;
    let (ends, _qps) = one_with_many_turns(LEN, |ends, qp| {
        post(qp, 7, ends[1].read_op(0), &[ends[0].sge(0, READ)]);
    });
    let [left, right] = ends.each_ref().map(|end| &end.nic);
    let before = right.stats().tx_packets;
    let mut has_read = false;
    while !has_read {
        right.run_looking();
        left.run_looking();
        ends[0].cq.poll(1, |completion| {
            assert_eq!(completion.status, WcStatus::Success);
            has_read = true;
        });
        let sent = right.stats().tx_packets - before;
        assert!(sent < 2 << 10, "half of a message was sent meanwhile");
    }
}

#[test]
fn windows_share_what_is_theirs_of_the_buffer() {
    const MIB: usize = 1 << 20;
    let share = |buffer_mib, senders| window_share_bytes(buffer_mib * MIB, senders) as usize;
    assert_eq!(share(96, 0), MIB);
    assert_eq!(share(96, 16), MIB);
    assert_eq!(share(96, 64), MIB / 4);
    assert_eq!(share(8, 64), MIB / 16, "of a small buffer a half");
}
