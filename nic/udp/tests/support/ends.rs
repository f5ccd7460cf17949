//! Two sockets of neighbours that exchange frames.

use std::time::Duration;

use urxe_udp::{Framing, Options, Piece, RecvBuffer, Socket, Transmit};

use super::{
    Ipv4Packet, Pair, capture, destination, privileged, receive_datagrams, skip, try_receive,
};

/// That of frames.
pub(crate) const TTL: u8 = 255;
/// Long enough for a packet to arrive.
pub(crate) const QUIET: Duration = Duration::from_millis(30);

/// Two sockets with frames whose kernels know each other's link addresses; None where there are no
/// frames.
pub(crate) struct Ends {
    pub(crate) pair: Pair,
    pub(crate) left: Socket,
    pub(crate) right: Socket,
}

pub(crate) fn with_frames(test: &str, body: impl FnOnce(&Ends)) {
    privileged(test, || {
        let ends = Ends::new(Pair::new(9000));
        if !ends.left.capabilities().frames {
            return skip(test, "no frames before Linux 6.2");
        }
        body(&ends);
    });
}

impl Ends {
    pub(crate) fn new(pair: Pair) -> Self {
        let options = Options {
            frames: true,
            ..Options::default()
        };
        let left = pair.left.bind_with("10.9.0.1:4791", &options);
        let right = pair.right.bind_with("10.9.0.2:4791", &options);
        // The first datagram makes the kernels learn the addresses.
        for (from, to) in [(&left, &right), (&right, &left)] {
            send(from, to, None, &[1]);
            receive_datagrams(to, 1);
        }
        std::thread::sleep(Duration::from_millis(50));
        Self { pair, left, right }
    }
}

pub(crate) fn send(from: &Socket, to: &Socket, segment_size: Option<u16>, bytes: &[u8]) {
    send_as(from, to, segment_size, bytes, Framing::Message);
}

pub(crate) fn send_as(
    from: &Socket,
    to: &Socket,
    segment_size: Option<u16>,
    bytes: &[u8],
    framing: Framing,
) {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let transmit = Transmit {
        destination: &destination(to),
        segment_size,
        tos: 0x42,
        framing,
        iov: &[Piece::new(first), Piece::new(second)],
        whole: None,
    };
    assert_eq!(from.send(&transmit).unwrap().lost, None);
}

/// Their times to live, which tell frames.
pub(crate) fn ttls(packets: &[Ipv4Packet]) -> Vec<u8> {
    packets.iter().map(|packet| packet.ttl).collect()
}

/// Whether anything arrives.
pub(crate) fn arrives(socket: &Socket) -> bool {
    let mut buffer = RecvBuffer::new();
    let mut meta = try_receive(socket, &mut buffer, QUIET);
    // A socket that is read seldom.
    for _ in 0..10_000 {
        meta = meta.or_else(|| socket.receive(&mut buffer).unwrap());
    }
    meta.is_some()
}

/// Sends, and says the times to live of what is on the link.
pub(crate) fn on_the_link(ends: &Ends) -> Vec<u8> {
    let capture = capture(&ends.pair.right, "veth");
    send_or_not(&ends.left, &ends.right);
    std::thread::sleep(QUIET);
    ttls(&capture.packets())
}

/// A short datagram, which may be lost.
pub(crate) fn send_or_not(from: &Socket, to: &Socket) {
    let transmit = Transmit {
        destination: &destination(to),
        segment_size: None,
        tos: 0x42,
        framing: Framing::Message,
        iov: &[Piece::new(&[7; 99])],
        whole: None,
    };
    from.send(&transmit).unwrap();
}

/// Takes all that has arrived.
pub(crate) fn drain(socket: &Socket) {
    while arrives(socket) {}
}
