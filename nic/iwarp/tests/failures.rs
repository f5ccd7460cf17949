//! Connections that fail, as the programs of both ends see it.

mod support;

use support::forge::{read, terminate_of, write};
use support::victim::{Keys, atomic, prepared, send, sent, written};
use support::{Host, PD, Pair, TERMS};
use urxe_iwarp::StreamAction;
use urxe_iwarp_wire::Fault;
use urxe_proto::{
    AttrMask, Attributes, PostError, QpEvent, QpState, SendData, SendOp, SendRequest, WcStatus,
};
use urxe_sim::Rights;

/// What the requester sees of what its peer refuses.
fn assert_requester(op: impl Fn(&Pair, u32) -> SendOp, len: u32, expected: WcStatus) {
    for seed in 0..10 {
        let mut pair = Pair::plain(seed);
        let local = pair.hosts[0].register(Rights::ALL, vec![0; 64]);
        let remote = pair.hosts[1].register(Rights::ALL, vec![0; 64]);
        let (good, bad) = (
            SendOp::Read {
                va: pair.hosts[1].memory.0.va(remote, 0),
                rkey: remote,
            },
            op(&pair, remote),
        );
        let place = pair.hosts[0].sge(local, 0, 64);
        let result = pair.hosts[0].sge(local, 0, len);
        pair.hosts[0].post(1, good, &[place]);
        pair.hosts[0].post(2, bad, &[result]);
        pair.hosts[0].post(3, good, &[place]);
        pair.hosts[0].post_recv(4, &[]);
        pair.run();
        let host = &pair.hosts[0];
        let statuses: Vec<_> = host
            .completions
            .iter()
            .map(|done| (done.wr_id, done.status))
            .collect();
        assert_eq!(statuses.len(), 4, "seed {seed}: {statuses:?}");
        assert_eq!(statuses[1], (2, expected), "seed {seed}");
        assert_eq!(
            statuses[2..],
            [(3, WcStatus::WrFlush), (4, WcStatus::WrFlush)]
        );
        assert_eq!(host.events.last(), Some(&QpEvent::Fatal));
        assert!(pair.hosts.iter().all(|host| host.is_closed));
    }
}

#[test]
fn a_requester_is_told_which_of_its_reads_and_atomics_failed() {
    let bad_read = |_: &Pair, _| SendOp::Read { va: 0, rkey: 1 };
    assert_requester(bad_read, 64, WcStatus::RemoteAccess);
    let misaligned = |pair: &Pair, rkey| SendOp::FetchAdd {
        va: pair.hosts[1].memory.0.va(rkey, 4),
        rkey,
        add: 1,
    };
    assert_requester(misaligned, 8, WcStatus::RemoteAccess);
}

#[test]
fn rights_of_the_queue_pair_count() {
    for bytes in [
        |keys: &Keys| written(write(keys.all, keys.va), &[1; 8]),
        |keys: &Keys| read(keys.all, keys.va, 8),
        |keys: &Keys| atomic(keys.all, keys.va),
    ] {
        let (mut pair, keys) = prepared(0);
        pair.hosts[1].modify(&Attributes::new(), AttrMask::ACCESS_FLAGS);
        pair.inject(0, &bytes(&keys));
        pair.run();
        assert_eq!(terminate_of(&pair).unwrap().0, Fault::ProtectionAccess);
        assert_eq!(pair.hosts[1].events.last(), Some(&QpEvent::AccessError));
    }
}

#[test]
fn memory_of_this_host_that_is_not_there_fails_the_request() {
    for op in [
        SendOp::Send,
        SendOp::Write { va: 0, rkey: 0 },
        SendOp::Read { va: 0, rkey: 0 },
    ] {
        let mut pair = Pair::plain(1);
        let place = support::Host::new(9, false).sge(0, 0, 8);
        pair.hosts[0].post(1, op, &[place]);
        pair.hosts[0].post(2, SendOp::Send, &[]);
        pair.run();
        let statuses: Vec<_> = pair.hosts[0]
            .completions
            .iter()
            .map(|done| done.status)
            .collect();
        assert_eq!(statuses, [WcStatus::LocalProtection, WcStatus::WrFlush]);
        assert_eq!(pair.hosts[1].qp.state(), QpState::Error);
    }
}

