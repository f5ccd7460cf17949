//! Half the round trip of a small message between two spinning threads, by the options of the
//! sockets.
//!
//! `udp_pingpong [--link loopback|veth] [--size bytes] [--rounds n] [--only name]`. All variants
//! take turns, so that what else runs on the machine strikes all alike.

mod common;

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{Link, Samples, connect, option, time_ns};
use urxe_udp::{
    BusyPoll, Destination, Framing, Interest, Options, Piece, RecvBatch, RecvBuffer, Socket,
    Transmit, Waiter,
};

const EXCHANGES: usize = 100;
/// Untimed, so that both threads run and their caches know the variant.
const WARM_UP: usize = 20;
const ACKNOWLEDGEMENT_BYTES: usize = 20;

/// How an acknowledgement accompanies every message.
#[derive(Clone, Copy, PartialEq)]
enum Acknowledge {
    Never,
    /// With a send of its own, after the message.
    Apart,
    /// Second of two messages of one sendmmsg.
    Batched,
    /// As the last segment of the message's GSO batch.
    Together,
}

#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// Call recvmsg until there is something.
    Spin,
    /// Call recvmmsg until there is something.
    SpinMany,
    /// Sleep in epoll.
    Sleep,
}

#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    options: Options,
    pieces: usize,
    tos: u8,
    connected: bool,
    acknowledge: Acknowledge,
    wait: Wait,
    /// The socket is in an epoll set, with this interest, in which no thread waits.
    watched: Option<Interest>,
}

fn variants() -> Vec<Variant> {
    let plain = Variant {
        name: "1 piece; GRO, TOS",
        options: Options::default(),
        pieces: 1,
        tos: 0,
        connected: false,
        acknowledge: Acknowledge::Never,
        wait: Wait::Spin,
        watched: None,
    };
    let no_tos = Options {
        receive_tos: false,
        ..plain.options
    };
    let bare = Options {
        gro: false,
        ..no_tos
    };
    let mut variants = vec![
        plain,
        Variant {
            name: "2 pieces",
            pieces: 2,
            ..plain
        },
        Variant {
            name: "3 pieces",
            pieces: 3,
            ..plain
        },
        Variant {
            name: "TOS sent by control message",
            tos: 2,
            ..plain
        },
        Variant {
            name: "no TOS",
            options: no_tos,
            ..plain
        },
        Variant {
            name: "neither GRO nor TOS (recvfrom)",
            options: bare,
            ..plain
        },
        Variant {
            name: "connected",
            connected: true,
            ..plain
        },
    ];
    variants.extend(waits(&plain));
    variants
}

/// Ways to wait, and to acknowledge.
fn waits(plain: &Variant) -> Vec<Variant> {
    let plain = *plain;
    let busy_poll = Some(BusyPoll {
        budget_us: 50,
        prefer: false,
    });
    vec![
        Variant {
            name: "SO_BUSY_POLL",
            options: Options {
                busy_poll,
                ..plain.options
            },
            ..plain
        },
        Variant {
            name: "in an epoll set",
            watched: Some(Interest::READ),
            ..plain
        },
        Variant {
            name: "in an epoll set, interest none",
            watched: Some(Interest::NONE),
            ..plain
        },
        Variant {
            name: "recvmmsg",
            wait: Wait::SpinMany,
            ..plain
        },
        Variant {
            name: "and an acknowledgement, apart",
            acknowledge: Acknowledge::Apart,
            ..plain
        },
        Variant {
            name: "and an acknowledgement, sendmmsg",
            acknowledge: Acknowledge::Batched,
            ..plain
        },
        Variant {
            name: "and an acknowledgement, together",
            acknowledge: Acknowledge::Together,
            ..plain
        },
        Variant {
            name: "as a frame",
            options: Options {
                frames: true,
                ..plain.options
            },
            ..plain
        },
        Variant {
            name: "asleep in epoll",
            wait: Wait::Sleep,
            ..plain
        },
    ]
}

/// One end of a variant.
struct End {
    variant: Variant,
    socket: Socket,
    to: Destination,
    message: Vec<u8>,
    size: usize,
    buffer: RecvBuffer,
    batch: RecvBatch,
    waiter: Waiter,
}

