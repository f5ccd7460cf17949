//! Messages that come before the receive request that they take.

mod support;

use support::forge::terminate_of;
use support::{Host, Pair, TERMS, responder};
use urxe_iwarp::{RECEIVE_TIMEOUT_NS, Terms};
use urxe_iwarp_wire::Fault;
use urxe_proto::{Instant, QpEvent, QpState, SendOp, WcStatus};
use urxe_sim::Rights;
use urxe_wire::Immediate;

/// Goes on until it is so.
fn until(pair: &mut Pair, is_so: impl Fn(&Pair) -> bool) {
    for _ in 0..100_000 {
        if is_so(pair) {
            return;
        }
        pair.run_for(1);
    }
    panic!("it never is so");
}

fn is_stalled(pair: &Pair) -> bool {
    pair.hosts[1].qp.is_stalled()
}

/// Both hosts, of which host 0 has sent a message of `len` bytes, a WRITE, immediate data and
/// another message, and host 1 has no receive request; and the key of host 1's memory.
fn early(seed: u64, shares: bool, len: u32, terms: &Terms) -> (Pair, u32) {
    let hosts = [Host::new(1, false), Host::new(2, shares)];
    let mut pair = Pair::with_hosts(seed, [*terms, responder(terms)], 1460, hosts);
    pair.hosts[1].reads_in_place = seed.is_multiple_of(2);
    let target = pair.hosts[1].register(Rights::ALL, vec![0; 60_000]);
    let va = pair.hosts[1].memory.0.va(target, 40_000);
    let host = &mut pair.hosts[0];
    let source = host.register(Rights::ALL, vec![7; len as usize]);
    let all = host.sge(source, 0, len);
    let immediate = Immediate([1, 2, 3, 4]);
    host.post(1, SendOp::Send, &[all]);
    host.post(2, SendOp::Write { va, rkey: target }, &[all]);
    let write = SendOp::WriteImm {
        va,
        rkey: target,
        immediate,
    };
    host.post(3, write, &[]);
    host.post(4, SendOp::Send, &[all]);
    (pair, target)
}

fn statuses(host: &Host) -> Vec<(u64, WcStatus)> {
    let completions = host.completions.iter();
    completions.map(|done| (done.wr_id, done.status)).collect()
}

#[test]
fn a_message_that_comes_early_waits_for_its_receive() {
    const SUCCESS: WcStatus = WcStatus::Success;
    for seed in 0..40 {
        let len = [0, 5, 1400, 5000, 20_000][seed as usize % 5];
        let terms = Terms {
            has_crc: seed % 3 > 0,
            receives_markers: seed % 4 == 1,
            sends_markers: seed % 4 == 1,
            ..TERMS
        };
        let (mut pair, target) = early(seed, seed % 2 == 1, len, &terms);
        for turn in 0..3 {
            until(&mut pair, is_stalled);
            assert!(pair.now < Instant::from_nanos(RECEIVE_TIMEOUT_NS));
            let host = &mut pair.hosts[1];
            assert_eq!(host.qp.stats().no_receive, turn + 1, "seed {seed}");
            let place = host.sge(target, turn * 20_000, 20_000);
            host.post_recv(turn, &[place]);
        }
        pair.run();
        assert_eq!(
            statuses(&pair.hosts[1]),
            [(0, SUCCESS), (1, SUCCESS), (2, SUCCESS)],
            "seed {seed}"
        );
        assert_eq!(pair.hosts[0].completions.len(), 4);
        let bytes = pair.hosts[1].memory.0.bytes(target);
        let len = len as usize;
        assert!(bytes[..len].iter().all(|byte| *byte == 7), "seed {seed}");
        let last = &bytes[40_000..][..len];
        assert!(last.iter().all(|byte| *byte == 7), "seed {seed}");
        assert!(bytes[len..40_000].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_a_host_sends_goes_on_while_its_peer_waits_for_its_receive() {
    for seed in 0..10 {
        let (mut pair, target) = early(seed, seed % 2 == 1, 5000, &TERMS);
        until(&mut pair, is_stalled);
        let into = pair.hosts[0].register(Rights::ALL, vec![0; 50_000]);
        let place = pair.hosts[0].sge(into, 0, 50_000);
        pair.hosts[0].post_recv(9, &[place]);
        let all = pair.hosts[1].sge(target, 0, 50_000);
        pair.hosts[1].post(8, SendOp::Send, &[all]);
        until(&mut pair, |pair| {
            let completions = &pair.hosts[0].completions;
            completions.iter().any(|done| done.wr_id == 9)
        });
        assert!(is_stalled(&pair), "seed {seed}");
    }
}

#[test]
fn a_receive_that_never_comes_ends_the_connection_in_time() {
    for seed in 0..10 {
        let (mut pair, _) = early(seed, seed % 2 == 1, 5000, &TERMS);
        until(&mut pair, is_stalled);
        let since = pair.now;
        pair.run();
        assert!(pair.now.since(since) >= RECEIVE_TIMEOUT_NS, "seed {seed}");
        let fault = (Fault::UntaggedNoBuffer, true, false);
        assert_eq!(terminate_of(&pair), Some(fault), "seed {seed}");
        let host = &pair.hosts[1];
        assert_eq!(host.qp.state(), QpState::Error);
        assert!(host.events.contains(&QpEvent::RequestError));
        assert!(pair.hosts.iter().all(|host| host.is_closed));
    }
}

#[test]
fn a_queue_pair_that_waits_for_a_receive_can_be_left() {
    for seed in 0..10 {
        let (mut pair, _) = early(seed, false, 5000, &TERMS);
        until(&mut pair, is_stalled);
        let since = pair.now;
        let host = &mut pair.hosts[1];
        host.qp.disconnect(&host.memory);
        assert!(!host.qp.is_stalled());
        pair.run();
        assert!(pair.now.since(since) < RECEIVE_TIMEOUT_NS, "seed {seed}");
        assert!(pair.hosts.iter().all(|host| host.is_closed));
    }
}
