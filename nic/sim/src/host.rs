//! A host: memory, queue pairs, and what the device does between them and the wire.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use urxe_proto::{
    AckMode, Completion, GRH_BYTES, Instant, Payload, PdId, QpEvent, QpType, QueuePair,
    RemoteRange, Run, SharedReceiveQueue, Transmit, gather,
};
use urxe_wire::icrc::{Flow, Verdict};
use urxe_wire::{Gid, Packet, Qpn, ROCE_UDP_PORT, Srqn};

use crate::forge::assemble;
use crate::memory::VecMemory;
use crate::random::Random;

/// What a host shows of a datagram's network header: nothing that any code looks at.
pub const ROUTE_HEADER: [u8; GRH_BYTES] = [0x6e; GRH_BYTES];

/// Names a host of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u16);

impl HostId {
    /// Its address: 10.0.x.y, or in fd00::/16.
    #[must_use]
    pub const fn address(self, ipv6: bool) -> IpAddr {
        let [high, low] = (self.0 + 1).to_be_bytes();
        if ipv6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.0 + 1))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
        }
    }
}

/// How many packets of a long message are polled at once, at most, when it is not one by one.
const RUN_MAX: u32 = 64;

/// How a host treats acknowledgements that may wait, and what else is up to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPolicy {
    /// They wait, as while the program polls.
    Hold,
    /// They go at once, as from the background thread.
    Flush,
    /// Either, at random each time. And packets of long messages are polled one by one, or many at
    /// once.
    Mixed,
}

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Packets with a wrong ICRC.
    pub bad_icrc: u64,
    /// Packets with a right ICRC that make no sense.
    pub malformed: u64,
    /// Packets for no queue pair here, or not from its peer.
    pub no_qp: u64,
    /// Packets that a switch marked.
    pub ecn_marked: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Host {
    /// Its registered memory.
    pub memory: VecMemory,
    /// How it treats acknowledgements that may wait.
    pub ack_policy: AckPolicy,
    /// Its counters.
    pub stats: HostStats,
    id: HostId,
    address: IpAddr,
    qps: BTreeMap<Qpn, QueuePair>,
    srqs: BTreeMap<Srqn, SharedReceiveQueue>,
    /// The shared receive queues of queue pairs. An XRC target may use all of the host.
    shared: BTreeMap<Qpn, Srqn>,
    completions: VecDeque<(Instant, Completion)>,
    events: VecDeque<(Qpn, QpEvent)>,
    /// The queue pair whose turn to send it is.
    turn: Qpn,
    /// What is left of runs of packets.
    runs: BTreeMap<Qpn, VecDeque<(Gid, Vec<u8>)>>,
    /// When it is scheduled to wake.
    pub(crate) wake_at: Option<Instant>,
}

