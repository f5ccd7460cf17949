//! Runs the program of one direction of a connection: posts its requests on one side and receives on
//! the other, and holds every completion and every byte against the model.

use urxe_proto::{
    Completion, CompletionKind, Instant, PdId, RecvRequest, SendData, SendOp, SendRequest, Sge,
    WcStatus,
};
use urxe_sim::{QpHandle, Random, Rights, World};
use urxe_wire::Immediate;

use super::program::{Action, COUNTERS, Op, Program, TARGET_BYTES, UNTOUCHED};

/// Receive identifiers start here, to tell them from those of sends.
const RECV_BASE: u64 = 1 << 32;

/// When posts happen.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Requests posted at once, at most.
    pub burst: u64,
    /// Longest pause between bursts.
    pub pause_max_ns: u64,
    /// Receives posted before the first request.
    pub recvs_at_first: u64,
    /// Longest time until another receive is posted.
    pub recv_pause_max_ns: u64,
}

/// What became of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Running,
    Done,
    /// The first status that was not success.
    Failed(WcStatus),
}

/// See the module.
pub struct Driver {
    pub requester: QpHandle,
    pub responder: QpHandle,
    pub program: Program,
    pace: Pace,
    random: Random,
    source_key: u32,
    peer_source_key: u32,
    pub target_key: u32,
    counters_key: u32,
    fetched_key: u32,
    received_key: u32,
    /// Where each fetch and each receive has its place, and how much.
    places: Vec<(usize, usize)>,
    posted: usize,
    /// Index of the next operation whose completion is due.
    completed: usize,
    received: usize,
    recvs_posted: u64,
    next_send_at: Instant,
    next_recv_at: Instant,
    failed: Option<WcStatus>,
    flushed: usize,
    /// Takes every completion for what it says: the peer lies.
    pub believes_anything: bool,
}

/// The keys of the source regions of the two sides.
#[derive(Clone, Copy)]
pub struct SourceKeys {
    pub requester: u32,
    pub responder: u32,
}

impl Driver {
    pub fn new(
        world: &mut World,
        (requester, responder): (QpHandle, QpHandle),
        pd: PdId,
        program: Program,
        keys: SourceKeys,
        pace: Pace,
        random: Random,
    ) -> Self {
        let mut fetch_bytes = 0;
        let mut recv_bytes = 0;
        let mut places = Vec::new();
        for op in &program.ops {
            let total = if op.action.is_fetch() {
                &mut fetch_bytes
            } else {
                &mut recv_bytes
            };
            places.push((*total, op.len));
            // A gap shows what is written beyond the end.
            *total += op.len + 16;
        }
        let mut register = |host, rights, len: usize| {
            world
                .host_mut(host)
                .memory
                .register(pd, rights, vec![UNTOUCHED; len])
        };
        let local = Rights {
            local_write: true,
            ..Rights::default()
        };
        let fetched_key = register(requester.host, local, fetch_bytes);
        let received_key = register(responder.host, local, recv_bytes);
        let target_key = register(responder.host, Rights::ALL, TARGET_BYTES);
        let counters_key =
            world
                .host_mut(responder.host)
                .memory
                .register(pd, Rights::ALL, vec![0; 8 * COUNTERS]);
        Self {
            requester,
            responder,
            program,
            pace,
            random,
            source_key: keys.requester,
            peer_source_key: keys.responder,
            target_key,
            counters_key,
            fetched_key,
            received_key,
            places,
            posted: 0,
            completed: 0,
            received: 0,
            recvs_posted: 0,
            next_send_at: Instant::default(),
            next_recv_at: Instant::default(),
            failed: None,
            flushed: 0,
            believes_anything: false,
        }
    }

    pub fn outcome(&self) -> Outcome {
        match self.failed {
            Some(status) => Outcome::Failed(status),
            None if self.completed == self.program.ops.len() => Outcome::Done,
            None => Outcome::Running,
        }
    }

    fn recvs_wanted(&self) -> u64 {
        self.program
            .ops
            .iter()
            .filter(|op| op.action.consumes_receive())
            .count() as u64
    }

    /// When this driver wants to act next, by itself.
    pub fn next_at(&self) -> Option<Instant> {
        let sends = self.posted < self.program.ops.len();
        let recvs = self.recvs_posted < self.recvs_wanted();
        if self.failed.is_some() {
            return None;
        }
        [(sends, self.next_send_at), (recvs, self.next_recv_at)]
            .into_iter()
            .filter_map(|(wanted, at)| wanted.then_some(at))
            .min()
    }

