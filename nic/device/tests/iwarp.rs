//! iWARP devices: queue pairs over TCP connections of this host, set up here as communication
//! management does it.
mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use support::apart::Pages;
use support::streams::{
    alone, connect, connection, end, idle, pair, reset, set_up, state_within, to_init,
};
use support::{End, fill, post_recv, set_state, wait_until};
use urxe_device::{
    Access, AsyncEventKind, AttrMask, Attributes, CompletionKind, Error, QpEvent, QpState, QpType,
    SendOp, WcStatus,
};

const LEN: usize = 1 << 20;
const LENGTHS: [usize; 9] = [0, 1, 63, 1000, 8191, 65_500, 65_537, 200_000, LEN];
#[test]
fn messages_of_every_length_arrive() {
    let (mut a, b) = pair(LEN);
    fill(&mut a.buffer);
    for len in LENGTHS {
        b.post_recv(1, &[b.sge(0, LEN)]);
        a.post(2, SendOp::Send, &[a.sge(0, len)]);
        assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
        let received = &b.wait(&a, 1)[0];
        assert_eq!(
            (received.status, received.byte_len as usize),
            (WcStatus::Success, len)
        );
        assert_eq!(a.buffer[..len], b.buffer[..len]);
    }
}

#[test]
fn memory_is_written_and_read() {
    let (mut a, mut b) = pair(LEN);
    fill(&mut a.buffer);
    for len in LENGTHS {
        b.buffer.fill(0);
        a.post(1, b.write_op(0), &[a.sge(0, len)]);
        // The answer to the READ comes behind all that was written.
        a.post(2, b.read_op(0), &[a.sge(0, 0)]);
        a.wait(&b, 2)
            .iter()
            .for_each(|done| assert_eq!(done.status, WcStatus::Success));
        assert_eq!(a.buffer[..len], b.buffer[..len]);
    }
    let expected = b.buffer.clone();
    for len in LENGTHS {
        a.buffer.fill(0);
        a.post(3, b.read_op(0), &[a.sge(0, len)]);
        let done = &a.wait(&b, 1)[0];
        let expected_done = (WcStatus::Success, CompletionKind::Read);
        assert_eq!((done.status, done.kind), expected_done);
        assert_eq!(a.buffer[..len], expected[..len]);
    }
}

#[test]
fn atomics_return_what_was_there() {
    let (a, mut b) = pair(64);
    b.buffer[..8].copy_from_slice(&40u64.to_ne_bytes());
    let (rkey, va) = (b.key, b.va(0));
    a.post(1, SendOp::FetchAdd { rkey, va, add: 2 }, &[a.sge(8, 8)]);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
    assert_eq!(a.buffer[8..16], 40u64.to_ne_bytes());
    assert_eq!(b.buffer[..8], 42u64.to_ne_bytes());
}

/// Receives, WRITEs and READs are answered by the background thread.
#[test]
fn a_program_that_never_polls_is_served() {
    let (mut a, b) = pair(LEN);
    fill(&mut a.buffer);
    for turn in 0..20 {
        b.post_recv(turn, &[b.sge(0, LEN)]);
        a.post(turn, SendOp::Send, &[a.sge(0, LEN / 2)]);
        a.post(turn, b.read_op(0), &[a.sge(LEN / 2, LEN / 2)]);
        let done = a.end.wait(&[], 2);
        assert!(done.iter().all(|done| done.status == WcStatus::Success));
        assert_eq!(a.buffer[..LEN / 2], a.buffer[LEN / 2..]);
        std::thread::sleep(Duration::from_millis(turn));
    }
    assert_eq!(b.wait(&a, 20).len(), 20);
}

