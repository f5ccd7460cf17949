//! Datagrams that are frames of a type of their own.
//!
//! The tests need root or user namespaces and iproute2; otherwise they say SKIPPED.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::{Namespace, Pair, destination, pattern, privileged, receive, try_receive};
use urxe_udp::{
    Destination, FrameKind, Framing, Options, Piece, RecvBuffer, Selector, Socket, Transmit,
    Unreachable, check_frames, interfaces,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// Takes frames whose first byte is `number`.
fn bind(at: &Namespace, address: &str, number: u8) -> Socket {
    let local: SocketAddr = address.parse().unwrap();
    at.run(|| {
        let all = interfaces().unwrap();
        let has = |one: &&urxe_udp::Interface| one.addresses.iter().any(|a| a.ip == local.ip());
        let kind = FrameKind {
            ether_type: 0x8915,
            next_header: 0x1b,
            ifindex: all.iter().find(has).unwrap().index,
            selector: Selector {
                offset_bytes: 0,
                mask: 0xff00_0000,
                value: u32::from(number) << 24,
            },
        };
        Socket::bind_frames(local, &kind, &Options::default()).unwrap()
    })
}

fn send(from: &Socket, to: &Socket, tos: u8, segment_size: Option<u16>, bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let transmit = Transmit {
        destination: &destination(to),
        segment_size,
        tos,
        framing: Framing::Never,
        whole: None,
        iov: &[Piece::new(first), Piece::new(second)],
    };
    let sent = from.send(&transmit).unwrap();
    assert_eq!((sent.bytes, sent.lost), (bytes.len(), None));
}

fn numbered(number: u8, length: usize) -> Vec<u8> {
    let mut bytes = pattern(length);
    bytes[0] = number;
    bytes
}

#[test]
fn a_frame_arrives_with_its_headers_over_ipv4_and_ipv6_addresses() {
    privileged(
        "a_frame_arrives_with_its_headers_over_ipv4_and_ipv6_addresses",
        || {
            let pair = Pair::new(1500);
            let mut buffer = RecvBuffer::new();
            for (left, right) in [("10.9.0.1", "10.9.0.2"), ("[fd09::1]", "[fd09::2]")] {
                let left = bind(&pair.left, &format!("{left}:4792"), 1);
                let right = bind(&pair.right, &format!("{right}:4793"), 2);
                pair.left
                    .run(|| left.resolve(right.local_address().ip(), PATIENCE))
                    .unwrap();
                let bytes = numbered(2, 1000);
                send(&left, &right, 0x6b, None, &bytes);
                let meta = receive(&right, &mut buffer);
                assert_eq!(meta.source, left.local_address());
                assert_eq!((meta.len, meta.stride, meta.tos), (1000, 1000, 0));
                assert_eq!(&buffer.bytes()[..1000], bytes);
                let frame = meta.frame.unwrap();
                assert_eq!((frame.traffic_class, frame.hop_limit), (0x6b, 64));
                let to = right.local_address().ip();
                let expected = pair.left.run(|| left.frame_header(to, 0x6b));
                assert_eq!(Some(frame), expected);
            }
        },
    );
}

#[test]
fn a_batch_is_cut_into_frames_of_any_number_and_length() {
    privileged(
        "a_batch_is_cut_into_frames_of_any_number_and_length",
        || {
            let pair = Pair::new(1500);
            let left = bind(&pair.left, "10.9.0.1:4791", 0);
            let right = bind(&pair.right, "10.9.0.2:4791", 0);
            pair.left
                .run(|| left.resolve(right.local_address().ip(), PATIENCE))
                .unwrap();
            let mut buffer = RecvBuffer::new();
            for (length, size) in [(100, 100), (330, 100), (40 * 1000 + 7, 1000), (64, 1000)] {
                let bytes = segments(length, size.into());
                pair.left.run(|| send(&left, &right, 0, Some(size), &bytes));
                let mut at = 0;
                while at < length {
                    let meta = receive(&right, &mut buffer);
                    // Those that have come are taken together.
                    assert_eq!(meta.stride, usize::from(size).min(length - at));
                    assert_eq!(buffer.bytes()[..meta.len], bytes[at..at + meta.len]);
                    at += meta.len;
                    assert!(at == length || at.is_multiple_of(size.into()));
                }
            }
        },
    );
}

/// Bytes whose segments of a size all begin with 0, at which the selector looks.
fn segments(length: usize, size: usize) -> Vec<u8> {
    let mut bytes = pattern(length);
    bytes.iter_mut().step_by(size).for_each(|first| *first = 0);
    bytes
}

#[test]
fn frames_of_one_sender_that_have_come_are_one_batch() {
    privileged("frames_of_one_sender_that_have_come_are_one_batch", || {
        let pair = Pair::new(1500);
        let right = bind(&pair.right, "10.9.0.2:4791", 0);
        let [left, other] =
            ["10.9.0.1:4791", "10.9.0.1:4792"].map(|address| bind(&pair.left, address, 0));
        pair.left
            .run(|| left.resolve(right.local_address().ip(), PATIENCE))
            .unwrap();
        let mut buffer = RecvBuffer::new();
        let bytes = segments(6007, 1000);
        pair.left.run(|| {
            send(&left, &right, 0, Some(1000), &bytes);
            send(&other, &right, 0, Some(1000), &bytes[..2000]);
            // Another traffic class is another header.
            send(&left, &right, 4, Some(1000), &bytes[..3000]);
            send(&left, &right, 4, Some(1000), &bytes[..3000]);
        });
        std::thread::sleep(Duration::from_millis(50));
        let [one, two] = [&left, &other].map(Socket::local_address);
        for (source, length, has_more) in [
            (one, 6007, true),
            (two, 2000, true),
            // The same address twice: by their headers alone, these frames are one stream.
            (one, 6000, false),
        ] {
            let meta = receive(&right, &mut buffer);
            assert_eq!((meta.source, meta.len), (source, length));
            assert_eq!((meta.stride, meta.has_more), (1000, has_more));
        }
    });
}

#[test]
fn a_socket_takes_only_what_is_for_it_from_the_network_and_the_host() {
    privileged(
        "a_socket_takes_only_what_is_for_it_from_the_network_and_the_host",
        || {
            let pair = Pair::new(1500);
            pair.left.command("ip link set lo up");
            let [left, right] = [
                (&pair.left, "10.9.0.1:4791"),
                (&pair.right, "10.9.0.2:4791"),
            ]
            .map(|(at, address)| bind(at, address, 1));
            let [one, two] = [1, 2].map(|number| bind(&pair.left, "10.9.0.1:4791", number));
            let ends = [(&right, &pair.right), (&left, &pair.left)];
            let mut buffer = RecvBuffer::new();
            for (from, at) in ends {
                at.run(|| from.resolve(one.local_address().ip(), PATIENCE))
                    .unwrap();
                at.run(|| send(from, &one, 0, None, &numbered(2, 64)));
                assert_eq!(receive(&two, &mut buffer).source, from.local_address());
                let other = try_receive(&one, &mut buffer, Duration::from_millis(30));
                assert_eq!(other, None);
            }
        },
    );
}

#[test]
fn what_is_off_link_or_does_not_answer_cannot_be_reached() {
    privileged(
        "what_is_off_link_or_does_not_answer_cannot_be_reached",
        || {
            let pair = Pair::new(1500);
            let left = bind(&pair.left, "10.9.0.1:4791", 1);
            let resolve = |to: &str, patience| {
                let to = to.parse().unwrap();
                pair.left.run(|| left.resolve(to, patience))
            };
            assert_eq!(resolve("10.8.0.2", PATIENCE), Err(Unreachable::OffLink));
            let short = Duration::from_millis(50);
            assert_eq!(resolve("10.9.0.77", short), Err(Unreachable::NoAnswer));
            assert_eq!(resolve("10.9.0.2", PATIENCE), Ok(()));
            let nobody = Destination::new("10.8.0.2:4791".parse().unwrap());
            let sent = pair.left.run(|| {
                left.send(&Transmit {
                    destination: &nobody,
                    segment_size: None,
                    tos: 0,
                    framing: Framing::Never,
                    whole: None,
                    iov: &[Piece::new(&[1; 20])],
                })
            });
            assert_eq!(sent.unwrap().lost, Some(libc::EHOSTUNREACH));
        },
    );
}

#[test]
fn who_may_have_frames_is_told() {
    privileged("who_may_have_frames_is_told", || {
        check_frames().unwrap();
    });
}
