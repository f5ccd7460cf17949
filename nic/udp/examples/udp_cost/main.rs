//! What one system call costs, by its options: one thread sends a burst and receives it, so that
//! nothing but the calls is timed.
//!
//! `udp_cost [--link loopback|veth] [--size bytes] [--rounds n]`. On veth and loopback a send
//! includes the way into the receiver's queue, which the sender's CPU does.

mod calls;
#[path = "../common/mod.rs"]
mod common;

use calls::*;

use std::time::Instant;

use common::{Link, Samples, connect, option, time_ns};
use urxe_udp::{
    BusyPoll, Destination, Framing, Interest, Options, Piece, RecvBatch, Socket, Transmit, Waiter,
};

const BURST: usize = 32;
const ACKNOWLEDGEMENT_BYTES: usize = 20;

/// One way to send, and one to receive what was sent.
struct Variant {
    name: &'static str,
    /// Datagrams of one send.
    datagrams: usize,
    send: Box<dyn FnMut()>,
    /// Returns the number of datagrams, 0 at the end.
    receive: Box<dyn FnMut() -> usize>,
    send_ns: Samples,
    receive_ns: Samples,
}

impl Variant {
    fn measure(&mut self) {
        let send_ns = time_ns(BURST, &mut self.send);
        let (mut datagrams, expected, mut clean) = (0, BURST * self.datagrams, true);
        let start = Instant::now();
        let burst_ns = time_ns(1, || {
            while datagrams < expected {
                let count = (self.receive)();
                datagrams += count;
                if count == 0 {
                    // On a busy machine ksoftirqd delivers, some time later: neither time says
                    // anything then.
                    clean = false;
                    std::thread::yield_now();
                    assert!(
                        start.elapsed().as_secs() < 5,
                        "{}: a datagram was lost",
                        self.name
                    );
                }
            }
        });
        assert_eq!((self.receive)(), 0, "{}", self.name);
        if clean {
            self.send_ns.push(send_ns);
            self.receive_ns.push(burst_ns / expected as f64);
        }
    }
}

struct Bench {
    link: Link,
    /// Never freed: the variants use it until the program ends.
    bytes: &'static [u8],
    size: usize,
}

/// The two ends of one variant; never freed, as above.
#[derive(Clone, Copy)]
struct Ends {
    left: &'static Socket,
    right: &'static Socket,
    to: &'static Destination,
}

fn main() {
    let size: usize = option("--size", "64").parse().unwrap();
    let rounds: usize = option("--rounds", "1000").parse().unwrap();
    let bytes = vec![7_u8; size + ACKNOWLEDGEMENT_BYTES].leak();
    let bench = Bench {
        link: Link::new(&option("--link", "veth"), 9000),
        bytes,
        size,
    };
    let mut sends = bench.sends();
    let mut pairs = bench.pairs();
    let mut receives = bench.receives();
    for _ in 0..rounds {
        for variant in sends.iter_mut().chain(&mut pairs).chain(&mut receives) {
            variant.measure();
        }
    }
    println!("{size} bytes; ns, lower quartile of {rounds} bursts of {BURST}");
    for (heading, variants) in [
        ("send", &mut sends),
        ("send two", &mut pairs),
        ("receive", &mut receives),
    ] {
        for variant in variants {
            let (send_ns, receive_ns) = (
                variant.send_ns.quantile(0.25),
                variant.receive_ns.quantile(0.25),
            );
            let figures = match heading {
                "send" => format!("{send_ns:6.0}"),
                "receive" => format!("{receive_ns:6.0}"),
                // The receiver's part is that of one datagram.
                _ => format!("{send_ns:6.0}, receive {:.0}", 2.0 * receive_ns),
            };
            println!("{heading}: {:<44} {figures}", variant.name);
        }
    }
}

impl Bench {
    fn ends(&self, options: &Options) -> Ends {
        let (left, right) = (
            self.link.left(&Options::default()),
            self.link.right(options),
        );
        let to = Box::leak(Box::new(Destination::new(right.local_address())));
        Ends {
            left: Box::leak(Box::new(left)),
            right: Box::leak(Box::new(right)),
            to,
        }
    }

