//! Every operation between two hosts, over streams that are cut and delayed at random.

mod support;

use support::{Host, PD, Pair, TERMS, request, responder};
use urxe_iwarp::{FirstFrame, RtrKind, Terms};
use urxe_proto::{
    CompletionKind, QpEvent, SendData, SendOp, SendRequest, WcStatus, WindowAccess, WindowBind,
    WindowType,
};
use urxe_sim::Rights;
use urxe_wire::Immediate;

fn statuses(host: &Host) -> Vec<(u64, WcStatus)> {
    let completions = host.completions.iter();
    completions.map(|done| (done.wr_id, done.status)).collect()
}

#[test]
fn atomics_of_both_hosts_add_up() {
    for seed in 0..20 {
        let mut pair = Pair::plain(seed);
        let counter = pair.hosts[1].register(Rights::ALL, vec![0; 64]);
        let results = pair.hosts[0].register(Rights::ALL, vec![0; 8 * 30]);
        let va = pair.hosts[1].memory.0.va(counter, 8);
        let add = |n| SendOp::FetchAdd {
            va,
            rkey: counter,
            add: n,
        };
        for n in 0..30 {
            let place = pair.hosts[0].sge(results, n * 8, 8);
            pair.hosts[0].post(n, add(n), &[place]);
        }
        pair.run();
        assert!(
            pair.hosts[0]
                .completions
                .iter()
                .all(|done| done.status == WcStatus::Success)
        );
        let value = |host: &Host, key, at: usize| {
            u64::from_ne_bytes(host.memory.0.bytes(key)[at..at + 8].try_into().unwrap())
        };
        assert_eq!(value(&pair.hosts[1], counter, 8), (0..30).sum());
        for n in 0..30 {
            assert_eq!(value(&pair.hosts[0], results, n * 8), (0..n as u64).sum());
        }
        let swap = |compare, swap| SendOp::CompareSwap {
            va,
            rkey: counter,
            compare,
            swap,
        };
        let place = pair.hosts[0].sge(results, 0, 8);
        pair.hosts[0].post(40, swap(1, 2), &[place]);
        pair.hosts[0].post(41, swap(435, 1 << 60), &[place]);
        pair.run();
        assert_eq!(value(&pair.hosts[1], counter, 8), 1 << 60);
        assert_eq!(value(&pair.hosts[0], results, 0), 435);
    }
}

#[test]
fn a_read_behind_an_atomic_sees_what_it_did_and_one_before_does_not() {
    for seed in 0..60 {
        let has_crc = seed % 2 == 0;
        let terms = Terms { has_crc, ..TERMS };
        let mut pair = Pair::new(seed, [terms, responder(&terms)], 1460);
        let counter = pair.hosts[1].register(Rights::ALL, vec![0; 8]);
        let results = pair.hosts[0].register(Rights::ALL, vec![0; 24]);
        let va = pair.hosts[1].memory.0.va(counter, 0);
        let rkey = counter;
        let ops = [
            SendOp::Read { va, rkey },
            SendOp::FetchAdd { va, rkey, add: 5 },
            SendOp::Read { va, rkey },
        ];
        for (n, op) in (0..).zip(ops) {
            let place = pair.hosts[0].sge(results, n * 8, 8);
            pair.hosts[0].post(n, op, &[place]);
        }
        pair.run();
        let bytes = pair.hosts[0].memory.0.bytes(results);
        let expected = [0u64, 0, 5].map(u64::to_ne_bytes).concat();
        assert_eq!(bytes, expected, "seed {seed}");
    }
}

