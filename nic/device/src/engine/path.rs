//! Where a queue pair sends to and hears from.
//!
//! Every program with a socket on the peer's host sends with the peer's address. What tells the
//! peer from them is its UDP port, if it is urxe: it sends from the port that its queue pair's
//! number tells. No other program of its host can, for the port is bound exclusively. Linux rxe and
//! hardware choose their source ports freely, and everything that comes from the address is for the
//! protocol to judge.

use std::net::SocketAddr;

use urxe_proto::{AddressVector, PeerAbilities};
use urxe_udp::Destination;
use urxe_wire::icrc::Flow;
use urxe_wire::{Qpn, ROCE_UDP_PORT};

use crate::attach::congestion::with_ecn;
use crate::attach::gid_entry::{flow, socket_address};
use crate::engine::origin::Origin;
use crate::engine::port::{Ports, udp_port};
use crate::process::error::Error;

/// What the ICRC of a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verified {
    /// It is wrong.
    Bad,
    /// It is right.
    Good,
    /// It is right, but it is not known that the peer's packets come from there, and to here: see
    /// [`Path::believe`].
    News,
    /// The peer is urxe, and did not send it: it came from another port, or was passed on.
    Foreign,
}

/// What is known of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// It was not heard yet.
    Unheard,
    /// Another device, or so it seems: it sent from any port.
    Stranger,
    /// It is urxe.
    OurKind,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Index of the socket.
    pub(crate) port: usize,
    /// Where the socket sends from. What was passed on came to another port of the host: see
    /// `forward.rs`.
    local: SocketAddr,
    pub(crate) destination: Destination,
    /// Flow of what is sent.
    pub(crate) flow: Flow,
    pub(crate) tos: u8,
    is_v1: bool,
    /// The source address from which the peer was last heard, and the flow.
    inbound: Option<(SocketAddr, Flow)>,
    /// The UDP port that the peer's number tells, if it is of our own kind.
    derived: u16,
    peer: Peer,
}

impl Path {
    /// Whether it leads to this very host, past no link at all: its own address, or one of the
    /// loopback interface.
    pub(crate) fn is_local(&self) -> bool {
        let ip = self.destination.address().ip();
        ip.is_loopback() || ip == self.local.ip()
    }

    /// The path to the queue pair `dest_qp` at an address.
    pub(crate) fn new(
        sockets: &Ports,
        address: &AddressVector,
        dest_qp: Qpn,
    ) -> Result<Self, Error> {
        let udp_port = if address.dest_gid.is_multicast() {
            ROCE_UDP_PORT
        } else {
            udp_port(dest_qp)
        };
        Self::to_port(sockets, address, udp_port)
    }

    /// The path to a UDP port at an address.
    pub(crate) fn to_port(
        sockets: &Ports,
        address: &AddressVector,
        udp_port: u16,
    ) -> Result<Self, Error> {
        let port = usize::from(address.source_gid_index);
        let local = sockets.local_address(port)?;
        let peer = socket_address(address.dest_gid, sockets.ifindex(), udp_port);
        let destination = Destination::new(peer);
        let is_v1 = sockets.is_v1(port);
        let flow = flow(is_v1, local, destination.address()).ok_or_else(|| {
            Error::Invalid(format!(
                "{} cannot be reached from {}",
                peer.ip(),
                local.ip()
            ))
        })?;
        Ok(Self {
            port,
            local,
            destination,
            flow,
            // Only routers mark packets, and switches those of IP.
            tos: if is_v1 {
                address.traffic_class
            } else {
                with_ecn(address.traffic_class, sockets.ecn)
            },
            is_v1,
            inbound: None,
            derived: udp_port,
            peer: Peer::Unheard,
        })
    }

    /// The same, with packets that bear this type of service.
    pub(crate) const fn with_tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }

    /// Whether a packet that came to `port` from `source` comes from the host of the queue pair's
    /// peer. The UDP source port is looked at by [`Self::verify`].
    pub(crate) fn is_from_peer(&self, port: usize, source: SocketAddr) -> bool {
        self.port == port && self.destination.address().ip() == source.ip()
    }

    /// Whether the peer was heard, and is urxe.
    pub(crate) fn is_to_our_kind(&self) -> bool {
        self.peer == Peer::OurKind
    }

    /// What the peer does beyond the specification, as far as it was heard.
    pub(crate) fn peer_abilities(&self) -> PeerAbilities {
        match self.peer {
            Peer::OurKind => PeerAbilities::URXE,
            Peer::Stranger | Peer::Unheard => PeerAbilities::empty(),
        }
    }

    /// Whether a packet of the peer's host comes from where only the peer can send, if it is urxe:
    /// from the port that its number tells, to this socket. What was passed on came to another one,
    /// and where it came from at first is the word of the process that passed it on. That may be
    /// any user's of this host, if no other process has port 4791.
    pub(crate) fn is_from_derived_port(&self, origin: &Origin) -> bool {
        origin.source.port() == self.derived && origin.local.port() == self.local.port()
    }

    /// Whether the ICRC of a datagram is right.
    pub(crate) fn verify(&self, origin: &Origin, datagram: &[u8]) -> Verified {
        match &self.inbound {
            Some((known, flow))
                if *known == origin.source && flow.verify(datagram, origin.ip_id).is_good() =>
            {
                Verified::Good
            }
            _ => self.verify_anew(origin, datagram),
        }
    }

    /// The same for what does not come the usual way: from another port, or to another, as what is
    /// passed on does.
    #[cold]
    fn verify_anew(&self, origin: &Origin, datagram: &[u8]) -> Verified {
        if self.peer == Peer::OurKind && !self.is_from_derived_port(origin) {
            return Verified::Foreign;
        }
        if origin.has_good_icrc(datagram) {
            Verified::News
        } else {
            Verified::Bad
        }
    }

    /// Takes a source address for the peer's: what came from there could only come from the peer.
    /// That its IP address and its queue pair's number are right does not say so, as any stranger
    /// may forge the one and guess the other.
    ///
    /// That the peer is urxe, which the port says, replaces any other belief, and is final: what
    /// made it seem another device was forged.
    #[cold]
    pub(crate) fn believe(&mut self, origin: &Origin) {
        self.inbound = origin.flow().map(|flow| (origin.source, flow));
        if self.is_from_derived_port(origin) {
            self.peer = Peer::OurKind;
            self.set_udp_port(self.derived);
        } else if self.peer == Peer::Unheard {
            if origin.source.port() == self.derived {
                // Passed on by a process that says that the peer is urxe: until the peer itself is
                // heard, that is where to answer.
                self.set_udp_port(self.derived);
            } else {
                self.peer = Peer::Stranger;
                self.set_udp_port(ROCE_UDP_PORT);
            }
        }
    }

    /// The peer is silent. If it was never heard, its number may not tell the port: hardware and
    /// Linux rxe choose their numbers freely and listen on 4791. Tries that and the derived port in
    /// turns.
    pub(crate) fn handle_silence(&mut self) {
        if self.peer != Peer::Unheard {
            return;
        }
        let other = if self.destination.address().port() == self.derived {
            ROCE_UDP_PORT
        } else {
            self.derived
        };
        self.set_udp_port(other);
    }

    fn set_udp_port(&mut self, udp_port: u16) {
        let mut peer = self.destination.address();
        peer.set_port(udp_port);
        self.destination = Destination::new(peer);
        if let Some(flow) = flow(self.is_v1, self.local, peer) {
            self.flow = flow;
        }
    }
}
