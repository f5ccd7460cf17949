//! Network namespaces, links between them and packet capture, for the tests of one process.

#![allow(dead_code, reason = "every test program uses its own part")]

pub(crate) mod ends;
pub(crate) mod forger;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, io, thread};

use urxe_udp::{Destination, Framing, Options, Piece, RecvBuffer, RecvMeta, Socket, Transmit};

/// Set in the process that has the privileges.
const INSIDE: &str = "URXE_UDP_TEST_INSIDE";

/// Runs `body` where it may make network namespaces: here, or in a copy of this test alone inside a
/// user namespace. Where neither works, says that the test is skipped, and why.
pub(crate) fn privileged(test: &str, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() || Namespace::new().is_ok() {
        for (tool, package) in [("ip", "iproute2"), ("tc", "iproute2")] {
            if Command::new(tool).arg("-V").output().is_err() {
                return skip(
                    test,
                    &format!("{tool} is missing (Debian package {package})"),
                );
            }
        }
        return body();
    }
    let inside = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output();
    match inside {
        Ok(output) if output.status.success() => {}
        Ok(output) if !String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            let reason = String::from_utf8_lossy(&output.stderr);
            skip(
                test,
                &format!("no root, and no user namespace either: {}", reason.trim()),
            );
        }
        Ok(output) => panic!(
            "in the user namespace:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => skip(
            test,
            &format!("no root, and unshare (util-linux) cannot be started: {error}"),
        ),
    }
}

pub(crate) fn skip(test: &str, reason: &str) {
    // Not eprintln, which the test harness keeps to itself when a test passes.
    let line = format!("SKIPPED {test}: {reason}\n");
    io::Write::write_all(&mut io::stderr(), line.as_bytes()).unwrap();
}

/// A network namespace; it goes away with the last descriptor and socket.
pub(crate) struct Namespace(File);

impl Namespace {
    pub(crate) fn new() -> io::Result<Self> {
        // On a thread of its own, which takes the change of namespace with it.
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    // SAFETY: a plain integer.
                    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                        0 => File::open("/proc/thread-self/ns/net").map(Self),
                        _ => Err(io::Error::last_os_error()),
                    }
                })
                .join()
                .unwrap()
        })
    }

    /// Runs `f` inside. Sockets made there stay there, and work from everywhere.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                // SAFETY: a descriptor of a network namespace.
                let status = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(status, 0, "{}", io::Error::last_os_error());
                f()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a command line, which must succeed.
    pub(crate) fn command(&self, line: &str) {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        let output = self.run(|| command.output()).unwrap();
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// What `ip ... netns` takes.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(crate) fn bind(&self, address: &str) -> Socket {
        self.bind_with(address, &Options::default())
    }

    pub(crate) fn bind_with(&self, address: &str, options: &Options) -> Socket {
        self.run(|| Socket::bind(address.parse().unwrap(), options))
            .unwrap_or_else(|e| panic!("{address}: {e}"))
    }
}

/// Two namespaces joined by a veth pair: `left` is 10.9.0.1 and fd09::1, `right` 10.9.0.2 and
/// fd09::2; both ends are named `veth`.
pub(crate) struct Pair {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

impl Pair {
    pub(crate) fn new(mtu_bytes: u32) -> Self {
        let pair = Self {
            left: Namespace::new().unwrap(),
            right: Namespace::new().unwrap(),
        };
        pair.left.command(&format!(
            "ip link add veth type veth peer name veth netns {}",
            pair.right.path()
        ));
        for (namespace, host) in [(&pair.left, 1), (&pair.right, 2)] {
            set_up(namespace, host, mtu_bytes);
        }
        pair
    }

