//! Random messages over unreliable connections and datagrams, and bad links: every request completes in
//! order, what arrives was sent, whole, and (on a connection) in order and once; receives are used in
//! the order of posting, and none is lost with a message that is.

mod support;

use support::check::assert_same;
use support::scenario::{PD, Weather};
use support::seeds::{for_each_seed, is_replay};
use urxe_proto::{
    AddressVector, AttrMask, Attributes, Capacity, Completion, CompletionKind, GRH_BYTES, QpState,
    QpType, QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge, WcStatus,
};
use urxe_sim::{ConnectOptions, HostId, LinkConfig, QpHandle, ROUTE_HEADER, Random, Rights, World};
use urxe_wire::{Immediate, Mtu, Psn, Srqn};

const MESSAGES: usize = 60;
const RECEIVES: usize = 200;
const LEN_MAX: usize = 4096;
const QKEY: u32 = 0x1234;
const UNTOUCHED: u8 = 0xcc;
/// Room for one message, its route header and a gap.
const PLACE_BYTES: usize = LEN_MAX + GRH_BYTES + 24;

struct Message {
    len: usize,
    at: usize,
    is_write: bool,
}

/// One way from a sender to a receiver, and what was sent on it.
struct Way {
    sender: QpHandle,
    receiver: QpHandle,
    srq: Option<Srqn>,
    source: u32,
    target: u32,
    received: u32,
    /// Bytes before each message in its receive.
    header: &'static [u8],
    messages: Vec<Message>,
    posted: usize,
    completed: usize,
    /// Messages in the order of arrival.
    arrivals: Vec<usize>,
}

impl Way {
    fn new(world: &mut World, random: &mut Random, hosts: [HostId; 2], qp_type: QpType) -> Self {
        let capacity = Capacity {
            send_requests: MESSAGES as u32,
            recv_requests: RECEIVES as u32,
            send_sges: 2,
            recv_sges: 2,
            inline_bytes: 64,
        };
        let is_shared = random.chance(500_000);
        let srq = is_shared.then(|| {
            let host = world.host_mut(hosts[1]);
            host.add_srq(PD, RECEIVES as u32, 2)
        });
        let (sender, receiver) = if qp_type == QpType::Ud {
            (
                world.add_datagrams(hosts[0], PD, QKEY, capacity, None),
                world.add_datagrams(hosts[1], PD, QKEY, capacity, srq),
            )
        } else {
            let options = ConnectOptions {
                mtu: Mtu::ALL[random.index(Mtu::ALL.len())],
                psn_a: Psn::new(random.bits() as u32),
                capacity,
                ..ConnectOptions::default()
            };
            let ends = [(hosts[0], (qp_type, None)), (hosts[1], (qp_type, srq))];
            world.connect_as(ends, PD, &options)
        };
        let mut bytes = vec![0; 2 * LEN_MAX];
        random.fill(&mut bytes);
        let memory = &mut world.host_mut(hosts[0]).memory;
        let source = memory.register(PD, Rights::default(), bytes);
        let memory = &mut world.host_mut(hosts[1]).memory;
        let target = memory.register(PD, Rights::ALL, vec![UNTOUCHED; MESSAGES * PLACE_BYTES]);
        let received = memory.register(PD, Rights::ALL, vec![UNTOUCHED; RECEIVES * PLACE_BYTES]);
        let mut message = || Message {
            len: match random.below(4) {
                0 => random.index(8),
                1 => 256 * random.index(17),
                _ => random.index(LEN_MAX + 1),
            },
            at: random.index(LEN_MAX),
            is_write: qp_type == QpType::Uc && random.chance(500_000),
        };
        let messages = (0..MESSAGES).map(|_| message()).collect();
        Self {
            sender,
            receiver,
            srq,
            source,
            target,
            received,
            header: if qp_type == QpType::Ud {
                &ROUTE_HEADER
            } else {
                &[]
            },
            messages,
            posted: 0,
            completed: 0,
            arrivals: Vec::new(),
        }
    }

    fn post_recvs(&self, world: &mut World) {
        let place = self.header.len() + LEN_MAX;
        for number in 0..RECEIVES {
            let memory = &world.host(self.receiver.host).memory;
            let addr = memory.va(self.received, (number * PLACE_BYTES) as u64);
            let first = 30;
            let sges = [(0, first), (first, place - first)].map(|(at, len)| Sge {
                addr: addr + at as u64,
                len: len as u32,
                lkey: self.received,
            });
            let request = RecvRequest {
                wr_id: number as u64,
                sges: &sges,
            };
            match self.srq {
                Some(srq) => world
                    .host_mut(self.receiver.host)
                    .srq_mut(srq)
                    .post(&request)
                    .unwrap(),
                None => world.post_recv(self.receiver, &request).unwrap(),
            }
        }
    }

