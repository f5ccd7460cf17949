//! Random programs of two hosts, of which it is known what has to come of them.

use urxe_iwarp::Terms;
use urxe_proto::{Completion, CompletionKind, SendOp, SendRequest, WcStatus};
use urxe_sim::{Random, Rights};
use urxe_wire::Immediate;

use super::{Pair, request, responder};

/// Seeds of each random test; `URXE_SIM_SEEDS` for others.
pub fn seeds(usual: u64) -> u64 {
    let wanted = std::env::var("URXE_SIM_SEEDS").ok();
    wanted.map_or(usual, |wanted| wanted.parse().expect("a number of seeds"))
}

/// Bytes that an operation moves.
#[derive(Clone, Copy, Debug)]
struct Move {
    /// The host whose operation it is, and its number.
    by: usize,
    wr_id: u64,
    is_read: bool,
    takes_receive: bool,
    /// Where they come to: host, and place in its target.
    to: usize,
    at: u64,
    len: u64,
}

/// A random program: slots that are each the target of one operation, so that what is in them in
/// the end is known.
pub struct Program {
    pub pair: Pair,
    pub random: Random,
    slot_len: u64,
    /// Key of the bytes that are sent, and of those that are received, of each host.
    pub source: [u32; 2],
    pub target: [u32; 2],
    /// What has to be in the target of each host.
    expected: [Vec<u8>; 2],
    next_slot: [u64; 2],
    posted: [u64; 2],
    received: [u64; 2],
    moves: Vec<Move>,
}

impl Program {
    pub fn new(seed: u64, slots: u64, terms: Terms, segment_len: usize) -> Self {
        let mut random = Random::new(seed);
        let slot_len = 1 + random.below(9000);
        let mut pair = Pair::new(seed, [terms, responder(&terms)], segment_len);
        let len = usize::try_from(slots * slot_len).unwrap();
        let (mut source, mut target) = ([0; 2], [0; 2]);
        for (n, host) in pair.hosts.iter_mut().enumerate() {
            let mut bytes = vec![0; len];
            random.fill(&mut bytes);
            source[n] = host.register(Rights::ALL, bytes);
            target[n] = host.register(Rights::ALL, vec![0; len]);
            host.reads_in_place = random.below(4) > 0;
        }
        Self {
            pair,
            random,
            slot_len,
            source,
            target,
            expected: [vec![0; len], vec![0; len]],
            next_slot: [0; 2],
            posted: [0; 2],
            received: [0; 2],
            moves: Vec::new(),
        }
    }

    /// A slot of the target of a host that nothing goes to yet.
    fn slot(&mut self, of: usize) -> u64 {
        let slot = self.next_slot[of];
        self.next_slot[of] += 1;
        slot * self.slot_len
    }

    /// Notes that bytes of the source of `from` come to `at` in the target of `to`.
    fn expect(&mut self, from: usize, source_at: u64, to: usize, at: u64, len: u64) {
        let bytes = self.pair.hosts[from].memory.0.bytes(self.source[from]);
        let range = |at: u64| usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
        self.expected[to][range(at)].copy_from_slice(&bytes[range(source_at)]);
    }

