//! Two opened devices in one process, over the loopback interface: real sockets, real clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe_device::{
    Access, AttrMask, Attributes, Capacity, Completion, CompletionKind, Cq, DeviceInfo, Immediate,
    Mtu, Nic, Pd, Psn, Qp, QpInit, QpState, QpType, RecvRequest, SendData, SendOp, SendRequest,
    SendTarget, Sge, WcStatus,
};

const CAPACITY: Capacity = Capacity {
    send_requests: 64,
    recv_requests: 64,
    send_sges: 4,
    recv_sges: 4,
    inline_bytes: 256,
};

/// One end: a device with one queue pair and one registered buffer.
struct End {
    nic: Arc<Nic>,
    pd: Pd,
    cq: Arc<Cq>,
    qp: Qp,
    buffer: Vec<u8>,
    key: u32,
}

fn loopback() -> DeviceInfo {
    let devices = urxe_device::list().unwrap();
    devices
        .into_iter()
        .find(|device| device.netdev == "lo")
        .expect("the loopback interface is up")
}

impl End {
    fn new(len: usize) -> Self {
        let nic = Nic::open(&loopback()).unwrap();
        let pd = nic.alloc_pd();
        let cq = nic.create_cq(256, None, 7).unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(Arc::clone(&cq)),
            recv_cq: Some(Arc::clone(&cq)),
            srq: None,
            xrcd: None,
            capacity: CAPACITY,
        };
        let qp = nic.create_qp(&init).unwrap();
        let buffer = vec![0; len];
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let at = buffer.as_ptr() as u64;
        let key = nic.register(pd, at, len as u64, at, access).unwrap().lkey;
        Self {
            nic,
            pd,
            cq,
            qp,
            buffer,
            key,
        }
    }

    fn connect(&self, peer: &Self, mtu: Mtu) {
        self.connect_with_timeout(peer, mtu, 14);
    }

    fn connect_with_timeout(&self, peer: &Self, mtu: Mtu, timeout: u8) {
        let gid = self.nic.gids()[0].gid;
        let attributes = Attributes {
            allow_remote_write: true,
            allow_remote_read: true,
            allow_remote_atomic: true,
            dest_gid: gid,
            path_mtu: mtu,
            dest_qp: peer.qp.number(),
            rq_psn: Psn::new(0x00ff_fff0),
            sq_psn: Psn::new(0x00ff_fff0),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout,
            retry_count: 7,
            rnr_retry: 7,
            ..Attributes::new()
        };
        let steps = [
            (
                QpState::Init,
                AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
            ),
            (
                QpState::ReadyToReceive,
                AttrMask::ADDRESS_VECTOR
                    | AttrMask::PATH_MTU
                    | AttrMask::DEST_QPN
                    | AttrMask::RQ_PSN
                    | AttrMask::MAX_DEST_RD_ATOMIC
                    | AttrMask::MIN_RNR_TIMER,
            ),
            (
                QpState::ReadyToSend,
                AttrMask::TIMEOUT
                    | AttrMask::RETRY_COUNT
                    | AttrMask::RNR_RETRY
                    | AttrMask::SQ_PSN
                    | AttrMask::MAX_RD_ATOMIC,
            ),
        ];
        for (state, mask) in steps {
            let wanted = Attributes {
                state,
                ..attributes.clone()
            };
            self.qp.modify(&wanted, mask | AttrMask::STATE).unwrap();
        }
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        let addr = self.buffer.as_ptr() as u64 + offset as u64;
        Sge {
            addr,
            len: u32::try_from(len).unwrap(),
            lkey: self.key,
        }
    }

    fn va(&self, offset: usize) -> u64 {
        self.buffer.as_ptr() as u64 + offset as u64
    }

    fn post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let request = SendRequest {
            wr_id,
            op,
            data: SendData::Sges(sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.qp.post_send(&request).unwrap();
    }

    fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvRequest { wr_id, sges }).unwrap();
    }
}

/// Polls both ends until `end` has `count` completions.
fn wait(end: &End, other: &End, count: usize) -> Vec<Completion> {
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < count {
        end.cq.poll(16, |completion| got.push(completion));
        other.cq.poll(0, |_| ());
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "only {got:?} after 10 s"
        );
    }
    got
}

fn pair(len: usize, mtu: Mtu) -> (End, End) {
    let (a, b) = (End::new(len), End::new(len));
    a.connect(&b, mtu);
    b.connect(&a, mtu);
    (a, b)
}

fn fill(buffer: &mut [u8]) {
    for (i, byte) in buffer.iter_mut().enumerate() {
        *byte = (i * 7 + i / 251) as u8;
    }
}

