//! Sockets over links between network namespaces: what packets look like on the wire, and what
//! links do to batches.
//!
//! They need root or user namespaces, and iproute2; otherwise they say SKIPPED.

mod support;

use std::time::Duration;

use support::{
    Ipv4Packet, Namespace, Pair, capture, destination, pattern, privileged, receive,
    receive_datagrams, try_receive,
};
use urxe_udp::{
    Destination, Framing, Options, Piece, RecvBuffer, SendError, Sent, SentMany, Socket, Transmit,
    interfaces, path_mtu_bytes,
};

fn send(
    socket: &Socket,
    to: &Destination,
    segment_size: Option<u16>,
    bytes: &[u8],
) -> Result<Sent, SendError> {
    socket.send(&Transmit {
        destination: to,
        segment_size,
        tos: 0,
        framing: Framing::Never,
        whole: None,
        iov: &[Piece::new(bytes)],
    })
}

fn ids(packets: &[Ipv4Packet]) -> Vec<u16> {
    packets.iter().map(|packet| packet.id).collect()
}

#[test]
fn plain_datagrams_have_df_and_id_0() {
    privileged("plain_datagrams_have_df_and_id_0", || {
        let pair = Pair::new(1500);
        let (sender, receiver) = (pair.left.bind("10.9.0.1:0"), pair.right.bind("10.9.0.2:0"));
        let capture = capture(&pair.right, "veth");
        let to = destination(&receiver);
        for tos in [0, 2, 2] {
            let transmit = Transmit {
                destination: &to,
                segment_size: None,
                tos,
                framing: Framing::Never,
                whole: None,
                iov: &[Piece::new(&[7; 100])],
            };
            sender.send(&transmit).unwrap();
        }
        // A batch of one segment is a plain datagram too.
        send(&sender, &to, Some(200), &[7; 100]).unwrap();
        receive_datagrams(&receiver, 4);
        let packets = capture.packets();
        assert_eq!(packets.len(), 4);
        for (packet, tos) in packets.iter().zip([0, 2, 2, 0]) {
            assert!(packet.dont_fragment);
            assert_eq!((packet.id, packet.tos, packet.total_bytes), (0, tos, 128));
            assert_ne!(packet.udp_checksum, 0, "the checksum is on");
        }
    });
}

/// What makes an unconnected socket a must: a connected one counts (`ip_select_ident_segs` of
/// net/ip.h).
#[test]
fn a_connected_socket_counts_ids() {
    privileged("a_connected_socket_counts_ids", || {
        let pair = Pair::new(1500);
        let (sender, receiver) = (pair.left.bind("10.9.0.1:0"), pair.right.bind("10.9.0.2:0"));
        let capture = capture(&pair.right, "veth");
        let to = destination(&receiver);
        connect(&sender, &receiver);
        for _ in 0..3 {
            send(&sender, &to, None, &[7; 100]).unwrap();
        }
        receive_datagrams(&receiver, 3);
        let ids = ids(&capture.packets());
        assert_eq!(ids.len(), 3);
        assert_eq!(
            [ids[1].wrapping_sub(ids[0]), ids[2].wrapping_sub(ids[1])],
            [1, 1],
            "{ids:?}"
        );
    });
}

fn connect(socket: &Socket, peer: &Socket) {
    use std::os::fd::{AsFd, FromRawFd, IntoRawFd};
    let duplicate = socket.as_fd().try_clone_to_owned().unwrap();
    // SAFETY: a descriptor of a UDP socket, ours alone.
    let socket = unsafe { std::net::UdpSocket::from_raw_fd(duplicate.into_raw_fd()) };
    socket.connect(peer.local_address()).unwrap();
}

