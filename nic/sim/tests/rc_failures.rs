//! What a failure leaves: other requests, events, queues that drain, memory that goes.

mod support;

use support::bench::{Bench, REGION_BYTES};
use support::failures::*;
use support::scenario::PD;
use urxe_proto::{AttrMask, Attributes, QpEvent, QpState, SendOp, WcStatus};
use urxe_sim::{HostId, Rights};
use urxe_wire::Operation;

#[test]
fn requests_before_one_that_fails_locally_still_succeed() {
    let mut bench = Bench::new(6, options());
    let write = SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    bench.post_send(1, write, 0, 10_000);
    bench.post_send(2, write, 10_000, 10_000);
    bench.source += 1;
    bench.post_send(3, write, 0, 10);
    for (wr_id, status) in [
        (1, WcStatus::Success),
        (2, WcStatus::Success),
        (3, WcStatus::LocalProtection),
    ] {
        let completion = bench.wait_send();
        assert_eq!((completion.wr_id, completion.status), (wr_id, status));
    }
}

#[test]
fn memory_that_goes_during_a_transfer_fails_its_own_request() {
    let mut bench = Bench::new(6, options());
    let write = SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    bench.post_send(1, write, 0, 40_000);
    let second = bench.world.host_mut(bench.a.host).memory.register(
        PD,
        Rights::default(),
        vec![7; REGION_BYTES],
    );
    bench.source = second;
    bench.post_send(2, write, 0, 200_000);
    bench.post_send(3, write, 0, 10);
    // The second is under way, and the first not acknowledged.
    bench.run_for(4_000);
    assert!(bench.send_completion().is_none());
    bench.world.host_mut(bench.a.host).memory.deregister(second);
    for (wr_id, status) in [
        (1, WcStatus::Success),
        (2, WcStatus::LocalProtection),
        (3, WcStatus::WrFlush),
    ] {
        let completion = bench.wait_send();
        assert_eq!((completion.wr_id, completion.status), (wr_id, status));
    }
}

fn events(bench: &mut Bench, host: HostId) -> Vec<QpEvent> {
    let host = bench.world.host_mut(host);
    std::iter::from_fn(|| host.poll_event().map(|(_, event)| event)).collect()
}

#[test]
fn a_refusal_is_an_event_unless_a_completion_tells_it() {
    let established = QpEvent::CommunicationEstablished;
    let wrong_key = |bench: &Bench| SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target + 1,
    };
    let odd = |bench: &Bench| SendOp::FetchAdd {
        va: bench.target_va(3),
        rkey: bench.target,
        add: 1,
    };
    type MakeOp<'a> = &'a dyn Fn(&Bench) -> SendOp;
    let cases: [(MakeOp<'_>, usize, &[QpEvent]); 3] = [
        (&wrong_key, 8, &[established, QpEvent::AccessError]),
        (&odd, 8, &[established, QpEvent::RequestError]),
        // Longer than the receive: its completion says so.
        (&|_| SendOp::Send, 101, &[established]),
    ];
    for (op, len, expected) in cases {
        let mut bench = Bench::new(6, options());
        bench.post_recv(1, 100);
        let op = op(&bench);
        bench.post_send(1, op, 0, len);
        assert_ne!(bench.wait_send().status, WcStatus::Success);
        let responder = bench.b.host;
        assert_eq!(events(&mut bench, responder), expected, "{op:?}");
        assert_eq!(bench.world.qp(bench.b).state(), QpState::Error);
    }
}

