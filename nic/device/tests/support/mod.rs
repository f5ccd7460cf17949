//! Ends of communication over the loopback interface: a device, a completion queue, a buffer, and
//! queue pairs of any type.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::missing_panics_doc,
    reason = "each test program uses a part"
)]

pub mod apart;
pub mod cm;
pub mod duel;
mod qps;
pub mod streams;
pub mod threads;
pub mod wire_end;

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use urxe_device::{
    Access, AddressVector, AsyncEventKind, Attributes, Capacity, Completion, CompletionChannel, Cq,
    DeviceInfo, Gid, Mtu, Nic, Pd, Qp, QpInit, QpType, Qpn, SendOp, Sge, Srq, SrqInit, WcStatus,
    Wiring,
};
use urxe_wire::{ROCE_UDP_PORT, Reth};

pub use qps::*;

pub const CAPACITY: Capacity = Capacity {
    send_requests: 64,
    recv_requests: 64,
    send_sges: 4,
    recv_sges: 4,
    inline_bytes: 256,
};
/// Longest time that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// A local acknowledgement timeout of 67 ms.
pub const TIMEOUT: u8 = 14;

pub fn device(netdev: &str) -> DeviceInfo {
    let devices = urxe_device::list().unwrap();
    devices
        .into_iter()
        .find(|device| device.netdev == netdev)
        .expect("the interface is up and has an address")
}

/// The UDP port of a queue pair with this number, as urxe has it.
pub fn port_of(number: Qpn) -> u16 {
    ROCE_UDP_PORT + (number.get() >> 14) as u16
}

/// A device that has this done to its packets.
pub fn impaired(text: &str) -> Wiring {
    Wiring {
        impairment: text.parse().unwrap(),
        ..Wiring::default()
    }
}

/// Lets no other test of the program run that asks for it, too.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a descriptor has one of these events within so many milliseconds.
pub fn is_ready(fd: RawFd, events: libc::c_short, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

/// Looks again and again until it is so, and panics if it never is.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

/// Whether a command of ip(8) succeeds.
pub fn ip(command: &str) -> bool {
    let status = Command::new("ip").args(command.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

/// Runs `body` on a thread in a network namespace of its own, after these commands of ip(8) there;
/// says that the test is skipped where that cannot be had.
pub fn in_namespace(commands: &[&str], body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: a plain integer; the change is this thread's alone.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                println!("skipped: making a network namespace needs root");
                return;
            }
            for command in commands {
                assert!(ip(command), "ip {command}");
            }
            body();
        });
        if let Err(panic) = inside.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The same with a link from the interface `near`, 10.9.0.1, to `far`, and a neighbour 10.9.0.2 of
/// which only the address is there.
pub fn on_a_link(body: impl FnOnce() + Send) {
    let commands = [
        "link set lo up",
        "link add near type veth peer name far",
        "link set near up",
        "link set far up",
        "addr add 10.9.0.1/24 dev near",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev near",
    ];
    in_namespace(&commands, body);
}

/// What a program and its peers may do with memory.
pub fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// A device with a protection domain, a completion queue and a registered buffer.
pub struct End {
    pub nic: Arc<Nic>,
    pub pd: Pd,
    pub cq: Arc<Cq>,
    pub buffer: Vec<u8>,
    pub key: u32,
}

/// A peer may write to the buffer for as long as it is registered: after it was freed, to what has
/// another owner then.
impl Drop for End {
    fn drop(&mut self) {
        let _ = self.nic.deregister(self.key);
    }
}

impl End {
    pub fn new(len: usize) -> Self {
        Self::on("lo", len)
    }

    pub fn on(netdev: &str, len: usize) -> Self {
        Self::of(Nic::open(&device(netdev)).unwrap(), len)
    }

    pub fn wired(wiring: &Wiring, len: usize) -> Self {
        Self::of(Nic::open_wired(&device("lo"), wiring).unwrap(), len)
    }

    pub fn of(nic: Arc<Nic>, len: usize) -> Self {
        let pd = nic.alloc_pd();
        let cq = nic.create_cq(1024, None, 7).unwrap();
        let buffer = vec![0; len];
        let at = buffer.as_ptr() as u64;
        let access = all_rights() | Access::MW_BIND;
        let key = nic.register(pd, at, len as u64, at, access).unwrap().lkey;
        Self {
            nic,
            pd,
            cq,
            buffer,
            key,
        }
    }

    /// Gives it a completion queue with a channel, for queue pairs to come.
    pub fn add_channel(&mut self) -> Arc<CompletionChannel> {
        let channel = self.nic.create_channel().unwrap();
        let of_queue = Some(Arc::clone(&channel));
        self.cq = self.nic.create_cq(16, of_queue, 42).unwrap();
        channel
    }

    pub fn init(&self, qp_type: QpType) -> QpInit {
        let cq = || Some(Arc::clone(&self.cq));
        QpInit {
            qp_type,
            pd: (qp_type != QpType::XrcTarget).then_some(self.pd),
            send_cq: cq().filter(|_| qp_type.sends()),
            recv_cq: cq().filter(|_| qp_type.receives()),
            srq: None,
            xrcd: None,
            capacity: CAPACITY,
        }
    }

    pub fn qp(&self, qp_type: QpType) -> Qp {
        self.nic.create_qp(&self.init(qp_type)).unwrap()
    }

    pub fn srq(&self, max_requests: u32) -> Arc<Srq> {
        let init = SrqInit {
            pd: self.pd,
            max_requests,
            max_sges: 2,
            limit: 0,
            xrc: None,
        };
        self.nic.create_srq(&init).unwrap()
    }

    pub fn qp_with_srq(&self, qp_type: QpType, srq: &Arc<Srq>) -> Qp {
        let init = QpInit {
            srq: Some(Arc::clone(srq)),
            ..self.init(qp_type)
        };
        self.nic.create_qp(&init).unwrap()
    }

    /// A datagram queue pair, ready to send.
    pub fn datagrams(&self, qkey: u32) -> Qp {
        let qp = self.qp(QpType::Ud);
        ready_datagrams(&qp, qkey);
        qp
    }

    /// The index of the GID of the family.
    pub fn gid_index(&self, ipv6: bool) -> Option<u8> {
        let is_it = |entry: &urxe_device::GidEntry| entry.gid.to_ip().is_ipv6() == ipv6;
        let at = self.nic.gids().iter().position(is_it)?;
        u8::try_from(at).ok()
    }

    /// The address of this host.
    pub fn address(&self) -> AddressVector {
        self.address_of(self.nic.gids()[0].gid, 0)
    }

    pub fn address_of(&self, dest_gid: Gid, source_gid_index: u8) -> AddressVector {
        AddressVector {
            dest_gid,
            source_gid_index,
            hop_limit: 64,
            ..AddressVector::default()
        }
    }

    /// Where packets of another host have to go for a queue pair.
    pub fn udp_address(&self, qp: &Qp) -> SocketAddr {
        SocketAddr::new(self.nic.gids()[0].gid.to_ip(), port_of(qp.number()))
    }

    /// A counter of the device.
    pub fn count(&self, counter: &str) -> u64 {
        self.nic.stat().counters[counter]
    }

    /// Polls until it is so.
    pub fn poll_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        wait_until(what, || {
            self.cq.poll(0, |_| ());
            is_so()
        });
    }

    pub fn va(&self, offset: usize) -> u64 {
        self.buffer.as_ptr() as u64 + offset as u64
    }

    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.va(offset),
            len: u32::try_from(len).unwrap(),
            lkey: self.key,
        }
    }

    /// A part of the buffer, as a packet names it.
    pub fn reth(&self, offset: usize, len: u32) -> Reth {
        Reth {
            va: self.va(offset),
            rkey: self.key,
            len,
        }
    }

    /// Writes to this buffer.
    pub fn write_op(&self, offset: usize) -> SendOp {
        SendOp::Write {
            va: self.va(offset),
            rkey: self.key,
        }
    }

    /// Reads from this buffer.
    pub fn read_op(&self, offset: usize) -> SendOp {
        SendOp::Read {
            va: self.va(offset),
            rkey: self.key,
        }
    }

    /// The completion queue's next `count` completions, polling the other ends meanwhile.
    pub fn wait(&self, others: &[&Self], count: usize) -> Vec<Completion> {
        wait_for(&self.nic, &self.cq, others, count)
    }

    /// Takes the next asynchronous event.
    pub fn event(&self) -> AsyncEventKind {
        let has_come = is_ready(self.nic.event_fd(), libc::POLLIN, 10_000);
        assert!(has_come, "no event");
        self.nic.next_event().unwrap().kind
    }

    /// Polls for a while, and wants nothing to come.
    pub fn wait_for_nothing(&self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            self.cq
                .poll(1, |completion| panic!("unexpected {completion:?}"));
        }
    }
}

