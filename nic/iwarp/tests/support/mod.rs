//! Two hosts with a queue pair each, and a byte stream each way, in virtual time.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses its part"
)]

pub mod forge;
pub mod memory;
pub mod program;
pub mod victim;

use urxe_iwarp::{FirstFrame, QueuePair, StreamAction, Terms};
use urxe_proto::{
    AttrMask, Attributes, Capacity, Completion, Instant, PdId, QpConfig, QpEvent, QpState, QpType,
    RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge, SharedReceiveQueue,
};
use urxe_sim::{ByteStream, Random, Rights, StreamShape};
use urxe_wire::{Mtu, Qpn};

use memory::HostMemory;

pub const PD: PdId = PdId(1);
/// Send and receive requests that a queue pair holds.
pub const DEPTH: u32 = 64;

pub const SHAPE: StreamShape = StreamShape {
    capacity_bytes: 40_000,
    piece_bytes: 3000,
    delay_min_ns: 1000,
    delay_max_ns: 90_000,
};

pub const TERMS: Terms = Terms {
    sends_markers: false,
    receives_markers: false,
    has_crc: true,
    ird: 4,
    ord: 4,
    first: FirstFrame::Free,
};

/// The terms of the other end.
pub fn responder(first: &Terms) -> Terms {
    Terms {
        sends_markers: first.receives_markers,
        receives_markers: first.sends_markers,
        first: FirstFrame::Await,
        ..*first
    }
}

/// A host: its queue pair, memory, and what the program saw.
#[derive(Debug)]
pub struct Host {
    pub qp: QueuePair,
    pub memory: HostMemory,
    pub srq: Option<SharedReceiveQueue>,
    pub completions: Vec<Completion>,
    pub events: Vec<QpEvent>,
    pub is_closed: bool,
    /// Whether bytes are read to where they go, where that is known.
    pub reads_in_place: bool,
}

impl Host {
    pub fn new(number: u32, shares_receives: bool) -> Self {
        let qp = QueuePair::new(QpConfig {
            number: Qpn::new(number),
            pd: PD,
            qp_type: QpType::Rc,
            capacity: Capacity {
                send_requests: DEPTH,
                recv_requests: DEPTH,
                send_sges: 4,
                recv_sges: 4,
                inline_bytes: 256,
            },
            shares_receives,
            port_mtu: Mtu::B4096,
        });
        let mut host = Self {
            qp,
            memory: HostMemory::default(),
            srq: shares_receives.then(|| SharedReceiveQueue::new(PD, DEPTH, 4)),
            completions: Vec::new(),
            events: Vec::new(),
            is_closed: false,
            reads_in_place: true,
        };
        let wanted = Attributes {
            state: QpState::Init,
            allow_remote_write: true,
            allow_remote_read: true,
            allow_remote_atomic: true,
            ..Attributes::new()
        };
        host.modify(&wanted, AttrMask::STATE | AttrMask::ACCESS_FLAGS);
        host
    }

    pub fn modify(&mut self, wanted: &Attributes, mask: AttrMask) {
        self.qp.modify(wanted, mask, &self.memory).unwrap();
    }

    pub fn register(&mut self, rights: Rights, bytes: Vec<u8>) -> u32 {
        self.memory.0.register(PD, rights, bytes)
    }

    pub fn sge(&self, key: u32, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.memory.0.va(key, offset),
            len,
            lkey: key,
        }
    }

    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let request = RecvRequest { wr_id, sges };
        match &mut self.srq {
            Some(srq) => srq.post(&request).unwrap(),
            None => self.qp.post_recv(&request).unwrap(),
        }
        self.qp.resume(self.srq.as_mut(), &mut self.memory);
    }

    pub fn post(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.qp.post_send(&request(wr_id, op, sges)).unwrap();
    }

    fn drain(&mut self) {
        while let Some(completion) = self.qp.poll_completion() {
            self.completions.push(completion);
        }
        while let Some(event) = self.qp.poll_event() {
            self.events.push(event);
        }
    }
}

pub fn request(wr_id: u64, op: SendOp, sges: &[Sge]) -> SendRequest<'_> {
    SendRequest {
        wr_id,
        op,
        data: SendData::Sges(sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    }
}

/// Both hosts. Host 0 is the initiator.
pub struct Pair {
    pub hosts: [Host; 2],
    /// What goes from host 0, and what goes to it.
    streams: [ByteStream; 2],
    pub now: Instant,
    random: Random,
    /// Everything that was written each way.
    pub written: [Vec<u8>; 2],
    /// The same in the order of writing, each with the host that wrote it.
    pub log: Vec<(usize, Vec<u8>)>,
    is_end_told: [bool; 2],
}

impl Pair {
    pub fn new(seed: u64, terms: [Terms; 2], segment_len: usize) -> Self {
        Self::with_hosts(
            seed,
            terms,
            segment_len,
            [Host::new(1, false), Host::new(2, false)],
        )
    }

    pub fn with_hosts(
        seed: u64,
        terms: [Terms; 2],
        segment_len: usize,
        mut hosts: [Host; 2],
    ) -> Self {
        for (host, terms) in hosts.iter_mut().zip(terms) {
            assert!(host.qp.connect(terms, segment_len));
        }
        Self {
            hosts,
            streams: [
                ByteStream::new(SHAPE, seed),
                ByteStream::new(SHAPE, seed ^ 0x5555),
            ],
            now: Instant::default(),
            random: Random::new(seed ^ 0xaaaa),
            written: [Vec::new(), Vec::new()],
            log: Vec::new(),
            is_end_told: [false; 2],
        }
    }