#[test]
fn what_was_written_before_is_there_when_a_send_or_immediate_data_completes() {
    for seed in 0..30 {
        let mut pair = Pair::plain(seed);
        let source = pair.hosts[0].register(Rights::ALL, vec![7; 20_000]);
        let target = pair.hosts[1].register(Rights::ALL, vec![0; 20_000]);
        let va = pair.hosts[1].memory.0.va(target, 0);
        let all = pair.hosts[0].sge(source, 0, 20_000);
        pair.hosts[1].post_recv(1, &[]);
        pair.hosts[1].post_recv(2, &[]);
        let immediate = Immediate([1, 2, 3, 4]);
        let write = SendOp::WriteImm {
            va,
            rkey: target,
            immediate,
        };
        let (rkey, mut order) = (target, Vec::new());
        pair.hosts[0].post(0, SendOp::Write { va, rkey }, &[all]);
        pair.hosts[0].post(1, SendOp::Send, &[]);
        pair.hosts[0]
            .qp
            .post_send(&SendRequest {
                solicited: true,
                ..request(2, write, &[all])
            })
            .unwrap();
        pair.run();
        for done in &pair.hosts[1].completions {
            order.push((
                done.wr_id,
                done.kind,
                done.byte_len,
                done.immediate,
                done.solicited,
            ));
        }
        let expected = [
            (1, CompletionKind::Recv, 0, None, false),
            (
                2,
                CompletionKind::RecvWriteImm,
                20_000,
                Some(immediate),
                true,
            ),
        ];
        assert_eq!(order, expected, "seed {seed}");
        assert!(
            pair.hosts[1]
                .memory
                .0
                .bytes(target)
                .iter()
                .all(|byte| *byte == 7)
        );
    }
}

#[test]
fn a_send_invalidates_and_a_window_is_bound_and_invalidated() {
    let mut pair = Pair::plain(5);
    let region = pair.hosts[1].register(Rights::ALL, vec![0; 4096]);
    let window = pair.hosts[1].memory.0.alloc_window(PD, WindowType::Type2) + 1;
    let bind = WindowBind {
        rkey: window,
        lkey: region,
        addr: pair.hosts[1].memory.0.va(region, 0),
        len: 4096,
        access: WindowAccess::REMOTE_WRITE,
    };
    // Something has to come before the responder may send; it may bind then, too.
    pair.hosts[1].post_recv(1, &[]);
    pair.hosts[0].post(1, SendOp::Send, &[]);
    pair.hosts[1].post(2, SendOp::BindWindow(bind), &[]);
    pair.run();
    let inline = SendRequest {
        data: SendData::Inline(b"by the window"),
        ..request(
            3,
            SendOp::Write {
                va: bind.addr,
                rkey: window,
            },
            &[],
        )
    };
    pair.hosts[0].qp.post_send(&inline).unwrap();
    pair.hosts[1].post_recv(4, &[]);
    pair.hosts[0].post(5, SendOp::SendInvalidate { rkey: window }, &[]);
    pair.run();
    assert_eq!(
        &pair.hosts[1].memory.0.bytes(region)[..13],
        b"by the window"
    );
    let last = pair.hosts[1].completions.last().unwrap();
    assert_eq!((last.wr_id, last.invalidated_rkey), (4, Some(window)));
    // It is invalid now, so that it cannot be invalidated again.
    pair.hosts[1].post(6, SendOp::LocalInvalidate { rkey: window }, &[]);
    pair.run();
    let last = pair.hosts[1].completions.last().unwrap();
    assert_eq!((last.wr_id, last.status), (6, WcStatus::MwBind));
}

#[test]
fn a_responder_waits_for_the_first_frame_of_the_initiator() {
    for rtr in [None, Some(RtrKind::Write), Some(RtrKind::Read)] {
        let first = rtr.map_or(FirstFrame::Free, FirstFrame::Send);
        let terms = Terms { first, ..TERMS };
        let mut pair = Pair::new(1, [terms, responder(&terms)], 1460);
        pair.hosts[0].post_recv(1, &[]);
        pair.hosts[1].post(2, SendOp::Send, &[]);
        pair.run();
        let expected: &[_] = if rtr.is_some() {
            &[(1, WcStatus::Success)]
        } else {
            &[]
        };
        assert_eq!(statuses(&pair.hosts[0]), expected, "{rtr:?}");
        if rtr.is_none() {
            assert!(pair.written[1].is_empty());
            pair.hosts[1].post_recv(3, &[]);
            pair.hosts[0].post(4, SendOp::Send, &[]);
            pair.run();
        }
        assert_eq!(pair.hosts[1].events, [QpEvent::CommunicationEstablished]);
        let is_done = |done: &(u64, WcStatus)| *done == (2, WcStatus::Success);
        assert!(statuses(&pair.hosts[1]).iter().any(is_done));
    }
}

