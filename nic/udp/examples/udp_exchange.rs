//! The floor under a latency: half the round trip of a message between two spinning threads that do
//! to each packet what a transport must, and nothing else.
//!
//! `udp_exchange [--mtu bytes] [--message bytes] [--exchanges n] [--rounds n] [--processors A,B]`.
//! A packet is a header, at most 4 KiB of payload and an ICRC, which both ends sum up; the receiver
//! copies the payload to its place. A message is answered when all of it is there. Frames and
//! datagrams take turns.

mod common;

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::segments::{Between, Cut, HEADER_BYTES, ICRC_BYTES, flow, icrc};
use common::{Link, Samples, number, pin, time_ns};
use urxe_udp::{Destination, Framing, Options, RecvBuffer, SendError, Socket, Transmit};
use urxe_wire::icrc::Flow4;

const PAYLOAD_BYTES_MAX: usize = 4096;
/// Untimed, so that both threads run and their caches know the way.
const WARM_UP: usize = 20;
const PATIENCE: Duration = Duration::from_secs(10);
const WAYS: [(&str, Framing); 2] = [
    ("as frames", Framing::Message),
    ("as datagrams", Framing::Never),
];

/// One end of a way.
struct End {
    socket: Socket,
    to: Destination,
    framing: Framing,
    cut: Cut,
    flows: [Flow4; 2],
    between: Vec<Between>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    buffer: RecvBuffer,
    psn: u32,
}

impl End {
    fn new(socket: Socket, peer: &Socket, framing: Framing, message_bytes: usize) -> Self {
        let cut = Cut::new(message_bytes.min(PAYLOAD_BYTES_MAX));
        Self {
            to: Destination::new(peer.local_address()),
            flows: [flow(&socket, peer), flow(peer, &socket)],
            socket,
            framing,
            cut,
            between: vec![Between::default(); cut.segments + 1],
            outgoing: (0..message_bytes).map(|at| (at >> 8) as u8).collect(),
            incoming: vec![0; message_bytes],
            buffer: RecvBuffer::new(),
            psn: 0,
        }
    }

    fn send(&mut self) {
        let batch_bytes = self.cut.segments * self.cut.payload_bytes;
        for payloads in self.outgoing.chunks(batch_bytes) {
            let between = &mut self.between;
            self.cut
                .fill(between, payloads, self.psn, Some(&self.flows[0]));
            self.psn += (payloads.len() / self.cut.payload_bytes) as u32;
            let transmit = Transmit {
                destination: &self.to,
                segment_size: Some(self.cut.segment_bytes as u16),
                tos: 0,
                framing: self.framing,
                whole: None,
                iov: &self.cut.pieces(between, payloads),
            };
            loop {
                match self.socket.send(&transmit) {
                    Ok(_) => break,
                    Err(SendError::WouldBlock) => hint::spin_loop(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn receive(&mut self) {
        let payload_bytes = self.cut.payload_bytes;
        let start = Instant::now();
        let mut received_bytes = 0;
        while received_bytes < self.incoming.len() {
            let Some(meta) = self.socket.receive(&mut self.buffer).unwrap() else {
                assert!(start.elapsed() < PATIENCE, "a packet was lost");
                continue;
            };
            for segment in self.buffer.segments(&meta) {
                let (header, rest) = segment.split_at(HEADER_BYTES);
                let (payload, sum) = rest.split_at(rest.len() - ICRC_BYTES);
                assert_eq!(icrc(&self.flows[1], header, payload), sum);
                let psn = u32::from_be_bytes(header[8..].try_into().unwrap());
                // A packet may pass another, and its number says where its payload belongs.
                let at = psn as usize % (self.incoming.len() / payload_bytes) * payload_bytes;
                self.incoming[at..][..payload_bytes].copy_from_slice(payload);
                received_bytes += payload_bytes;
            }
        }
    }
}

fn main() {
    let message_bytes: usize = number("--message", "64");
    let (rounds, exchanges): (usize, usize) =
        (number("--rounds", "20"), number("--exchanges", "200"));
    assert!(
        message_bytes <= PAYLOAD_BYTES_MAX || message_bytes.is_multiple_of(PAYLOAD_BYTES_MAX),
        "a longer message has whole packets of {PAYLOAD_BYTES_MAX} bytes"
    );
    let [here, there] = common::processors();
    let link = Link::new("veth", number("--mtu", "9000"));
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for (_, framing) in WAYS {
        let options = Options {
            frames: framing != Framing::Never,
            ..Options::default()
        };
        let (left, right) = (link.left(&options), link.right(&options));
        far.push(End::new(right, &left, framing, message_bytes));
        let peer = &far.last().unwrap().socket;
        near.push(End::new(left, peer, framing, message_bytes));
    }
    let turn = AtomicUsize::new(0);
    let wait_for = |k| {
        while turn.load(Ordering::Acquire) != k {
            hint::spin_loop();
        }
    };
    let mut samples = WAYS.map(|_| Samples::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            for k in 0..rounds * WAYS.len() {
                let end = &mut far[k % WAYS.len()];
                wait_for(k);
                for _ in 0..WARM_UP + exchanges {
                    end.receive();
                    end.send();
                }
                turn.store(k + 1, Ordering::Release);
            }
        });
        pin(here);
        for k in 0..rounds * WAYS.len() {
            let end = &mut near[k % WAYS.len()];
            let mut exchange = || {
                end.send();
                end.receive();
            };
            time_ns(WARM_UP, &mut exchange);
            samples[k % WAYS.len()].push(time_ns(exchanges, exchange) / 2.0);
            wait_for(k + 1);
        }
    });
    println!(
        "{message_bytes} bytes, half a round trip in ns, {rounds} rounds of {exchanges} exchanges"
    );
    println!("{:<16} {:>8} {:>8} {:>8}", "", "best", "quarter", "median");
    for ((name, _), samples) in WAYS.iter().zip(&mut samples) {
        let [best, quarter, median] = [0.0, 0.25, 0.5].map(|part| samples.quantile(part));
        println!("{name:<16} {best:>8.0} {quarter:>8.0} {median:>8.0}");
    }
}
