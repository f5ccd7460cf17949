//! Sockets over the loopback device: what any user on any machine can run.

mod support;

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};

use support::{bind, destination, pattern, receive, skip, transmit};
use urxe_udp::{
    Destination, Interest, Options, Piece, RecvBuffer, SendError, Sent, Socket, Transmit, Waiter,
    path_mtu_bytes,
};

#[test]
fn a_datagram_arrives_whole_with_source_and_tos() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (sender, receiver) = (bind(address), bind(address));
        let to = destination(&receiver);
        let mut buffer = RecvBuffer::new();
        assert_eq!(receiver.receive(&mut buffer).unwrap(), None);
        for tos in [0, 0x02, 0xb9] {
            let (head, body) = (pattern(20), pattern(44));
            let iov = [Piece::new(&head), Piece::new(&[]), Piece::new(&body)];
            let sent = sender
                .send(&Transmit {
                    tos,
                    ..transmit(&to, None, &iov)
                })
                .unwrap();
            assert_eq!(
                sent,
                Sent {
                    bytes: 64,
                    lost: None
                }
            );
            let meta = receive(&receiver, &mut buffer);
            assert_eq!(
                (meta.source, meta.len, meta.stride, meta.tos),
                (sender.local_address(), 64, 64, tos)
            );
            assert_eq!(
                buffer.segments(&meta).collect::<Vec<_>>(),
                [[head, body].concat()]
            );
        }
    }
}

#[test]
fn the_sockets_own_tos_needs_no_control_message() {
    let options = Options {
        tos: 0x68,
        ..Options::default()
    };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let sender = Socket::bind(address.parse().unwrap(), &options).unwrap();
        let receiver = bind(address);
        let to = destination(&receiver);
        let iov = [Piece::new(b"tos")];
        for tos in [0x68, 0x00] {
            sender
                .send(&Transmit {
                    tos,
                    ..transmit(&to, None, &iov)
                })
                .unwrap();
            assert_eq!(receive(&receiver, &mut RecvBuffer::new()).tos, tos);
        }
    }
}

