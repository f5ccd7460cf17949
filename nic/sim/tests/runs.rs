//! Packets of the middle of a message, and WRITEs in a row, that are handled together do what they
//! do one by one.

mod support;

use support::queue_pair::{any_peer_abilities, queue_pair};
use support::scenario::PD;
use support::seeds::for_each_seed;
use urxe_proto::{
    AckMode, AttrMask, Attributes, Egress, Instant, Payload, PeerAbilities, QpType, QueuePair,
    RecvRequest, RemoteRange, SendData, SendOp, SendRequest, SendTarget, Sge, Transmit, gather,
};
use urxe_sim::{Random, Rights, VecMemory};
use urxe_wire::{
    Bth, HELD_LEN, Header, Opcode, Operation, Packet, Pkey, Psn, Qpn, Reth, Transport,
};

/// Bytes of each end's region, of which messages take parts.
const REGION_BYTES: u32 = 64 << 10;
const MESSAGE_MAX: u64 = 24 << 10;
/// Bytes of a full packet.
const MTU_BYTES: usize = 1024;

/// A packet as it arrives, and whether it may be handled with others.
#[derive(Clone, Debug)]
struct Arrived {
    header: Header,
    payload: Vec<u8>,
}

#[derive(Clone)]
struct End {
    qp: QueuePair,
    memory: VecMemory,
    key: u32,
}

fn request(op: SendOp, sges: &[Sge]) -> SendRequest<'_> {
    SendRequest {
        wr_id: 0,
        op,
        data: SendData::Sges(sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    }
}

impl End {
    fn new(number: Qpn, peer: Qpn, psn: Psn, fill: u8) -> Self {
        let mut memory = VecMemory::default();
        let bytes = (0..REGION_BYTES)
            .map(|at| (at % 251) as u8 ^ fill)
            .collect();
        let key = memory.register(PD, Rights::ALL, bytes);
        Self {
            qp: queue_pair(number, peer, QpType::Rc, psn, 0),
            memory,
            key,
        }
    }

    /// A part of the region.
    fn sge(&self, random: &mut Random, len: u32) -> Sge {
        let offset = random.below(u64::from(REGION_BYTES - len) + 1);
        Sge {
            addr: self.memory.va(self.key, offset),
            len,
            lkey: self.key,
        }
    }

    /// Posts some requests for `peer`, and receives for what that asks for.
    fn post(&mut self, peer: &mut Self, random: &mut Random) {
        for _ in 0..random.between(1, 6) {
            let mut len = u32::try_from(random.between(1, MESSAGE_MAX)).unwrap();
            if random.chance(500_000) {
                len = len.next_multiple_of(MTU_BYTES as u32);
            }
            let (local, remote) = (self.sge(random, len), peer.sge(random, len));
            let (va, rkey) = (remote.addr, remote.lkey);
            let op = match random.below(3) {
                0 => SendOp::Send,
                1 => SendOp::Write { va, rkey },
                _ => SendOp::Read { va, rkey },
            };
            let posted = self.qp.post_send(&request(op, &[local]));
            if posted.is_ok() && op == SendOp::Send {
                // Some are too short.
                let short = u32::from(random.chance(50_000)) * 2048;
                let target = Sge {
                    len: remote.len - short.min(remote.len - 1),
                    ..remote
                };
                let _ = peer.qp.post_recv(&RecvRequest {
                    wr_id: 0,
                    sges: &[target],
                });
            }
        }
    }

    /// What it sends now.
    fn packets(&mut self, now: Instant, random: &mut Random) -> Vec<Arrived> {
        let mut packets = Vec::new();
        let mode = if random.chance(500_000) {
            AckMode::Hold
        } else {
            AckMode::Flush
        };
        while let Some(run) = self.qp.poll_run(now, mode, 64, &mut self.memory) {
            for index in 0..=run.more {
                let Transmit {
                    header, payload, ..
                } = run.packet(index);
                let payload = match payload {
                    Payload::Empty => Vec::new(),
                    Payload::Bytes(bytes) => bytes.to_vec(),
                    Payload::Words(words) => words.into_iter().flat_map(u64::to_be_bytes).collect(),
                    Payload::Local { sges, offset, len } => {
                        let mut bytes = vec![0; len as usize];
                        gather(&self.memory, PD, sges, offset, &mut bytes).unwrap();
                        bytes
                    }
                    Payload::Remote { via, rkey, va, len } => {
                        let range = RemoteRange { rkey, va, len };
                        self.memory.read_remote(via, range).unwrap().to_vec()
                    }
                };
                packets.push(Arrived { header, payload });
            }
        }
        packets
    }

    fn handle(&mut self, now: Instant, arrived: &Arrived) {
        let packet = Packet {
            header: arrived.header,
            payload: &arrived.payload,
        };
        self.qp.handle_packet(now, &packet, None, &mut self.memory);
    }