#[test]
fn a_region_that_goes_away_while_it_is_used_hangs_nobody() {
    for seed in 0..40 {
        let mut pair = Pair::plain(seed);
        let source = pair.hosts[0].register(Rights::ALL, vec![1; 100_000]);
        let target = pair.hosts[1].register(Rights::ALL, vec![0; 100_000]);
        let (va, rkey) = (pair.hosts[1].memory.0.va(target, 0), target);
        let all = pair.hosts[0].sge(source, 0, 100_000);
        pair.hosts[0].post(1, SendOp::Write { va, rkey }, &[all]);
        pair.hosts[0].post(2, SendOp::Read { va, rkey }, &[all]);
        pair.run_for(20);
        let side = usize::from(seed % 2 == 0);
        pair.hosts[side].memory.0.deregister([source, target][side]);
        pair.run();
        let done = pair.hosts[0].completions.len();
        assert_eq!(done, 2, "seed {seed}");
        assert!(
            pair.hosts
                .iter()
                .all(|host| host.qp.state() == QpState::Error)
        );
    }
}

#[test]
fn a_stream_that_ends_flushes_and_says_whether_it_was_cut() {
    for cut in [false, true] {
        let (mut pair, _) = prepared(0);
        let whole = sent(send(1), &[1; 50]);
        pair.inject(0, &whole[..whole.len() - usize::from(cut)]);
        pair.end(0);
        pair.run();
        let host = &pair.hosts[1];
        let statuses: Vec<_> = host.completions.iter().map(|done| done.status).collect();
        let first = if cut {
            WcStatus::WrFlush
        } else {
            WcStatus::Success
        };
        assert_eq!(statuses, [first, WcStatus::WrFlush]);
        assert_eq!(host.events.contains(&QpEvent::Fatal), cut);
        assert!(host.is_closed);
    }
}

#[test]
fn what_iwarp_does_not_have_is_not_posted() {
    let mut pair = Pair::plain(0);
    let host = &mut pair.hosts[0];
    let refused = [
        SendOp::SendImm(urxe_wire::Immediate([0; 4])),
        SendOp::Flush {
            va: 0,
            rkey: 0,
            len: None,
            placement: urxe_proto::Placement::empty(),
        },
    ];
    for op in refused {
        let request = support::request(1, op, &[]);
        assert_eq!(host.qp.post_send(&request), Err(PostError::Unsupported));
    }
    let atomic_write = SendRequest {
        data: SendData::Inline(&[0; 8]),
        ..support::request(1, SendOp::AtomicWrite { va: 0, rkey: 0 }, &[])
    };
    assert_eq!(
        host.qp.post_send(&atomic_write),
        Err(PostError::Unsupported)
    );
    assert_eq!(host.qp.pd(), PD);
}

#[test]
fn states_change_as_connections_do() {
    let mut host = Host::new(1, false);
    let to = |state| Attributes {
        state,
        ..Attributes::new()
    };
    let result = host
        .qp
        .modify(&to(QpState::ReadyToReceive), AttrMask::STATE, &host.memory);
    assert!(result.is_err(), "a connection makes it ready");
    assert!(!host.qp.connect(TERMS, 1460) || host.qp.state() == QpState::ReadyToSend);
    assert!(!host.qp.connect(TERMS, 1460), "it has one");
    for state in [QpState::ReadyToReceive, QpState::ReadyToSend] {
        host.modify(&to(state), AttrMask::STATE);
        assert_eq!(host.qp.state(), QpState::ReadyToSend);
    }
    host.post_recv(1, &[]);
    host.modify(&to(QpState::Error), AttrMask::STATE);
    host.post_recv(2, &[]);
    host.post(3, SendOp::Send, &[]);
    let mut flushed = Vec::new();
    while let Some(done) = host.qp.poll_completion() {
        flushed.push((done.wr_id, done.status));
    }
    assert_eq!(flushed, [1, 2, 3].map(|wr_id| (wr_id, WcStatus::WrFlush)));
    host.modify(&to(QpState::Reset), AttrMask::STATE);
    assert_eq!(host.qp.state(), QpState::Reset);
}

#[test]
fn a_stream_that_breaks_takes_what_was_to_be_sent_along() {
    let mut pair = Pair::plain(3);
    let source = pair.hosts[0].register(Rights::ALL, vec![1; 5000]);
    let all = pair.hosts[0].sge(source, 0, 5000);
    let host = &mut pair.hosts[0];
    host.post(1, SendOp::Send, &[all]);
    assert!(host.qp.poll_output(2000, &mut host.memory) > 1000);
    host.qp.handle_sent(100);
    host.qp.handle_end(true, &host.memory);
    assert_eq!(host.qp.poll_output(2000, &mut host.memory), 0);
    assert_eq!(host.qp.output().count(), 0);
    let done = host.qp.poll_completion().unwrap();
    assert_eq!((done.wr_id, done.status), (1, WcStatus::WrFlush));
    assert_eq!(host.qp.poll_action(pair.now), Some(StreamAction::Close));
}
