//! Unreliable connections over the loopback interface.

mod support;

use support::{End, connect_both, fill, post, post_recv, request};
use urxe_device::{
    CompletionKind, Immediate, Mtu, PostError, Qp, QpState, QpType, SendOp, SendTarget, WcStatus,
};

fn pair(len: usize, mtu: Mtu) -> (End, Qp, End, Qp) {
    let (a, b) = (End::new(len), End::new(len));
    let (qp_a, qp_b) = (a.qp(QpType::Uc), b.qp(QpType::Uc));
    connect_both(&a, &qp_a, &b, &qp_b, mtu);
    (a, qp_a, b, qp_b)
}

#[test]
fn send_and_write_move_the_right_bytes() {
    for mtu in [Mtu::B256, Mtu::B4096] {
        for len in [0usize, 1, 255, 256, 257, 4097, 50_001] {
            let (mut a, qp_a, b, qp_b) = pair(1 << 16, mtu);
            fill(&mut a.buffer);
            let first = 64.min(len);
            post_recv(&qp_b, 1, &[b.sge(0, first), b.sge(first, len - first)]);
            post(&qp_a, 2, SendOp::Send, &[a.sge(0, len)]);
            assert_eq!(a.wait(&[], 1)[0].status, WcStatus::Success);
            let got = b.wait(&[&a], 1)[0];
            assert_eq!(got.status, WcStatus::Success);
            assert_eq!(got.byte_len as usize, len);
            assert_eq!(b.buffer[..len], a.buffer[..len]);

            post_recv(&qp_b, 3, &[]);
            let write = SendOp::WriteImm {
                va: b.va(7),
                rkey: b.key,
                immediate: Immediate([4, 3, 2, 1]),
            };
            post(&qp_a, 4, write, &[a.sge(0, len)]);
            let got = b.wait(&[&a], 1)[0];
            assert_eq!(got.kind, CompletionKind::RecvWriteImm);
            assert_eq!(got.byte_len as usize, len);
            assert_eq!(got.immediate, Some(Immediate([4, 3, 2, 1])));
            assert_eq!(b.buffer[7..7 + len], a.buffer[..len]);
        }
    }
}

#[test]
fn uc_drops_what_it_cannot_execute_and_goes_on() {
    let (mut a, qp_a, b, qp_b) = pair(1 << 16, Mtu::B1024);
    fill(&mut a.buffer);
    let send = |len| {
        post(&qp_a, 1, SendOp::Send, &[a.sge(0, len)]);
        assert_eq!(a.wait(&[&b], 1)[0].status, WcStatus::Success);
    };
    send(10); // No receive.
    b.wait_for_nothing();
    post_recv(&qp_b, 7, &[b.sge(0, 3000)]);
    send(5000); // Does not fit; the receive stays.
    let (va, rkey) = (b.va(0), b.key ^ 1);
    post(&qp_a, 2, SendOp::Write { va, rkey }, &[a.sge(0, 9)]);
    assert_eq!(a.wait(&[&b], 1)[0].status, WcStatus::Success);
    b.wait_for_nothing();
    send(2500);
    let got = b.wait(&[&a], 1)[0];
    assert_eq!((got.wr_id, got.byte_len), (7, 2500));
    assert_eq!(b.buffer[..2500], a.buffer[..2500]);
    assert_eq!(qp_b.state().unwrap(), QpState::ReadyToSend);
    assert_eq!(b.nic.qp_stats()[0].1.out_of_buffer, 1);
}

#[test]
fn it_has_no_reads_atomics_or_invalidations() {
    let (a, qp_a, b, _qp_b) = pair(4096, Mtu::B1024);
    let (va, rkey) = (b.va(0), b.key);
    for op in [
        SendOp::Read { va, rkey },
        SendOp::FetchAdd { va, rkey, add: 1 },
        SendOp::SendInvalidate { rkey },
    ] {
        let sges = [a.sge(0, 8)];
        let request = request(1, op, &sges, SendTarget::Connection);
        let refused = qp_a.post_send(&request);
        assert_eq!(refused, Err(PostError::Unsupported), "{op:?}");
    }
}
