//! Two connected queue pairs and a few regions, for tests that do one thing at a time.

use urxe_proto::{
    Completion, Instant, QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge,
    WcStatus,
};
use urxe_sim::{ConnectOptions, LinkConfig, QpHandle, Random, Rights, World};

use super::check::assert_same;
use super::scenario::PD;
use super::seeds::is_replay;

pub const REGION_BYTES: usize = 256 << 10;
/// Longest time one operation may take.
const OPERATION_NS: u64 = 60_000_000_000;

/// See the module. Requests go from `a` to `b`.
pub struct Bench {
    pub world: World,
    pub a: QpHandle,
    pub b: QpHandle,
    /// Data to send, at `a`.
    pub source: u32,
    /// Where READs and atomics put what they fetch, at `a`.
    pub fetched: u32,
    /// What the peer may write, read and change, at `b`. Its last 8 bytes are a counter.
    pub target: u32,
    /// Where receives go, at `b`.
    pub received: u32,
    next_id: u64,
    completions: Vec<Completion>,
}

impl Bench {
    pub fn new(seed: u64, options: ConnectOptions) -> Self {
        Self::over(seed, options, LinkConfig::default())
    }

    pub fn over(seed: u64, options: ConnectOptions, link: LinkConfig) -> Self {
        let mut world = World::new(seed, false);
        if is_replay() {
            world.trace.keep_lines();
        }
        let hosts = [world.add_host(), world.add_host()];
        world.add_link(hosts[0], hosts[1], link, &[]);
        let (a, b) = world.connect(hosts[0], hosts[1], PD, &options);
        let mut bytes = vec![0; REGION_BYTES];
        Random::new(seed).fill(&mut bytes);
        let local = Rights {
            local_write: true,
            ..Rights::default()
        };
        let memory = &mut world.host_mut(hosts[0]).memory;
        let source = memory.register(PD, Rights::default(), bytes);
        let fetched = memory.register(PD, local, vec![0; REGION_BYTES]);
        let memory = &mut world.host_mut(hosts[1]).memory;
        let target = memory.register(PD, Rights::ALL, vec![0; REGION_BYTES]);
        let received = memory.register(PD, local, vec![0; REGION_BYTES]);
        Self {
            world,
            a,
            b,
            source,
            fetched,
            target,
            received,
            next_id: 1_000,
            completions: Vec::new(),
        }
    }

    pub fn target_va(&self, at: usize) -> u64 {
        self.world
            .host(self.b.host)
            .memory
            .va(self.target, at as u64)
    }

    pub fn counter_va(&self) -> u64 {
        self.target_va(REGION_BYTES - 8)
    }

    pub fn counter(&self) -> u64 {
        let bytes = self.world.host(self.b.host).memory.bytes(self.target);
        u64::from_ne_bytes(bytes[REGION_BYTES - 8..].try_into().unwrap())
    }

    pub fn lost(&mut self, to_responder: bool) -> u64 {
        let (a, b) = (self.a.host, self.b.host);
        let (from, to) = if to_responder { (a, b) } else { (b, a) };
        self.world.link_mut(from, to).stats.dropped
    }

    /// Posts a request on `a` with data at `at` of the source or, for a fetch, of the fetched
    /// region.
    pub fn post_send(&mut self, wr_id: u64, op: SendOp, at: usize, len: usize) {
        let key = if op.is_fetch() {
            self.fetched
        } else {
            self.source
        };
        let addr = self.world.host(self.a.host).memory.va(key, at as u64);
        let sges = [Sge {
            addr,
            len: len as u32,
            lkey: key,
        }];
        let request = SendRequest {
            wr_id,
            op,
            data: SendData::Sges(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.world.post_send(self.a, &request).unwrap();
    }

    /// Posts a receive of `len` bytes on `b`.
    pub fn post_recv(&mut self, wr_id: u64, len: usize) {
        let addr = self.world.host(self.b.host).memory.va(self.received, 0);
        let sges = [Sge {
            addr,
            len: len as u32,
            lkey: self.received,
        }];
        self.world
            .post_recv(self.b, &RecvRequest { wr_id, sges: &sges })
            .unwrap();
    }

    fn take_completions(&mut self) {
        for host in [self.a.host, self.b.host] {
            while let Some((_, completion)) = self.world.host_mut(host).poll_completion() {
                self.completions.push(completion);
            }
        }
    }

    fn take(&mut self, side: QueueSide) -> Option<Completion> {
        self.take_completions();
        let at = self
            .completions
            .iter()
            .position(|completion| completion.side() == side)?;
        Some(self.completions.remove(at))
    }

    pub fn send_completion(&mut self) -> Option<Completion> {
        self.take(QueueSide::Send)
    }

    pub fn recv_completion(&mut self) -> Option<Completion> {
        self.take(QueueSide::Recv)
    }

    pub fn run_for(&mut self, nanos: u64) {
        let end = self.world.now().after(nanos);
        self.world.run_until(end);
    }

    /// Lets time pass until a send completes.
    pub fn wait_send(&mut self) -> Completion {
        let end = self.world.now().after(OPERATION_NS);
        loop {
            if let Some(completion) = self.send_completion() {
                return completion;
            }
            let next: Option<Instant> = self.world.next_at();
            assert!(next.is_some_and(|at| at < end), "a request never completes");
            self.world.step();
        }
    }

    fn run(&mut self, op: SendOp, at: usize, len: usize) {
        self.next_id += 1;
        let wr_id = self.next_id;
        self.post_send(wr_id, op, at, len);
        let completion = self.wait_send();
        assert_eq!(
            (completion.wr_id, completion.status),
            (wr_id, WcStatus::Success),
            "{op:?}"
        );
    }

    /// Writes `len` bytes of the source to the same place of the target, and looks at them.
    pub fn write(&mut self, at: usize, len: usize) {
        self.run(
            SendOp::Write {
                va: self.target_va(at),
                rkey: self.target,
            },
            at,
            len,
        );
        let source = self.world.host(self.a.host).memory.bytes(self.source);
        let target = self.world.host(self.b.host).memory.bytes(self.target);
        assert_same(&target[at..at + len], &source[at..at + len], "written");
    }

    /// Reads `len` bytes of the target, and looks at them.
    pub fn read(&mut self, at: usize, len: usize) {
        self.run(
            SendOp::Read {
                va: self.target_va(at),
                rkey: self.target,
            },
            at,
            len,
        );
        let fetched = self.world.host(self.a.host).memory.bytes(self.fetched);
        let target = self.world.host(self.b.host).memory.bytes(self.target);
        assert_same(&fetched[at..at + len], &target[at..at + len], "read");
    }

    pub fn fetch_add(&mut self, expected: u64, add: u64) {
        self.run(
            SendOp::FetchAdd {
                va: self.counter_va(),
                rkey: self.target,
                add,
            },
            0,
            8,
        );
        self.check_original(expected);
    }

    pub fn compare_swap(&mut self, expected: u64, swap: u64) {
        let va = self.counter_va();
        self.run(
            SendOp::CompareSwap {
                va,
                rkey: self.target,
                compare: expected,
                swap,
            },
            0,
            8,
        );
        self.check_original(expected);
    }

    fn check_original(&self, expected: u64) {
        let fetched = self.world.host(self.a.host).memory.bytes(self.fetched);
        assert_same(&fetched[..8], &expected.to_ne_bytes(), "original value");
    }
}