impl Host {
    pub(crate) fn new(id: HostId, ipv6: bool) -> Self {
        Self {
            memory: VecMemory::default(),
            ack_policy: AckPolicy::Hold,
            stats: HostStats::default(),
            id,
            address: id.address(ipv6),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
            shared: BTreeMap::new(),
            completions: VecDeque::new(),
            events: VecDeque::new(),
            turn: Qpn::default(),
            runs: BTreeMap::new(),
            wake_at: None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> HostId {
        self.id
    }

    /// Its GID.
    #[must_use]
    pub fn gid(&self) -> Gid {
        self.address.into()
    }

    /// A queue pair.
    #[must_use]
    pub fn qp(&self, number: Qpn) -> Option<&QueuePair> {
        self.qps.get(&number)
    }

    pub(crate) fn qp_mut(&mut self, number: Qpn) -> Option<&mut QueuePair> {
        self.qps.get_mut(&number)
    }

    pub(crate) fn insert(&mut self, qp: QueuePair, srq: Option<Srqn>) {
        if let Some(srq) = srq {
            self.shared.insert(qp.number(), srq);
        }
        self.qps.insert(qp.number(), qp);
    }

    pub(crate) fn remove(&mut self, number: Qpn) {
        self.qps.remove(&number);
        self.shared.remove(&number);
        self.runs.remove(&number);
    }

    /// Makes a shared receive queue.
    #[expect(clippy::cast_possible_truncation, reason = "nobody makes 2^32 queues")]
    pub fn add_srq(&mut self, pd: PdId, capacity: u32, max_sges: u32) -> Srqn {
        let number = Srqn::new(0x51 + self.srqs.len() as u32);
        let srq = SharedReceiveQueue::new(pd, capacity, max_sges);
        self.srqs.insert(number, srq);
        number
    }

    /// A shared receive queue, to post to it. Panics if there is none of this number.
    pub fn srq_mut(&mut self, number: Srqn) -> &mut SharedReceiveQueue {
        self.srqs
            .get_mut(&number)
            .expect("no such shared receive queue")
    }

    /// The next completion of any queue pair and when it was made.
    pub fn poll_completion(&mut self) -> Option<(Instant, Completion)> {
        self.completions.pop_front()
    }

    /// The next asynchronous event of any queue pair.
    pub fn poll_event(&mut self) -> Option<(Qpn, QpEvent)> {
        self.events.pop_front()
    }

    /// A UDP payload arrived from `from`, marked "congestion experienced" or not.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        from: IpAddr,
        udp_payload: &[u8],
        is_marked: bool,
    ) {
        // The peer's IPv4 ID is 0, so that this checks all 32 bits.
        let verdict =
            flow(from, self.address).map_or(Verdict::Bad, |flow| flow.verify(udp_payload, 0));
        if verdict != Verdict::Exact {
            self.stats.bad_icrc += 1;
            return;
        }
        let Ok(packet) = Packet::parse(udp_payload) else {
            self.stats.malformed += 1;
            return;
        };
        let number = packet.header.bth.dest_qp;
        let Some(qp) = self.qps.get_mut(&number) else {
            self.stats.no_qp += 1;
            return;
        };
        let named = packet.header.xrceth.map(|xrceth| xrceth.srqn);
        let srq = self.shared.get(&number).copied().or(named);
        let srq = srq.and_then(|srq| self.srqs.get_mut(&srq));
        if qp.config().qp_type == QpType::Ud {
            qp.handle_datagram(&packet, &ROUTE_HEADER, srq, &mut self.memory);
        } else if qp.query().dest_gid == Gid::from(from) {
            qp.handle_packet(now, &packet, srq, &mut self.memory);
            if is_marked {
                qp.handle_congestion_mark(now);
            }
        } else {
            self.stats.no_qp += 1;
        }
        self.collect(now, packet.header.bth.dest_qp);
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeouts(&mut self, now: Instant) {
        let due = |qp: &QueuePair| qp.poll_timeout().is_some_and(|at| at <= now);
        let numbers: Vec<_> = self
            .qps
            .iter()
            .filter(|(_, qp)| due(qp))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            if let Some(qp) = self.qps.get_mut(&number) {
                qp.handle_timeout(now);
            }
            self.collect(now, number);
        }
    }

    /// The datagram queue pairs.
    pub(crate) fn datagram_qps(&self) -> Vec<Qpn> {
        let is_ud = |qp: &&QueuePair| qp.config().qp_type == QpType::Ud;
        let qps = self.qps.values().filter(is_ud);
        qps.map(QueuePair::number).collect()
    }

    /// The connected queue pairs in the order of their turns.
    pub(crate) fn turns(&self) -> Vec<(Qpn, Gid)> {
        let peer = |(number, qp): (&Qpn, &QueuePair)| (*number, qp.query().dest_gid);
        let later = self.qps.range(self.turn..).map(peer);
        later.chain(self.qps.range(..self.turn).map(peer)).collect()
    }

    /// The next packet of a queue pair, whole, if it has one.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        number: Qpn,
        random: &mut Random,
    ) -> Option<(Gid, Vec<u8>)> {
        let mode = match self.ack_policy {
            AckPolicy::Hold => AckMode::Hold,
            AckPolicy::Flush => AckMode::Flush,
            AckPolicy::Mixed if random.chance(333_333) => AckMode::Hold,
            AckPolicy::Mixed if random.chance(500_000) => AckMode::Idle,
            AckPolicy::Mixed => AckMode::Flush,
        };
        let is_mixed = self.ack_policy == AckPolicy::Mixed;
        let most = if is_mixed && random.chance(500_000) {
            RUN_MAX
        } else {
            1
        };
        let packet = self.poll_qp(now, number, mode, most);
        self.collect(now, number);
        if packet.is_some() {
            self.turn = Qpn::new(number.get() + 1);
        }
        packet
    }