pub fn wait_for(nic: &Arc<Nic>, cq: &Cq, others: &[&End], count: usize) -> Vec<Completion> {
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < count {
        cq.poll(count - got.len(), |completion| got.push(completion));
        for other in others {
            other.cq.poll(0, |_| ());
        }
        assert!(
            start.elapsed() < PATIENCE,
            "only {got:?} after {PATIENCE:?}; {:?}",
            nic.stats()
        );
    }
    got
}

pub fn fill(buffer: &mut [u8]) {
    fill_from(buffer, 1);
}

/// With other bytes for each seed.
pub fn fill_from(buffer: &mut [u8], seed: usize) {
    for (i, byte) in buffer.iter_mut().enumerate() {
        *byte = (i * 7 + i / 251 + seed) as u8;
    }
}

/// An end with one queue pair, of a reliable connection.
pub struct Peer {
    pub end: End,
    pub qp: Qp,
}

impl Peer {
    pub fn of(end: End) -> Self {
        let qp = end.qp(QpType::Rc);
        Self { end, qp }
    }

    /// Two that are connected to each other, the local acknowledgement timeout being as given
    /// (IBTA 9.9.2.1).
    pub fn pair(ends: [End; 2], mtu: Mtu, timeout: u8) -> (Self, Self) {
        let [a, b] = ends.map(Self::of);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let wanted = Attributes {
                timeout,
                ..peer_attributes(from.nic.gids()[0].gid, to.qp.number(), mtu)
            };
            connect_with(&from.qp, &wanted);
        }
        (a, b)
    }

    pub fn post(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        post(&self.qp, wr_id, op, sges);
    }

    /// What becomes of a request to the other.
    pub fn run(&self, other: &Self, op: SendOp, sge: Sge) -> WcStatus {
        self.post(1, op, &[sge]);
        self.wait(other, 1)[0].status
    }

    pub fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        post_recv(&self.qp, wr_id, sges);
    }

    pub fn wait(&self, other: &Self, count: usize) -> Vec<Completion> {
        self.end.wait(&[&other.end], count)
    }
}

impl Deref for Peer {
    type Target = End;

    fn deref(&self) -> &End {
        &self.end
    }
}

impl DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut End {
        &mut self.end
    }
}

/// Lets the process have descriptors below this number alone; what it might before.
pub fn limit_descriptors(count: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the limit, which lives until the calls return.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, count);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}
