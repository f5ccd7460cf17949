//! How streams end, and what comes of a queue pair then.

mod support;

use support::victim::{prepared, send, sent};
use support::{Host, Pair, TERMS};
use urxe_iwarp::{CLOSE_TIMEOUT_NS, StreamAction};
use urxe_iwarp_wire::Untagged;
use urxe_proto::{AttrMask, Attributes, Instant, QpState, SendOp, WcStatus};
use urxe_sim::Rights;

fn set_state(host: &mut Host, state: QpState) {
    let wanted = Attributes {
        state,
        ..Attributes::new()
    };
    host.modify(&wanted, AttrMask::STATE);
}

#[test]
fn a_peer_that_takes_nothing_more_does_not_hold_the_stream_for_ever() {
    let mut pair = Pair::plain(3);
    let source = pair.hosts[0].register(Rights::ALL, vec![1; 5000]);
    let all = pair.hosts[0].sge(source, 0, 5000);
    let now = Instant::from_nanos(77);
    let host = &mut pair.hosts[0];
    host.post(1, SendOp::Send, &[all]);
    assert!(host.qp.poll_output(2000, &mut host.memory) > 1000);
    host.qp.handle_sent(100);
    host.qp.disconnect(&host.memory);
    let deadline = now.after(CLOSE_TIMEOUT_NS);
    for later_ns in [0, 5] {
        assert_eq!(host.qp.poll_action(now.after(later_ns)), None);
        assert_eq!(host.qp.poll_timeout(), Some(deadline));
    }
    assert!(host.qp.output().count() > 0);
    host.qp.handle_timeout(deadline);
    assert_eq!(host.qp.output().count(), 0);
    assert_eq!(host.qp.poll_action(deadline), Some(StreamAction::Close));
}

#[test]
fn the_end_of_an_old_stream_leaves_a_queue_pair_alone_that_was_reset() {
    for is_lost in [false, true] {
        let (mut pair, _) = prepared(0);
        let first = Untagged {
            is_last: false,
            ..send(1)
        };
        let host = &mut pair.hosts[1];
        host.qp
            .handle_bytes(&sent(first, &[0; 60]), None, &mut host.memory);
        set_state(host, QpState::Reset);
        set_state(host, QpState::Init);
        host.post_recv(7, &[]);
        assert!(!host.qp.connect(TERMS, 1460), "the old stream is there");
        host.qp.handle_memory_fault(&host.memory);
        host.qp.handle_placed(1, &mut host.memory);
        host.qp.handle_end(is_lost, &host.memory);
        assert_eq!(host.qp.state(), QpState::Init);
        assert_eq!(host.qp.poll_completion(), None);
        assert_eq!(host.qp.poll_event(), None);
        assert_eq!(host.qp.poll_action(pair.now), Some(StreamAction::Close));
        assert!(host.qp.connect(TERMS, 1460));
        host.qp.disconnect(&host.memory);
        let done = host.qp.poll_completion().unwrap();
        assert_eq!((done.wr_id, done.status), (7, WcStatus::WrFlush));
    }
}

#[test]
fn a_receive_of_before_a_reset_does_not_complete_after_it() {
    let (mut pair, _) = prepared(0);
    let first = Untagged {
        is_last: false,
        ..send(1)
    };
    let host = &mut pair.hosts[1];
    host.qp
        .handle_bytes(&sent(first, &[0; 60]), None, &mut host.memory);
    set_state(host, QpState::Reset);
    set_state(host, QpState::Error);
    assert_eq!(host.qp.poll_completion(), None);
}