#[test]
fn a_batch_crosses_a_veth_uncut() {
    privileged("a_batch_crosses_a_veth_uncut", || {
        let pair = Pair::new(1500);
        let capture = capture(&pair.right, "veth");
        for (from, to) in [("10.9.0.1:0", "10.9.0.2:0"), ("[fd09::1]:0", "[fd09::2]:0")] {
            let (sender, receiver) = (pair.left.bind(from), pair.right.bind(to));
            let bytes = pattern(10_300);
            send(&sender, &destination(&receiver), Some(1000), &bytes).unwrap();
            let mut buffer = RecvBuffer::new();
            let meta = receive(&receiver, &mut buffer);
            assert_eq!((meta.len, meta.stride, meta.segments()), (10_300, 1000, 11));
            assert_eq!(
                buffer.segments(&meta).collect::<Vec<_>>(),
                bytes.chunks(1000).collect::<Vec<_>>()
            );
        }
        let packets = capture.packets();
        assert_eq!(
            (packets.len(), packets[0].id, packets[0].total_bytes),
            (1, 0, 10_328)
        );
    });
}

#[test]
fn a_receiver_without_gro_gets_a_batch_cut() {
    privileged("a_receiver_without_gro_gets_a_batch_cut", || {
        let pair = Pair::new(1500);
        let options = Options {
            gro: false,
            ..Options::default()
        };
        let (sender, receiver) = (
            pair.left.bind("10.9.0.1:0"),
            pair.right.bind_with("10.9.0.2:0", &options),
        );
        assert!(!receiver.capabilities().gro);
        let bytes = pattern(2500);
        send(&sender, &destination(&receiver), Some(1000), &bytes).unwrap();
        let mut buffer = RecvBuffer::new();
        for expected in bytes.chunks(1000) {
            let meta = receive(&receiver, &mut buffer);
            assert_eq!(
                (meta.stride, &buffer.bytes()[..meta.len]),
                (expected.len(), expected)
            );
        }
    });
}

#[test]
fn the_kth_segment_of_a_cut_batch_has_id_k() {
    privileged("the_kth_segment_of_a_cut_batch_has_id_k", || {
        let pair = Pair::new(1500);
        // The device takes no more than one segment, so that the stack must cut.
        pair.left.command("ip link set veth gso_max_segs 1");
        let (sender, receiver) = (pair.left.bind("10.9.0.1:0"), pair.right.bind("10.9.0.2:0"));
        let capture = capture(&pair.right, "veth");
        let to = destination(&receiver);
        let bytes = pattern(10_300);
        for _ in 0..2 {
            send(&sender, &to, Some(1000), &bytes).unwrap();
            assert_eq!(
                receive_datagrams(&receiver, 11),
                bytes.chunks(1000).collect::<Vec<_>>()
            );
            let packets = capture.packets();
            assert_eq!(ids(&packets), (0..11).collect::<Vec<_>>());
            assert!(packets.iter().all(|packet| packet.dont_fragment));
            assert_eq!(packets.last().unwrap().total_bytes, 328);
        }
    });
}

#[test]
fn a_bridge_keeps_batches_and_ids() {
    privileged("a_bridge_keeps_batches_and_ids", || {
        let (pair, middle) = Pair::bridged(1500);
        let (sender, receiver) = (pair.left.bind("10.9.0.1:0"), pair.right.bind("10.9.0.2:0"));
        let capture = capture(&pair.right, "veth");
        let to = destination(&receiver);
        let bytes = pattern(10_300);
        send(&sender, &to, None, &bytes[..64]).unwrap();
        send(&sender, &to, Some(1000), &bytes).unwrap();
        receive_datagrams(&receiver, 12);
        let packets = capture.packets();
        assert_eq!(ids(&packets), [0, 0]);
        assert_eq!(packets[1].total_bytes, 10_328);
        // A token bucket of one packet, as on a shaped link: `tbf_segment` cuts what does not fit.
        middle.command("tc qdisc add dev port2 root tbf rate 1gbit burst 2000 limit 1000000");
        send(&sender, &to, Some(1000), &bytes).unwrap();
        assert_eq!(
            receive_datagrams(&receiver, 11),
            bytes.chunks(1000).collect::<Vec<_>>()
        );
        let packets = capture.packets();
        assert_eq!(ids(&packets), (0..11).collect::<Vec<_>>());
        assert!(packets.iter().all(|packet| packet.dont_fragment));
    });
}

