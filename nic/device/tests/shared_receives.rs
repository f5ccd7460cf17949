//! Shared receive queues over the loopback interface: with every type of queue pair, their limits
//! and their events; and XRC, which names them on the wire.

mod support;

use std::sync::Arc;

use support::{
    End, connect_both, datagram_to, fill, post, post_recv, post_to_target, set_state, wait_for,
};
use urxe_device::{
    AsyncEventKind, CompletionKind, Cq, Error, Immediate, Mtu, PostError, Qp, QpEvent, QpInit,
    QpState, QpType, RecvRequest, SendOp, SendTarget, Srq, SrqEvent, SrqInit, Srqn, WcStatus,
    XrcSrqInit, Xrcd,
};

const QKEY: u32 = 5;
const EMPTY: RecvRequest<'static> = RecvRequest {
    wr_id: 9,
    sges: &[],
};

fn post_to(srq: &Srq, end: &End, wr_id: u64, at: usize, len: usize) {
    let sges = [end.sge(at, len)];
    srq.post(&RecvRequest { wr_id, sges: &sges }).unwrap();
}

/// Two ends, of which the second has a shared queue, and a queue pair of each, connected.
fn served() -> ([End; 2], Arc<Srq>, [Qp; 2]) {
    let (a, b) = (End::new(4096), End::new(4096));
    let srq = b.srq(4);
    let (from, into) = (a.qp(QpType::Rc), b.qp_with_srq(QpType::Rc, &srq));
    connect_both(&a, &from, &b, &into, Mtu::B1024);
    ([a, b], srq, [from, into])
}

#[test]
fn queue_pairs_of_all_types_take_from_one_queue() {
    let (mut a, b) = (End::new(8192), End::new(8192));
    fill(&mut a.buffer);
    let srq = b.srq(16);
    for wr_id in 0..3 {
        post_to(&srq, &b, wr_id, 1024 * wr_id as usize, 1024);
    }
    let mut receivers = Vec::new();
    for (turn, qp_type) in [QpType::Rc, QpType::Uc, QpType::Ud].into_iter().enumerate() {
        let (from, into) = (a.qp(qp_type), b.qp_with_srq(qp_type, &srq));
        let target = if qp_type == QpType::Ud {
            support::ready_datagrams(&from, QKEY);
            support::ready_datagrams(&into, QKEY);
            datagram_to(a.address(), into.number(), QKEY)
        } else {
            connect_both(&a, &from, &b, &into, Mtu::B256);
            SendTarget::Connection
        };
        post_to_target(&from, 9, SendOp::Send, &[a.sge(0, 900)], target);
        let got = b.wait(&[&a], 1)[0];
        assert_eq!((got.wr_id, got.status), (turn as u64, WcStatus::Success));
        assert_eq!(got.qp, into.number());
        assert_eq!(a.wait(&[&b], 1)[0].status, WcStatus::Success);
        let skip = 1024 * turn + if qp_type == QpType::Ud { 40 } else { 0 };
        assert_eq!(b.buffer[skip..skip + 900], a.buffer[..900]);
        let own = into.post_recv(&EMPTY);
        assert!(matches!(own, Err(Error::Post(PostError::SharedReceives))));
        receivers.push(into);
    }
    assert!(matches!(srq.destroy(), Err(Error::Busy(_))));
    drop(receivers);
    srq.destroy().unwrap();
    assert!(matches!(srq.query(), Err(Error::Gone(_))));
}

#[test]
fn an_empty_queue_makes_the_sender_wait() {
    let ([a, b], srq, [from, _into]) = served();
    post(&from, 1, SendOp::Send, &[a.sge(0, 8)]);
    b.wait_for_nothing();
    assert!(b.nic.qp_stats()[0].1.rnr_nak_sent > 0);
    post_to(&srq, &b, 2, 0, 64);
    assert_eq!(b.wait(&[&a], 1)[0].wr_id, 2);
    assert_eq!(a.wait(&[&b], 1)[0].status, WcStatus::Success);
}

