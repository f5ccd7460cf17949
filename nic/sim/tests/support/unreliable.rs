//! Random messages of one direction of an unreliable connection or between datagram queue pairs,
//! and what must come of them. Every request completes in order. What arrives was sent, whole, and
//! (on a connection) in order and once. Receives are used in the order of posting, and none is lost
//! with a message that is.

use urxe_proto::{
    AddressVector, Capacity, Completion, CompletionKind, GRH_BYTES, Instant, QpState, QpType,
    QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge, WcStatus,
};
use urxe_sim::{ConnectOptions, HostId, QpHandle, ROUTE_HEADER, Random, Rights, World};
use urxe_wire::{Immediate, Mtu, Psn, Srqn};

use super::check::assert_same;
use super::scenario::PD;

pub const MESSAGES: usize = 60;
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
pub struct Way {
    pub sender: QpHandle,
    pub receiver: QpHandle,
    srq: Option<Srqn>,
    source: u32,
    target: u32,
    received: u32,
    /// Bytes before each message in its receive.
    header: &'static [u8],
    messages: Vec<Message>,
    pub posted: usize,
    pub completed: usize,
    /// Messages in the order of arrival.
    pub arrivals: Vec<usize>,
    /// When the next messages are posted.
    next_at: Instant,
    random: Random,
}

impl Way {
    pub fn new(
        world: &mut World,
        random: &mut Random,
        hosts: [HostId; 2],
        qp_type: QpType,
    ) -> Self {
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
        let way = Self {
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
            next_at: world.now(),
            random: Random::new(random.bits()),
        };
        way.post_recvs(world);
        way
    }

    /// When it wants to post next.
    pub fn next_at(&self) -> Option<Instant> {
        (self.posted < MESSAGES).then_some(self.next_at)
    }

    /// Posts what is due.
    pub fn act(&mut self, world: &mut World) {
        if self.next_at().is_none_or(|at| at > world.now()) {
            return;
        }
        for _ in 0..self.random.between(1, 5) {
            if self.posted < MESSAGES {
                self.post_next(world);
            }
        }
        self.next_at = world.now().after(self.random.below(40_000));
    }

    /// Takes a completion if it is of one of its queue pairs.
    pub fn observe(&mut self, world: &World, qp: QpHandle, completion: &Completion) {
        let own = match completion.side() {
            QueueSide::Send => self.sender,
            QueueSide::Recv => self.receiver,
        };
        if own == qp {
            self.handle_completion(world, completion);
        }
    }

    /// Once nothing happens any more: all requests have completed, and all messages have arrived if
    /// they must.
    pub fn check_end(&self, world: &World, is_clear: bool) {
        assert_eq!(self.completed, MESSAGES, "a request never completes");
        for qp in [self.sender, self.receiver] {
            assert_eq!(world.qp(qp).state(), QpState::ReadyToSend);
        }
        if is_clear {
            assert_eq!(self.arrivals, (0..MESSAGES).collect::<Vec<_>>());
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