#[test]
fn what_exceeds_the_mtu_is_too_big_and_gso_stays_on() {
    privileged("what_exceeds_the_mtu_is_too_big_and_gso_stays_on", || {
        let pair = Pair::new(1500);
        for (from, to, largest) in [
            ("10.9.0.1:0", "10.9.0.2:0", 1472),
            ("[fd09::1]:0", "[fd09::2]:0", 1452),
        ] {
            let (sender, receiver) = (pair.left.bind(from), pair.right.bind(to));
            let to = destination(&receiver);
            let bytes = pattern(5000);
            for segment_size in [None, Some(largest as u16 + 1)] {
                let length = if segment_size.is_some() {
                    bytes.len()
                } else {
                    largest + 1
                };
                let error = send(&sender, &to, segment_size, &bytes[..length]).unwrap_err();
                assert!(matches!(error, SendError::TooBig), "{error}");
            }
            assert!(sender.capabilities().gso);
            send(&sender, &to, None, &bytes[..largest]).unwrap();
            send(&sender, &to, Some(largest as u16), &bytes).unwrap();
            assert_eq!(
                receive_datagrams(&receiver, 5).concat().len(),
                largest + 5000
            );
            let (source, peer) = (sender.local_address().ip(), receiver.local_address());
            assert_eq!(
                pair.left
                    .run(|| path_mtu_bytes(Some(source), peer))
                    .unwrap(),
                1500
            );
        }
    });
}

/// A neighbour that does not answer holds packets in its queue, and they count against the send
/// buffer.
#[test]
fn a_full_send_buffer_would_block() {
    privileged("a_full_send_buffer_would_block", || {
        let pair = Pair::new(1500);
        let options = Options {
            send_buffer_bytes: 0,
            ..Options::default()
        };
        let sender = pair.left.bind_with("10.9.0.1:0", &options);
        assert!(sender.send_buffer_bytes() < 10_000);
        let nobody = Destination::new("10.9.0.77:9".parse().unwrap());
        let outcome = (0..100).find_map(|_| send(&sender, &nobody, None, &[0; 1000]).err());
        assert!(
            matches!(outcome, Some(SendError::WouldBlock)),
            "{outcome:?}"
        );
        let iov = [Piece::new(&[0; 1000])];
        let transmit = Transmit {
            destination: &nobody,
            segment_size: None,
            tos: 0,
            framing: Framing::Never,
            whole: None,
            iov: &iov,
        };
        assert!(matches!(
            sender.send_many(&[transmit; 3]),
            Err(SendError::WouldBlock)
        ));
    });
}

#[test]
fn a_full_send_buffer_leaves_the_rest_to_the_caller() {
    privileged("a_full_send_buffer_leaves_the_rest_to_the_caller", || {
        let pair = Pair::new(1500);
        let options = Options {
            send_buffer_bytes: 10_000,
            gso: false,
            ..Options::default()
        };
        let sender = pair.left.bind_with("10.9.0.1:0", &options);
        let nobody = Destination::new("10.9.0.77:9".parse().unwrap());
        let bytes = pattern(60_000);
        let sent = send(&sender, &nobody, Some(1000), &bytes).unwrap();
        assert!(
            sent.bytes > 0
                && sent.bytes < 60_000
                && sent.bytes.is_multiple_of(1000)
                && sent.lost.is_none(),
            "{sent:?}"
        );
        assert!(matches!(
            send(&sender, &nobody, Some(1000), &bytes),
            Err(SendError::WouldBlock)
        ));
        let sender = pair.left.bind_with("10.9.0.1:0", &options);
        let iov = [Piece::new(&bytes)];
        let transmit = Transmit {
            destination: &nobody,
            segment_size: Some(1000),
            tos: 0,
            framing: Framing::Never,
            whole: None,
            iov: &iov,
        };
        let sent = sender.send_many(&[transmit; 2]).unwrap();
        assert!(
            sent.transmits == 0 && sent.partial_bytes > 0 && sent.lost == 0,
            "{sent:?}"
        );
    });
}