    /// The same, with a bridge in a third namespace between the ends.
    pub(crate) fn bridged(mtu_bytes: u32) -> (Self, Namespace) {
        let pair = Self {
            left: Namespace::new().unwrap(),
            right: Namespace::new().unwrap(),
        };
        let middle = Namespace::new().unwrap();
        middle.command("ip link add name bridge0 type bridge");
        middle.command("ip link set bridge0 up");
        for (namespace, port) in [(&pair.left, "port1"), (&pair.right, "port2")] {
            middle.command(&format!(
                "ip link add {port} type veth peer name veth netns {}",
                namespace.path()
            ));
            middle.command(&format!(
                "ip link set {port} mtu {mtu_bytes} master bridge0 up"
            ));
        }
        set_up(&pair.left, 1, mtu_bytes);
        set_up(&pair.right, 2, mtu_bytes);
        (pair, middle)
    }
}

fn set_up(namespace: &Namespace, host: u8, mtu_bytes: u32) {
    namespace.command("ip link set lo up");
    namespace.command(&format!("ip link set veth mtu {mtu_bytes} up"));
    namespace.command(&format!("ip addr add 10.9.0.{host}/24 dev veth"));
    // IPv6 wants links of 1280 bytes (RFC 8200).
    if mtu_bytes >= 1280 {
        namespace.command(&format!("ip addr add fd09::{host}/64 dev veth nodad"));
    }
}

/// What to send to so that `socket` receives it.
pub(crate) fn destination(socket: &Socket) -> Destination {
    Destination::new(socket.local_address())
}

/// Receives one message; panics if none comes.
pub(crate) fn receive(socket: &Socket, buffer: &mut RecvBuffer) -> RecvMeta {
    try_receive(socket, buffer, Duration::from_secs(5)).expect("a message within 5 s")
}

/// Receives one message, if one comes in time.
pub(crate) fn try_receive(
    socket: &Socket,
    buffer: &mut RecvBuffer,
    limit: Duration,
) -> Option<RecvMeta> {
    let start = Instant::now();
    loop {
        if let Some(meta) = socket.receive(buffer).unwrap() {
            return Some(meta);
        }
        if start.elapsed() > limit {
            return None;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// Receives `count` datagrams, however they are batched.
pub(crate) fn receive_datagrams(socket: &Socket, count: usize) -> Vec<Vec<u8>> {
    let mut buffer = RecvBuffer::new();
    let mut datagrams = Vec::new();
    while datagrams.len() < count {
        let meta = receive(socket, &mut buffer);
        assert!(!meta.truncated);
        datagrams.extend(buffer.segments(&meta).map(<[u8]>::to_vec));
    }
    datagrams
}

/// A packet socket that sees what enters and leaves an interface (packet(7)).
pub(crate) struct Capture(OwnedFd);

/// What an IPv4 packet looked like on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipv4Packet {
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) tos: u8,
    pub(crate) total_bytes: u16,
    pub(crate) udp_checksum: u16,
    pub(crate) ttl: u8,
}

impl Capture {
    /// Must run inside the interface's namespace.
    pub(crate) fn new(interface_index: u32) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain integers; then an address that lives until the call returns.
        unsafe {
            let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let fd = libc::socket(libc::AF_PACKET, kind, i32::from(protocol));
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let capture = Self(OwnedFd::from_raw_fd(fd));
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = interface_index as i32;
            match libc::bind(
                fd,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            ) {
                0 => Ok(capture),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// The IPv4 packets captured so far.
    pub(crate) fn ipv4(&self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut bytes = vec![0_u8; 1 << 16];
        loop {
            // SAFETY: pointer and length describe `bytes`.
            let length = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    0,
                )
            };
            let Ok(length) = usize::try_from(length) else {
                return packets;
            };
            let packet = &bytes[..length];
            if length >= 28 && packet[0] == 0x45 {
                packets.push(packet.to_vec());
            }
        }
    }

    /// Those of UDP.
    pub(crate) fn packets(&self) -> Vec<Ipv4Packet> {
        let all = self.ipv4();
        let of_udp = all
            .iter()
            .filter(|packet| packet[9] == libc::IPPROTO_UDP as u8);
        of_udp
            .map(|packet| {
                let word = |offset: usize| u16::from_be_bytes([packet[offset], packet[offset + 1]]);
                Ipv4Packet {
                    id: word(4),
                    dont_fragment: word(6) == 0x4000,
                    tos: packet[1],
                    total_bytes: word(2),
                    udp_checksum: word(26),
                    ttl: packet[8],
                }
            })
            .collect()
    }
}

/// Opens a capture on a namespace's interface.
pub(crate) fn capture(namespace: &Namespace, interface: &str) -> Capture {
    namespace.run(|| {
        let found = urxe_udp::interfaces()
            .unwrap()
            .into_iter()
            .find(|found| found.name == interface)
            .unwrap();
        Capture::new(found.index).unwrap()
    })
}

/// `count` bytes that differ from their neighbours.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|k| (k * 31 + (k >> 8)) as u8).collect()
}

pub(super) fn bind(address: &str) -> Socket {
    Socket::bind(address.parse().unwrap(), &Options::default())
        .unwrap_or_else(|error| panic!("{address}: {error}"))
}

pub(super) fn transmit<'a>(
    destination: &'a Destination,
    segment_size: Option<u16>,
    iov: &'a [Piece<'a>],
) -> Transmit<'a> {
    Transmit {
        destination,
        segment_size,
        tos: 0,
        framing: Framing::Never,
        whole: None,
        iov,
    }
}