#[test]
fn a_draining_send_queue_finishes_what_it_started_and_says_so() {
    let mut bench = Bench::new(6, options());
    let write = SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    bench.post_send(1, write, 0, 100_000);
    bench.run_for(3_000);
    let drain = Attributes {
        state: QpState::SendQueueDrain,
        sqd_notify: true,
        ..Attributes::new()
    };
    let qp = bench.a;
    let mask = AttrMask::STATE | AttrMask::SQD_NOTIFY;
    bench.world.modify(qp, &drain, mask).unwrap();
    bench.post_send(2, write, 0, 10);
    assert_eq!(events(&mut bench, qp.host), []);
    assert_eq!(bench.wait_send().wr_id, 1);
    bench.run_for(1_000_000);
    assert_eq!(events(&mut bench, qp.host), [QpEvent::SendQueueDrained]);
    assert!(bench.send_completion().is_none(), "nothing new starts");
    let resume = Attributes {
        state: QpState::ReadyToSend,
        ..drain
    };
    bench.world.modify(qp, &resume, AttrMask::STATE).unwrap();
    let second = bench.wait_send();
    assert_eq!((second.wr_id, second.status), (2, WcStatus::Success));
}

#[test]
fn receive_memory_that_is_gone_fails_at_both_ends() {
    let mut bench = Bench::new(6, options());
    bench.post_recv(7, 100);
    bench
        .world
        .host_mut(bench.b.host)
        .memory
        .deregister(bench.received);
    assert_eq!(
        fail_first(&mut bench, SendOp::Send, 50),
        WcStatus::RemoteOperation
    );
    let completion = bench.recv_completion().unwrap();
    assert_eq!(
        (completion.wr_id, completion.status),
        (7, WcStatus::LocalProtection)
    );
}

/// Class J of the specification's faults.
#[test]
fn a_failed_invalidation_stops_its_own_end_and_sends_no_nak() {
    for len in [0, 50, 3_000] {
        let mut bench = Bench::new(6, options());
        (7..10).for_each(|wr_id| bench.post_recv(wr_id, 4_000));
        bench.post_send(1, SendOp::Send, 0, 50);
        // No window, but a region.
        let rkey = bench.target;
        bench.post_send(2, SendOp::SendInvalidate { rkey }, 0, len);
        for (wr_id, status) in [(1, WcStatus::Success), (2, WcStatus::RetryExceeded)] {
            let completion = bench.wait_send();
            assert_eq!((completion.wr_id, completion.status), (wr_id, status));
        }
        for (wr_id, status) in [
            (7, WcStatus::Success),
            (8, WcStatus::RemoteInvalidRequest),
            (9, WcStatus::WrFlush),
        ] {
            let completion = bench.recv_completion().unwrap();
            assert_eq!((completion.wr_id, completion.status), (wr_id, status));
        }
        assert_eq!(bench.world.qp(bench.b).state(), QpState::Error);
        let (a, b) = (bench.a.host, bench.b.host);
        let answers = bench.world.link_mut(b, a).stats.packets;
        assert_eq!(answers, 1, "the acknowledgement of the first message");
    }
}

#[test]
fn a_region_deregistered_during_a_transfer_stops_it() {
    for op in [Operation::WriteMiddle, Operation::ReadResponseMiddle] {
        let mut bench = Bench::new(6, options());
        let (va, rkey) = (bench.target_va(0), bench.target);
        let is_read = op.is_read_response();
        let request = if is_read {
            SendOp::Read { va, rkey }
        } else {
            SendOp::Write { va, rkey }
        };
        bench.post_send(1, request, 0, 200_000);
        bench.run_for(50_000);
        bench.world.host_mut(bench.b.host).memory.deregister(rkey);
        assert_eq!(bench.wait_send().status, WcStatus::RemoteAccess, "{op:?}");
    }
}

#[test]
fn a_queue_pair_put_in_error_is_flushed_and_its_peer_gives_up() {
    let mut bench = Bench::new(6, options());
    bench.post_recv(7, 100);
    let write = SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    bench.post_send(1, write, 0, 200_000);
    bench.run_for(30_000);
    let error = Attributes {
        state: QpState::Error,
        ..Attributes::new()
    };
    bench
        .world
        .modify(bench.b, &error, AttrMask::STATE)
        .unwrap();
    let flushed = bench.recv_completion().unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (7, WcStatus::WrFlush));
    assert_eq!(bench.wait_send().status, WcStatus::RetryExceeded);
}