    /// Ready with the terms that both ends have.
    pub fn plain(seed: u64) -> Self {
        let responder = Terms {
            first: FirstFrame::Await,
            ..TERMS
        };
        Self::new(seed, [TERMS, responder], 1460)
    }

    /// Puts bytes of the test's own into the stream from a host.
    pub fn inject(&mut self, from: usize, bytes: &[u8]) {
        let now = self.now;
        assert_eq!(self.streams[from].write(now, bytes), bytes.len());
    }

    /// Ends the stream from a host.
    pub fn end(&mut self, from: usize) {
        self.streams[from].close();
    }

    /// Loses the connection: what is on its way is gone, and both hosts are told that it broke.
    pub fn lose(&mut self) {
        for (n, host) in self.hosts.iter_mut().enumerate() {
            self.streams[n] = ByteStream::new(SHAPE, 0);
            self.streams[n].close();
            self.is_end_told[n] = true;
            host.qp.handle_end(true, &host.memory);
        }
    }

    /// Gives both queue pairs another connection, whose last one is over.
    pub fn reconnect(&mut self, seed: u64, terms: [Terms; 2], segment_len: usize) {
        for (host, terms) in self.hosts.iter_mut().zip(terms) {
            for state in [QpState::Reset, QpState::Init] {
                let wanted = Attributes {
                    state,
                    ..host.qp.attributes().clone()
                };
                host.modify(&wanted, AttrMask::STATE);
            }
            host.completions.clear();
            host.events.clear();
            host.is_closed = false;
            let all = Attributes {
                allow_remote_write: true,
                allow_remote_read: true,
                allow_remote_atomic: true,
                ..Attributes::new()
            };
            host.modify(&all, AttrMask::ACCESS_FLAGS);
            assert!(host.qp.connect(terms, segment_len));
        }
        self.streams = [seed, seed ^ 0x5555].map(|seed| ByteStream::new(SHAPE, seed));
        self.is_end_told = [false; 2];
        (self.written, self.log) = ([Vec::new(), Vec::new()], Vec::new());
    }

    fn send(&mut self, from: usize) -> bool {
        let (now, host) = (self.now, &mut self.hosts[from]);
        let budget = 1 + self.random.index(20_000);
        let waiting = host.qp.poll_output(budget, &mut host.memory);
        let mut bytes = Vec::new();
        let mut pieces = host.qp.output();
        let taken = pieces.try_for_each(|piece| host.memory.take(PD, &piece, &mut bytes));
        drop(pieces);
        if taken.is_err() {
            host.qp.handle_memory_fault(&host.memory);
            return true;
        }
        assert_eq!(bytes.len(), waiting);
        bytes.truncate(1 + self.random.index(waiting.max(1)));
        let taken = self.streams[from].write(now, &bytes);
        self.written[from].extend_from_slice(&bytes[..taken]);
        self.log.push((from, bytes[..taken].to_vec()));
        host.qp.handle_sent(taken);
        let action = host.qp.poll_action(now);
        if action.is_some() {
            self.streams[from].close();
        }
        host.is_closed |= action == Some(StreamAction::Close);
        taken > 0 || action.is_some()
    }

    fn receive(&mut self, to: usize) -> bool {
        let (now, host) = (self.now, &mut self.hosts[to]);
        if host.qp.is_stalled() {
            host.drain();
            return false;
        }
        let places = match host.reads_in_place {
            true => host.qp.destinations(&host.memory),
            false => smallvec::SmallVec::new(),
        };
        let room: usize = places.iter().map(|place| place.len() as usize).sum();
        let scratch = [0, 4, 40, 5000][self.random.index(4)].max(usize::from(room == 0));
        let bytes = self.streams[1 - to].read(now, room + scratch);
        let mut rest = &bytes[..];
        for place in &places {
            let (piece, later) = rest.split_at(rest.len().min(place.len() as usize));
            host.memory.fill(place, piece);
            rest = later;
        }
        let placed = bytes.len() - rest.len();
        if placed > 0 {
            host.qp.handle_placed(placed, &mut host.memory);
        }
        host.qp
            .handle_bytes(rest, host.srq.as_mut(), &mut host.memory);
        let is_end = self.streams[1 - to].is_at_end() && !self.is_end_told[to];
        if is_end {
            self.is_end_told[to] = true;
            host.qp.handle_end(false, &host.memory);
        }
        host.drain();
        !bytes.is_empty() || is_end
    }

    /// Goes on until nothing happens any more. Panics if that does not come.
    pub fn run(&mut self) {
        assert!(self.run_for(3_000_000), "it does not come to rest");
    }

    /// Goes on for so many rounds; whether nothing happens any more.
    pub fn run_for(&mut self, rounds: u32) -> bool {
        for _ in 0..rounds {
            let mut has_moved = false;
            for host in 0..2 {
                has_moved |= self.send(host);
                has_moved |= self.receive(host);
            }
            if has_moved {
                continue;
            }
            let arrivals = self.streams.iter().filter_map(ByteStream::next_arrival);
            // A host that is stalled leaves what has arrived.
            let arrivals = arrivals.filter(|at| *at > self.now);
            let timeouts = self.hosts.iter().filter_map(|host| host.qp.poll_timeout());
            let Some(next) = arrivals.chain(timeouts).min() else {
                self.hosts.iter_mut().for_each(Host::drain);
                return true;
            };
            self.now = self.now.max(next);
            for host in &mut self.hosts {
                host.qp.handle_timeout(self.now, &host.memory);
            }
        }
        false
    }
}