#[test]
fn send_write_and_read_move_the_right_bytes() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        for len in [0usize, 1, 3, 255, 256, 257, 4096, 4097, 100_001] {
            let (mut a, b) = pair(1 << 17, mtu);
            fill(&mut a.buffer);
            b.post_recv(1, &[b.sge(0, len)]);
            a.post(2, SendOp::Send, &[a.sge(0, len)]);
            let got = wait(&b, &a, 1)[0];
            assert_eq!((got.status, got.byte_len), (WcStatus::Success, len as u32));
            assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::Success);
            assert_eq!(a.buffer[..len], b.buffer[..len]);

            a.post(
                3,
                SendOp::Write {
                    va: b.va(9),
                    rkey: b.key,
                },
                &[a.sge(0, len)],
            );
            assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::Success);
            assert_eq!(a.buffer[..len], b.buffer[9..9 + len]);

            b.post(
                4,
                SendOp::Read {
                    va: a.va(5),
                    rkey: a.key,
                },
                &[b.sge(0, len)],
            );
            assert_eq!(wait(&b, &a, 1)[0].status, WcStatus::Success);
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
    let write = SendOp::WriteImm {
        va: b.va(0),
        rkey: b.key,
        immediate,
    };
    a.post(2, write, &[a.sge(0, 16)]);
    let got = wait(&b, &a, 1)[0];
    assert_eq!(
        (got.kind, got.immediate),
        (CompletionKind::RecvWriteImm, Some(immediate))
    );
    assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::Success);
    let offset = 8 - b.va(0) as usize % 8;
    a.post(
        3,
        SendOp::FetchAdd {
            va: b.va(offset),
            rkey: b.key,
            add: 5,
        },
        &[a.sge(0, 8)],
    );
    a.post(
        4,
        SendOp::FetchAdd {
            va: b.va(offset),
            rkey: b.key,
            add: 6,
        },
        &[a.sge(8, 8)],
    );
    assert_eq!(wait(&a, &b, 2).len(), 2);
    assert_eq!(b.buffer[offset..offset + 8], 11u64.to_ne_bytes());
    assert_eq!(a.buffer[8..16], 5u64.to_ne_bytes());
}

#[test]
fn a_wrong_key_is_refused_and_both_ends_flush() {
    let (a, b) = pair(4096, Mtu::B1024);
    b.post_recv(1, &[b.sge(0, 64)]);
    a.post(
        2,
        SendOp::Write {
            va: b.va(0),
            rkey: b.key ^ 0x5500,
        },
        &[a.sge(0, 16)],
    );
    a.post(3, SendOp::Send, &[a.sge(0, 16)]);
    let got = wait(&a, &b, 2);
    assert_eq!(got[0].status, WcStatus::RemoteAccess);
    assert_eq!(got[1].status, WcStatus::WrFlush);
    assert_eq!(wait(&b, &a, 1)[0].status, WcStatus::WrFlush);
    assert_eq!(b.qp.state().unwrap(), QpState::Error);
    assert!(b.buffer.iter().all(|byte| *byte == 0));
}

#[test]
fn the_target_of_a_write_need_not_poll() {
    let (a, b) = pair(1 << 20, Mtu::B4096);
    std::thread::sleep(Duration::from_millis(5));
    for i in 0..50u64 {
        a.post(
            i,
            SendOp::Write {
                va: b.va(0),
                rkey: b.key,
            },
            &[a.sge(0, 1 << 20)],
        );
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
    assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::RetryExceeded);
}

#[test]
fn a_peer_that_took_leave_is_given_up_even_without_a_timeout() {
    let leaves: [fn(&End); 2] = [
        |end| end.qp.destroy(),
        |end| {
            let error = Attributes {
                state: QpState::Error,
                ..Attributes::new()
            };
            end.qp.modify(&error, AttrMask::STATE).unwrap();
        },
    ];
    for leave in leaves {
        let (a, b) = (End::new(4096), End::new(4096));
        a.connect_with_timeout(&b, Mtu::B1024, 0);
        b.connect_with_timeout(&a, Mtu::B1024, 0);
        let write = SendOp::Write {
            va: b.va(0),
            rkey: b.key,
        };
        a.post(1, write, &[a.sge(0, 8)]);
        assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::Success);
        leave(&b);
        a.post(2, write, &[a.sge(0, 8)]);
        assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::RetryExceeded);
    }
}

#[test]
fn a_blocked_reader_of_the_channel_is_woken() {
    let (a, b) = pair(4096, Mtu::B1024);
    let channel = b.nic.create_channel().unwrap();
    let cq = b.nic.create_cq(16, Some(Arc::clone(&channel)), 42).unwrap();
    let init = QpInit {
        recv_cq: Some(Arc::clone(&cq)),
        ..b.qp.init().clone()
    };
    let b = End {
        qp: b.nic.create_qp(&init).unwrap(),
        ..b
    };
    a.qp.modify(
        &Attributes {
            state: QpState::Reset,
            ..Attributes::new()
        },
        AttrMask::STATE,
    )
    .unwrap();
    a.connect(&b, Mtu::B1024);
    b.connect(&a, Mtu::B1024);
    b.post_recv(1, &[b.sge(0, 64)]);
    cq.arm(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| channel.wait().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        a.post(1, SendOp::Send, &[a.sge(0, 8)]);
        assert_eq!(reader.join().unwrap(), 42);
    });
    assert_eq!(
        cq.poll(4, |completion| assert_eq!(
            completion.status,
            WcStatus::Success
        )),
        1
    );
    assert_eq!(wait(&a, &b, 1)[0].status, WcStatus::Success);
    let _ = b.pd;
}
