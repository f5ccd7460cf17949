//! How many gigabits per second one thread sends to another, by batch and segment size, with and
//! without GSO and GRO.
//!
//! `udp_stream [--link loopback|veth] [--mtu bytes] [--window bytes] [--milliseconds n] [--rounds
//! n]`. The sender keeps a window of bytes that the receiver has not seen, as a transport would, so
//! that nothing is dropped; the bytes come from a buffer of the window's size. All variants take
//! turns.

mod common;

use std::hint;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Link, Samples, option};
use urxe_udp::{
    Destination, Framing, Options, Piece, RecvBatch, RecvBuffer, SendError, Socket, Transmit,
};

/// Like a transport's: in front of every segment's payload.
const HEADER_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq)]
enum Gather {
    /// The batch is one piece of memory, which needs no gathering.
    Whole,
    /// The kernel gathers, two pieces per segment.
    Pieces,
    /// Copied to one piece of memory, used for every batch.
    Copied,
}

#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    options: Options,
    segment_bytes: usize,
    batch_bytes: usize,
    /// How the header and payload of the segments get into the batch.
    gather: Gather,
    /// Several datagrams per receive with recvmmsg; 0 for recvmsg.
    receive_batch: usize,
}

fn variants(largest: usize) -> Vec<Variant> {
    let options = Options::default();
    let best = Variant {
        name: "GSO, GRO",
        options,
        segment_bytes: largest,
        batch_bytes: 65_000 / largest * largest,
        gather: Gather::Pieces,
        receive_batch: 0,
    };
    let no_gso = Options {
        gso: false,
        ..options
    };
    let no_gro = Options {
        gro: false,
        ..options
    };
    vec![
        best,
        Variant {
            name: "GSO, GRO, batch copied together",
            gather: Gather::Copied,
            ..best
        },
        Variant {
            name: "GSO, GRO, batch is one piece",
            gather: Gather::Whole,
            ..best
        },
        Variant {
            name: "GSO, GRO, batches of 32 KiB",
            batch_bytes: 32_768 / largest * largest,
            ..best
        },
        Variant {
            name: "GSO, GRO, batches of 16 KiB",
            batch_bytes: 16_384 / largest * largest,
            ..best
        },
        Variant {
            name: "GSO, GRO, recvmmsg of 4",
            receive_batch: 4,
            ..best
        },
        Variant {
            name: "GSO only",
            options: no_gro,
            ..best
        },
        Variant {
            name: "GSO only, recvmmsg of 32",
            options: no_gro,
            receive_batch: 32,
            ..best
        },
        Variant {
            name: "GRO only",
            options: no_gso,
            ..best
        },
        Variant {
            name: "neither",
            options: Options {
                gso: false,
                ..no_gro
            },
            ..best
        },
    ]
}

/// Bytes per segment that fit an IPv4 packet of the link.
fn largest_segment(mtu_bytes: usize) -> usize {
    mtu_bytes - 28
}

struct Shared {
    received_bytes: AtomicU64,
    turn: AtomicUsize,
}

fn main() {
    let mtu_bytes: usize = option("--mtu", "9000").parse().unwrap();
    let window_bytes: u64 = option("--window", "524288").parse().unwrap();
    let length = Duration::from_millis(option("--milliseconds", "20").parse().unwrap());
    let rounds: usize = option("--rounds", "20").parse().unwrap();
    let link = Link::new(&option("--link", "veth"), mtu_bytes as u32);
    let variants = variants(largest_segment(mtu_bytes));
    let count = variants.len();
    let mut samples: Vec<_> = variants.iter().map(|_| Samples::default()).collect();
    let shared = Shared {
        received_bytes: AtomicU64::new(0),
        turn: AtomicUsize::new(0),
    };
    let ends: Vec<_> = variants
        .iter()
        .map(|v| (link.left(&v.options), link.right(&v.options)))
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for k in 0..rounds * count {
                receive(
                    &ends[k % count].1,
                    variants[k % count].receive_batch,
                    &shared,
                    k,
                );
            }
        });
        let memory = vec![7_u8; window_bytes as usize + (1 << 16)];
        for k in 0..rounds * count {
            let (left, right) = &ends[k % count];
            let to = Destination::new(right.local_address());
            let (start, before) = (
                Instant::now(),
                shared.received_bytes.load(Ordering::Acquire),
            );
            send(
                left,
                &to,
                &variants[k % count],
                &memory,
                &shared,
                window_bytes,
                length,
            );
            let bytes = shared.received_bytes.load(Ordering::Acquire) - before;
            samples[k % count].push(bytes as f64 * 8.0 / start.elapsed().as_nanos() as f64);
            shared.turn.store(k + 1, Ordering::Release);
            assert_eq!(
                right.receive_drops().unwrap(),
                0,
                "the receive buffer is smaller than the window"
            );
        }
    });
    println!("MTU {mtu_bytes}, window {window_bytes} bytes; Gbit/s, {rounds} rounds of {length:?}");
    println!("{:<36} {:>8} {:>8} {:>8}", "", "median", "quarter", "best");
    for (variant, samples) in variants.iter().zip(&mut samples) {
        let [median, quarter, best] = [0.5, 0.75, 1.0].map(|part| samples.quantile(part));
        println!(
            "{:<36} {median:>8.1} {quarter:>8.1} {best:>8.1}",
            variant.name
        );
    }
}