    /// Posts an operation of host `me`, with a receive at the other where it takes one.
    pub fn post(&mut self, me: usize) {
        let you = 1 - me;
        let len = self.random.below(self.slot_len + 1);
        let kind = self.random.below(4);
        let at = self.slot(if kind == 3 { me } else { you });
        let length = u32::try_from(len).unwrap();
        let wr_id = self.posted[me];
        self.posted[me] += 1;
        let peer = &self.pair.hosts[you].memory.0;
        let (target_key, target_va) = (self.target[you], peer.va(self.target[you], at));
        let (source_key, source_va) = (self.source[you], peer.va(self.source[you], at));
        let immediate = Immediate(wr_id.to_be_bytes()[4..].try_into().unwrap());
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::Write {
                va: target_va,
                rkey: target_key,
            },
            2 => SendOp::WriteImm {
                va: target_va,
                rkey: target_key,
                immediate,
            },
            _ => SendOp::Read {
                va: source_va,
                rkey: source_key,
            },
        };
        match kind {
            0 => {
                let place =
                    self.pair.hosts[you].sge(target_key, at, u32::try_from(self.slot_len).unwrap());
                self.pair.hosts[you].post_recv(wr_id, &[place]);
            }
            2 => self.pair.hosts[you].post_recv(wr_id, &[]),
            _ => {}
        }
        self.received[you] += u64::from(kind == 0 || kind == 2);
        let (from, to) = if kind == 3 { (you, me) } else { (me, you) };
        self.expect(from, at, to, at, len);
        self.moves.push(Move {
            by: me,
            wr_id,
            is_read: kind == 3,
            takes_receive: kind == 0 || kind == 2,
            to,
            at,
            len,
        });
        let key = if kind == 3 {
            self.target[me]
        } else {
            self.source[me]
        };
        // In two pieces.
        let cut = u32::try_from(self.random.below(len + 1)).unwrap();
        let host = &mut self.pair.hosts[me];
        let sges = [
            host.sge(key, at, cut),
            host.sge(key, at + u64::from(cut), length - cut),
        ];
        host.qp
            .post_send(&SendRequest {
                fence: self.random.below(5) == 0,
                ..request(wr_id, op, &sges)
            })
            .unwrap();
    }

    pub fn check(&self, seed: u64) {
        for (n, host) in self.pair.hosts.iter().enumerate() {
            let sends = host.completions.iter();
            let is_receive = |done: &&Completion| {
                matches!(
                    done.kind,
                    CompletionKind::Recv | CompletionKind::RecvWriteImm
                )
            };
            let receives: Vec<_> = sends.clone().filter(is_receive).collect();
            let sends: Vec<_> = sends.filter(|done| !is_receive(done)).collect();
            assert_eq!(sends.len() as u64, self.posted[n], "seed {seed}, host {n}");
            assert_eq!(
                receives.len() as u64,
                self.received[n],
                "seed {seed}, host {n}"
            );
            let in_order =
                |all: &[&Completion]| all.windows(2).all(|two| two[0].wr_id < two[1].wr_id);
            assert!(
                in_order(&sends) && in_order(&receives),
                "seed {seed}, host {n}"
            );
            assert!(
                host.completions
                    .iter()
                    .all(|done| done.status == WcStatus::Success),
                "seed {seed}, host {n}: {:?}",
                host.completions
            );
            let bytes = host.memory.0.bytes(self.target[n]);
            assert!(
                bytes == self.expected[n],
                "seed {seed}, host {n}: wrong bytes"
            );
            assert_eq!(host.qp.stats().terminates_sent, 0, "seed {seed}, host {n}");
        }
    }

    /// What holds of a host whatever became of its connection: every request completed once and in
    /// order, what completed well is where it belongs, and nothing else is anywhere.
    pub fn check_broken(&self, what: &str, n: usize) {
        let host = &self.pair.hosts[n];
        assert!(host.is_closed, "{what}: the stream is kept");
        let is_receive = |done: &&Completion| {
            matches!(
                done.kind,
                CompletionKind::Recv | CompletionKind::RecvWriteImm
            )
        };
        let done = host.completions.iter();
        let (receives, sends): (Vec<&Completion>, Vec<_>) = done.partition(is_receive);
        assert_eq!(sends.len() as u64, self.posted[n], "{what}");
        assert_eq!(receives.len() as u64, self.received[n], "{what}");
        for all in [&sends, &receives] {
            let in_order = all.windows(2).all(|two| two[0].wr_id < two[1].wr_id);
            assert!(in_order, "{what}");
        }
        let is_done = |all: &[&Completion], wr_id| {
            let mut done = all.iter();
            done.any(|done| done.wr_id == wr_id && done.status == WcStatus::Success)
        };
        let Some(region) = host.memory.0.region(self.target[n]) else {
            return;
        };
        let (bytes, expected) = (&region.bytes, &self.expected[n]);
        for moved in self.moves.iter().filter(|moved| moved.to == n) {
            let is_whole = if moved.is_read {
                is_done(&sends, moved.wr_id)
            } else {
                moved.takes_receive && is_done(&receives, moved.wr_id)
            };
            let range =
                usize::try_from(moved.at).unwrap()..usize::try_from(moved.at + moved.len).unwrap();
            assert!(
                !is_whole || bytes[range.clone()] == expected[range],
                "{what}: {moved:?}"
            );
        }
        let is_either = |(got, wanted): (&u8, &u8)| got == wanted || *got == 0;
        assert!(bytes.iter().zip(expected).all(is_either), "{what}");
    }

    /// Begins anew with another connection of both hosts, whose last one is over.
    pub fn reconnect(&mut self, seed: u64, terms: Terms, segment_len: usize) {
        self.pair
            .reconnect(seed, [terms, responder(&terms)], segment_len);
        (self.posted, self.received) = ([0; 2], [0; 2]);
        self.moves.clear();
        for (n, host) in self.pair.hosts.iter().enumerate() {
            // Of what was under way, some came.
            self.expected[n] = host.memory.0.bytes(self.target[n]).to_vec();
        }
    }
}