    /// Posts what is due.
    pub fn act(&mut self, world: &mut World) {
        let now = world.now();
        if self.failed.is_some() {
            return;
        }
        let first = self.recvs_posted == 0;
        if self.next_recv_at <= now && self.recvs_posted < self.recvs_wanted() {
            let count = if first {
                self.pace.recvs_at_first
            } else {
                1 + self.random.below(3)
            };
            for _ in 0..count.min(self.recvs_wanted() - self.recvs_posted) {
                if !self.post_recv(world) {
                    break;
                }
            }
            let pause_ns = self.random.below(self.pace.recv_pause_max_ns + 1);
            self.next_recv_at = now.after(pause_ns.max(1));
        }
        if self.next_send_at <= now && self.posted < self.program.ops.len() {
            for _ in 0..1 + self.random.below(self.pace.burst) {
                if self.posted == self.program.ops.len() || !self.post_send(world) {
                    break;
                }
            }
            self.next_send_at = now.after(1 + self.random.below(self.pace.pause_max_ns + 1));
        }
    }

    fn post_recv(&mut self, world: &mut World) -> bool {
        let Some((index, op)) = self.receiving_op(self.recvs_posted) else {
            return false;
        };
        let (at, len) = self.places[index];
        let pieces = 1 + (op.pieces + 1) % 3;
        let sges = self.sges(world, self.responder, self.received_key, at, len, pieces);
        let request = RecvRequest {
            wr_id: RECV_BASE + self.recvs_posted,
            sges: &sges,
        };
        let posted = world.post_recv(self.responder, &request).is_ok();
        self.recvs_posted += u64::from(posted);
        posted
    }

    /// The operation that takes the receive of this number.
    fn receiving_op(&self, number: u64) -> Option<(usize, &Op)> {
        let takes = |(_, op): &(usize, &Op)| op.action.consumes_receive();
        self.program
            .ops
            .iter()
            .enumerate()
            .filter(takes)
            .nth(number as usize)
    }

    /// `len` bytes of a region as a list of up to `pieces` elements.
    fn sges(
        &self,
        world: &World,
        side: QpHandle,
        key: u32,
        at: usize,
        len: usize,
        pieces: usize,
    ) -> Vec<Sge> {
        let va = world.host(side.host).memory.va(key, at as u64);
        let step = len.div_ceil(pieces).max(1);
        let piece = |start: usize| Sge {
            addr: va + start as u64,
            len: step.min(len - start) as u32,
            lkey: key,
        };
        (0..len).step_by(step).map(piece).collect()
    }

    fn post_send(&mut self, world: &mut World) -> bool {
        let op = &self.program.ops[self.posted];
        let (key, at) = if op.action.is_fetch() {
            (self.fetched_key, self.places[self.posted].0)
        } else {
            (self.source_key, op.source_at)
        };
        let sges = self.sges(world, self.requester, key, at, op.len, op.pieces);
        let data = if op.inline {
            SendData::Inline(&op.data)
        } else {
            SendData::Sges(&sges)
        };
        let request = SendRequest {
            wr_id: self.posted as u64,
            op: self.send_op(world, &op.action),
            data,
            signaled: op.signaled,
            solicited: op.solicited,
            fence: op.fence,
        };
        let posted = world.post_send(self.requester, &request).is_ok();
        self.posted += usize::from(posted);
        posted
    }

    fn send_op(&self, world: &World, action: &Action) -> SendOp {
        let memory = &world.host(self.responder.host).memory;
        let counter_va = |counter: usize| memory.va(self.counters_key, 8 * counter as u64);
        match *action {
            Action::Send { immediate: None } => SendOp::Send,
            Action::Send {
                immediate: Some(immediate),
            } => SendOp::SendImm(Immediate(immediate)),
            Action::Write { at, immediate } => {
                let (va, rkey) = (memory.va(self.target_key, at as u64), self.target_key);
                match immediate.map(Immediate) {
                    None => SendOp::Write { va, rkey },
                    Some(immediate) => SendOp::WriteImm {
                        va,
                        rkey,
                        immediate,
                    },
                }
            }
            Action::Read { from_target, at } => {
                let rkey = if from_target {
                    self.target_key
                } else {
                    self.peer_source_key
                };
                SendOp::Read {
                    va: memory.va(rkey, at as u64),
                    rkey,
                }
            }
            Action::CompareSwap {
                counter,
                compare,
                swap,
            } => SendOp::CompareSwap {
                va: counter_va(counter),
                rkey: self.counters_key,
                compare,
                swap,
            },
            Action::FetchAdd { counter, add } => SendOp::FetchAdd {
                va: counter_va(counter),
                rkey: self.counters_key,
                add,
            },
        }
    }

    // ---- the model ---------------------------------------------------------------------------

    /// A completion of the requester's send queue.
    pub fn handle_send_completion(&mut self, world: &World, completion: &Completion) {
        if self.believes_anything {
            self.believe(completion);
            return;
        }
        if completion.status != WcStatus::Success || self.failed.is_some() {
            self.handle_failure(completion);
            return;
        }
        let ops = &self.program.ops;
        let due = (self.completed..ops.len()).find(|index| ops[*index].signaled);
        let index = due.expect("a completion although all requests are completed");
        assert_eq!(
            completion.wr_id, index as u64,
            "completions in the order of posting"
        );
        assert!(index < self.posted, "completed before it was posted");
        assert_eq!(completion.kind, kind(&ops[index].action));
        let consumed = ops[..=index]
            .iter()
            .filter(|op| op.action.consumes_receive())
            .count();
        assert!(
            self.received >= consumed,
            "request {index} completed before it was received"
        );
        for at in self.completed..=index {
            self.check_fetched(world, at);
        }
        self.completed = index + 1;
    }