#[test]
fn threads_that_wait_for_events_are_woken() {
    let ends = [(); 2].map(|()| {
        let mut end = end(64);
        let channel = end.add_channel();
        (idle(end), channel)
    });
    let [(a, a_channel), (b, b_channel)] = ends;
    connect(&a.qp, &b.qp);
    for _ in 0..100 {
        b.post_recv(1, &[b.sge(0, 64)]);
        b.cq.arm(false);
        a.post(2, SendOp::Send, &[a.sge(0, 64)]);
        b_channel.wait().unwrap();
        assert_eq!(b.wait(&a, 1).len(), 1);
        a.cq.arm(false);
        a.cq.poll(64, |_| ());
        a.post_recv(3, &[a.sge(0, 64)]);
        b.post(4, SendOp::Send, &[b.sge(0, 64)]);
        a_channel.wait().unwrap();
        assert_eq!(a.wait(&b, 1).len(), 1);
        b.cq.poll(64, |_| ());
    }
}

#[test]
fn receives_come_from_a_shared_queue() {
    let (a, b) = (idle(end(64)), end(64));
    let srq = b.srq(8);
    let qp = b.qp_with_srq(QpType::Rc, &srq);
    to_init(&qp);
    connect(&a.qp, &qp);
    let request = urxe_device::RecvRequest {
        wr_id: 9,
        sges: &[b.sge(0, 64)],
    };
    srq.post(&request).unwrap();
    a.post(1, SendOp::Send, &[a.sge(0, 10)]);
    let done = &b.wait(&[&a.end], 1)[0];
    assert_eq!((done.wr_id, done.byte_len, done.qp), (9, 10, qp.number()));
    // One that comes before its receive waits.
    a.post(2, SendOp::Send, &[a.sge(0, 11)]);
    b.wait_for_nothing();
    srq.post(&request).unwrap();
    let done = &b.wait(&[&a.end], 1)[0];
    assert_eq!((done.wr_id, done.byte_len, done.qp), (9, 11, qp.number()));
}

/// Without "receiver not ready", messages wait in the stream.
#[test]
fn messages_wait_for_receives_that_come_late() {
    let (mut a, mut b) = pair(LEN);
    fill(&mut a.buffer);
    let place = |id: u64| usize::try_from(id).unwrap() * LEN / 8;
    for pause_ms in [0, 2, 0] {
        b.buffer.fill(0);
        a.post_recv(9, &[a.sge(place(7), 64)]);
        for id in 0..8 {
            a.post(id, SendOp::Send, &[a.sge(place(id), LEN / 8)]);
        }
        // What goes the other way does not wait.
        b.post(9, SendOp::Send, &[b.sge(place(7), 64)]);
        let mut done = a.wait(&b, 1);
        while done.iter().all(|done| done.kind != CompletionKind::Recv) {
            done.extend(a.wait(&b, 1));
        }
        for id in 0..8 {
            std::thread::sleep(Duration::from_millis(pause_ms));
            b.post_recv(id, &[b.sge(place(id), LEN / 8)]);
        }
        let came = b.wait(&a, 9);
        done.extend(a.wait(&b, 9 - done.len()));
        let mut both = came.iter().chain(&done);
        assert!(both.all(|done| done.status == WcStatus::Success));
        assert_eq!(a.buffer[..place(7)], b.buffer[..place(7)]);
    }
}

#[test]
fn who_disconnects_flushes_both_ends() {
    let (a, b) = pair(64);
    for peer in [&a, &b] {
        peer.post_recv(5, &[peer.sge(0, 64)]);
    }
    set_state(&a.qp, QpState::Error);
    for (peer, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(peer.wait(other, 1)[0].status, WcStatus::WrFlush);
        assert_eq!(peer.qp.state().unwrap(), QpState::Error);
    }
}

#[test]
fn what_was_sent_arrives_although_the_queue_pair_is_destroyed() {
    let (mut a, b) = pair(LEN);
    fill(&mut a.buffer);
    b.post_recv(1, &[b.sge(0, LEN)]);
    a.post(2, SendOp::Send, &[a.sge(0, LEN)]);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
    a.qp.destroy();
    assert_eq!(b.wait(&a, 1)[0].status, WcStatus::Success);
    assert_eq!(a.buffer, b.buffer);
    state_within(&b.qp, QpState::Error);
}