    /// Handles packets, those of the middle of messages and WRITEs in a row together. Returns how
    /// many were.
    fn handle_in_runs(&mut self, now: Instant, mut packets: &[Arrived]) -> usize {
        let mut together = 0;
        while let Some((first, rest)) = packets.split_first() {
            self.handle(now, first);
            let mut header = first.header;
            let alike = rest.iter().take_while(|next| {
                header.bth.psn = header.bth.psn.next();
                if let Some(reth) = &mut header.reth {
                    reth.va = reth.va.wrapping_add(u64::from(reth.len));
                }
                next.header == header && next.payload.len() == first.payload.len()
            });
            let payloads: Vec<_> = alike.map(|packet| &packet.payload[..]).collect();
            let taken = payloads.first().map_or(0, |payload| {
                let packet = Packet {
                    header: rest[0].header,
                    payload,
                };
                let qp = &mut self.qp;
                qp.handle_run(now, &packet, &payloads, &mut self.memory)
            });
            together += taken;
            packets = &rest[taken..];
        }
        together
    }

    /// All that can be seen of it, and what it will send.
    fn seen(&self, now: Instant) -> String {
        let mut after = self.clone();
        let mut said = String::new();
        while let Some(completion) = after.qp.poll_completion() {
            said += &format!("{completion:?}\n");
        }
        while let Some(event) = after.qp.poll_event() {
            said += &format!("{event:?}\n");
        }
        let sent = after.packets(now, &mut Random::new(0));
        let stats = after.qp.stats();
        format!("{said}{sent:?}\n{stats:?}\n{:?}", after.qp.query())
    }
}

/// What a bad network does to packets.
fn spoil(packets: &mut Vec<Arrived>, random: &mut Random) {
    let mut at = 0;
    while at < packets.len() {
        let packet = &mut packets[at];
        let bth = &mut packet.header.bth;
        let is_response = bth.opcode.operation().is_some_and(Operation::is_response);
        match random.below(400) {
            0 => drop(packets.remove(at)),
            1 => packets.insert(at, packets[at].clone()),
            2 => bth.psn = bth.psn.add(1),
            3 => bth.pkey = Pkey(0x1234),
            4 => bth.ack_request = !is_response,
            5 if at > 0 => packets.swap(at - 1, at),
            6 if packet.payload.len() > HELD_LEN => packet.payload.truncate(HELD_LEN),
            7 => packets[at..]
                .iter_mut()
                .for_each(|packet| packet.header.bth.pkey = Pkey(0x1234)),
            8 => go_on(packets, at),
            9 => packet.header.reth.iter_mut().for_each(|reth| reth.len += 4),
            _ => {}
        }
        at += 1;
    }
    if random.chance(100_000)
        && let Some(last) = packets.len().checked_sub(1)
    {
        go_on(packets, last);
    }
}

/// A peer that does not end its message where it should: behind the packet at `at` come others, of
/// the middle.
fn go_on(packets: &mut Vec<Arrived>, at: usize) {
    let mut next = packets[at].clone();
    let Some(operation) = next.header.bth.opcode.operation() else {
        return;
    };
    let middle = if operation.is_send() {
        Operation::SendMiddle
    } else if operation.is_write() {
        Operation::WriteMiddle
    } else if operation.is_read_response() {
        Operation::ReadResponseMiddle
    } else {
        return;
    };
    let mut header = next.header.bth;
    header.opcode = Opcode::new(Transport::Rc, middle);
    header.ack_request = false;
    next.header = Header::new(header);
    next.payload.resize(MTU_BYTES, 7);
    if operation.is_last() {
        packets[at] = next.clone();
    }
    for place in at + 1..at + 30 {
        next.header.bth.psn = next.header.bth.psn.next();
        packets.insert(place, next.clone());
    }
}

#[test]
fn packets_handled_together_do_what_they_do_one_by_one() {
    let total = std::cell::Cell::new(0);
    for_each_seed(300, |seed, _| {
        let mut random = Random::new(seed);
        let (left, right) = (Qpn::new(0x11), Qpn::new(0x12));
        let psn = Psn::new(0xff_ffff - u32::try_from(random.below(200)).unwrap());
        let mut ends = [
            End::new(left, right, psn, 0x55),
            End::new(right, left, psn, 0xaa),
        ];
        for end in &mut ends {
            end.qp.set_egress(Egress {
                window_bytes: 1 << 20,
                ..Egress::default()
            });
            end.qp
                .set_peer_abilities(any_peer_abilities(&mut Random::new(seed)));
        }
        for round in 1..60 {
            let now = Instant::from_nanos(round * 10_000_000);
            let [from, to] = &mut ends;
            if round < 40 && random.chance(500_000) {
                from.post(to, &mut random);
            }
            from.qp.handle_timeout(now);
            let mut packets = from.packets(now, &mut random);
            if seed % 4 != 0 {
                spoil(&mut packets, &mut random);
            }
            let mut apart = to.clone();
            packets.iter().for_each(|packet| apart.handle(now, packet));
            total.set(total.get() + to.handle_in_runs(now, &packets));
            to.qp.check_invariants();
            assert_eq!(to.seen(now), apart.seen(now), "round {round}");
            assert!(to.memory.bytes(to.key) == apart.memory.bytes(to.key));
            ends.swap(0, 1);
        }
    });
    assert!(
        total.get() > 1000 || support::seeds::is_replay(),
        "{total:?} packets were handled together"
    );
}