    fn post_next(&mut self, world: &mut World) {
        let message = &self.messages[self.posted];
        let immediate = Immediate((self.posted as u32).to_be_bytes());
        let memory = &world.host(self.receiver.host).memory;
        let op = if message.is_write {
            SendOp::WriteImm {
                va: memory.va(self.target, (self.posted * PLACE_BYTES) as u64),
                rkey: self.target,
                immediate,
            }
        } else {
            SendOp::SendImm(immediate)
        };
        let target = if self.header.is_empty() {
            SendTarget::Connection
        } else {
            SendTarget::Datagram {
                address: AddressVector {
                    dest_gid: world.host(self.receiver.host).gid(),
                    ..AddressVector::default()
                },
                qp: self.receiver.number,
                qkey: QKEY,
            }
        };
        let memory = &world.host(self.sender.host).memory;
        let sges = [Sge {
            addr: memory.va(self.source, message.at as u64),
            len: message.len as u32,
            lkey: self.source,
        }];
        let request = SendRequest {
            wr_id: self.posted as u64,
            op,
            data: SendData::Sges(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target,
        };
        self.posted += 1;
        world.post_send(self.sender, &request).unwrap();
    }

    fn handle_completion(&mut self, world: &World, completion: &Completion) {
        assert_eq!(completion.status, WcStatus::Success);
        if completion.side() == QueueSide::Send {
            assert_eq!(completion.wr_id, self.completed as u64);
            self.completed += 1;
            return;
        }
        let number = self.arrivals.len();
        assert_eq!(completion.wr_id, number as u64, "a receive was lost");
        let index = u32::from_be_bytes(completion.immediate.unwrap().0) as usize;
        let message = &self.messages[index];
        let sent = &world.host(self.sender.host).memory.bytes(self.source);
        let sent = &sent[message.at..message.at + message.len];
        let memory = &world.host(self.receiver.host).memory;
        let what = format!("message {index}, receive {number}");
        let kind = if message.is_write {
            let place = &memory.bytes(self.target)[index * PLACE_BYTES..];
            assert_same(&place[..message.len], sent, &what);
            assert_eq!(place[message.len], UNTOUCHED, "{what}: beyond its end");
            assert_eq!(completion.byte_len as usize, message.len, "{what}");
            CompletionKind::RecvWriteImm
        } else {
            let whole = [self.header, sent].concat();
            let place = &memory.bytes(self.received)[number * PLACE_BYTES..];
            assert_same(&place[..whole.len()], &whole, &what);
            assert_eq!(completion.byte_len as usize, whole.len(), "{what}");
            CompletionKind::Recv
        };
        assert_eq!(completion.kind, kind, "{what}");
        let is_datagram = !self.header.is_empty();
        let source = is_datagram.then_some(self.sender.number);
        assert_eq!(completion.source_qp, source, "{what}");
        if !is_datagram {
            let last = self.arrivals.last();
            assert!(
                last.is_none_or(|last| *last < index),
                "{what}: out of order"
            );
        }
        self.arrivals.push(index);
    }
}

fn run(seed: u64, qp_type: QpType, weather: Option<Weather>, slot: &mut Option<World>) {
    let mut random = Random::new(seed ^ 0xda7a);
    let world = slot.insert(World::new(seed, random.chance(300_000)));
    if is_replay() {
        world.trace.keep_lines();
    }
    let hosts = [world.add_host(), world.add_host()];
    let is_clear = weather.is_some();
    let weather = weather.unwrap_or_else(|| Weather::bad(&mut random));
    let link = LinkConfig::default();
    world.add_link(hosts[0], hosts[1], link, &weather.rules());
    let mut ways =
        [hosts, [hosts[1], hosts[0]]].map(|hosts| Way::new(world, &mut random, hosts, qp_type));
    ways.iter().for_each(|way| way.post_recvs(world));
    while ways.iter().any(|way| way.posted < MESSAGES) {
        let way = &mut ways[random.index(2)];
        for _ in 0..random.between(1, 5) {
            if way.posted < MESSAGES {
                way.post_next(world);
            }
        }
        let pause_ns = random.below(20_000);
        let end = world.now().after(pause_ns);
        world.run_until(end);
        observe(world, &mut ways);
    }
    while world.step() {
        observe(world, &mut ways);
    }
    for way in &ways {
        assert_eq!(way.completed, MESSAGES, "a request never completes");
        for qp in [way.sender, way.receiver] {
            assert_eq!(world.qp(qp).state(), QpState::ReadyToSend);
        }
        if is_clear {
            assert_eq!(way.arrivals, (0..MESSAGES).collect::<Vec<_>>());
        }
    }
}

fn observe(world: &mut World, ways: &mut [Way; 2]) {
    for host in ways.each_ref().map(|way| way.sender.host) {
        while let Some((_, completion)) = world.host_mut(host).poll_completion() {
            let is_its = |way: &&mut Way| {
                let qp = match completion.side() {
                    QueueSide::Send => way.sender,
                    QueueSide::Recv => way.receiver,
                };
                qp.host == host && qp.number == completion.qp
            };
            let way = ways.iter_mut().find(is_its).expect("of one of them");
            way.handle_completion(world, &completion);
        }
    }
}

#[test]
fn everything_arrives_over_a_perfect_link() {
    for_each_seed(30, |seed, slot| {
        for qp_type in [QpType::Uc, QpType::Ud] {
            run(seed, qp_type, Some(Weather::default()), slot);
        }
    });
}

#[test]
fn connections_over_a_bad_link() {
    for_each_seed(150, |seed, slot| run(seed, QpType::Uc, None, slot));
}

#[test]
fn datagrams_over_a_bad_link() {
    for_each_seed(150, |seed, slot| run(seed, QpType::Ud, None, slot));
}

#[test]
fn a_message_that_is_cut_off_here_is_dropped_there_and_the_next_one_arrives() {
    let mut world = World::new(5, false);
    let hosts = [world.add_host(), world.add_host()];
    world.add_link(hosts[0], hosts[1], LinkConfig::default(), &[]);
    let ends = hosts.map(|host| (host, (QpType::Uc, None)));
    let (a, b) = world.connect_as(ends, PD, &ConnectOptions::default());
    let mut register = |host: HostId, byte, len: usize| {
        let memory = &mut world.host_mut(host).memory;
        let key = memory.register(PD, Rights::ALL, vec![byte; len]);
        let sge = Sge {
            addr: memory.va(key, 0),
            len: len as u32,
            lkey: key,
        };
        [sge]
    };
    let (long, short) = (register(hosts[0], 1, 200_000), register(hosts[0], 2, 3000));
    let received = register(hosts[1], UNTOUCHED, 200_000);
    let request = RecvRequest {
        wr_id: 9,
        sges: &received,
    };
    world.post_recv(b, &request).unwrap();
    let post = |world: &mut World, wr_id, sges: &[Sge]| {
        let request = SendRequest {
            wr_id,
            op: SendOp::Send,
            data: SendData::Sges(sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        world.post_send(a, &request).unwrap();
    };
    post(&mut world, 1, &long);
    post(&mut world, 2, &short);
    world.run_until(world.now().after(10_000));
    world.host_mut(hosts[0]).memory.deregister(long[0].lkey);
    while world.step() {}
    let completions = |world: &mut World, host| -> Vec<_> {
        let host = world.host_mut(host);
        let next = || host.poll_completion();
        std::iter::from_fn(next)
            .map(|(_, completion)| (completion.wr_id, completion.status))
            .collect()
    };
    let expected = [(1, WcStatus::LocalProtection), (2, WcStatus::WrFlush)];
    assert_eq!(completions(&mut world, hosts[0]), expected);
    assert_eq!(world.qp(a).state(), QpState::SendQueueError);
    assert_eq!(completions(&mut world, hosts[1]), []);
    let resume = Attributes {
        state: QpState::ReadyToSend,
        ..Attributes::new()
    };
    world.modify(a, &resume, AttrMask::STATE).unwrap();
    post(&mut world, 3, &short);
    while world.step() {}
    assert_eq!(completions(&mut world, hosts[0]), [(3, WcStatus::Success)]);
    assert_eq!(completions(&mut world, hosts[1]), [(9, WcStatus::Success)]);
    let bytes = world.host(hosts[1]).memory.bytes(received[0].lkey);
    assert!(bytes[..3000].iter().all(|byte| *byte == 2));
}