    /// The next packet of a queue pair, and where it goes. The others of its run wait for the next
    /// calls.
    fn poll_qp(
        &mut self,
        now: Instant,
        number: Qpn,
        mode: AckMode,
        most: u32,
    ) -> Option<(Gid, Vec<u8>)> {
        let waiting = self.runs.get_mut(&number);
        if let Some(packet) = waiting.and_then(VecDeque::pop_front) {
            return Some(packet);
        }
        let qp = self.qps.get_mut(&number)?;
        let peer = qp.query().dest_gid;
        loop {
            let pd = qp.pd();
            let notification = qp.poll_notification();
            let rests = mode == AckMode::Hold && qp.is_at_rest(now);
            let run = match notification {
                Some(notification) => Run::single(notification),
                None => {
                    let run = qp.poll_run(now, mode, most, &mut self.memory);
                    assert!(!rests || run.is_none(), "it was said to rest: {run:?}");
                    run?
                }
            };
            let to = run.first.address.map_or(peer, |address| address.dest_gid);
            let flow = flow(self.address, to.to_ip())?;
            let mut packets = VecDeque::new();
            let mut fault = None;
            for index in 0..=run.more {
                let Transmit {
                    header, payload, ..
                } = run.packet(index);
                let Some(bytes) = payload_bytes(&payload, pd, &self.memory) else {
                    fault = Some(header.bth);
                    break;
                };
                let packet = assemble(&header, &bytes, &flow);
                assert!(packet.is_some(), "a header that does not emit: {header:?}");
                packets.extend(packet.map(|packet| (to, packet)));
            }
            if let Some(bth) = fault {
                qp.handle_memory_fault(&bth);
            }
            if let Some(first) = packets.pop_front() {
                self.runs.insert(number, packets);
                return Some(first);
            }
        }
    }

    /// The earliest time at which a queue pair wants attention.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.qps.values().filter_map(QueuePair::poll_timeout).min()
    }

    /// Takes what a queue pair has to say, and checks that it does not contradict itself.
    pub(crate) fn collect(&mut self, now: Instant, number: Qpn) {
        let Some(qp) = self.qps.get_mut(&number) else {
            return;
        };
        qp.check_invariants();
        while let Some(completion) = qp.poll_completion() {
            self.completions.push_back((now, completion));
        }
        while let Some(event) = qp.poll_event() {
            self.events.push_back((number, event));
        }
    }
}

/// The bytes of a payload, if they may be read.
fn payload_bytes(payload: &Payload<'_>, pd: PdId, memory: &VecMemory) -> Option<Vec<u8>> {
    match *payload {
        Payload::Empty => Some(Vec::new()),
        Payload::Bytes(bytes) => Some(bytes.to_vec()),
        Payload::Words(words) => Some(words.into_iter().flat_map(u64::to_be_bytes).collect()),
        Payload::Local { sges, offset, len } => {
            let mut bytes = vec![0; len as usize];
            gather(memory, pd, sges, offset, &mut bytes).ok()?;
            Some(bytes)
        }
        Payload::Remote { via, rkey, va, len } => {
            let bytes = memory.read_remote(via, RemoteRange { rkey, va, len });
            bytes.ok().map(<[u8]>::to_vec)
        }
    }
}

/// The flow between two hosts. Both use the RoCE port as the source port, too.
pub(crate) fn flow(src: IpAddr, dst: IpAddr) -> Option<Flow> {
    Flow::new(
        SocketAddr::new(src, ROCE_UDP_PORT),
        SocketAddr::new(dst, ROCE_UDP_PORT),
    )
}
