//! iWARP connections to a host that vanishes, beside others to a host that is there and does
//! nothing. It takes as long as a host has that does not answer.
mod support;

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use support::streams::{agree, connection, end, idle};
use support::{Peer, in_namespace, ip};
use urxe_device::{AsyncEventKind, QpEvent, QpState, SendOp, WcStatus};

const LEN: usize = 1 << 20;
/// Twenty seconds without an answer, and a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// The two hosts there.
const STAYS: [u8; 4] = [10, 9, 0, 3];
const VANISHES: [u8; 4] = [10, 9, 0, 2];

/// The other end of the link, in a network namespace of its own.
struct Far(File);

impl Far {
    /// With the interface `far`, which was here.
    fn new() -> Self {
        let made = std::thread::spawn(|| {
            // SAFETY: a plain integer; the change is this thread's alone.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        let far = Self(made.join().unwrap());
        let path = format!("/proc/{}/fd/{}", std::process::id(), far.0.as_raw_fd());
        assert!(ip(&format!("link set far netns {path}")));
        far.run(|| {
            assert!(ip("link set far up"));
            // The first of a network outlives the others.
            assert!(ip("addr add 10.9.0.3/24 dev far"));
            assert!(ip("addr add 10.9.0.2/24 dev far"));
        });
        far
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                // SAFETY: a descriptor of a network namespace.
                let status = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(status, 0);
                work()
            });
            inside.join().unwrap()
        })
    }

    /// A queue pair that is connected to a socket of a host there.
    fn connected(&self, host: [u8; 4]) -> (Peer, TcpStream) {
        let bind = || TcpListener::bind(SocketAddr::from((host, 0))).unwrap();
        let listener = self.run(bind);
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (passive, _) = listener.accept().unwrap();
        let [active, passive] = agree(active, passive);
        let peer = idle(end(LEN));
        peer.qp.connect(connection(active)).unwrap();
        (peer, passive.0)
    }
}

fn send(from: &Peer, count: u64) {
    (0..count).for_each(|id| from.post(id, SendOp::Send, &[from.sge(0, LEN)]));
}

#[test]
fn a_host_that_vanishes_is_missed_and_one_that_takes_nothing_in_is_not() {
    let commands = [
        "link set lo up",
        "link add near type veth peer name far",
        "link set near up",
        "addr add 10.9.0.1/24 dev near",
    ];
    in_namespace(&commands, || {
        let far = Far::new();
        let (idle, _idle_peer) = far.connected(VANISHES);
        let (sending, _sending_peer) = far.connected(VANISHES);
        let (silent, _silent_peer) = far.connected(STAYS);
        let (full, _full_peer) = far.connected(STAYS);
        // More than the sockets hold.
        send(&full, 32);

        far.run(|| assert!(ip("addr del 10.9.0.2/24 dev far")));
        let start = Instant::now();
        idle.post_recv(1, &[idle.sge(0, LEN)]);
        sending.post_recv(1, &[sending.sge(0, LEN)]);
        send(&sending, 1);
        for peer in [&idle, &sending] {
            while peer.qp.state().unwrap() != QpState::Error {
                assert!(start.elapsed() < PATIENCE, "its peer is not missed");
                std::thread::sleep(Duration::from_millis(100));
            }
            let fatal = AsyncEventKind::Qp(peer.qp.number(), QpEvent::Fatal);
            assert_eq!(peer.event(), fatal);
        }
        let flushed = &idle.end.wait(&[], 1)[0];
        assert_eq!((flushed.wr_id, flushed.status), (1, WcStatus::WrFlush));
        for peer in [&silent, &full] {
            assert_eq!(peer.qp.state().unwrap(), QpState::ReadyToSend);
        }
    });
}