#[test]
fn no_more_reads_are_outstanding_than_the_peer_answers() {
    // The peer would end the connection if there were.
    for ord in 1..5 {
        let terms = Terms {
            ord,
            ird: ord,
            ..TERMS
        };
        let mut pair = Pair::new(u64::from(ord), [terms, responder(&terms)], 1460);
        let source = pair.hosts[1].register(Rights::ALL, vec![3; 8000]);
        let target = pair.hosts[0].register(Rights::ALL, vec![0; 8000]);
        let (va, rkey) = (pair.hosts[1].memory.0.va(source, 0), source);
        let place = pair.hosts[0].sge(target, 0, 8000);
        (0..40).for_each(|n| pair.hosts[0].post(n, SendOp::Read { va, rkey }, &[place]));
        pair.run();
        let done = statuses(&pair.hosts[0]);
        assert_eq!(
            done,
            (0..40).map(|n| (n, WcStatus::Success)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn receives_come_from_a_shared_queue() {
    let hosts = [Host::new(1, false), Host::new(2, true)];
    let mut pair = Pair::with_hosts(9, [TERMS, responder(&TERMS)], 1460, hosts);
    let source = pair.hosts[0].register(Rights::ALL, vec![4; 5000]);
    let target = pair.hosts[1].register(Rights::ALL, vec![0; 5000]);
    let place = pair.hosts[1].sge(target, 0, 5000);
    pair.hosts[1].post_recv(1, &[place]);
    let all = pair.hosts[0].sge(source, 0, 5000);
    pair.hosts[0].post(2, SendOp::Send, &[all]);
    pair.run();
    assert_eq!(statuses(&pair.hosts[1]), [(1, WcStatus::Success)]);
    assert!(
        pair.hosts[1]
            .memory
            .0
            .bytes(target)
            .iter()
            .all(|byte| *byte == 4)
    );
}

#[test]
fn a_disconnection_flushes_both_ends_and_closes_the_stream() {
    for seed in 0..30 {
        let mut pair = Pair::plain(seed);
        let source = pair.hosts[0].register(Rights::ALL, vec![4; 60_000]);
        let target = pair.hosts[1].register(Rights::ALL, vec![0; 60_000]);
        let place = pair.hosts[1].sge(target, 0, 60_000);
        pair.hosts[1].post_recv(1, &[place]);
        pair.hosts[1].post_recv(2, &[place]);
        let all = pair.hosts[0].sge(source, 0, 60_000);
        pair.hosts[0].post(3, SendOp::Send, &[all]);
        pair.run();
        let host = &mut pair.hosts[0];
        host.post(4, SendOp::Send, &[all]);
        // Some of it is in the stream when the connection ends.
        host.qp.poll_output(1000, &mut host.memory);
        host.qp.handle_sent(0);
        host.qp.disconnect(&host.memory);
        pair.run();
        let sent = [(3, WcStatus::Success), (4, WcStatus::WrFlush)];
        assert_eq!(statuses(&pair.hosts[0]), sent, "seed {seed}");
        let received = [(1, WcStatus::Success), (2, WcStatus::WrFlush)];
        assert_eq!(statuses(&pair.hosts[1]), received, "seed {seed}");
        assert!(pair.hosts.iter().all(|host| host.is_closed));
    }
}
