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

use common::{Link, Samples, option};
use urxe_udp::{Destination, Framing, Options, Piece, SendError, Socket, Transmit};
use urxe_wire::icrc::Flow4;

/// BTH, in front of every segment's payload.
const HEADER_BYTES: usize = 12;
const ICRC_BYTES: usize = 4;
const DATAGRAM_BYTES: usize = 1 << 16;
/// What IPv4 and UDP take of it.
const DATAGRAM_HEADERS_BYTES: usize = 28;
/// As many datagrams as urxe sends at once.
const SEGMENTS_MAX: usize = 64;

/// How a batch is cut.
#[derive(Clone, Copy)]
struct Cut {
    payload_bytes: usize,
    segment_bytes: usize,
    segments: usize,
}

impl Cut {
    fn new(payload_bytes: usize) -> Self {
        let segment_bytes = HEADER_BYTES + payload_bytes + ICRC_BYTES;
        let fit = (DATAGRAM_BYTES - 1 - DATAGRAM_HEADERS_BYTES) / segment_bytes;
        Self {
            payload_bytes,
            segment_bytes,
            segments: fit.min(SEGMENTS_MAX),
        }
    }
}
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

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str, default: &str) -> T {
    option(name, default).parse().unwrap()
}

/// Binds the calling thread to a processor.
fn pin(processor: Option<usize>) {
    let Some(processor) = processor else { return };
    // SAFETY: a plain set of bits, and 0 is the calling thread.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(status, 0, "processor {processor}");
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
    let processors = option("--processors", "");
    let mut processors = processors.split(',').map(|each| each.parse().ok());
    let (here, there) = (processors.next().flatten(), processors.next().flatten());
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

fn flow(ends: &(Socket, Socket)) -> Flow4 {
    match (ends.0.local_address(), ends.1.local_address()) {
        (std::net::SocketAddr::V4(from), std::net::SocketAddr::V4(to)) => Flow4::new(from, to),
        _ => panic!("the link has IPv4 addresses"),
    }
}

/// The ICRC of a segment, as a packet without an IP identification has it.
fn icrc(flow: &Flow4, header: &[u8], payload: &[u8]) -> [u8; ICRC_BYTES] {
    let segment_bytes = header.len() + payload.len() + ICRC_BYTES;
    let mut icrc = flow.start(segment_bytes, 0, header);
    icrc.update(payload);
    icrc.finish()
}

/// Sends for a time, then waits until all has arrived.
fn send(ends: &(Socket, Socket), step: &Step, message: &[u8], shared: &Shared, load: Load) {
    let (flow, to) = (flow(ends), Destination::new(ends.1.local_address()));
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
    let mut between = vec![[0_u8; ICRC_BYTES + HEADER_BYTES]; segments + 1];
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
        let payloads = || message[offset..].chunks_exact(payload_bytes).take(count);
        for (at, payload) in payloads().enumerate() {
            let header = &mut between[at][ICRC_BYTES..];
            header[..4].copy_from_slice(&[0x07, 0, 0xff, 0xff]);
            header[8..].copy_from_slice(&psn.to_be_bytes());
            psn = (psn + 1) & 0x00ff_ffff;
            if step.sums[0] {
                let sum = icrc(&flow, header, payload);
                between[at + 1][..ICRC_BYTES].copy_from_slice(&sum);
            }
        }
        let mut pieces = Vec::with_capacity(2 * segments + 1);
        if step.is_staged {
            for (at, payload) in payloads().enumerate() {
                let to = &mut staging[at * segment_bytes..][..segment_bytes];
                to[..HEADER_BYTES].copy_from_slice(&between[at][ICRC_BYTES..]);
                to[HEADER_BYTES..][..payload_bytes].copy_from_slice(payload);
                to[HEADER_BYTES + payload_bytes..].copy_from_slice(&between[at + 1][..ICRC_BYTES]);
            }
            pieces.push(Piece::new(&staging[..count * segment_bytes]));
        } else {
            // The ICRC of one and the header of the next lie together.
            pieces.push(Piece::new(&between[0][ICRC_BYTES..]));
            for (at, payload) in payloads().enumerate() {
                pieces.push(Piece::new(payload));
                let is_last = at + 1 == count;
                let len = ICRC_BYTES + if is_last { 0 } else { HEADER_BYTES };
                pieces.push(Piece::new(&between[at + 1][..len]));
            }
        }
        match ends.0.send(&Transmit {
            destination: &to,
            segment_size: Some(segment_bytes as u16),
            tos: 0,
            framing: Framing::Never,
            iov: &pieces,
        }) {
            Ok(_) => sent_bytes += batch_bytes,
            Err(SendError::WouldBlock) => psn = psn.wrapping_sub(count as u32) & 0x00ff_ffff,
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
    let flow = flow(ends);
    let (mut held_bytes, flags) = (0, if step.is_held { libc::MSG_PEEK } else { 0 });
    if step.is_held {
        look_behind_what_is_held(&ends.1);
    }
    let mut received_bytes = 0;
    let mut buffer = vec![0_u8; DATAGRAM_BYTES];
    let mut between = vec![[0_u8; ICRC_BYTES + HEADER_BYTES]; segments + 2];
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
    between: &mut [[u8; ICRC_BYTES + HEADER_BYTES]],
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
