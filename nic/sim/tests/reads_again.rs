//! Which parts of a READ are asked for again.
//!
//! Linux rxe remembers of a READ that it repeats only what was asked for last, and drops without a
//! word what lies before that. So whatever was asked for at once is asked for again at once, from
//! what is missing to its end.

mod support;

use std::collections::{BTreeSet, VecDeque};

use support::queue_pair::queue_pair;
use support::scenario::PD;
use urxe_proto::{
    AckMode, Egress, Instant, QpType, QueuePair, SendData, SendOp, SendRequest, SendTarget, Sge,
    WcStatus,
};
use urxe_sim::{Random, Rights, VecMemory};
use urxe_wire::{Aeth, Bth, Header, Opcode, Operation, Packet, Psn, Qpn, Syndrome, Transport};

const MTU_BYTES: u32 = 1024;
const PACKETS: u32 = 256;

/// What a READ request asks for: packets of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    from: u32,
    to: u32,
}

/// A queue pair with a READ, against a responder that is like rxe.
struct Reader {
    qp: QueuePair,
    memory: VecMemory,
    now: Instant,
    /// Where requests ended that were the first for what they asked.
    ends: BTreeSet<u32>,
    /// From where the responder would repeat each part, by its end.
    answers_from: Vec<Asked>,
}

impl Reader {
    fn new() -> Self {
        let mut memory = VecMemory::default();
        let length = PACKETS * MTU_BYTES;
        let key = memory.register(PD, Rights::ALL, vec![0; length as usize]);
        let mut qp = queue_pair(Qpn::new(0x11), Qpn::new(0x12), QpType::Rc, Psn::new(0), 0);
        qp.set_egress(Egress {
            window_bytes: 64 << 10,
            ..Egress::default()
        });
        qp.post_send(&SendRequest {
            wr_id: 7,
            op: SendOp::Read { va: 0, rkey: 1 },
            data: SendData::Sges(&[Sge {
                addr: memory.va(key, 0),
                len: length,
                lkey: key,
            }]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        })
        .unwrap();
        Self {
            qp,
            memory,
            now: Instant::from_nanos(1),
            ends: BTreeSet::from([0]),
            answers_from: Vec::new(),
        }
    }

    /// The next request, if one may go, checked against what rxe would do with it.
    fn request(&mut self) -> Option<Asked> {
        let header = self
            .qp
            .poll_transmit(self.now, AckMode::Flush, &mut self.memory)?
            .header;
        let reth = header.reth.expect("nothing but READ requests");
        let from = header.bth.psn.get();
        assert_eq!(reth.va, u64::from(from * MTU_BYTES));
        let asked = Asked {
            from,
            to: from + reth.len / MTU_BYTES,
        };
        let newest = *self.ends.last().unwrap();
        if asked.from == newest {
            self.ends.insert(asked.to);
            self.answers_from.push(asked);
        } else {
            let part = self
                .answers_from
                .iter_mut()
                .find(|part| (part.from..part.to).contains(&asked.from))
                .unwrap_or_else(|| panic!("{asked:?} lies before what would be repeated"));
            assert!(asked.to <= part.to, "{asked:?} is of two requests");
            part.from = asked.from;
        }
        Some(asked)
    }

    /// A packet of the answer to a request comes.
    fn answer(&mut self, asked: Asked, packet: u32) {
        let operation = match (packet == asked.from, packet + 1 == asked.to) {
            (true, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseFirst,
            (false, true) => Operation::ReadResponseLast,
            (false, false) => Operation::ReadResponseMiddle,
        };
        let opcode = Opcode::new(Transport::Rc, operation);
        let mut header = Header::new(Bth::new(opcode, self.qp.number(), Psn::new(packet)));
        if operation != Operation::ReadResponseMiddle {
            header.aeth = Some(Aeth {
                syndrome: Syndrome::Ack { credits: 31 },
                msn: 1,
            });
        }
        let packet = Packet {
            header,
            payload: &[5; MTU_BYTES as usize],
        };
        self.qp
            .handle_packet(self.now, &packet, None, &mut self.memory);
    }
}

#[test]
fn what_was_asked_for_at_once_is_asked_for_again_at_once() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut reader = Reader::new();
        let mut requests = 0;
        let mut on_the_way = VecDeque::new();
        let done = loop {
            while let Some(asked) = reader.request() {
                requests += 1;
                let arrives = |_: &u32| !random.chance(50_000);
                let packets = (asked.from..asked.to).filter(arrives);
                on_the_way.extend(packets.map(|packet| (asked, packet)));
            }
            if let Some((asked, packet)) = on_the_way.pop_front() {
                reader.answer(asked, packet);
                continue;
            }
            if let Some(done) = reader.qp.poll_completion() {
                break done;
            }
            assert!(requests < 1000, "seed {seed} does not end");
            reader.now = reader.qp.poll_timeout().expect("something is missing");
            reader.qp.handle_timeout(reader.now);
        };
        assert_eq!((done.wr_id, done.status), (7, WcStatus::Success));
    }
}
