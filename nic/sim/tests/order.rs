//! A reply does not overtake the acknowledgement of what it replies to. Where the network keeps its
//! order, a program has the completions of its own messages before it has the reply that its peer
//! posted once it had received them.

mod support;

use std::collections::VecDeque;

use support::queue_pair::any_peer_abilities;
use support::scenario::{END, PD};
use support::seeds::{for_each_seed, is_replay};
use urxe_proto::{
    CompletionKind, QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge,
    WcStatus,
};
use urxe_sim::{AckPolicy, ConnectOptions, LinkConfig, QpHandle, Random, Rights, World};
use urxe_wire::{Immediate, Mtu};

/// Requests of each end.
const REQUESTS: usize = 80;
const REGION_BYTES: usize = 32 << 10;

/// A program that posts what it likes whenever something completes.
struct End {
    qp: QpHandle,
    region: u32,
    /// Where the peer's region is, and its key.
    peer: (u64, u32),
    posted: usize,
    completed: usize,
    /// Of each message that was posted: how many requests were before it, and how many messages of
    /// the peer had come.
    messages: Vec<(usize, usize)>,
    received: usize,
}

impl End {
    fn new(world: &mut World, qp: QpHandle) -> Self {
        let memory = &mut world.host_mut(qp.host).memory;
        let region = memory.register(PD, Rights::ALL, vec![0; REGION_BYTES]);
        for _ in 0..REQUESTS {
            let sges = [sge(world, qp, region, REGION_BYTES)];
            let receive = RecvRequest {
                wr_id: 0,
                sges: &sges,
            };
            world.post_recv(qp, &receive).unwrap();
        }
        Self {
            qp,
            region,
            peer: (0, 0),
            posted: 0,
            completed: 0,
            messages: Vec::new(),
            received: 0,
        }
    }

    fn post_some(&mut self, world: &mut World, random: &mut Random) {
        let burst = [0, 1, 1, 2, 9][random.index(5)];
        for _ in 0..burst.min(REQUESTS - self.posted) {
            self.post(world, random);
        }
    }

    fn post(&mut self, world: &mut World, random: &mut Random) {
        let (va, rkey) = self.peer;
        let op = match random.below(10) {
            0 => SendOp::Read { va, rkey },
            1 => SendOp::FetchAdd { va, rkey, add: 1 },
            2 => SendOp::Write { va, rkey },
            3 => SendOp::WriteImm {
                va,
                rkey,
                immediate: Immediate([0; 4]),
            },
            _ => SendOp::Send,
        };
        let len = if op.is_atomic() {
            8
        } else {
            [0, 8, 1024, 2000, 20_000][random.index(5)]
        };
        let is_message = matches!(op, SendOp::Send | SendOp::WriteImm { .. });
        let request = SendRequest {
            wr_id: self.posted as u64,
            op,
            data: SendData::Sges(&[sge(world, self.qp, self.region, len)]),
            // What has no completion may be acknowledged later, and that of a later one says that
            // it is done.
            signaled: !is_message || self.posted + 1 == REQUESTS || random.chance(900_000),
            solicited: false,
            fence: random.chance(50_000),
            target: SendTarget::Connection,
        };
        if is_message {
            let before = if request.signaled { self.posted + 1 } else { 0 };
            self.messages.push((before, self.received));
        }
        world.post_send(self.qp, &request).unwrap();
        self.posted += 1;
    }
}

fn sge(world: &World, qp: QpHandle, lkey: u32, len: usize) -> Sge {
    let addr = world.host(qp.host).memory.va(lkey, 0);
    let len = len as u32;
    Sge { addr, len, lkey }
}

fn run(seed: u64, slot: &mut Option<World>) {
    let mut random = Random::new(seed ^ 0x0a3d);
    let world = slot.insert(World::new(seed, false));
    if is_replay() {
        world.trace.keep_lines();
    }
    let hosts = [world.add_host(), world.add_host()];
    let link = LinkConfig {
        delay_ns: [500, 5_000, 50_000][random.index(3)],
        ..LinkConfig::default()
    };
    world.add_link(hosts[0], hosts[1], link, &[]);
    for host in hosts {
        let policies = [AckPolicy::Hold, AckPolicy::Flush, AckPolicy::Mixed];
        world.host_mut(host).ack_policy = policies[random.index(3)];
    }
    let options = ConnectOptions {
        mtu: Mtu::B1024,
        peer_abilities: any_peer_abilities(&mut random),
        ..ConnectOptions::default()
    };
    let (a, b) = world.connect(hosts[0], hosts[1], PD, &options);
    let mut ends = [a, b].map(|qp| End::new(world, qp));
    for at in [0, 1] {
        let End { qp, region, .. } = ends[1 - at];
        ends[at].peer = (world.host(qp.host).memory.va(region, 0), region);
    }
    while ends.iter().any(|end| end.completed < REQUESTS) {
        for at in [0, 1] {
            take_completions(world, &mut ends, at);
            if ends[at].completed == ends[at].posted || random.chance(200_000) {
                ends[at].post_some(world, &mut random);
            }
        }
        let goes_on = world.step() || ends.iter().any(|end| end.posted < REQUESTS);
        assert!(goes_on && world.now() < END, "requests never complete");
    }
}

/// What one end finds, in the order in which it completed.
fn take_completions(world: &mut World, ends: &mut [End; 2], at: usize) {
    let host = ends[at].qp.host;
    let mut completions = VecDeque::new();
    while let Some((_, completion)) = world.host_mut(host).poll_completion() {
        completions.push_back(completion);
    }
    for completion in completions {
        assert_eq!(completion.status, WcStatus::Success);
        if completion.side() == QueueSide::Send {
            ends[at].completed = completion.wr_id as usize + 1;
            continue;
        }
        assert_ne!(completion.kind, CompletionKind::Send);
        let (_, seen) = ends[1 - at].messages[ends[at].received];
        let due = ends[at].messages[..seen].iter().map(|(before, _)| *before);
        let due = due.max().unwrap_or(0);
        assert!(
            ends[at].completed >= due,
            "the reply to message {seen}, request {due}, came when {} requests were completed",
            ends[at].completed
        );
        ends[at].received += 1;
    }
}

#[test]
fn a_reply_comes_after_the_completion_of_what_it_replies_to() {
    for_each_seed(300, run);
}
