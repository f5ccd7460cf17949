//! The floor under a stream: what one thread moves to another in datagrams with a header and an
//! ICRC, if it does nothing else that a transport does. One step after another adds what a NIC must
//! do.
//!
//! `udp_bulk [--mtu bytes] [--payload bytes] [--message bytes] [--window bytes] [--milliseconds n]
//! [--rounds n] [--processors A,B] [--held bytes]`. A datagram has 4 KiB of payload, or as many
//! bytes as it is told: that of a short message. The sender keeps a window of bytes that the
//! receiver has not seen; each message is read from one buffer and ends in another. Both threads
//! may be bound to processors. All steps take turns.

mod common;

use std::hint;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::segments::{Between, Cut, HEADER_BYTES, ICRC_BYTES, flow, icrc};
use common::{Link, Samples, number, pin};
use urxe_udp::{Destination, Framing, Options, Piece, SendError, Socket, Transmit};

const DATAGRAM_BYTES: usize = 1 << 16;
/// Pieces of memory that one call of the kernel takes.
const PIECES_MAX: usize = 1024;

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

struct Shared {
    received_bytes: AtomicU64,
    turn: AtomicUsize,
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
    let [here, there] = common::processors();
    let link = Link::new("veth", mtu_bytes);
    let options = Options::default();
    let ends = (link.left(&options), link.right(&options));
    let shared = Shared {
        received_bytes: AtomicU64::new(0),
        turn: AtomicUsize::new(0),
    };
    let mut samples: Vec<_> = STEPS.iter().map(|_| Samples::default()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            let mut target = vec![0_u8; load.message_bytes];
            for k in 0..load.rounds * STEPS.len() {
                let step = &STEPS[k % STEPS.len()];
                receive(&ends, step, &mut target, &shared, (k, load));
            }
        });
        pin(here);
        let message: Vec<u8> = (0..load.message_bytes).map(|at| (at >> 8) as u8).collect();
        for k in 0..load.rounds * STEPS.len() {
            let (start, before) = (
                Instant::now(),
                shared.received_bytes.load(Ordering::Acquire),
            );
            send(&ends, &STEPS[k % STEPS.len()], &message, &shared, load);
            let bytes = shared.received_bytes.load(Ordering::Acquire) - before;
            samples[k % STEPS.len()].push(bytes as f64 / start.elapsed().as_nanos() as f64);
            shared.turn.store(k + 1, Ordering::Release);
            let drops = ends.1.receive_drops().unwrap();
            assert_eq!(drops, 0, "the receive buffer is smaller than the window");
        }
    });
    println!(
        "MTU {mtu_bytes}, messages of {} bytes in datagrams of {}, window {} bytes; GB/s, {} \
         rounds of {:?}",
        load.message_bytes, load.cut.payload_bytes, load.window_bytes, load.rounds, load.length
    );
    println!("{:<36} {:>8} {:>8} {:>8}", "", "quarter", "median", "best");
    for (step, samples) in STEPS.iter().zip(&mut samples) {
        let [quarter, median, best] = [0.25, 0.5, 1.0].map(|part| samples.quantile(part));
        println!("{:<36} {quarter:>8.2} {median:>8.2} {best:>8.2}", step.name);
    }
}

