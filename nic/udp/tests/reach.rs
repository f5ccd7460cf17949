//! Frames pass the kernel's IP layer by, but not what it would have said: of packets that a
//! stranger forges, and of routes. `policies.rs` has what IPsec says.
//!
//! The tests need root or user namespaces, iproute2, and Linux 6.2; otherwise they say SKIPPED.

mod support;

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use support::ends::{TTL, arrives, drain, on_the_link, with_frames};
use support::forger::{ETHERNET_BYTES, Forger};
use support::{Namespace, privileged};
use urxe_udp::{Changes, wait_readable};

fn from(source: &str) -> impl Fn(&mut Vec<u8>) {
    let source: Ipv4Addr = source.parse().unwrap();
    move |frame| frame[26..30].copy_from_slice(&source.octets())
}

fn to(destination: &str) -> impl Fn(&mut Vec<u8>) {
    let destination: Ipv4Addr = destination.parse().unwrap();
    move |frame| frame[30..34].copy_from_slice(&destination.octets())
}

/// With an 802.1Q tag: a priority (3 bits), a bit, and a virtual network (12 bits).
fn tagged(tag: u16) -> impl Fn(&mut Vec<u8>) {
    move |frame| {
        let [high, low] = tag.to_be_bytes();
        frame.splice(12..12, [0x81, 0, high, low]);
    }
}

/// A change to a packet, and whether the kernel lets it through whatever it is set to.
type Forgery = (&'static str, Box<dyn Fn(&mut Vec<u8>)>, Option<bool>);

fn forgeries() -> Vec<Forgery> {
    let header = |at: usize, byte: u8| {
        Box::new(move |frame: &mut Vec<u8>| frame[ETHERNET_BYTES + at] = byte)
    };
    let mut forgeries: Vec<Forgery> = vec![
        ("as it is", Box::new(|_: &mut Vec<u8>| ()), Some(true)),
        ("through a router", header(8, 63), Some(true)),
        ("a fragment", header(6, 0x20), Some(false)),
        (
            "to another host's link address",
            Box::new(|frame: &mut Vec<u8>| frame[5] ^= 1),
            Some(false),
        ),
        ("in a virtual network", Box::new(tagged(5)), Some(false)),
        (
            "with a priority, in no virtual network",
            Box::new(tagged(5 << 13)),
            Some(true),
        ),
        (
            "to another address of the receiver",
            Box::new(to("10.9.0.77")),
            Some(false),
        ),
        (
            "to another host's address",
            Box::new(to("10.9.0.3")),
            Some(false),
        ),
    ];
    forgeries.extend(forged_sources());
    forgeries
}

fn forged_sources() -> Vec<Forgery> {
    vec![
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

/// Changes of the routes, how to take each back, and the times to live of packets that then go as
/// frames.
const ROUTES: &[(&str, &str, &[u8])] = &[
    (
        "ip route add blackhole 10.9.0.2/32",
        "ip route del blackhole 10.9.0.2/32",
        &[],
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
    // Some packets only, or some routes of a table.
    (
        "ip rule add pref 9 tos 0x10 lookup main && ip rule del pref 32766",
        "ip rule add pref 32766 lookup main && ip rule del pref 9",
        &[],
    ),
    (
        "ip rule add pref 9 lookup main suppress_prefixlength 0 && ip rule del pref 32766",
        "ip rule add pref 32766 lookup main && ip rule del pref 9",
        &[64],
    ),
    // The tables that every host has, asked in another order, about other packets, or not at all.
    (
        "ip rule add to 10.9.0.2 pref 100 lookup default",
        "ip rule del to 10.9.0.2 pref 100 lookup default",
        &[],
    ),
    (
        "ip rule add pref 1 lookup default && ip rule del pref 32767",
        "ip rule add pref 32767 lookup default && ip rule del pref 1",
        &[],
    ),
    (
        "ip rule del pref 32766",
        "ip rule add pref 32766 lookup main",
        &[],
    ),
    (
        "ip route add 10.9.0.2/32 dev veth mtu 1400",
        "ip route del 10.9.0.2/32",
        &[64],
    ),
];

#[test]
fn routes_are_followed() {
    with_frames("routes_are_followed", |ends| {
        let left = &ends.pair.left;
        let changes = left.run(|| Changes::listen_to_routes().unwrap());
        changes.has_changed();
        left.command("ip link add other type veth peer name another");
        left.command("ip link set other up");
        left.command("ip link set another up");
        // As wide as the link, so that nothing but the route tells that packets go elsewhere.
        left.command("ip link set other mtu 9000");
        left.command("ip route add 10.9.0.2/32 dev other table default");
        let follow = || {
            wait_readable(std::iter::once(changes.as_fd()), 5_000_000_000);
            assert!(changes.has_changed());
            left.run(|| ends.left.follow());
        };
        assert_eq!(on_the_link(ends), [TTL]);
        for (begin, end, expected) in ROUTES {
            begin.split(" && ").for_each(|line| left.command(line));
            follow();
            drain(&ends.right);
            assert_eq!(on_the_link(ends), *expected, "{begin}");
            end.split(" && ").for_each(|line| left.command(line));
            follow();
            assert_eq!(on_the_link(ends), [TTL], "{end}");
        }
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
