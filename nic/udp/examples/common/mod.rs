//! What the measuring examples share: the link to measure over, and honest statistics.

#![allow(dead_code, reason = "every example uses its own part")]

pub(crate) mod segments;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::env;
use std::time::Instant;

use urxe_udp::{Options, Socket};

/// Two places that a datagram can travel between.
pub(crate) enum Link {
    Loopback,
    Veth(Box<support::Pair>),
}

impl Link {
    /// `loopback` or `veth`, the latter with this MTU and, like everything about namespaces, for
    /// root (or `unshare -rn`).
    pub(crate) fn new(name: &str, mtu_bytes: u32) -> Self {
        match name {
            "loopback" => Self::Loopback,
            "veth" => Self::Veth(Box::new(support::Pair::new(mtu_bytes))),
            _ => panic!("{name}: a link is loopback or veth"),
        }
    }

    pub(crate) fn left(&self, options: &Options) -> Socket {
        match self {
            Self::Loopback => Socket::bind("127.0.0.1:0".parse().unwrap(), options).unwrap(),
            Self::Veth(pair) => pair.left.bind_with("10.9.0.1:0", options),
        }
    }

    pub(crate) fn right(&self, options: &Options) -> Socket {
        match self {
            Self::Loopback => Socket::bind("127.0.0.1:0".parse().unwrap(), options).unwrap(),
            Self::Veth(pair) => pair.right.bind_with("10.9.0.2:0", options),
        }
    }
}

/// The value of `--name value` on the command line, or the default.
pub(crate) fn option(name: &str, default: &str) -> String {
    let mut arguments = env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().unwrap_or_else(|| default.to_owned())
}

/// The same of a number.
pub(crate) fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str, default: &str) -> T {
    option(name, default).parse().unwrap()
}

/// The processors of both threads by `--processors A,B`; where it is not given, they are free.
pub(crate) fn processors() -> [Option<usize>; 2] {
    let given = option("--processors", "");
    let mut each = given.split(',').map(|each| each.parse().ok());
    [(); 2].map(|()| each.next().flatten())
}

/// Binds the calling thread to a processor.
pub(crate) fn pin(processor: Option<usize>) {
    let Some(processor) = processor else { return };
    // SAFETY: a plain set of bits, and 0 is the calling thread.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(status, 0, "processor {processor}");
}

/// Connects a socket to another's address (connect(2)).
pub(crate) fn connect(socket: &Socket, peer: &Socket) {
    use std::os::fd::{AsFd, FromRawFd, IntoRawFd};
    let duplicate = socket.as_fd().try_clone_to_owned().unwrap();
    // SAFETY: a descriptor of a UDP socket, ours alone.
    let socket = unsafe { std::net::UdpSocket::from_raw_fd(duplicate.into_raw_fd()) };
    socket.connect(peer.local_address()).unwrap();
}

/// Samples of one variant.
#[derive(Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The value below which a part of the samples lies. On a machine shared with others the lower
    /// quartile of times says most.
    pub(crate) fn quantile(&mut self, part: f64) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[((self.0.len() - 1) as f64 * part).round() as usize]
    }
}

/// Nanoseconds per call of `count` calls.
pub(crate) fn time_ns(count: usize, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        call();
    }
    start.elapsed().as_nanos() as f64 / count as f64
}
