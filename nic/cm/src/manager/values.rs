//! What the manager takes and gives.

use alloc::boxed::Box;
use core::fmt;

use urxe_wire::{Gid, Mtu, Psn, Qpn};

use crate::bytes::MAD_LEN;
use crate::message::{Rej, Rep, Req, Rtu, Service, SidrRep, SidrReq};

/// Where datagrams go to and come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The network interface, by its number.
    pub link: u32,
    /// Our address.
    pub local: Gid,
    /// The peer's address.
    pub remote: Gid,
    /// The UDP port to which the peer wants its datagrams.
    pub port: u16,
    /// Of a datagram that came: the UDP port that it was sent from, if the operating system says
    /// so. `None` of one that another process of this host passed on, which any user's may be.
    pub from: Option<u16>,
}

impl Path {
    /// Where the peer is: ports change when another process of the peer's host takes the well-known
    /// one over.
    pub(super) const fn peer(&self) -> (u32, Gid) {
        (self.link, self.remote)
    }
}

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub path: Path,
    /// What.
    pub mad: Box<[u8; MAD_LEN]>,
}

/// What happened to an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer wants to connect.
    Request(Box<Req>),
    /// The peer said yes.
    Reply(Box<Rep>),
    /// The peer is ready: the connection stands. The private data is empty if the program said so
    /// ([`Manager::notify_established`](super::Manager::notify_established)).
    Ready(Box<[u8; Rtu::PRIVATE_LEN]>),
    /// The peer said no.
    Rejected(Box<Rej>),
    /// The peer did not answer.
    Unreachable,
    /// The connection is over. Whether the peer knows is not certain.
    Disconnected,
    /// Nothing of the connection is on its way any more.
    TimeWaitExit,
    /// A peer asks which queue pair serves.
    Resolve(Box<SidrReq>),
    /// The peer answered which queue pair serves, or that none does.
    Resolved(Box<SidrRep>),
}

/// A command does not fit the state of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// There is no exchange with this ID (any more).
    Unknown,
    /// It is not in a state for that.
    State,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such connection",
            Self::State => "the connection is not in a state for that",
        })
    }
}

impl core::error::Error for ConnectionError {}

/// What a queue pair of a connection has to be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its path.
    pub path: Path,
    /// Transport service.
    pub service: Service,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// First PSN to receive.
    pub rq_psn: Psn,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// READs and atomics to take from the peer.
    pub responder_resources: u8,
    /// READs and atomics to have outstanding at the peer.
    pub initiator_depth: u8,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry_count: u8,
    /// Local ACK timeout.
    pub ack_timeout: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

/// Tells the UDP port that the queue pair with a number sends from, if its device is one that has
/// no choice.
pub type PortOf = fn(Qpn) -> u16;
