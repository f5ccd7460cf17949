//! Frames pass the kernel's IP layer by, but IPsec policies hold for them.
//!
//! The tests need root or user namespaces, iproute2, and Linux 6.2; otherwise they say SKIPPED.

mod support;

use std::time::{Duration, Instant};

use support::ends::{
    Ends, QUIET, TTL, arrives, drain, on_the_link, send, send_or_not, ttls, with_frames,
};
use support::forger::{Forger, LEFT, RIGHT};
use support::{capture, receive_datagrams, skip};
use urxe_udp::{Changes, Options, Socket};

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

/// In a container, by default: it may send frames, and not look at policies. It finds out what the
/// kernel does with a packet to each neighbour, once in a second.
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

/// Whether the kernel encrypts between these, as it is told to; says that the test is skipped
/// otherwise.
fn has_encryption(test: &str, ends: &Ends) -> bool {
    // Transport mode, one association each way, with the same key at both ends.
    let key = "0x000102030405060708090a0b0c0d0e0f10111213";
    for namespace in [&ends.pair.left, &ends.pair.right] {
        for (from, to, spi) in [(LEFT, RIGHT, "0x101"), (RIGHT, LEFT, "0x102")] {
            let line = format!(
                "xfrm state add src {from} dst {to} proto esp spi {spi} mode transport aead rfc4106(gcm(aes)) {key} 128"
            );
            let output = namespace.run(|| {
                let words = line.split(' ');
                std::process::Command::new("ip").args(words).output()
            });
            if !output.unwrap().status.success() {
                skip(test, "the kernel does not encrypt (CONFIG_INET_ESP)");
                return false;
            }
        }
    }
    true
}

/// Of each IPv4 packet that a packet socket has seen, the protocol.
fn protocols(capture: &support::Capture) -> Vec<u8> {
    capture.ipv4().into_iter().map(|packet| packet[9]).collect()
}

#[test]
fn what_a_policy_of_ipsec_encrypts_goes_encrypted() {
    const ESP: u8 = 50;
    const UDP: u8 = 17;
    let test = "what_a_policy_of_ipsec_encrypts_goes_encrypted";
    with_frames(test, |ends| {
        if !has_encryption(test, ends) {
            return;
        }
        let capture = capture(&ends.pair.right, "veth");
        let exchange = || {
            for (from, to) in [(&ends.left, &ends.right), (&ends.right, &ends.left)] {
                for length in [99, 1000, 5000] {
                    send(from, to, None, &support::pattern(length));
                    assert_eq!(receive_datagrams(to, 1), [support::pattern(length)]);
                }
            }
            protocols(&capture)
        };
        assert!(exchange().contains(&UDP));
        let before = [&ends.left, &ends.right].map(Socket::frame_counts);
        for (namespace, socket, own, peer) in [
            (&ends.pair.left, &ends.left, LEFT, RIGHT),
            (&ends.pair.right, &ends.right, RIGHT, LEFT),
        ] {
            for (direction, from, to) in [("out", own, peer), ("in", peer, own)] {
                namespace.command(&format!(
                    "ip xfrm policy add src {from} dst {to} proto udp dir {direction} tmpl proto esp mode transport"
                ));
            }
            namespace.run(|| socket.follow());
        }
        let seen = exchange();
        assert!(seen.contains(&ESP) && !seen.contains(&UDP), "{seen:?}");
        let after = [&ends.left, &ends.right].map(Socket::frame_counts);
        assert_eq!(after, before, "no frame");
        // What a stranger sends in plain text is for the kernel to drop.
        let forger = Forger::new(ends);
        forger.send(&forger.packet(4791, |_| ()));
        assert!(!arrives(&ends.right));
    });
}