    fn check_fetched(&self, world: &World, index: usize) {
        let op = &self.program.ops[index];
        if op.action.is_fetch() {
            let (at, len) = self.places[index];
            let bytes = world
                .host(self.requester.host)
                .memory
                .bytes(self.fetched_key);
            assert_same(
                &bytes[at..at + len],
                &op.data,
                &format!("request {index} {:?}", op.action),
            );
        }
    }

    fn believe(&mut self, completion: &Completion) {
        if completion.status == WcStatus::Success {
            self.completed = completion.wr_id as usize + 1;
        } else {
            self.failed.get_or_insert(completion.status);
            self.flushed += 1;
        }
    }

    fn handle_failure(&mut self, completion: &Completion) {
        if self.failed.is_none() {
            self.failed = Some(completion.status);
            assert!(
                completion.wr_id >= self.completed as u64,
                "an old request fails"
            );
        } else {
            assert_eq!(
                completion.status,
                WcStatus::WrFlush,
                "what follows an error is flushed"
            );
        }
        self.flushed += 1;
    }

    /// A completion of the responder's receive queue.
    pub fn handle_recv_completion(&mut self, world: &World, completion: &Completion) {
        if self.believes_anything {
            return;
        }
        if completion.status != WcStatus::Success {
            assert_eq!(completion.status, WcStatus::WrFlush, "of a receive");
            return;
        }
        let number = self.received as u64;
        assert_eq!(
            completion.wr_id,
            RECV_BASE + number,
            "receives in the order of posting"
        );
        let (index, op) = self
            .receiving_op(number)
            .expect("a receive that nobody sent");
        let what = format!("receive {number} of request {index} {:?}", op.action);
        assert!(index < self.posted, "{what}: received before it was sent");
        assert_eq!(completion.byte_len as usize, op.len, "{what}");
        assert_eq!(completion.solicited, op.solicited, "{what}");
        let memory = &world.host(self.responder.host).memory;
        let (at, len) = self.places[index];
        let place = &memory.bytes(self.received_key)[at..at + len + 16];
        let (expected_kind, immediate) = match op.action {
            Action::Send { immediate } => {
                assert_same(&place[..len], &op.data, &what);
                (CompletionKind::Recv, immediate)
            }
            Action::Write { immediate, .. } => (CompletionKind::RecvWriteImm, immediate),
            _ => unreachable!("fetches take no receive"),
        };
        assert!(
            place[len..].iter().all(|byte| *byte == UNTOUCHED),
            "{what}: beyond its end"
        );
        assert_eq!(completion.kind, expected_kind, "{what}");
        assert_eq!(completion.immediate, immediate.map(Immediate), "{what}");
        // Everything before it has been executed, and nothing after it.
        let target = op.target_after.as_deref().unwrap_or_default();
        assert_same(
            memory.bytes(self.target_key),
            target,
            &format!("target at {what}"),
        );
        self.received += 1;
    }

    /// Once all is done: memory is exactly as the program leaves it.
    pub fn check_end(&self, world: &World) {
        assert_eq!(self.outcome(), Outcome::Done);
        assert_eq!(self.received as u64, self.recvs_wanted());
        let memory = &world.host(self.responder.host).memory;
        assert_same(
            memory.bytes(self.target_key),
            &self.program.target_at_end,
            "target at the end",
        );
        let counters: Vec<_> = self
            .program
            .counters_at_end
            .iter()
            .flat_map(|counter| counter.to_ne_bytes())
            .collect();
        assert_same(
            memory.bytes(self.counters_key),
            &counters,
            "counters at the end",
        );
        for index in 0..self.program.ops.len() {
            self.check_fetched(world, index);
        }
    }

    /// Once a direction has failed: every request that was posted has completed.
    pub fn check_all_flushed(&self) {
        let signaled = self.program.ops[..self.completed].len();
        // Those that succeeded without a signal before the failure are not heard of.
        assert!(
            signaled + self.flushed <= self.posted,
            "more completions than requests"
        );
        assert!(self.flushed >= 1);
    }
}

fn kind(action: &Action) -> CompletionKind {
    match action {
        Action::Send { .. } => CompletionKind::Send,
        Action::Write { .. } => CompletionKind::Write,
        Action::Read { .. } => CompletionKind::Read,
        Action::CompareSwap { .. } => CompletionKind::CompareSwap,
        Action::FetchAdd { .. } => CompletionKind::FetchAdd,
    }
}

/// Compares bytes and says where they first differ, not what all of them are.
pub fn assert_same(actual: &[u8], expected: &[u8], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    let differs = actual.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!(
            "{what}: byte {at} of {} is {:#04x}, not {:#04x}",
            actual.len(),
            actual[at],
            expected[at]
        );
    }
}