/// Sends for a time, then waits until all has arrived.
fn send(
    socket: &Socket,
    to: &Destination,
    variant: &Variant,
    memory: &[u8],
    shared: &Shared,
    window_bytes: u64,
    length: Duration,
) {
    let header = [1_u8; HEADER_BYTES];
    let start = Instant::now();
    let base = shared.received_bytes.load(Ordering::Acquire);
    let mut sent_bytes = 0;
    let arrived = || shared.received_bytes.load(Ordering::Acquire) - base;
    let mut staging = vec![0_u8; 1 << 16];
    while start.elapsed() < length {
        while sent_bytes + variant.batch_bytes as u64 > arrived() + window_bytes {
            hint::spin_loop();
            assert!(
                start.elapsed() < length + Duration::from_secs(10),
                "{}: lost",
                variant.name
            );
        }
        let offset = (sent_bytes % window_bytes) as usize;
        let batch = &memory[offset..offset + variant.batch_bytes];
        let mut pieces = Vec::with_capacity(256);
        match variant.gather {
            Gather::Whole => pieces.push(Piece::new(batch)),
            Gather::Pieces => {
                for segment in batch.chunks(variant.segment_bytes) {
                    pieces.extend([Piece::new(&header), Piece::new(&segment[HEADER_BYTES..])]);
                }
            }
            Gather::Copied => {
                let chunks = batch.chunks(variant.segment_bytes);
                for (to, from) in staging.chunks_mut(variant.segment_bytes).zip(chunks) {
                    to[..HEADER_BYTES].copy_from_slice(&header);
                    to[HEADER_BYTES..from.len()].copy_from_slice(&from[HEADER_BYTES..]);
                }
                pieces.push(Piece::new(&staging[..batch.len()]));
            }
        }
        let segment_size = Some(variant.segment_bytes as u16);
        match socket.send(&Transmit {
            destination: to,
            segment_size,
            tos: 0,
            framing: Framing::Never,
            whole: None,
            iov: &pieces,
        }) {
            Ok(sent) => sent_bytes += sent.bytes as u64,
            Err(SendError::WouldBlock) => hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
    while arrived() < sent_bytes {
        hint::spin_loop();
        assert!(
            start.elapsed() < length + Duration::from_secs(10),
            "{}: lost",
            variant.name
        );
    }
}

/// Receives until the sender's turn is over.
fn receive(socket: &Socket, receive_batch: usize, shared: &Shared, turn: usize) {
    let mut buffer = RecvBuffer::new();
    let mut batch = RecvBatch::new(receive_batch.max(1), 1 << 16);
    while shared.turn.load(Ordering::Acquire) == turn {
        let bytes = if receive_batch > 0 {
            socket.receive_many(&mut batch).unwrap();
            batch.iter().map(|(meta, _)| meta.len).sum()
        } else {
            socket
                .receive(&mut buffer)
                .unwrap()
                .map_or(0, |meta| meta.len)
        };
        if bytes > 0 {
            shared
                .received_bytes
                .fetch_add(bytes as u64, Ordering::AcqRel);
        }
    }
}