    /// Ways to send one datagram.
    fn sends(&self) -> Vec<Variant> {
        let (bytes, size) = (self.bytes, self.size);
        let plain = Options::default();
        let mut variants = Vec::new();
        for (name, pieces) in [
            ("1 piece", 1),
            ("2 pieces", 2),
            ("3 pieces", 3),
            ("8 pieces", 8),
            ("9 pieces", 9),
        ] {
            let ends = self.ends(&plain);
            variants.push(variant(
                name,
                sendmsg(ends, split(&bytes[..size], pieces), None, 0),
                recvmsg(ends.right),
            ));
        }
        let ends = self.ends(&plain);
        variants.push(variant(
            "TOS control message",
            sendmsg(ends, split(&bytes[..size], 1), None, 2),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&plain);
        variants.push(variant(
            "sendto",
            Box::new(move || raw_send(ends.left, Some(ends.to), &bytes[..size])),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&plain);
        connect(ends.left, ends.right);
        variants.push(variant(
            "connected, sendmsg with address",
            sendmsg(ends, split(&bytes[..size], 1), None, 0),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&plain);
        connect(ends.left, ends.right);
        variants.push(variant(
            "connected, send",
            Box::new(move || raw_send(ends.left, None, &bytes[..size])),
            recvmsg(ends.right),
        ));
        variants
    }

    /// Ways to send two datagrams, a reply and a shorter acknowledgement.
    fn pairs(&self) -> Vec<Variant> {
        let (bytes, size) = (self.bytes, self.size);
        let plain = Options::default();
        let mut variants = Vec::new();
        let ends = self.ends(&plain);
        let mut first = sendmsg(ends, split(&bytes[..size], 1), None, 0);
        let mut second = sendmsg(ends, split(&bytes[size..], 1), None, 0);
        variants.push(variant(
            "two sendmsg",
            Box::new(move || {
                first();
                second();
            }),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&plain);
        let send_many = move || {
            let iov = [Piece::new(&bytes[..size]), Piece::new(&bytes[size..])];
            let transmit = |iov| Transmit {
                destination: ends.to,
                segment_size: None,
                tos: 0,
                framing: Framing::Never,
                whole: None,
                iov,
            };
            ends.left
                .send_many(&[transmit(&iov[..1]), transmit(&iov[1..])])
                .unwrap();
        };
        variants.push(variant(
            "one sendmmsg",
            Box::new(send_many),
            recvmsg(ends.right),
        ));
        variants.extend(self.segmented_pairs());
        for variant in &mut variants {
            variant.datagrams = 2;
        }
        variants
    }

    /// The same by segmentation (GSO).
    fn segmented_pairs(&self) -> Vec<Variant> {
        let (bytes, size) = (self.bytes, self.size);
        let plain = Options::default();
        let mut variants = Vec::new();
        let both = || vec![Piece::new(&bytes[..size]), Piece::new(&bytes[size..])];
        let ends = self.ends(&plain);
        let segment_size = Some(size as u16);
        variants.push(variant(
            "one GSO sendmsg, control message",
            sendmsg(ends, both(), segment_size, 0),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&plain);
        set_segment_size(ends.left, size);
        variants.push(variant(
            "one GSO sendmsg, option set once",
            sendmsg(ends, both(), None, 0),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&plain);
        let mut send = sendmsg(ends, both(), None, 0);
        let set_and_send = move || {
            set_segment_size(ends.left, size);
            send();
        };
        variants.push(variant(
            "one GSO sendmsg, option set each time",
            Box::new(set_and_send),
            recvmsg(ends.right),
        ));
        let ends = self.ends(&Options {
            gro: false,
            ..plain
        });
        variants.push(variant(
            "one GSO sendmsg, receiver without GRO",
            sendmsg(ends, both(), segment_size, 0),
            recvmsg(ends.right),
        ));
        variants
    }

    /// Ways to receive one datagram.
    fn receives(&self) -> Vec<Variant> {
        let plain = Options::default();
        let bare = Options {
            gro: false,
            receive_tos: false,
            ..plain
        };
        let busy_poll = Some(BusyPoll {
            budget_us: 50,
            prefer: false,
        });
        let mut variants = Vec::new();
        for (name, options) in [
            ("recvmsg, GRO and TOS", plain),
            (
                "recvmsg, TOS",
                Options {
                    gro: false,
                    ..plain
                },
            ),
            (
                "recvmsg, GRO",
                Options {
                    receive_tos: false,
                    ..plain
                },
            ),
            ("recvmsg, neither", bare),
            (
                "recvmsg, GRO and TOS, SO_BUSY_POLL",
                Options { busy_poll, ..plain },
            ),
        ] {
            let ends = self.ends(&options);
            variants.push(variant(name, self.send_plain(ends), recvmsg(ends.right)));
        }
        let ends = self.ends(&plain);
        let waiter = Box::leak(Box::new(Waiter::new().unwrap()));
        waiter.add(ends.right, 0, Interest::READ).unwrap();
        variants.push(variant(
            "recvmsg, GRO and TOS, in an epoll set",
            self.send_plain(ends),
            recvmsg(ends.right),
        ));
        variants.extend(self.raw_receives(&bare));
        variants.extend(self.nothing());
        variants
    }

    /// Ways to receive one datagram by fewer means, or by several calls' worth.
    fn raw_receives(&self, bare: &Options) -> Vec<Variant> {
        let (plain, bare) = (Options::default(), *bare);
        let mut variants = Vec::new();
        for (name, options, parts) in [
            (
                "recvmsg, GRO and TOS, no address",
                plain,
                Parts {
                    name: false,
                    control: true,
                },
            ),
            (
                "recvmsg, neither, no control buffer",
                bare,
                Parts {
                    name: true,
                    control: false,
                },
            ),
            (
                "recvmsg, neither, no address, no buffer",
                bare,
                Parts {
                    name: false,
                    control: false,
                },
            ),
        ] {
            let ends = self.ends(&options);
            variants.push(variant(
                name,
                self.send_plain(ends),
                raw_recvmsg(ends.right, parts),
            ));
        }
        for (name, named) in [
            ("recvfrom, neither", true),
            ("recvfrom, neither, no address", false),
        ] {
            let ends = self.ends(&bare);
            variants.push(variant(
                name,
                self.send_plain(ends),
                recvfrom(ends.right, named),
            ));
        }
        for (name, count) in [
            ("recvmmsg of 1", 1),
            ("recvmmsg of 2", 2),
            ("recvmmsg of 8", 8),
            ("recvmmsg of 32", 32),
        ] {
            let ends = self.ends(&plain);
            let mut batch = RecvBatch::new(count, 1 << 16);
            let receive = move || ends.right.receive_many(&mut batch).unwrap();
            variants.push(variant(name, self.send_plain(ends), Box::new(receive)));
        }
        variants
    }

    fn send_plain(&self, ends: Ends) -> Box<dyn FnMut()> {
        sendmsg(ends, split(&self.bytes[..self.size], 1), None, 0)
    }

    /// Looking into an empty socket.
    fn nothing(&self) -> [Variant; 2] {
        let plain = self.ends(&Options::default());
        let bare = self.ends(&Options {
            gro: false,
            receive_tos: false,
            ..Options::default()
        });
        [
            ("recvmsg, nothing there", recvmsg(plain.right)),
            ("recvfrom, nothing there", recvfrom(bare.right, true)),
        ]
        .map(|(name, mut receive)| {
            let mut looked = 0;
            let look = move || {
                assert_eq!(receive(), 0);
                looked += 1;
                // As if something had come, but for the last look, which is not timed.
                usize::from(looked % (BURST + 1) != 0)
            };
            variant(name, Box::new(|| {}), Box::new(look))
        })
    }
}

fn variant(
    name: &'static str,
    send: Box<dyn FnMut()>,
    receive: Box<dyn FnMut() -> usize>,
) -> Variant {
    Variant {
        name,
        datagrams: 1,
        send,
        receive,
        send_ns: Samples::default(),
        receive_ns: Samples::default(),
    }
}