#[test]
fn a_message_has_come_in_part_until_its_last_packet() {
    let (now, mut random) = (Instant::from_nanos(1), Random::new(1));
    let numbers = (Qpn::new(0x11), Qpn::new(0x12));
    let mut from = End::new(numbers.0, numbers.1, Psn::new(0), 0x55);
    let mut to = End::new(numbers.1, numbers.0, Psn::new(0), 0xaa);
    let [local, remote] = [&from, &to].map(|end| end.sge(&mut Random::new(1), 3000));
    let (va, rkey) = (remote.addr, remote.lkey);
    from.qp
        .post_send(&request(SendOp::Write { va, rkey }, &[local]))
        .unwrap();
    let mut within = vec![to.qp.is_within_message()];
    for packet in from.packets(now, &mut random) {
        to.handle(now, &packet);
        within.push(to.qp.is_within_message());
    }
    assert_eq!(within, [false, true, true, false]);
}

/// The packet ahead of them says nothing of them.
#[test]
fn writes_in_a_row_are_checked_as_those_on_their_own_are() {
    const LEN: u32 = 100;
    let new = || End::new(Qpn::new(0x12), Qpn::new(0x11), Psn::new(0), 0xaa);
    let handled = |to: &mut End, at: u64, announced: u32| {
        let opcode = Opcode::new(Transport::Rc, Operation::WriteOnly);
        let mut header = Header::new(Bth::new(opcode, Qpn::new(0x12), Psn::new(0)));
        header.reth = Some(Reth {
            va: to.memory.va(to.key, at),
            rkey: to.key,
            len: announced,
        });
        let payload = &[7; LEN as usize][..];
        let packet = Packet { header, payload };
        let before = to.memory.bytes(to.key).to_vec();
        let now = Instant::from_nanos(1);
        let count = to
            .qp
            .handle_run(now, &packet, &[payload, payload], &mut to.memory);
        assert_eq!(count == 0, to.memory.bytes(to.key) == before);
        count
    };
    assert_eq!(handled(&mut new(), 5, LEN), 2);
    assert_eq!(handled(&mut new(), 5, LEN + 1), 0);
    let mut shut = new();
    let wanted = Attributes {
        allow_remote_write: false,
        ..Attributes::new()
    };
    shut.qp.modify(&wanted, AttrMask::ACCESS_FLAGS).unwrap();
    assert_eq!(handled(&mut shut, 5, LEN), 0);
}

/// What fills a gap is handled up to what was kept, which comes again with it here, and is a copy
/// then.
#[test]
fn a_run_does_not_go_past_what_was_kept() {
    let (now, mut random) = (Instant::from_nanos(1), Random::new(1));
    let numbers = (Qpn::new(0x11), Qpn::new(0x12));
    let mut from = End::new(numbers.0, numbers.1, Psn::new(0), 0x55);
    let mut to = End::new(numbers.1, numbers.0, Psn::new(0), 0xaa);
    from.qp.set_egress(Egress {
        window_bytes: 1 << 20,
        ..Egress::default()
    });
    to.qp.set_peer_abilities(PeerAbilities::URXE);
    let [local, remote] = [&from, &to].map(|end| end.sge(&mut Random::new(1), 12 << 10));
    let (va, rkey) = (remote.addr, remote.lkey);
    from.qp
        .post_send(&request(SendOp::Write { va, rkey }, &[local]))
        .unwrap();
    let packets = from.packets(now, &mut random);
    assert_eq!(packets.len(), 12);
    to.handle(now, &packets[0]);
    to.handle(now, &packets[6]);
    let mut apart = to.clone();
    for packet in &packets[1..] {
        apart.handle(now, packet);
    }
    let together = to.handle_in_runs(now, &packets[1..]);
    assert!(together > 0, "nothing was handled together");
    assert_eq!(to.seen(now), apart.seen(now));
    assert!(to.memory.bytes(to.key) == apart.memory.bytes(to.key));
    assert_eq!(to.qp.stats().duplicate_request, 1);
}