#[test]
fn no_route_is_loss_and_not_an_error() {
    privileged("no_route_is_loss_and_not_an_error", || {
        let pair = Pair::new(1500);
        let sender = pair.left.bind("10.9.0.1:0");
        let far = Destination::new("192.0.2.1:9".parse().unwrap());
        for segment_size in [None, Some(10)] {
            let sent = send(&sender, &far, segment_size, &[0; 100]).unwrap();
            assert_eq!(
                sent,
                Sent {
                    bytes: 100,
                    lost: Some(libc::ENETUNREACH)
                }
            );
        }
        assert!(sender.capabilities().gso);
        let receiver = pair.right.bind("10.9.0.2:0");
        let near = destination(&receiver);
        let iov = [Piece::new(b"x")];
        let transmits = [&near, &far, &near].map(|to| Transmit {
            destination: to,
            segment_size: None,
            tos: 0,
            framing: Framing::Never,
            whole: None,
            iov: &iov,
        });
        let sent = sender.send_many(&transmits).unwrap();
        assert_eq!(
            sent,
            SentMany {
                transmits: 3,
                lost: 1,
                partial_bytes: 0
            }
        );
        receive_datagrams(&receiver, 2);
        // The address goes away: EINVAL, whose likes must not be taken for a kernel without GSO.
        pair.left.command("ip addr del 10.9.0.1/24 dev veth");
        for segment_size in [None, Some(10)] {
            let sent = send(&sender, &near, segment_size, &[0; 100]).unwrap();
            assert!(sent.bytes == 100 && sent.lost.is_some(), "{sent:?}");
        }
        assert!(sender.capabilities().gso);
    });
}

#[test]
fn nobody_at_the_port_is_silence() {
    privileged("nobody_at_the_port_is_silence", || {
        let pair = Pair::new(1500);
        let sender = pair.left.bind("10.9.0.1:0");
        let closed = Destination::new("10.9.0.2:9".parse().unwrap());
        for _ in 0..3 {
            assert_eq!(
                send(&sender, &closed, None, b"x").unwrap(),
                Sent {
                    bytes: 1,
                    lost: None
                }
            );
            assert_eq!(
                try_receive(&sender, &mut RecvBuffer::new(), Duration::from_millis(20)),
                None
            );
        }
    });
}

#[test]
fn interfaces_are_those_of_the_namespace() {
    privileged("interfaces_are_those_of_the_namespace", || {
        let namespace = Namespace::new().unwrap();
        let list = || namespace.run(interfaces).unwrap();
        let [loopback] = &list()[..] else {
            panic!("{:?}", list())
        };
        assert!(!loopback.up && loopback.addresses.is_empty());
        namespace.command("ip link add left address 02:00:00:00:00:01 type veth peer name right");
        namespace.command("ip link set left mtu 4200 up");
        namespace.command("ip addr add 10.1.2.3/20 dev left");
        namespace.command("ip addr add 10.1.2.4/20 dev left");
        namespace.command("ip addr add 10.3.0.1 peer 10.4.0.1/32 dev left");
        namespace.command("ip addr add fe80::7/64 dev left nodad");
        namespace.command("ip addr add fd00::7/64 dev left");
        let interfaces = list();
        let left = interfaces
            .iter()
            .find(|interface| interface.name == "left")
            .unwrap();
        assert_eq!((left.mtu_bytes, left.mac), (4200, Some([2, 0, 0, 0, 0, 1])));
        // The other end is down.
        assert!(
            left.up && !left.carrier && left.link_state == "lower layer down",
            "{left:?}"
        );
        let find = |ip: &str| {
            *left
                .addresses
                .iter()
                .find(|address| address.ip.to_string() == ip)
                .unwrap()
        };
        assert_eq!(
            (find("10.1.2.3").prefix_bits, find("10.1.2.3").secondary),
            (20, false)
        );
        assert!(find("10.1.2.4").secondary);
        assert_eq!(find("10.3.0.1").prefix_bits, 32);
        let link_local = find("fe80::7");
        assert_eq!(
            (link_local.scope_id, link_local.tentative),
            (left.index, false)
        );
        // Detection cannot start while the link is down.
        assert!(find("fd00::7").tentative && find("fd00::7").scope_id == 0);
        namespace.command("ip link set right up");
        let socket = namespace.bind(&link_local.with_port(4791).to_string());
        assert_eq!(socket.local_address().port(), 4791);
    });
}
