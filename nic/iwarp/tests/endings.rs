//! How streams end, and what comes of a queue pair then.

mod support;

use support::forge::{terminate_of, untagged, write};
use support::victim::{atomic, prepared, send, sent, written};
use support::{Host, Pair, TERMS};
use urxe_iwarp::{CLOSE_TIMEOUT_NS, StreamAction};
use urxe_iwarp_wire::{Fault, Opcode, Queue, Tagged, Untagged};
use urxe_proto::{AttrMask, Attributes, Instant, QpEvent, QpState, SendOp, WcStatus};
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
    host.qp.handle_timeout(deadline, &host.memory);
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

#[test]
fn a_terminate_that_makes_no_sense_is_not_answered() {
    let good = untagged(Opcode::Terminate, Queue::Terminate, 1);
    let bad = [
        Untagged { msn: 2, ..good },
        Untagged { offset: 4, ..good },
        Untagged { queue: 0, ..good },
        Untagged { queue: 9, ..good },
        Untagged {
            is_last: false,
            ..good
        },
    ];
    let mut all: Vec<_> = bad.iter().map(|header| sent(*header, &[0; 4])).collect();
    all.push(sent(good, &[0; 200]));
    all.push(sent(good, &[0; 3]));
    let tagged = Tagged {
        control: Opcode::Terminate.emit(),
        ..write(0, 0)
    };
    all.push(written(tagged, &[0; 4]));
    for (n, bytes) in all.iter().enumerate() {
        let (mut pair, _) = prepared(0);
        pair.inject(0, bytes);
        pair.run();
        let host = &pair.hosts[1];
        assert_eq!(terminate_of(&pair), None, "{n}");
        assert_eq!(host.qp.state(), QpState::Error, "{n}");
        assert_eq!(host.events.last(), Some(&QpEvent::Fatal), "{n}");
        let stats = host.qp.stats();
        assert_eq!(
            (stats.terminates_received, stats.terminates_sent),
            (1, 0),
            "{n}"
        );
        let mut done = host.completions.iter();
        assert!(done.all(|done| done.status == WcStatus::WrFlush), "{n}");
        assert!(host.is_closed, "{n}");
    }
}

#[test]
fn a_terminate_does_not_have_the_header_of_the_segment_before() {
    let (mut pair, keys) = prepared(0);
    let host = &mut pair.hosts[1];
    let write = written(write(keys.all, keys.va), &[1; 8]);
    host.qp.handle_bytes(&write, None, &mut host.memory);
    // More was read to memory than there was room for: there was none.
    host.qp.handle_placed(1, &mut host.memory);
    pair.run();
    let expected = (Fault::DdpCatastrophic, false, false);
    assert_eq!(terminate_of(&pair), Some(expected));
}

#[test]
fn what_cannot_be_answered_any_more_is_named() {
    let expected = Some((Fault::ProtectionInvalidStag, true, true));
    let (mut pair, keys) = prepared(0);
    let host = &mut pair.hosts[1];
    let request = atomic(keys.all, keys.va);
    host.qp.handle_bytes(&request, None, &mut host.memory);
    host.memory.0.deregister(keys.all);
    pair.run();
    assert_eq!(terminate_of(&pair), expected);

    let mut pair = Pair::plain(5);
    let target = pair.hosts[0].register(Rights::ALL, vec![0; 200_000]);
    let source = pair.hosts[1].register(Rights::ALL, vec![1; 200_000]);
    let read = SendOp::Read {
        va: pair.hosts[1].memory.0.va(source, 0),
        rkey: source,
    };
    for (wr_id, len) in [(1, 100), (2, 200_000), (3, 100)] {
        let place = pair.hosts[0].sge(target, 0, len);
        pair.hosts[0].post(wr_id, read, &[place]);
    }
    while pair.written[1].len() < 20_000 {
        assert!(!pair.run_for(1));
    }
    pair.hosts[1].memory.0.deregister(source);
    pair.run();
    assert_eq!(terminate_of(&pair), expected);
    let done = pair.hosts[0].completions.iter();
    let statuses: Vec<_> = done.map(|done| (done.wr_id, done.status)).collect();
    let expected = [
        (1, WcStatus::Success),
        (2, WcStatus::RemoteAccess),
        (3, WcStatus::WrFlush),
    ];
    assert_eq!(statuses, expected);
}
