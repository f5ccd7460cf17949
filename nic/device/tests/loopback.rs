//! Two opened devices in one process, over the loopback interface: real sockets, real clock.

mod support;

use std::time::{Duration, Instant};

use support::{End, Peer, TIMEOUT, fill, set_state};
use urxe_device::{CompletionKind, Immediate, Mtu, QpState, SendOp, WcStatus};

fn pair(len: usize, mtu: Mtu) -> (Peer, Peer) {
    Peer::pair([End::new(len), End::new(len)], mtu, TIMEOUT)
}

#[test]
fn send_write_and_read_move_the_right_bytes() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        for len in [0usize, 1, 3, 255, 256, 257, 4096, 4097, 100_001] {
            let (mut a, b) = pair(1 << 17, mtu);
            fill(&mut a.buffer);
            b.post_recv(1, &[b.sge(0, len)]);
            a.post(2, SendOp::Send, &[a.sge(0, len)]);
            let got = b.wait(&a, 1)[0];
            assert_eq!((got.status, got.byte_len), (WcStatus::Success, len as u32));
            assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
            assert_eq!(a.buffer[..len], b.buffer[..len]);

            a.post(3, b.write_op(9), &[a.sge(0, len)]);
            assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
            assert_eq!(a.buffer[..len], b.buffer[9..9 + len]);

            b.post(4, a.read_op(5), &[b.sge(0, len)]);
            assert_eq!(b.wait(&a, 1)[0].status, WcStatus::Success);
            assert_eq!(
                a.buffer[5..5 + len],
                b.buffer[..len],
                "READ of {len} bytes at {mtu:?}"
            );
        }
    }
}

#[test]
fn immediates_and_atomics_arrive() {
    let (a, b) = pair(4096, Mtu::B1024);
    b.post_recv(1, &[]);
    let immediate = Immediate([1, 2, 3, 4]);
    let (va, rkey) = (b.va(0), b.key);
    let write = SendOp::WriteImm {
        va,
        rkey,
        immediate,
    };
    a.post(2, write, &[a.sge(0, 16)]);
    let got = b.wait(&a, 1)[0];
    let expected = (CompletionKind::RecvWriteImm, Some(immediate));
    assert_eq!((got.kind, got.immediate), expected);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
    let offset = 8 - b.va(0) as usize % 8;
    let va = b.va(offset);
    a.post(3, SendOp::FetchAdd { va, rkey, add: 5 }, &[a.sge(0, 8)]);
    a.post(4, SendOp::FetchAdd { va, rkey, add: 6 }, &[a.sge(8, 8)]);
    assert_eq!(a.wait(&b, 2).len(), 2);
    assert_eq!(b.buffer[offset..offset + 8], 11u64.to_ne_bytes());
    assert_eq!(a.buffer[8..16], 5u64.to_ne_bytes());
}

#[test]
fn a_wrong_key_is_refused_and_both_ends_flush() {
    let (a, b) = pair(4096, Mtu::B1024);
    b.post_recv(1, &[b.sge(0, 64)]);
    let (va, rkey) = (b.va(0), b.key ^ 0x5500);
    a.post(2, SendOp::Write { va, rkey }, &[a.sge(0, 16)]);
    a.post(3, SendOp::Send, &[a.sge(0, 16)]);
    let got = a.wait(&b, 2);
    assert_eq!(got[0].status, WcStatus::RemoteAccess);
    assert_eq!(got[1].status, WcStatus::WrFlush);
    assert_eq!(b.wait(&a, 1)[0].status, WcStatus::WrFlush);
    assert_eq!(b.qp.state().unwrap(), QpState::Error);
    assert!(b.buffer.iter().all(|byte| *byte == 0));
}

#[test]
fn the_target_of_a_write_need_not_poll() {
    let (a, b) = pair(1 << 20, Mtu::B4096);
    std::thread::sleep(Duration::from_millis(5));
    for i in 0..50u64 {
        a.post(i, b.write_op(0), &[a.sge(0, 1 << 20)]);
        let start = Instant::now();
        let mut done = 0;
        while done == 0 {
            done = a.cq.poll(1, |completion| {
                assert_eq!(completion.status, WcStatus::Success)
            });
            assert!(start.elapsed() < Duration::from_secs(60), "WRITE {i} hangs");
        }
    }
}

#[test]
fn a_peer_that_is_gone_exhausts_the_retries() {
    let (a, b) = pair(4096, Mtu::B1024);
    b.qp.destroy();
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::RetryExceeded);
}

#[test]
fn a_peer_that_took_leave_is_given_up_even_without_a_timeout() {
    let leaves: [fn(&Peer); 2] = [
        |peer| peer.qp.destroy(),
        |peer| set_state(&peer.qp, QpState::Error),
    ];
    for leave in leaves {
        let (a, b) = Peer::pair([End::new(4096), End::new(4096)], Mtu::B1024, 0);
        let write = b.write_op(0);
        a.post(1, write, &[a.sge(0, 8)]);
        assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
        leave(&b);
        a.post(2, write, &[a.sge(0, 8)]);
        assert_eq!(a.wait(&b, 1)[0].status, WcStatus::RetryExceeded);
    }
}

#[test]
fn a_blocked_reader_of_the_channel_is_woken() {
    let mut receiver = End::new(4096);
    let channel = receiver.add_channel();
    let (a, b) = Peer::pair([End::new(4096), receiver], Mtu::B1024, TIMEOUT);
    b.post_recv(1, &[b.sge(0, 64)]);
    b.cq.arm(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| channel.wait().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        a.post(1, SendOp::Send, &[a.sge(0, 8)]);
        assert_eq!(reader.join().unwrap(), 42);
    });
    let came = b.cq.poll(4, |completion| {
        assert_eq!(completion.status, WcStatus::Success)
    });
    assert_eq!(came, 1);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);
}