impl End {
    fn new(variant: Variant, socket: Socket, peer: &Socket, size: usize) -> Self {
        let waiter = Waiter::new().unwrap();
        let asleep = (variant.wait == Wait::Sleep).then_some(Interest::READ);
        if let Some(interest) = variant.watched.or(asleep) {
            waiter.add(&socket, 0, interest).unwrap();
        }
        if variant.connected {
            connect(&socket, peer);
        }
        let to = Destination::new(peer.local_address());
        let message = vec![7; size + ACKNOWLEDGEMENT_BYTES];
        let (buffer, batch) = (RecvBuffer::new(), RecvBatch::new(8, 1 << 16));
        Self {
            variant,
            socket,
            to,
            message,
            size,
            buffer,
            batch,
            waiter,
        }
    }

    fn send(&self) {
        let (message, acknowledgement) = self.message.split_at(self.size);
        let acknowledgement = Piece::new(acknowledgement);
        // Without allocation: at most three pieces and the acknowledgement.
        let mut iov = [acknowledgement; 4];
        let third = self.size.div_ceil(self.variant.pieces);
        for (piece, bytes) in iov.iter_mut().zip(message.chunks(third)) {
            *piece = Piece::new(bytes);
        }
        let together = self.variant.acknowledge == Acknowledge::Together;
        let transmit = Transmit {
            destination: &self.to,
            segment_size: together.then_some(self.size as u16),
            tos: self.variant.tos,
            // Where the socket's options say so.
            framing: Framing::Message,
            whole: None,
            iov: &iov[..self.variant.pieces + usize::from(together)],
        };
        let after = Transmit {
            iov: &[acknowledgement],
            ..transmit
        };
        if self.variant.acknowledge == Acknowledge::Batched {
            self.socket.send_many(&[transmit, after]).unwrap();
            return;
        }
        self.socket.send(&transmit).unwrap();
        if self.variant.acknowledge == Acknowledge::Apart {
            self.socket.send(&after).unwrap();
        }
    }

    /// Returns when a message (not only an acknowledgement) has come.
    fn receive(&mut self) {
        loop {
            if self.variant.wait == Wait::Sleep {
                self.waiter.wait(None).unwrap();
            }
            let arrived = if self.variant.wait == Wait::SpinMany {
                self.socket.receive_many(&mut self.batch).unwrap();
                self.batch.iter().any(|(meta, _)| meta.stride == self.size)
            } else {
                let received = self.socket.receive(&mut self.buffer).unwrap();
                received.is_some_and(|meta| {
                    self.buffer
                        .segments(&meta)
                        .any(|segment| segment.len() == self.size)
                })
            };
            if arrived {
                return;
            }
        }
    }
}

fn main() {
    let size: usize = option("--size", "64").parse().unwrap();
    let rounds: usize = option("--rounds", "300").parse().unwrap();
    let link = Link::new(&option("--link", "veth"), 9000);
    let (mut near, mut far) = (Vec::new(), Vec::new());
    let only = option("--only", "");
    for variant in variants()
        .into_iter()
        .filter(|each| each.name.contains(&only))
    {
        let (left, right) = (link.left(&variant.options), link.right(&variant.options));
        far.push(End::new(variant, right, &left, size));
        near.push(End::new(variant, left, &far.last().unwrap().socket, size));
    }
    let mut samples: Vec<_> = near.iter().map(|_| Samples::default()).collect();
    let (turn, count) = (AtomicUsize::new(0), near.len());
    let wait_for = |k| {
        while turn.load(Ordering::Acquire) != k {
            hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for k in 0..rounds * count {
                let end = &mut far[k % count];
                wait_for(k);
                for _ in 0..WARM_UP + EXCHANGES {
                    end.receive();
                    end.send();
                }
                turn.store(k + 1, Ordering::Release);
            }
        });
        for k in 0..rounds * count {
            let end = &mut near[k % count];
            let mut exchange = || {
                end.send();
                end.receive();
            };
            time_ns(WARM_UP, &mut exchange);
            let round_trip_ns = time_ns(EXCHANGES, exchange);
            samples[k % count].push(round_trip_ns / 2.0);
            wait_for(k + 1);
            // Acknowledgements that came last.
            while end.socket.receive(&mut end.buffer).unwrap().is_some() {}
        }
    });
    println!("{size} bytes, half round trip in ns, {rounds} rounds of {EXCHANGES}");
    println!("{:<40} {:>8} {:>8} {:>8}", "", "best", "quarter", "median");
    for (end, samples) in near.iter().zip(&mut samples) {
        let [best, quarter, median] = [0.0, 0.25, 0.5].map(|part| samples.quantile(part));
        println!(
            "{:<40} {best:>8.0} {quarter:>8.0} {median:>8.0}",
            end.variant.name
        );
    }
}
