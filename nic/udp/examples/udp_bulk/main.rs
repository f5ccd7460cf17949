//! The floor under a stream: what one thread moves to another in datagrams with a header and an
//! ICRC, if it does nothing else that a transport does. One step after another adds what a NIC must
//! do.
//!
//! `udp_bulk [--ways 1|2] [--mtu bytes] [--payload bytes] [--message bytes] [--window bytes]
//! [--milliseconds n] [--rounds n] [--processors A,B] [--held bytes]`. A datagram has 4 KiB of
//! payload, or as many bytes as it is told: that of a short message. A sender keeps a window of
//! bytes that the receiver has not seen; each message is read from one buffer and ends in another.
//! With two ways each thread sends a batch and receives one by turns, and the rate is that of both
//! together. Both threads may be bound to processors. All steps take turns.

#[path = "../common/mod.rs"]
mod common;
mod ends;

use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::segments::Cut;
use common::{Link, Samples, number, pin};
use ends::{Receiver, Sender};
use urxe_udp::{Options, Socket};

/// How payload comes to its place.
#[derive(Clone, Copy, PartialEq)]
enum Placement {
    /// It stays in the buffer that it was received in.
    Nowhere,
    Copied,
    /// The kernel places it where the sequence says that it belongs.
    Scattered,
}

#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    /// The sender sums up what it sends, and the receiver what it gets.
    sums: [bool; 2],
    placement: Placement,
    /// The sender copies header, payload and ICRC to one piece of memory, which stays in cache.
    is_staged: bool,
    /// The receiver only looks at first, so that the memory that the kernel copied to is not used
    /// again while its lines are in the cache of the receiver's processor.
    is_held: bool,
}

const PLAIN: Step = Step {
    name: "datagrams alone",
    sums: [false, false],
    placement: Placement::Nowhere,
    is_staged: false,
    is_held: false,
};
const SUMMED: Step = Step {
    name: "and the receiver's ICRC",
    sums: [true, true],
    ..PLAIN
};
const PLACED: Step = Step {
    name: "and copied to its place",
    placement: Placement::Copied,
    ..SUMMED
};

const STEPS: [Step; 7] = [
    PLAIN,
    Step {
        name: "and the sender's ICRC",
        sums: [true, false],
        ..PLAIN
    },
    SUMMED,
    PLACED,
    Step {
        name: "  or received in place",
        placement: Placement::Scattered,
        ..SUMMED
    },
    Step {
        name: "  and sent from one piece of memory",
        is_staged: true,
        ..PLACED
    },
    Step {
        name: "  and with its memory held",
        is_held: true,
        ..PLACED
    },
];

#[derive(Clone, Copy)]
struct Load {
    cut: Cut,
    message_bytes: usize,
    window_bytes: u64,
    held_bytes: usize,
    length: Duration,
    rounds: usize,
}

/// What both ends see. A way is named by the end that sends.
struct Shared {
    sockets: [Socket; 2],
    ways: usize,
    arrived_bytes: [AtomicU64; 2],
    /// Ways on which all has arrived, over all turns.
    ended: AtomicUsize,
    /// Both ends begin a turn together, and none begins the next before both have ended it.
    turn: Barrier,
}

/// The memory of an end.
struct Memory {
    message: Vec<u8>,
    target: Vec<u8>,
}

fn main() {
    let mtu_bytes: u32 = number("--mtu", "9000");
    let load = Load {
        cut: Cut::new(number("--payload", "4096")),
        message_bytes: number("--message", "1048576"),
        window_bytes: number("--window", "524288"),
        held_bytes: number("--held", "1048576"),
        length: Duration::from_millis(number("--milliseconds", "50")),
        rounds: number("--rounds", "20"),
    };
    assert!(
        load.message_bytes.is_multiple_of(load.cut.payload_bytes),
        "a message has whole datagrams"
    );
    let ways: usize = number("--ways", "1");
    assert!((1..=2).contains(&ways), "a link has one or two ways");
    let [here, there] = common::processors();
    let link = Link::new("veth", mtu_bytes);
    let options = Options::default();
    let shared = Shared {
        sockets: [link.left(&options), link.right(&options)],
        ways,
        arrived_bytes: [AtomicU64::new(0), AtomicU64::new(0)],
        ended: AtomicUsize::new(0),
        turn: Barrier::new(2),
    };
    let mut samples: Vec<_> = STEPS.iter().map(|_| Samples::default()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            let mut memory = Memory::new(load);
            for turn in 0..load.rounds * STEPS.len() {
                take_turn(1, turn, &mut memory, &shared, load);
            }
        });
        pin(here);
        let mut memory = Memory::new(load);
        for turn in 0..load.rounds * STEPS.len() {
            let rate = take_turn(0, turn, &mut memory, &shared, load);
            samples[turn % STEPS.len()].push(rate);
        }
    });
    println!(
        "MTU {mtu_bytes}, messages of {} bytes in datagrams of {}, window {} bytes, ways {ways}; \
         GB/s, {} rounds of {:?}",
        load.message_bytes, load.cut.payload_bytes, load.window_bytes, load.rounds, load.length
    );
    println!("{:<36} {:>8} {:>8} {:>8}", "", "quarter", "median", "best");
    for (step, samples) in STEPS.iter().zip(&mut samples) {
        let [quarter, median, best] = [0.25, 0.5, 1.0].map(|part| samples.quantile(part));
        println!("{:<36} {quarter:>8.2} {median:>8.2} {best:>8.2}", step.name);
    }
}

impl Memory {
    fn new(load: Load) -> Self {
        Self {
            message: (0..load.message_bytes).map(|at| (at >> 8) as u8).collect(),
            target: vec![0_u8; load.message_bytes],
        }
    }
}

/// Sends for a time on the way of this end, receives from the other, and stays until all has
/// arrived. Gives the rate of all ways in GB/s.
fn take_turn(end: usize, turn: usize, memory: &mut Memory, shared: &Shared, load: Load) -> f64 {
    let step = &STEPS[turn % STEPS.len()];
    let (own, other) = (&shared.sockets[end], &shared.sockets[1 - end]);
    let [sent, received] = [end, 1 - end].map(|way| &shared.arrived_bytes[way]);
    let sockets = [own, other];
    let mut sender =
        (end < shared.ways).then(|| Sender::new(sockets, (step, load), &memory.message, sent));
    let mut receiver = (1 - end < shared.ways)
        .then(|| Receiver::new([other, own], (step, load), &mut memory.target, received));
    let all_arrived = || -> u64 {
        let ways = &shared.arrived_bytes[..shared.ways];
        ways.iter().map(|way| way.load(Ordering::Acquire)).sum()
    };
    let before = all_arrived();
    shared.turn.wait();
    let start = Instant::now();
    let lost = start + load.length + Duration::from_secs(10);
    while shared.ended.load(Ordering::Acquire) < (turn + 1) * shared.ways {
        if let Some(sending) = &mut sender {
            let now = Instant::now();
            assert!(
                now < lost,
                "{}: datagrams were lost, {} of them by the receiver's socket",
                step.name,
                other.receive_drops().unwrap()
            );
            if now < start + load.length {
                sending.send();
            } else if sending.is_done() {
                sender = None;
                shared.ended.fetch_add(1, Ordering::AcqRel);
            }
        }
        match &mut receiver {
            Some(receiving) => receiving.receive(),
            None => hint::spin_loop(),
        }
    }
    let rate = (all_arrived() - before) as f64 / start.elapsed().as_nanos() as f64;
    if let Some(receiver) = receiver {
        receiver.finish();
    }
    shared.turn.wait();
    rate
}
