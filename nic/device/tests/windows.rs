//! Memory windows over the loopback interface: bound and invalidated in the order of the send
//! queue, here and by the peer.

mod support;

use support::{End, Peer, TIMEOUT, connect_both, fill, post};
use urxe_device::{
    CompletionKind, Error, Mtu, QpState, QpType, SendOp, WcStatus, WindowAccess, WindowBind,
    WindowType,
};

struct Pair {
    a: Peer,
    b: Peer,
}

impl Pair {
    fn new() -> Self {
        let (mut a, b) = Peer::pair([End::new(8192), End::new(8192)], Mtu::B1024, TIMEOUT);
        fill(&mut a.buffer);
        Self { a, b }
    }

    /// A window of `b` that is not bound.
    fn window(&self, kind: WindowType) -> u32 {
        self.b.nic.alloc_window(self.b.pd, kind).unwrap()
    }

    /// Binds the window `rkey` of `b` to its bytes 1000 to 2000; returns the new key.
    fn bind(&self, rkey: u32, access: WindowAccess) -> u32 {
        let next = (rkey & !0xff) | ((rkey + 1) & 0xff);
        let bind = WindowBind {
            rkey: next,
            lkey: self.b.key,
            addr: self.b.va(1000),
            len: 1000,
            access,
        };
        self.b.post(1, SendOp::BindWindow(bind), &[]);
        let got = self.b.wait(&self.a, 1)[0];
        let expected = (WcStatus::Success, CompletionKind::BindWindow);
        assert_eq!((got.status, got.kind), expected);
        next
    }

    fn write(&self, rkey: u32, at: usize, len: usize) -> WcStatus {
        let va = self.b.va(at);
        let write = SendOp::Write { va, rkey };
        self.a.run(&self.b, write, self.a.sge(0, len))
    }
}

#[test]
fn a_window_opens_what_it_is_bound_to() {
    for kind in [WindowType::Type1, WindowType::Type2] {
        let pair = Pair::new();
        let window = pair.window(kind);
        let key = pair.bind(window, WindowAccess::REMOTE_WRITE);
        assert_eq!(pair.write(key, 1000, 1000), WcStatus::Success);
        assert_eq!(pair.b.buffer[1000..2000], pair.a.buffer[..1000]);
        let busy = pair.b.nic.deregister(pair.b.key);
        assert!(matches!(busy, Err(Error::Busy(_))), "{kind:?}");
        assert_eq!(pair.write(key, 1001, 1000), WcStatus::RemoteAccess);
        pair.b.nic.dealloc_window(key).unwrap();
        pair.b.nic.deregister(pair.b.key).unwrap();
    }
}

#[test]
fn a_key_before_binding_and_after_invalidation_is_refused() {
    let pair = Pair::new();
    let window = pair.window(WindowType::Type2);
    let key = pair.bind(window, WindowAccess::REMOTE_WRITE);
    pair.b.post(3, SendOp::LocalInvalidate { rkey: key }, &[]);
    let got = pair.b.wait(&pair.a, 1)[0];
    let expected = (WcStatus::Success, CompletionKind::LocalInvalidate);
    assert_eq!((got.status, got.kind), expected);
    assert_eq!(pair.write(key, 1000, 8), WcStatus::RemoteAccess);
    let pair = Pair::new();
    let window = pair.window(WindowType::Type2);
    let _ = pair.bind(window, WindowAccess::REMOTE_WRITE);
    assert_eq!(pair.write(window, 1000, 8), WcStatus::RemoteAccess);
}

#[test]
fn the_peer_invalidates_a_window_with_its_message() {
    let pair = Pair::new();
    let window = pair.window(WindowType::Type2);
    let key = pair.bind(window, WindowAccess::REMOTE_WRITE);
    pair.b.post_recv(4, &[pair.b.sge(0, 64)]);
    let op = SendOp::SendInvalidate { rkey: key };
    pair.a.post(5, op, &[pair.a.sge(0, 8)]);
    let got = pair.b.wait(&pair.a, 1)[0];
    assert_eq!((got.wr_id, got.invalidated_rkey), (4, Some(key)));
    assert_eq!(pair.a.wait(&pair.b, 1)[0].status, WcStatus::Success);
    // Free again: it can be bound with the next key.
    let next = pair.bind(key, WindowAccess::REMOTE_WRITE);
    assert_eq!(pair.write(next, 1000, 8), WcStatus::Success);
    assert_eq!(pair.write(key, 1000, 8), WcStatus::RemoteAccess);
}

#[test]
fn the_peer_may_not_invalidate_a_region() {
    let pair = Pair::new();
    pair.b.post_recv(4, &[pair.b.sge(0, 64)]);
    let op = SendOp::SendInvalidate { rkey: pair.b.key };
    pair.a.post(5, op, &[pair.a.sge(0, 8)]);
    let refused = pair.b.wait(&pair.a, 1)[0].status;
    assert_eq!(refused, WcStatus::RemoteInvalidRequest);
    assert_eq!(pair.b.qp.query().unwrap().state, QpState::Error);
    // The peer is not told, and finds a queue pair that does not answer.
    let unanswered = pair.a.wait(&pair.b, 1)[0].status;
    assert_eq!(unanswered, WcStatus::RetryExceeded);
}

#[test]
fn a_window_of_type_2_is_no_use_through_another_queue_pair() {
    let pair = Pair::new();
    let window = pair.window(WindowType::Type2);
    let key = pair.bind(window, WindowAccess::REMOTE_READ);
    let (qp_a, qp_b) = (pair.a.qp(QpType::Rc), pair.b.qp(QpType::Rc));
    connect_both(&pair.a, &qp_a, &pair.b, &qp_b, Mtu::B1024);
    let (va, rkey) = (pair.b.va(1000), key);
    let read = SendOp::Read { va, rkey };
    post(&qp_a, 1, read, &[pair.a.sge(4000, 8)]);
    assert_eq!(pair.a.wait(&pair.b, 1)[0].status, WcStatus::RemoteAccess);
    pair.a.post(2, read, &[pair.a.sge(4000, 8)]);
    assert_eq!(pair.a.wait(&pair.b, 1)[0].status, WcStatus::Success);
}

#[test]
fn a_binding_that_fails_fails_in_its_turn() {
    let pair = Pair::new();
    let window = pair.window(WindowType::Type2);
    let beyond = WindowBind {
        rkey: window ^ 1,
        lkey: pair.b.key,
        addr: pair.b.va(8000),
        len: 1000,
        access: WindowAccess::REMOTE_READ,
    };
    let write = pair.a.write_op(4096);
    pair.b.post(1, write, &[pair.b.sge(0, 4096)]);
    pair.b.post(2, SendOp::BindWindow(beyond), &[]);
    pair.b.post(3, write, &[pair.b.sge(0, 4096)]);
    let got = pair.b.wait(&pair.a, 3);
    let got: Vec<_> = got.iter().map(|c| (c.wr_id, c.status)).collect();
    let expected = [
        (1, WcStatus::Success),
        (2, WcStatus::MwBind),
        (3, WcStatus::WrFlush),
    ];
    assert_eq!(got, expected);
    assert_eq!(pair.b.qp.state().unwrap(), QpState::Error);
}

#[test]
fn a_queue_pair_that_goes_takes_its_windows_of_type_2_along() {
    let pair = Pair::new();
    let window = pair.window(WindowType::Type2);
    let _ = pair.bind(window, WindowAccess::REMOTE_READ);
    pair.b.qp.destroy();
    pair.b.nic.deregister(pair.b.key).unwrap();
}