#[test]
fn bind_is_exclusive() {
    let first = bind("127.0.0.1:0");
    let error = Socket::bind(first.local_address(), &Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    // The mapped form is the same address.
    let mapped = format!("[::ffff:127.0.0.1]:{}", first.local_address().port());
    let error = Socket::bind(mapped.parse().unwrap(), &Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    // The port of the other family is not taken.
    bind(&format!("[::1]:{}", first.local_address().port()));
    let address = first.local_address();
    drop(first);
    Socket::bind(address, &Options::default()).unwrap();
}

#[test]
fn an_address_of_somebody_else_cannot_be_bound() {
    let error = Socket::bind("192.0.2.1:0".parse().unwrap(), &Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn the_wrong_family_is_a_broken_call() {
    let sender = bind("127.0.0.1:0");
    let to = Destination::new("[::1]:9".parse().unwrap());
    let error = sender
        .send(&transmit(&to, None, &[Piece::new(b"x")]))
        .unwrap_err();
    assert!(matches!(error, SendError::Broken(_)), "{error}");
}

#[test]
fn what_does_not_fit_is_marked() {
    for bare in [false, true] {
        let options = Options {
            gro: !bare,
            receive_tos: !bare,
            ..Options::default()
        };
        let sender = bind("127.0.0.1:0");
        let receiver = Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let to = destination(&receiver);
        let bytes = pattern(100);
        let mut buffer = RecvBuffer::with_capacity(60);
        for length in [59, 60, 61, 100] {
            sender
                .send(&transmit(&to, None, &[Piece::new(&bytes[..length])]))
                .unwrap();
            let meta = receive(&receiver, &mut buffer);
            assert_eq!(meta.source, sender.local_address());
            assert_eq!(
                (meta.truncated, meta.len, meta.stride),
                (length > 60, length.min(60), length.min(60))
            );
            assert_eq!(&buffer.bytes()[..meta.len], &bytes[..meta.len]);
        }
        assert_eq!(receiver.receive(&mut buffer).unwrap(), None);
    }
}

#[test]
fn a_full_receive_buffer_drops_and_counts() {
    let options = Options {
        receive_buffer_bytes: 0,
        ..Options::default()
    };
    let receiver = Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let sender = bind("127.0.0.1:0");
    assert!(
        receiver.receive_buffer_bytes() < 10_000,
        "{}",
        receiver.receive_buffer_bytes()
    );
    assert!(
        sender.receive_buffer_bytes() > 100_000,
        "{}",
        sender.receive_buffer_bytes()
    );
    let to = destination(&receiver);
    let bytes = pattern(1000);
    for _ in 0..100 {
        sender
            .send(&transmit(&to, None, &[Piece::new(&bytes)]))
            .unwrap();
    }
    let mut received = 0;
    while receiver.receive(&mut RecvBuffer::new()).unwrap().is_some() {
        received += 1;
    }
    assert!(received > 0 && received < 100, "{received}");
    assert_eq!(receiver.receive_drops().unwrap(), 100 - received);
}

#[test]
fn all_that_perftest_sends_waits_for_a_receiver_that_is_away() {
    let (receiver, sender) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    if receiver.receive_buffer_bytes() < 2 * Options::default().receive_buffer_bytes {
        return skip(
            "all_that_perftest_sends_waits_for_a_receiver_that_is_away",
            "net.core.rmem_max is smaller, and this user may not pass it",
        );
    }
    let to = destination(&receiver);
    let packets = pattern(15 * 4112);
    for _ in 0..1000 {
        for (packets, segment) in [(&packets[..], Some(4112)), (&packets[..4112], None)] {
            sender
                .send(&transmit(&to, segment, &[Piece::new(packets)]))
                .unwrap();
        }
    }
    assert_eq!(receiver.receive_drops().unwrap(), 0);
}

#[test]
fn epoll_tells_of_a_datagram() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    let mut waiter = Waiter::new().unwrap();
    waiter.add(&receiver.as_fd(), 5, Interest::READ).unwrap();
    assert!(waiter.wait(Some(1000)).unwrap().is_empty());
    sender
        .send(&transmit(&to, None, &[Piece::new(b"x")]))
        .unwrap();
    let events = waiter.wait(Some(1_000_000_000)).unwrap();
    assert_eq!(
        events
            .iter()
            .map(|event| (event.token(), event.readable()))
            .collect::<Vec<_>>(),
        [(5, true)]
    );
}

#[test]
fn the_path_to_ourselves_has_the_loopback_mtu() {
    let loopback = urxe_udp::interfaces()
        .unwrap()
        .into_iter()
        .find(|interface| interface.loopback)
        .unwrap();
    let mtu_bytes = path_mtu_bytes(None, "127.0.0.1:4791".parse().unwrap()).unwrap();
    // IP_MAX_MTU of net/ip.h.
    assert_eq!(mtu_bytes, loopback.mtu_bytes.min(65_535));
    let mtu_bytes = loopback.mtu_bytes;
    assert_eq!(
        path_mtu_bytes(Some("::1".parse().unwrap()), "[::1]:0".parse().unwrap()).unwrap(),
        mtu_bytes
    );
}

/// As hardware and Linux rxe send them.
#[test]
fn a_datagram_without_a_checksum_arrives_over_ipv6() {
    const UDP_NO_CHECK6_TX: libc::c_int = 101;
    let sender = std::net::UdpSocket::bind("[::1]:0").unwrap();
    let on: libc::c_int = 1;
    // SAFETY: pointer and length describe `on`.
    let status = unsafe {
        libc::setsockopt(
            sender.as_raw_fd(),
            libc::IPPROTO_UDP,
            UDP_NO_CHECK6_TX,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(status, 0);
    let receiver = bind("[::1]:0");
    sender
        .send_to(b"no checksum", receiver.local_address())
        .unwrap();
    let mut buffer = RecvBuffer::new();
    assert_eq!(receive(&receiver, &mut buffer).len, 11);
}