#[test]
fn a_queue_pair_can_be_reset_and_connected_again() {
    let (a, b) = pair(64);
    for peer in [&a, &b] {
        set_state(&peer.qp, QpState::Reset);
        to_init(&peer.qp);
    }
    let start = Instant::now();
    for peer in [&a, &b] {
        // The old connection has to be over.
        let _passive = loop {
            let [active, passive] = set_up();
            match peer.qp.connect(connection(active)) {
                Ok(()) => break passive,
                Err(error) => assert!(start.elapsed().as_secs() < 10, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(peer.qp.state().unwrap(), QpState::ReadyToSend);
    }
}

#[test]
fn a_peer_that_is_killed_ends_its_connection_alone() {
    let (a, socket) = alone(64);
    let (c, d) = pair(64);
    a.post_recv(1, &[a.sge(0, 64)]);
    reset(socket);
    assert_eq!(a.end.wait(&[], 1)[0].status, WcStatus::WrFlush);
    assert_eq!(a.event(), AsyncEventKind::Qp(a.qp.number(), QpEvent::Fatal));
    d.post_recv(1, &[d.sge(0, 64)]);
    c.post(2, SendOp::Send, &[c.sge(0, 64)]);
    assert_eq!(d.wait(&c, 1)[0].status, WcStatus::Success);
}

#[test]
fn a_peer_that_takes_nothing_in_stops_nobody_and_may_be_left() {
    let (a, socket) = alone(LEN);
    let other = idle(end(64));
    let here = a.end.qp(QpType::Rc);
    to_init(&here);
    connect(&here, &other.qp);
    for turn in 0..16 {
        a.post(turn, SendOp::Send, &[a.sge(0, LEN)]);
    }
    post_recv(&here, 77, &[a.sge(0, 64)]);
    other.post(1, SendOp::Send, &[other.sge(0, 64)]);
    let mut has_come = false;
    wait_until("the other queue pair goes on", || {
        a.cq.poll(16, |done| has_come |= done.wr_id == 77);
        has_come
    });
    a.qp.destroy();
    drop(socket);
}

#[test]
fn nonsense_ends_the_connection() {
    let (a, mut socket) = alone(64);
    a.post_recv(1, &[a.sge(0, 64)]);
    socket.write_all(&[0x55; 3000]).unwrap();
    assert_eq!(a.end.wait(&[], 1)[0].status, WcStatus::WrFlush);
    // A TERMINATE, and the end.
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut last = Vec::new();
    let _ = socket.read_to_end(&mut last);
    assert!(last.len() > 20, "{last:?}");
}

#[test]
fn a_peer_cannot_reach_what_it_has_no_key_for() {
    let (a, b) = pair(64);
    let (rkey, va) = (b.key ^ 1, b.va(0));
    a.post(1, SendOp::Read { rkey, va }, &[a.sge(0, 64)]);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::RemoteAccess);
    state_within(&b.qp, QpState::Error);
    let (a, b) = pair(64);
    a.post(1, b.write_op(32), &[a.sge(0, 64)]);
    assert_eq!(a.event(), AsyncEventKind::Qp(a.qp.number(), QpEvent::Fatal));
    assert!(b.buffer.iter().all(|byte| *byte == 0));
}

/// A region whose memory the program has unmapped.
fn gone(end: &End) -> Pages {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let pages = Pages::with(end, 1 << 16, access);
    pages.unmap();
    pages
}

#[test]
fn memory_that_was_unmapped_ends_the_connection_and_no_process() {
    for len in [100, 20_000, 1 << 16] {
        let (a, b) = pair(1 << 16);
        b.post_recv(1, &[b.sge(0, 1 << 16)]);
        a.post(2, SendOp::Send, &[gone(&a).sge(len)]);
        assert_eq!(a.wait(&b, 1)[0].status, WcStatus::LocalProtection);
        assert_eq!(b.wait(&a, 1)[0].status, WcStatus::WrFlush);

        let (a, b) = pair(1 << 16);
        b.post_recv(1, &[gone(&b).sge(1 << 16)]);
        a.post(2, SendOp::Send, &[a.sge(0, len)]);
        assert_ne!(b.wait(&a, 1)[0].status, WcStatus::Success);
        state_within(&b.qp, QpState::Error);

        let (a, b) = pair(1 << 16);
        a.post(2, gone(&b).write_op(), &[a.sge(0, len)]);
        state_within(&a.qp, QpState::Error);
        state_within(&b.qp, QpState::Error);
    }
}

/// What a program posted last goes although it neither polls nor posts any more.
#[test]
fn what_waits_for_company_goes_all_the_same() {
    let (a, b) = pair(64);
    let post = || {
        for wr_id in 0..40 {
            b.post_recv(wr_id, &[b.sge(0, 64)]);
        }
        for wr_id in 0..40 {
            a.post(wr_id, SendOp::Send, &[a.sge(0, 64)]);
        }
    };
    for _ in 0..50 {
        post();
        assert_eq!(b.end.wait(&[], 40).len(), 40);
        assert_eq!(a.end.wait(&[], 40).len(), 40);
    }
    // As a program that says goodbye.
    post();
    a.qp.destroy();
    let done = b.wait(&a, 40);
    assert!(done.iter().all(|done| done.status == WcStatus::Success));
}

#[test]
fn there_are_reliable_connections_alone() {
    let end = end(64);
    for qp_type in [QpType::Uc, QpType::Ud, QpType::XrcInitiator] {
        let error = end.nic.create_qp(&end.init(qp_type)).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
}

#[test]
fn without_a_connection_nothing_is_ready() {
    let end = end(64);
    let qp = end.qp(QpType::Rc);
    assert_eq!(qp.state().unwrap(), QpState::Init, "from its creation");
    to_init(&qp);
    let receive = Attributes {
        state: QpState::ReadyToReceive,
        ..Attributes::new()
    };
    // As librdmacm does before it accepts.
    qp.modify(&receive, AttrMask::STATE | AttrMask::ACCESS_FLAGS)
        .unwrap();
    let send = Attributes {
        state: QpState::ReadyToSend,
        ..Attributes::new()
    };
    assert!(qp.modify(&send, AttrMask::STATE).is_err());
    let [active, _passive] = set_up();
    qp.connect(connection(active)).unwrap();
    set_state(&qp, QpState::ReadyToSend);
    assert_eq!(qp.state().unwrap(), QpState::ReadyToSend);
}

/// More than a look finds at a time.
#[test]
fn many_connections_have_their_turns() {
    let (a, b) = (end(64), end(64));
    let pairs: Vec<_> = (0..40)
        .map(|_| {
            let (x, y) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
            to_init(&x);
            to_init(&y);
            connect(&x, &y);
            (x, y)
        })
        .collect();
    for _ in 0..5 {
        for (x, y) in &pairs {
            post_recv(y, 1, &[b.sge(0, 64)]);
            support::post(x, 2, SendOp::Send, &[a.sge(0, 64)]);
        }
        let got = b.wait(&[&a], pairs.len());
        assert!(got.iter().all(|done| done.status == WcStatus::Success));
        a.wait(&[&b], pairs.len());
    }
}

#[test]
fn long_payload_is_placed_without_a_second_copy() {
    let (a, b) = pair(LEN);
    for turn in 0..8 {
        a.post(turn, b.write_op(0), &[a.sge(0, LEN)]);
    }
    a.post(8, b.read_op(0), &[a.sge(0, 8)]);
    a.wait(&b, 9);
    let stat = b.nic.stat();
    let counter = |name: &str| stat.counters[name];
    let sum = counter("rx_placed_bytes") + counter("rx_copied_bytes");
    assert_eq!(sum, 8 * LEN as u64);
    assert!(counter("rx_placed_bytes") > sum / 2, "{:?}", stat.counters);
    assert!(counter("rx_fpdus") > 8 * 16 && counter("rx_fpdu_crc_errors") == 0);
    let qp = &stat.qps[0];
    assert_eq!(qp.remote_address.as_deref(), Some("127.0.0.1"));
    assert_eq!((qp.lqpn, &qp.state[..]), (b.qp.number().get(), "RTS"));
}
