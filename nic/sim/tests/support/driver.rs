//! Runs the program of one direction of a connection: posts its requests on one side and receives
//! on the other, and holds every completion and every byte against the model.

use urxe_proto::{
    Instant, Memory, PdId, QpType, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge,
    Via, WcStatus, WindowAccess, WindowBind, WindowType,
};
use urxe_sim::{HostId, QpHandle, Random, Rights, World};
use urxe_wire::{Immediate, Srqn};

use super::program::{Action, COUNTERS, Op, Program, TARGET_BYTES, UNTOUCHED, WINDOWS};

/// Receive identifiers start here, to tell them from those of sends.
pub(super) const RECV_BASE: u64 = 1 << 32;

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
    /// The shared receive queue from which the responder takes what this driver sends.
    pub srq: Option<Srqn>,
    pub program: Program,
    pub(super) pace: Pace,
    pub(super) random: Random,
    pub(super) source_key: u32,
    pub(super) peer_source_key: u32,
    pub target_key: u32,
    pub(super) counters_key: u32,
    pub(super) fetched_key: u32,
    pub(super) received_key: u32,
    /// Of the requester's own window.
    pub(super) window_key: u32,
    /// Of the responder's windows on the target, bound.
    pub(super) peer_window_keys: [u32; WINDOWS],
    /// Where each fetch and each receive has its place, and how much.
    pub(super) places: Vec<(usize, usize)>,
    pub(super) posted: usize,
    /// Index of the next operation whose completion is due.
    pub(super) completed: usize,
    pub(super) received: usize,
    pub(super) recvs_posted: u64,
    pub(super) next_send_at: Instant,
    pub(super) next_recv_at: Instant,
    pub(super) failed: Option<WcStatus>,
    pub(super) flushed: usize,
    /// Takes every completion for what it says: the peer lies.
    pub believes_anything: bool,
    /// The responder executes what arrived early as soon as the gap before it is closed, all at
    /// once.
    pub executes_in_leaps: bool,
    /// The responder does not exist any more.
    pub(super) peer_is_gone: bool,
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
        (requester, responder, srq): (QpHandle, QpHandle, Option<Srqn>),
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
        let bindable = Rights {
            bind_windows: true,
            ..local
        };
        let fetched_key = register(requester.host, bindable, fetch_bytes.max(1));
        let received_key = register(responder.host, local, recv_bytes);
        let target_key = register(responder.host, Rights::ALL, TARGET_BYTES);
        let counters_key =
            world
                .host_mut(responder.host)
                .memory
                .register(pd, Rights::ALL, vec![0; 8 * COUNTERS]);
        let window_key = world
            .host_mut(requester.host)
            .memory
            .alloc_window(pd, WindowType::Type2);
        let peer_window_keys =
            [(); WINDOWS].map(|()| bound_window(world, responder, pd, target_key));
        Self {
            requester,
            responder,
            srq,
            program,
            pace,
            random,
            source_key: keys.requester,
            peer_source_key: keys.responder,
            target_key,
            counters_key,
            fetched_key,
            received_key,
            window_key,
            peer_window_keys,
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
            executes_in_leaps: false,
            peer_is_gone: false,
        }
    }

    pub fn outcome(&self) -> Outcome {
        match self.failed {
            Some(status) => Outcome::Failed(status),
            None if self.completed == self.program.ops.len() => Outcome::Done,
            None => Outcome::Running,
        }
    }

    /// Whether one of its ends is there.
    pub fn involves(&self, host: HostId) -> bool {
        self.requester.host == host || self.responder.host == host
    }

    /// The processes of a host are killed: its queue pairs are gone.
    pub fn handle_death(&mut self, world: &mut World, host: HostId) {
        if self.requester.host == host {
            world.remove_qp(self.requester);
            self.failed.get_or_insert(WcStatus::WrFlush);
        }
        if self.responder.host == host {
            world.remove_qp(self.responder);
            self.peer_is_gone = true;
        }
    }

    pub(super) fn recvs_wanted(&self) -> u64 {
        self.program
            .ops
            .iter()
            .filter(|op| op.action.consumes_receive())
            .count() as u64
    }

    /// When this driver wants to act next, by itself.
    pub fn next_at(&self) -> Option<Instant> {
        let sends = self.posted < self.program.ops.len();
        let recvs = !self.peer_is_gone && self.recvs_posted < self.recvs_wanted();
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
        if !self.peer_is_gone && self.next_recv_at <= now && self.recvs_posted < self.recvs_wanted()
        {
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
        let posted = match self.srq {
            Some(srq) => {
                let host = world.host_mut(self.responder.host);
                host.srq_mut(srq).post(&request).is_ok()
            }
            None => world.post_recv(self.responder, &request).is_ok(),
        };
        self.recvs_posted += u64::from(posted);
        posted
    }

    /// The operation that takes the receive of this number.
    pub(super) fn receiving_op(&self, number: u64) -> Option<(usize, &Op)> {
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
            target: match self.srq {
                Some(srq) if self.is_xrc(world) => SendTarget::XrcSrq(srq),
                _ => SendTarget::Connection,
            },
        };
        let posted = world.post_send(self.requester, &request).is_ok();
        self.posted += usize::from(posted);
        posted
    }

    fn is_xrc(&self, world: &World) -> bool {
        world.qp(self.requester).config().qp_type == QpType::XrcInitiator
    }

    fn send_op(&self, world: &World, action: &Action) -> SendOp {
        let memory = &world.host(self.responder.host).memory;
        let counter_va = |counter: usize| memory.va(self.counters_key, 8 * counter as u64);
        match *action {
            Action::Send { immediate: None } => SendOp::Send,
            Action::Send {
                immediate: Some(immediate),
            } => SendOp::SendImm(Immediate(immediate)),
            Action::SendInvalidate { window } => SendOp::SendInvalidate {
                rkey: self.peer_window_keys[window],
            },
            Action::Write {
                at,
                immediate,
                window,
            } => {
                let va = memory.va(self.target_key, at as u64);
                let rkey = window.map_or(self.target_key, |window| self.peer_window_keys[window]);
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
            Action::AtomicWrite { counter } => SendOp::AtomicWrite {
                va: counter_va(counter),
                rkey: self.counters_key,
            },
            Action::Bind { key } => SendOp::BindWindow(WindowBind {
                rkey: self.window_key | u32::from(key),
                lkey: self.fetched_key,
                addr: world
                    .host(self.requester.host)
                    .memory
                    .va(self.fetched_key, 0),
                len: 1,
                access: WindowAccess::REMOTE_READ,
            }),
            Action::Invalidate { key } => SendOp::LocalInvalidate {
                rkey: self.window_key | u32::from(key),
            },
            Action::FetchAdd { counter, add } => SendOp::FetchAdd {
                va: counter_va(counter),
                rkey: self.counters_key,
                add,
            },
        }
    }
}

/// The key of a new window on all of the target, open to this queue pair's peer. Programs bind
/// windows by work requests; how those go is seen where the requester binds its own.
fn bound_window(world: &mut World, qp: QpHandle, pd: PdId, target_key: u32) -> u32 {
    let memory = &mut world.host_mut(qp.host).memory;
    let via = Via { pd, qp: qp.number };
    let rkey = memory.alloc_window(pd, WindowType::Type2) + 1;
    let bind = WindowBind {
        rkey,
        lkey: target_key,
        addr: memory.va(target_key, 0),
        len: TARGET_BYTES as u64,
        access: WindowAccess::REMOTE_WRITE,
    };
    memory
        .bind_window(via, &bind)
        .expect("the region allows it");
    rkey
}
