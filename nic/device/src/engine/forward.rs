//! Packets for queue pairs behind another port of the host.
//!
//! A queue pair's number tells its UDP port, but only our own kind knows. Linux rxe and hardware
//! send everything to port 4791, and so to the process that holds that. The holder passes on what
//! is for another slot, to that slot's port on the same address: the datagram as it came, behind a
//! header that says from where. It leaves from port 4791, which no other process can send from. A
//! host takes in nothing that claims to come from its own IPv4 address. Over IPv6 a stranger can
//! forge this as well as the address of a peer, and gains nothing by it.
//!
//! Each packet on this way costs a system call and a wake-up of its own. It is for peers that have
//! no other.

use std::net::SocketAddr;

use urxe_udp::{Destination, Framing, Piece, Socket, Transmit};
use urxe_wire::{Gid, Packet, ROCE_UDP_PORT};

use crate::engine::Engine;
use crate::engine::origin::Origin;
use crate::engine::port::udp_port;

/// What the header begins with: an opcode of the manufacturer's own (IBTA vol 1, 9.2.1) and "urx".
const MARK: [u8; 4] = [0xff, b'u', b'r', b'x'];
const TOS_AT: usize = 4;
const IP_ID_AT: usize = 6;
const PORT_AT: usize = 8;
const ADDRESS_AT: usize = 10;
const HEADER_LEN: usize = ADDRESS_AT + 16;

/// Passes a datagram for a queue pair on if its number tells another port than the one that it came
/// to. Whether so.
#[cold]
pub(crate) fn pass_on(
    socket: &Socket,
    origin: &Origin,
    packet: &Packet<'_>,
    datagram: &[u8],
) -> bool {
    let port = udp_port(packet.header.bth.dest_qp);
    // Frames of RoCE v1 come to every process that they may be for.
    if origin.frame.is_some() || origin.local.port() != ROCE_UDP_PORT || port == ROCE_UDP_PORT {
        return false;
    }
    let mut to = origin.local;
    to.set_port(port);
    // What does not get through is lost, as anywhere on the way.
    let _ = socket.send(&Transmit {
        destination: &Destination::new(to),
        segment_size: None,
        tos: 0,
        framing: Framing::Never,
        whole: None,
        iov: &[Piece::new(&header(origin)), Piece::new(datagram)],
    });
    true
}

fn header(origin: &Origin) -> [u8; HEADER_LEN] {
    let mut raw = [0; HEADER_LEN];
    raw[..TOS_AT].copy_from_slice(&MARK);
    raw[TOS_AT] = origin.tos;
    raw[IP_ID_AT..PORT_AT].copy_from_slice(&origin.ip_id.to_be_bytes());
    raw[PORT_AT..ADDRESS_AT].copy_from_slice(&origin.source.port().to_be_bytes());
    raw[ADDRESS_AT..].copy_from_slice(&Gid::from(origin.source.ip()).0);
    raw
}

/// What was passed on to `origin`, if it was and so is no RoCEv2 packet: where it came from at
/// first, and the datagram.
#[cold]
pub(crate) fn unwrap<'a>(origin: &Origin, raw: &'a [u8]) -> Option<(Origin, &'a [u8])> {
    let is_from_holder = origin.frame.is_none()
        && origin.source.ip() == origin.local.ip()
        && origin.source.port() == ROCE_UDP_PORT
        && origin.local.port() != ROCE_UDP_PORT;
    let (header, datagram) = raw.split_first_chunk::<HEADER_LEN>()?;
    if !is_from_holder || !header.starts_with(&MARK) || datagram.starts_with(&MARK) {
        return None;
    }
    let two = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let address: [u8; 16] = *header.last_chunk()?;
    let mut local = origin.local;
    local.set_port(ROCE_UDP_PORT);
    // It keeps the scope of the local address: a link-local peer is on the same link.
    let mut source = origin.local;
    source.set_ip(Gid(address).to_ip());
    source.set_port(two(PORT_AT));
    let was = Origin {
        port: origin.port,
        local,
        source,
        tos: header[TOS_AT],
        ip_id: two(IP_ID_AT),
        frame: None,
    };
    is_same_family(local, source).then_some((was, datagram))
}

fn is_same_family(one: SocketAddr, other: SocketAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

impl Engine {
    /// As [`pass_on`], from the socket that it came to.
    #[cold]
    pub(crate) fn pass_on(&self, origin: &Origin, packet: &Packet<'_>, datagram: &[u8]) -> bool {
        let port = self.ports().get(origin.port);
        port.and_then(|port| port.socket.as_ref())
            .is_some_and(|socket| pass_on(socket, origin, packet, datagram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(source: &str, local: &str) -> Origin {
        Origin {
            port: 3,
            local: local.parse().unwrap(),
            source: source.parse().unwrap(),
            tos: 0x62,
            ip_id: 7,
            frame: None,
        }
    }

    #[test]
    fn a_header_tells_where_the_datagram_came_from() {
        for (peer, local, holder) in [
            ("192.0.2.9:50000", "192.0.2.1:4792", "192.0.2.1:4791"),
            (
                "[2001:db8::9]:50000",
                "[2001:db8::1]:4792",
                "[2001:db8::1]:4791",
            ),
        ] {
            let came = origin(peer, holder);
            let raw = [&header(&came)[..], b"datagram"].concat();
            let (was, datagram) = unwrap(&origin(holder, local), &raw).unwrap();
            assert_eq!((was.source, was.local), (came.source, came.local));
            assert_eq!((was.tos, was.ip_id, was.port), (0x62, 7, 3));
            assert_eq!(datagram, b"datagram");
        }
    }

    #[test]
    fn only_the_holder_of_port_4791_passes_on() {
        let (peer, holder, local) = ("192.0.2.9:50000", "192.0.2.1:4791", "192.0.2.1:4792");
        let raw = [&header(&origin(peer, holder))[..], b"datagram"].concat();
        assert!(unwrap(&origin(holder, local), &raw).is_some());
        for (from, to) in [
            ("192.0.2.9:4791", local),
            ("192.0.2.1:4793", local),
            (holder, holder),
        ] {
            assert!(unwrap(&origin(from, to), &raw).is_none(), "{from} to {to}");
        }
        let nested = [&header(&origin(peer, holder))[..], &raw].concat();
        assert!(unwrap(&origin(holder, local), &nested).is_none());
        assert!(unwrap(&origin(holder, local), &raw[..20]).is_none());
    }
}