#[test]
fn the_limit_is_an_event_once_and_sizes_can_change() {
    let ([a, b], srq, [from, into]) = served();
    for wr_id in 0..4 {
        post_to(&srq, &b, wr_id, 0, 64);
    }
    let full = srq.post(&EMPTY);
    assert!(matches!(full, Err(Error::Post(PostError::Full))));
    srq.modify(Some(6), Some(3)).unwrap();
    assert!(matches!(srq.modify(Some(3), None), Err(Error::Invalid(_))));
    assert!(matches!(srq.modify(None, Some(7)), Err(Error::Invalid(_))));
    let now = srq.query().unwrap();
    assert_eq!((now.max_requests, now.limit, now.max_sges), (6, 3, 2));
    for _ in 0..3 {
        post(&from, 1, SendOp::Send, &[a.sge(0, 8)]);
    }
    assert_eq!(b.wait(&[&a], 3).len(), 3);
    let established = QpEvent::CommunicationEstablished;
    let expected = [
        AsyncEventKind::Qp(into.number(), established),
        AsyncEventKind::Srq(srq.number(), SrqEvent::LimitReached),
    ];
    assert_eq!([b.event(), b.event()], expected);
    assert_eq!(srq.query().unwrap().limit, 0);
}

#[test]
fn a_queue_pair_in_error_leaves_the_queue_alone_and_says_so() {
    let ([a, b], srq, [from, other]) = served();
    let dying = b.qp_with_srq(QpType::Rc, &srq);
    post_to(&srq, &b, 1, 0, 64);
    set_state(&dying, QpState::Error);
    let last = AsyncEventKind::Qp(dying.number(), QpEvent::LastWqeReached);
    assert_eq!(b.event(), last);
    b.wait_for_nothing();
    post(&from, 1, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(b.wait(&[&a], 1)[0].qp, other.number());
}

// ---- XRC
// -----------------------------------------------------------------------------------------

/// A target with a domain, and its queues, each with a completion queue of its own.
struct Target {
    end: End,
    xrcd: Xrcd,
    qp: Qp,
}

impl Target {
    fn new() -> Self {
        let end = End::new(1 << 16);
        let xrcd = end.nic.alloc_xrcd();
        let qp = target_qp(&end, xrcd);
        Self { end, xrcd, qp }
    }

    fn srq(&self, xrcd: Xrcd) -> (Arc<Srq>, Arc<Cq>) {
        let cq = self.end.nic.create_cq(64, None, 8).unwrap();
        let init = SrqInit {
            pd: self.end.pd,
            max_requests: 16,
            max_sges: 2,
            limit: 0,
            xrc: Some(XrcSrqInit {
                xrcd,
                cq: Arc::clone(&cq),
            }),
        };
        (self.end.nic.create_srq(&init).unwrap(), cq)
    }
}

fn target_qp(end: &End, xrcd: Xrcd) -> Qp {
    let init = QpInit {
        xrcd: Some(xrcd),
        ..end.init(QpType::XrcTarget)
    };
    end.nic.create_qp(&init).unwrap()
}

fn initiator(end: &End, target: &Qp) -> (End, Qp) {
    let a = End::new(1 << 16);
    let qp = a.qp(QpType::XrcInitiator);
    connect_both(&a, &qp, end, target, Mtu::B1024);
    (a, qp)
}

#[test]
fn an_xrc_message_goes_to_the_queue_that_it_names() {
    let target = Target::new();
    let (mut a, qp) = initiator(&target.end, &target.qp);
    fill(&mut a.buffer);
    let queues = [target.srq(target.xrcd), target.srq(target.xrcd)];
    for (at, (srq, _)) in queues.iter().enumerate() {
        post_to(srq, &target.end, 10 + at as u64, 8192 * at, 8192);
    }
    for at in [1, 0] {
        let (srq, cq) = &queues[at];
        let op = SendOp::SendImm(Immediate([9, 9, 9, at as u8]));
        let target_queue = SendTarget::XrcSrq(srq.number());
        post_to_target(&qp, 1, op, &[a.sge(0, 5000)], target_queue);
        let got = wait_for(&target.end.nic, cq, &[&a], 1)[0];
        assert_eq!((got.wr_id, got.byte_len), (10 + at as u64, 5000));
        let expected = (target.qp.number(), CompletionKind::Recv);
        assert_eq!((got.qp, got.kind), expected);
        assert_eq!(target.end.buffer[8192 * at..][..5000], a.buffer[..5000]);
        assert_eq!(a.wait(&[&target.end], 1)[0].status, WcStatus::Success);
    }
}

#[test]
fn xrc_accesses_memory_with_the_rights_of_the_queue() {
    let target = Target::new();
    let (mut a, qp) = initiator(&target.end, &target.qp);
    fill(&mut a.buffer);
    let (srq, _cq) = target.srq(target.xrcd);
    let to = SendTarget::XrcSrq(srq.number());
    post_to_target(&qp, 1, target.end.write_op(0), &[a.sge(0, 9000)], to);
    post_to_target(&qp, 2, target.end.read_op(0), &[a.sge(20000, 9000)], to);
    let (va, rkey) = (target.end.va(32768).next_multiple_of(8), target.end.key);
    let add = SendOp::FetchAdd { va, rkey, add: 3 };
    post_to_target(&qp, 3, add, &[a.sge(40000, 8)], to);
    let got = a.wait(&[&target.end], 3);
    assert!(got.iter().all(|c| c.status == WcStatus::Success), "{got:?}");
    assert_eq!(target.end.buffer[..9000], a.buffer[..9000]);
    assert_eq!(a.buffer[20000..29000], a.buffer[..9000]);
}

#[test]
fn a_queue_of_another_domain_or_none_is_refused() {
    let target = Target::new();
    let other = target.end.nic.alloc_xrcd();
    let (foreign, _cq) = target.srq(other);
    post_to(&foreign, &target.end, 1, 0, 64);
    for number in [foreign.number(), Srqn::new(foreign.number().get() ^ 1)] {
        let fresh = target_qp(&target.end, target.xrcd);
        let (a, qp) = initiator(&target.end, &fresh);
        let to = SendTarget::XrcSrq(number);
        post_to_target(&qp, 1, SendOp::Send, &[a.sge(0, 8)], to);
        let got = a.wait(&[&target.end], 1)[0];
        assert_eq!(got.status, WcStatus::RemoteInvalidRequest);
        assert_eq!(fresh.state().unwrap(), QpState::Error);
    }
    let busy = target.end.nic.dealloc_xrcd(other);
    assert!(matches!(busy, Err(Error::Busy(_))));
}

#[test]
fn an_xrc_queue_pair_has_what_its_type_needs_and_nothing_else() {
    let end = End::new(64);
    let rc = end.init(QpType::Rc);
    for wrong in [
        QpInit {
            qp_type: QpType::XrcTarget,
            ..rc.clone()
        },
        QpInit {
            qp_type: QpType::XrcInitiator,
            ..rc.clone()
        },
        QpInit {
            send_cq: None,
            ..rc.clone()
        },
        QpInit { pd: None, ..rc },
        end.init(QpType::XrcTarget),
    ] {
        let refused = end.nic.create_qp(&wrong);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{wrong:?}");
    }
    let xrcd = end.nic.alloc_xrcd();
    let target = target_qp(&end, xrcd);
    assert!(matches!(end.nic.dealloc_xrcd(xrcd), Err(Error::Busy(_))));
    drop(target);
    end.nic.dealloc_xrcd(xrcd).unwrap();
}

#[test]
fn a_receive_of_an_own_queue_is_not_touched_by_a_shared_one() {
    let (a, b) = (End::new(4096), End::new(4096));
    let srq = b.srq(4);
    let (from, into) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    connect_both(&a, &from, &b, &into, Mtu::B1024);
    post_to(&srq, &b, 1, 0, 64);
    post_recv(&into, 2, &[b.sge(64, 64)]);
    post(&from, 1, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(b.wait(&[&a], 1)[0].wr_id, 2);
}