/// Sends for a time, then waits until all has arrived.
fn send(ends: &(Socket, Socket), step: &Step, message: &[u8], shared: &Shared, load: Load) {
    let (flow, to) = (
        flow(&ends.0, &ends.1),
        Destination::new(ends.1.local_address()),
    );
    let start = Instant::now();
    let end = start + load.length + Duration::from_secs(10);
    let base = shared.received_bytes.load(Ordering::Acquire);
    let arrived = || shared.received_bytes.load(Ordering::Acquire) - base;
    let (mut sent_bytes, mut psn) = (0, 0_u32);
    let Cut {
        payload_bytes,
        segment_bytes,
        segments,
    } = load.cut;
    let mut between = vec![Between::default(); segments + 1];
    let mut staging = vec![0_u8; DATAGRAM_BYTES];
    while start.elapsed() < load.length {
        let left = (message.len() - sent_bytes as usize % message.len()) / payload_bytes;
        let count = left.min(segments);
        let batch_bytes = (count * payload_bytes) as u64;
        while sent_bytes + batch_bytes > arrived() + load.window_bytes {
            hint::spin_loop();
            assert!(Instant::now() < end, "{}: lost", step.name);
        }
        let offset = sent_bytes as usize % message.len();
        let payloads = &message[offset..offset + count * payload_bytes];
        let is_summed = step.sums[0].then_some(&flow);
        load.cut.fill(&mut between, payloads, psn, is_summed);
        let pieces = if step.is_staged {
            for (at, payload) in payloads.chunks_exact(payload_bytes).enumerate() {
                let to = &mut staging[at * segment_bytes..][..segment_bytes];
                to[..HEADER_BYTES].copy_from_slice(&between[at][ICRC_BYTES..]);
                to[HEADER_BYTES..][..payload_bytes].copy_from_slice(payload);
                to[HEADER_BYTES + payload_bytes..].copy_from_slice(&between[at + 1][..ICRC_BYTES]);
            }
            vec![Piece::new(&staging[..count * segment_bytes])]
        } else {
            load.cut.pieces(&between, payloads)
        };
        match ends.0.send(&Transmit {
            destination: &to,
            segment_size: Some(segment_bytes as u16),
            tos: 0,
            framing: Framing::Never,
            iov: &pieces,
        }) {
            Ok(_) => {
                sent_bytes += batch_bytes;
                psn += count as u32;
            }
            Err(SendError::WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
    while arrived() < sent_bytes {
        hint::spin_loop();
        assert!(Instant::now() < end, "{}: lost", step.name);
    }
}

/// Receives until the sender's turn is over.
fn receive(
    ends: &(Socket, Socket),
    step: &Step,
    target: &mut [u8],
    shared: &Shared,
    (turn, load): (usize, Load),
) {
    let Cut {
        payload_bytes,
        segment_bytes,
        segments,
    } = load.cut;
    let flow = flow(&ends.0, &ends.1);
    let (mut held_bytes, flags) = (0, if step.is_held { libc::MSG_PEEK } else { 0 });
    if step.is_held {
        look_behind_what_is_held(&ends.1);
    }
    let mut received_bytes = 0;
    let mut buffer = vec![0_u8; DATAGRAM_BYTES];
    let mut between = vec![Between::default(); segments + 2];
    while shared.turn.load(Ordering::Acquire) == turn {
        let offset = received_bytes % target.len();
        let len = if step.placement == Placement::Scattered {
            receive_in_place(
                &ends.1,
                &mut target[offset..],
                &mut between,
                &mut buffer,
                payload_bytes,
            )
        } else {
            receive_call(&ends.1, &mut [entry(&mut buffer)], flags)
        };
        if step.is_held {
            held_bytes += len;
            while held_bytes > load.held_bytes {
                held_bytes -= receive_call(&ends.1, &mut [], libc::MSG_TRUNC);
            }
        }
        let count = len / segment_bytes;
        assert_eq!(len, count * segment_bytes, "whole segments");
        for at in 0..count {
            let place = offset + at * payload_bytes..offset + (at + 1) * payload_bytes;
            let is_in_place = step.placement == Placement::Scattered && place.end <= target.len();
            let (header, payload, sum) = if is_in_place {
                let (before, after) = (&between[at], &between[at + 1]);
                (
                    &before[ICRC_BYTES..],
                    &target[place.clone()],
                    &after[..ICRC_BYTES],
                )
            } else {
                assert!(
                    step.placement != Placement::Scattered,
                    "a batch ends with its message"
                );
                let segment = &buffer[at * segment_bytes..][..segment_bytes];
                let (header, rest) = segment.split_at(HEADER_BYTES);
                let (payload, sum) = rest.split_at(payload_bytes);
                (header, payload, sum)
            };
            if step.sums[1] {
                assert_eq!(icrc(&flow, header, payload), sum, "{}", step.name);
            }
            if step.placement == Placement::Copied {
                let payload = &buffer[at * segment_bytes + HEADER_BYTES..][..payload_bytes];
                target[place].copy_from_slice(payload);
            }
        }
        received_bytes += count * payload_bytes;
        let bytes = (count * payload_bytes) as u64;
        shared.received_bytes.fetch_add(bytes, Ordering::AcqRel);
    }
    while held_bytes > 0 {
        held_bytes -= receive_call(&ends.1, &mut [], libc::MSG_TRUNC);
    }
}

/// Makes a receive that only looks see what came after the last one that it saw.
fn look_behind_what_is_held(socket: &Socket) {
    let offset_bytes: libc::c_int = 0;
    // SAFETY: the kernel reads an int.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw const offset_bytes).cast(),
            size_of_val(&offset_bytes) as libc::socklen_t,
        )
    };
    assert_eq!(status, 0, "SO_PEEK_OFF");
}

fn entry(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// Receives datagrams whose payload goes on at `target`; what is left of them goes to `rest`.
fn receive_in_place(
    socket: &Socket,
    target: &mut [u8],
    between: &mut [Between],
    rest: &mut [u8],
    payload_bytes: usize,
) -> usize {
    let mut entries = Vec::with_capacity(2 * between.len() + 2);
    let (first, others) = between.split_at_mut(1);
    entries.push(entry(&mut first[0][ICRC_BYTES..]));
    for (payload, after) in target.chunks_exact_mut(payload_bytes).zip(others) {
        entries.push(entry(payload));
        entries.push(entry(after));
    }
    entries.push(entry(rest));
    assert!(entries.len() <= PIECES_MAX);
    receive_call(socket, &mut entries, 0)
}

/// How many bytes came; 0 if none did.
fn receive_call(socket: &Socket, entries: &mut [libc::iovec], flags: libc::c_int) -> usize {
    // SAFETY: all zeros is a header without anything.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = entries.as_mut_ptr();
    header.msg_iovlen = entries.len();
    // SAFETY: the entries are of memory that lives until the call returns.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    usize::try_from(len).unwrap_or(0)
}
