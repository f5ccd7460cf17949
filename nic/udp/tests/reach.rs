//! Frames pass the kernel's IP layer by, but not what it would have said: of packets that somebody forges, of routes, and of IPsec policies.
//!
//! The tests need root or user namespaces, iproute2, and Linux 6.2; otherwise they say SKIPPED.

mod support;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use support::ends::{Ends, TTL, send, ttls, with_frames};
use support::{Namespace, capture, privileged, receive_datagrams, skip, try_receive};
use urxe_udp::{Changes, Options, RecvBuffer, Socket, wait_readable};

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;

/// Long enough for a packet to arrive.
const QUIET: Duration = Duration::from_millis(30);

fn mac(namespace: &Namespace) -> (u32, [u8; 6]) {
    namespace.run(|| {
        let all = urxe_udp::interfaces().unwrap();
        let veth = all.into_iter().find(|one| one.name == "veth").unwrap();
        (veth.index, veth.mac.unwrap())
    })
}

/// Who may write any bytes to the link.
struct Forger {
    socket: OwnedFd,
    ifindex: u32,
    to: [u8; 6],
}

impl Forger {
    /// On the left end of the link.
    fn new(ends: &Ends) -> Self {
        let (ifindex, _) = mac(&ends.pair.left);
        let socket = ends.pair.left.run(|| {
            // SAFETY: plain integers; a descriptor that is not negative is ours.
            unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
                assert!(fd >= 0, "{}", io::Error::last_os_error());
                OwnedFd::from_raw_fd(fd)
            }
        });
        Self {
            socket,
            ifindex,
            to: mac(&ends.pair.right).1,
        }
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: all zeros is a valid sockaddr_ll; the pointers and lengths are those of living values.
        let sent = unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = self.ifindex as i32;
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// As a neighbour would send 16 bytes to this port of the right end, but for what `change` does to the frame before its
    /// header's checksum is written.
    fn packet(&self, port: u16, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(self.to);
        frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
        frame.extend([0x45, 0, 0, 44, 0, 0, 0x40, 0, TTL, 17, 0, 0]);
        frame.extend(LEFT.octets());
        frame.extend(RIGHT.octets());
        frame.extend(4791u16.to_be_bytes());
        frame.extend(port.to_be_bytes());
        // No checksum of UDP.
        frame.extend([0, 24, 0, 0]);
        frame.extend(*b"forged or not...");
        change(&mut frame);
        let header = &mut frame[ETHERNET_BYTES..ETHERNET_BYTES + IP_BYTES];
        let sum: u32 = header
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

fn arrives(socket: &Socket) -> bool {
    let mut buffer = RecvBuffer::new();
    let mut meta = try_receive(socket, &mut buffer, QUIET);
    // A socket that is read seldom.
    for _ in 0..10_000 {
        meta = meta.or_else(|| socket.receive(&mut buffer).unwrap());
    }
    meta.is_some()
}

fn from(source: &str) -> impl Fn(&mut Vec<u8>) {
    let source: Ipv4Addr = source.parse().unwrap();
    move |frame| frame[26..30].copy_from_slice(&source.octets())
}

/// A change to a packet, and whether the kernel lets it through whatever it is set to.
type Forgery = (&'static str, Box<dyn Fn(&mut Vec<u8>)>, Option<bool>);

fn forgeries() -> Vec<Forgery> {
    let header = |at: usize, byte: u8| {
        Box::new(move |frame: &mut Vec<u8>| frame[ETHERNET_BYTES + at] = byte)
    };
    vec![
        ("as it is", Box::new(|_: &mut Vec<u8>| ()), Some(true)),
        (
            "from another neighbour",
            Box::new(from("10.9.0.3")),
            Some(true),
        ),
        (
            "from the receiver's own address",
            Box::new(from("10.9.0.2")),
            Some(false),
        ),
        (
            "from another address of the receiver",
            Box::new(from("10.9.0.77")),
            Some(false),
        ),
        (
            "from one on another interface",
            Box::new(from("10.9.0.78")),
            Some(false),
        ),
        (
            "from the broadcast address",
            Box::new(from("10.9.0.255")),
            None,
        ),
        (
            "from everybody",
            Box::new(from("255.255.255.255")),
            Some(false),
        ),
        ("from nobody", Box::new(from("0.0.0.0")), Some(false)),
        ("from loopback", Box::new(from("127.0.0.1")), Some(false)),
        ("from a group", Box::new(from("224.0.0.1")), Some(false)),
        ("from another network", Box::new(from("10.8.0.1")), None),
        (
            "from where a route leads elsewhere",
            Box::new(from("10.9.0.130")),
            None,
        ),
        (
            "from where a route leads nowhere",
            Box::new(from("10.9.0.200")),
            None,
        ),
        ("through a router", header(8, 63), Some(true)),
        ("a fragment", header(6, 0x20), Some(false)),
        (
            "to another host's link address",
            Box::new(|frame: &mut Vec<u8>| frame[5] ^= 1),
            Some(false),
        ),
        (
            "in a virtual network",
            Box::new(|frame: &mut Vec<u8>| {
                frame.splice(12..12, [0x81, 0, 0, 5]);
                // The checksum stands elsewhere now, and is not looked at.
                frame.extend([0; 4]);
            }),
            Some(false),
        ),
    ]
}

#[test]
fn what_the_kernel_would_drop_is_no_frame() {
    let test = "what_the_kernel_would_drop_is_no_frame";
    with_frames(test, |ends| {
        let right = &ends.pair.right;
        right.command("ip addr add 10.9.0.77/24 dev veth");
        right.command("ip link add other type veth peer name another");
        right.command("ip addr add 10.9.0.78/32 dev other");
        right.command("ip link set other up");
        right.command("ip link set another up");
        right.command("ip route add 10.9.0.128/26 dev other");
        right.command("ip route add blackhole 10.9.0.192/27");
        right.command("ip link set veth promisc on");
        right.run(|| ends.right.follow());
        let plain = right.bind("10.9.0.2:0");
        let forger = Forger::new(ends);
        for strictness in [0, 1, 2] {
            for of in ["all", "veth"] {
                right.command(&format!(
                    "sysctl -qw net.ipv4.conf.{of}.rp_filter={strictness}"
                ));
            }
            for (name, change, expected) in forgeries() {
                let told = format!("{name}, rp_filter {strictness}");
                let [with, without] = [&ends.right, &plain].map(|socket| {
                    let port = socket.local_address().port();
                    forger.send(&forger.packet(port, &change));
                    arrives(socket)
                });
                assert_eq!(with, without, "{told}");
                if let Some(expected) = expected {
                    assert_eq!(with, expected, "{told}");
                }
            }
        }
        // And a header whose checksum is wrong.
        for socket in [&ends.right, &plain] {
            let mut frame = forger.packet(socket.local_address().port(), |_| ());
            frame[ETHERNET_BYTES + 11] ^= 1;
            forger.send(&frame);
            assert!(!arrives(socket));
        }
        let before = ends.right.frame_counts().1;
        forger.send(&forger.packet(4791, |_| ()));
        assert!(arrives(&ends.right));
        assert_eq!(ends.right.frame_counts().1, before + 1, "as a frame");
    });
}

/// Sends, and says the times to live of what is on the link.
fn on_the_link(ends: &Ends) -> Vec<u8> {
    let capture = capture(&ends.pair.right, "veth");
    send_or_not(&ends.left, &ends.right);
    std::thread::sleep(QUIET);
    ttls(&capture.packets())
}

fn send_or_not(from: &Socket, to: &Socket) {
    let transmit = urxe_udp::Transmit {
        destination: &support::destination(to),
        segment_size: None,
        tos: 0x42,
        framing: urxe_udp::Framing::Message,
        iov: &[urxe_udp::Piece::new(&[7; 99])],
        whole: None,
    };
    from.send(&transmit).unwrap();
}

fn drain(socket: &Socket) {
    while arrives(socket) {}
}

#[test]
fn routes_are_followed() {
    with_frames("routes_are_followed", |ends| {
        let left = &ends.pair.left;
        let changes = left.run(|| Changes::listen_to_routes().unwrap());
        changes.has_changed();
        left.command("ip link add other type veth peer name another");
        left.command("ip link set other up");
        left.command("ip link set another up");
        let follow = || {
            wait_readable(std::iter::once(changes.as_fd()), 5_000_000_000);
            assert!(changes.has_changed());
            left.run(|| ends.left.follow());
        };
        assert_eq!(on_the_link(ends), [TTL]);
        for (begin, end, expected) in [
            (
                "ip route add blackhole 10.9.0.2/32",
                "ip route del blackhole 10.9.0.2/32",
                &[][..],
            ),
            (
                "ip route add 10.9.0.2/31 dev other",
                "ip route del 10.9.0.2/31 dev other",
                &[],
            ),
            (
                "ip route add prohibit 10.9.0.0/29",
                "ip route del prohibit 10.9.0.0/29",
                &[],
            ),
            (
                "ip rule add to 10.9.0.2 unreachable",
                "ip rule del to 10.9.0.2 unreachable",
                &[],
            ),
            (
                "ip route add 10.9.0.3/32 dev other",
                "ip route del 10.9.0.3/32 dev other",
                &[TTL],
            ),
            (
                "ip rule add to 10.8.0.0/16 lookup 100",
                "ip rule del to 10.8.0.0/16 lookup 100",
                &[64],
            ),
            (
                "ip route add 10.9.0.2/32 dev veth mtu 1400",
                "ip route del 10.9.0.2/32",
                &[64],
            ),
        ] {
            left.command(begin);
            follow();
            drain(&ends.right);
            assert_eq!(on_the_link(ends), expected, "{begin}");
            left.command(end);
            follow();
            assert_eq!(on_the_link(ends), [TTL], "{end}");
        }
    });
}

/// Whether the kernel has IPsec policies; says that the test is skipped otherwise.
fn has_policies(test: &str, ends: &Ends) -> bool {
    let list = || {
        std::process::Command::new("ip")
            .args(["xfrm", "policy"])
            .output()
    };
    let has = ends.pair.left.run(list).unwrap().status.success();
    if !has {
        skip(test, "the kernel has no IPsec policies (CONFIG_XFRM_USER)");
    }
    has
}

#[test]
fn what_a_policy_of_ipsec_blocks_is_not_sent() {
    let test = "what_a_policy_of_ipsec_blocks_is_not_sent";
    with_frames(test, |ends| {
        if !has_policies(test, ends) {
            return;
        }
        let left = &ends.pair.left;
        let changes = left.run(|| Changes::listen_to_routes().unwrap());
        changes.has_changed();
        for (selector, expected) in [
            ("src 10.9.0.1 dst 10.9.0.2", &[][..]),
            ("src 0.0.0.0/0 dst 10.9.0.0/24", &[]),
            ("src 10.9.0.1 dst 10.9.0.2 proto udp dport 4791", &[]),
            ("src 10.9.0.1 dst 10.9.0.2 proto tcp", &[64]),
            ("src 10.9.0.1 dst 10.9.0.3", &[TTL]),
        ] {
            left.command(&format!(
                "ip xfrm policy add dir out {selector} action block"
            ));
            assert!(changes.has_changed(), "{selector}");
            left.run(|| ends.left.follow());
            assert_eq!(on_the_link(ends), expected, "{selector}");
            left.command("ip xfrm policy flush");
            assert!(changes.has_changed());
            left.run(|| ends.left.follow());
            drain(&ends.right);
            assert_eq!(on_the_link(ends), [TTL], "{selector}");
        }
    });
}

#[test]
fn what_a_policy_of_ipsec_blocks_is_not_received() {
    let test = "what_a_policy_of_ipsec_blocks_is_not_received";
    with_frames(test, |ends| {
        if !has_policies(test, ends) {
            return;
        }
        let right = &ends.pair.right;
        for policy in [
            "policy add dir in src 10.9.0.1 dst 10.9.0.2 action block",
            "policy add dir in src 10.9.0.0/30 dst 0.0.0.0/0 action block",
            "policy setdefault in block",
        ] {
            let output = right.run(|| {
                let words = policy.split(' ');
                std::process::Command::new("ip")
                    .arg("xfrm")
                    .args(words)
                    .output()
            });
            if !output.unwrap().status.success() {
                assert!(policy.contains("setdefault"), "{policy}");
                skip(test, "the default of IPsec cannot be set before Linux 5.15");
                continue;
            }
            right.run(|| ends.right.follow());
            assert_eq!(on_the_link(ends), [TTL], "the sender knows of nothing");
            assert!(!arrives(&ends.right), "{policy}");
            right.command("ip xfrm policy flush");
            if policy.contains("setdefault") {
                right.command("ip xfrm policy setdefault in accept");
            }
            right.run(|| ends.right.follow());
            send(&ends.left, &ends.right, None, &[7; 99]);
            receive_datagrams(&ends.right, 1);
        }
    });
}

/// Takes the right to look at policies from the calling thread.
fn give_up_administration() {
    const CAP_NET_ADMIN: u32 = 12;
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = [VERSION_3, 0];
    // Of two times 32 rights: effective, permitted, inheritable.
    let mut rights = [0u32; 6];
    // SAFETY: the structures of capget(2), version 3, for the calling thread.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_capget, header.as_mut_ptr(), rights.as_mut_ptr()),
            0
        );
        rights[0] &= !(1 << CAP_NET_ADMIN);
        rights[1] &= !(1 << CAP_NET_ADMIN);
        assert_eq!(
            libc::syscall(libc::SYS_capset, header.as_mut_ptr(), rights.as_ptr()),
            0
        );
    }
}

/// In a container, by default: it may send frames, and not look at policies. It finds out what the kernel does with a packet to
/// each neighbour, once in a second.
#[test]
fn a_policy_holds_for_who_may_not_look_at_it() {
    let test = "a_policy_holds_for_who_may_not_look_at_it";
    with_frames(test, |ends| {
        if !has_policies(test, ends) {
            return;
        }
        let left = &ends.pair.left;
        let options = Options {
            frames: true,
            ..Options::default()
        };
        let container = left.run(|| {
            give_up_administration();
            Socket::bind("10.9.0.1:4792".parse().unwrap(), &options).unwrap()
        });
        assert!(container.capabilities().frames);
        let seen = |ends: &Ends| {
            let capture = capture(&ends.pair.right, "veth");
            send_or_not(&container, &ends.right);
            std::thread::sleep(QUIET);
            ttls(&capture.packets())
        };
        let soon = |expected: &[u8]| {
            let start = Instant::now();
            loop {
                drain(&ends.right);
                let seen = seen(ends);
                if seen == expected {
                    return;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "{seen:?}");
            }
        };
        soon(&[TTL]);
        left.command("ip xfrm policy add dir out src 10.9.0.1 dst 10.9.0.2 action block");
        soon(&[]);
        // Nor is it received from, which the policy says nothing of here.
        let before = container.frame_counts().1;
        send(&ends.right, &container, None, &[7; 99]);
        assert!(arrives(&container));
        assert_eq!(container.frame_counts().1, before, "by the socket");
        left.command("ip xfrm policy flush");
        soon(&[TTL]);
    });
}

#[test]
fn without_frames_there_is_nothing_to_follow() {
    privileged("without_frames_there_is_nothing_to_follow", || {
        let namespace = Namespace::new().unwrap();
        namespace.command("ip link set lo up");
        let socket = namespace.bind("127.0.0.1:0");
        namespace.run(|| socket.follow());
        assert_eq!(socket.frame_counts(), (0, 0));
    });
}
