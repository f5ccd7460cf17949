//! The sockets of an opened device: one per GID, all on the UDP port of one slot.
//!
//! RoCEv2 has one port, 4791, but a host runs many processes. A process takes the first slot whose
//! port (4791 + slot) is free on all its addresses; `bind` is the allocation, so nothing is left
//! behind by a crash. A queue pair's number carries the slot, and so tells its peers the port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use urxe_udp::{FrameKind, Options, Selector, Socket};
use urxe_wire::{Grh, Qpn, ROCE_UDP_PORT, ROCE_V1_ETHERTYPE};

use crate::attach::gid_entry::{GidEntry, GidType};
use crate::attach::list::DeviceInfo;
use crate::attach::tap::Taps;
use crate::process::cache::own_cache_bytes;
use crate::process::error::Error;

/// Bits of a queue pair number that count within a process; the others are its slot.
pub(crate) const LOCAL_BITS: u32 = 14;

/// Processes (more exactly: opened devices) per address.
pub(crate) const SLOTS: u16 = 1 << 10;

/// The UDP port on which a queue pair listens.
pub(crate) fn udp_port(number: Qpn) -> u16 {
    ROCE_UDP_PORT + u16::try_from(number.get() >> LOCAL_BITS).unwrap_or(0) % SLOTS
}

/// Rounds after the last packet during which a socket that datagram queue pairs hear on is read in
/// every one.
const LIVELY_ROUNDS: u64 = 4096;
/// Later it is read once in so many rounds: a read that finds nothing costs a few hundred
/// nanoseconds, and a device has a socket for each address, of which datagrams usually use one.
const ROUNDS_PER_LOOK: u64 = 8;

/// A socket and how many queue pairs use it.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// None where the address could not be bound (it just went away).
    pub(crate) socket: Option<Arc<Socket>>,
    /// Connected queue pairs.
    pub(crate) users: u32,
    /// The round that last brought something.
    heard_at: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) slot: u16,
    /// How they are made.
    kind: Kind,
    /// What packets carry in their ECN field.
    pub(crate) ecn: u8,
    /// One per GID, in the order of the GID table.
    pub(crate) ports: Vec<Port>,
    /// Queue pairs that use all of them.
    datagram_users: u32,
    /// Rounds of reading so far.
    round: u64,
}

/// How the sockets of an interface are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Index of the interface.
    pub(crate) ifindex: u32,
    /// Whether they may use frames.
    pub(crate) has_frames: bool,
    /// See [`Options::held_bytes`].
    pub(crate) held_bytes: usize,
}

impl Kind {
    /// Those of queue pairs.
    pub(crate) fn of(info: &DeviceInfo) -> Self {
        Self {
            ifindex: info.ifindex,
            has_frames: true,
            held_bytes: if info.within_host {
                own_cache_bytes()
            } else {
                0
            },
        }
    }

    fn options(&self, taps: &Taps) -> Options {
        Options {
            multicast_ifindex: Some(self.ifindex),
            tos: taps.congestion.ecn(),
            frames: self.has_frames && !taps.sockets_only,
            held_bytes: self.held_bytes,
            ..Options::default()
        }
    }
}

impl Kind {
    /// The socket of a GID for the slot of this UDP port.
    fn bind(&self, entry: &GidEntry, port: u16, taps: &Taps) -> io::Result<Socket> {
        let address = entry.with_port(port);
        taps.bind(&self.options(taps), |options| match entry.kind {
            GidType::RoceV2 => Socket::bind(address, options),
            GidType::RoceV1 => {
                let kind = FrameKind {
                    ether_type: ROCE_V1_ETHERTYPE,
                    next_header: Grh::NEXT_HEADER,
                    ifindex: self.ifindex,
                    selector: of_slot(port - ROCE_UDP_PORT),
                };
                Socket::bind_frames(address, &kind, options)
            }
        })
    }
}

/// Packets for the queue pairs of a slot: by the BTH's second word, whose lower 24 bits are the
/// number of the queue pair.
fn of_slot(slot: u16) -> Selector {
    Selector {
        offset_bytes: 4,
        mask: u32::from(SLOTS - 1) << LOCAL_BITS,
        value: u32::from(slot) << LOCAL_BITS,
    }
}

impl Ports {
    /// Those of an engine, none before it has sockets.
    pub(crate) fn of(sockets: Option<&Self>) -> &[Port] {
        sockets.map_or(&[], |sockets| &sockets.ports)
    }

    /// Binds sockets for addresses that are new, and closes those of addresses that are gone.
    pub(crate) fn follow(&mut self, gids: &[GidEntry], taps: &Taps) {
        let port = ROCE_UDP_PORT + self.slot;
        let missing = gids.len().saturating_sub(self.ports.len());
        self.ports.extend((0..missing).map(|_| Port::default()));
        for (index, at) in self.ports.iter_mut().enumerate() {
            let entry = gids.get(index).filter(|entry| entry.is_used());
            let wanted = entry.map(|entry| (entry.with_port(port), entry.kind));
            let bound = at.socket.as_ref().map(|socket| {
                let kind = if socket.has_frames_only() {
                    GidType::RoceV1
                } else {
                    GidType::RoceV2
                };
                (socket.local_address(), kind)
            });
            if wanted == bound {
                continue;
            }
            at.socket = entry.and_then(|entry| match self.kind.bind(entry, port, taps) {
                Ok(socket) => Some(Arc::new(socket)),
                Err(error) => {
                    log::warn!("cannot use {}: {error}", entry.with_port(port));
                    None
                }
            });
        }
    }

    /// Whether the GID at this index is one of RoCE v1.
    pub(crate) fn is_v1(&self, port: usize) -> bool {
        let socket = self.ports.get(port).and_then(|port| port.socket.as_ref());
        socket.is_some_and(|socket| socket.has_frames_only())
    }

    /// Index of the network interface.
    pub(crate) fn ifindex(&self) -> u32 {
        self.kind.ifindex
    }

    /// A queue pair that hears on all addresses comes (1) or goes (-1).
    pub(crate) fn count_datagram_user(&mut self, change: i32) {
        self.datagram_users = self.datagram_users.saturating_add_signed(change);
    }

    /// A round of reading begins.
    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Whether the socket at this index is to be read in this round.
    pub(crate) fn is_due(&self, port: usize) -> bool {
        let port = &self.ports[port];
        port.users > 0
            || self.datagram_users > 0
                && (self.round - port.heard_at < LIVELY_ROUNDS
                    || self.round.is_multiple_of(ROUNDS_PER_LOOK))
    }

    /// Whether the round that just ended, without a packet, was so quick that it does not count as
    /// one.
    pub(crate) fn was_quick(&self) -> bool {
        let mut used = self.ports.iter().filter(|port| port.users > 0).peekable();
        self.datagram_users == 0
            && used.peek().is_some()
            && used.all(|port| port.socket.as_ref().is_some_and(|socket| socket.is_quick()))
    }

    /// The socket at this index brought something.
    pub(crate) fn note_heard(&mut self, port: usize) {
        self.ports[port].heard_at = self.round;
    }

    /// The sockets.
    pub(crate) fn sockets(&self) -> Arc<[Arc<Socket>]> {
        self.ports
            .iter()
            .filter_map(|port| port.socket.clone())
            .collect()
    }

    /// Binds the sockets.
    pub(crate) fn open(gids: &[GidEntry], kind: Kind, taps: &Taps) -> Result<Self, Error> {
        for slot in 0..SLOTS {
            if let Some(ports) = bind_all(gids, kind, taps, ROCE_UDP_PORT + slot)? {
                return Ok(Self {
                    slot,
                    kind,
                    ecn: taps.congestion.ecn(),
                    ports,
                    datagram_users: 0,
                    round: 0,
                });
            }
        }
        Err(Error::Exhausted("UDP port between 4791 and 5814"))
    }

    /// The address of the socket at an index of the GID table.
    pub(crate) fn local_address(&self, port: usize) -> Result<SocketAddr, Error> {
        let wrong = || {
            let count = self.ports.len();
            Error::Invalid(format!("GID index {port}; this device has {count}, from 0"))
        };
        let gone = || Error::Invalid(format!("the address of GID index {port} is gone"));
        let socket = &self.ports.get(port).ok_or_else(wrong)?.socket;
        Ok(socket.as_ref().ok_or_else(gone)?.local_address())
    }
}

/// Sockets for all addresses, or `None` if the port is taken on one of them.
pub(crate) fn bind_all(
    gids: &[GidEntry],
    kind: Kind,
    taps: &Taps,
    port: u16,
) -> Result<Option<Vec<Port>>, Error> {
    let mut ports = Vec::with_capacity(gids.len());
    for entry in gids {
        if !entry.is_used() {
            ports.push(Port::default());
            continue;
        }
        let socket = match kind.bind(entry, port, taps) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => None,
            Err(error) => return Err(error.into()),
        };
        ports.push(Port {
            socket,
            ..Port::default()
        });
    }
    if ports.iter().all(|port| port.socket.is_none()) {
        return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL).into());
    }
    Ok(Some(ports))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_datagrams_alone_is_read_less_often_once_quiet() {
        let mut ports = Ports {
            slot: 0,
            kind: Kind {
                ifindex: 1,
                has_frames: false,
                held_bytes: 0,
            },
            ecn: 0,
            ports: vec![Port::default(), Port::default()],
            datagram_users: 0,
            round: 0,
        };
        ports.ports[1].users = 1;
        let reads = |ports: &mut Ports, rounds: u64| {
            let mut reads = [0, 0];
            for _ in 0..rounds {
                ports.begin_round();
                (0..2).for_each(|at| reads[at] += u64::from(ports.is_due(at)));
            }
            reads
        };
        assert_eq!(reads(&mut ports, 10), [0, 10], "nobody hears on the first");
        ports.count_datagram_user(1);
        reads(&mut ports, LIVELY_ROUNDS);
        assert_eq!(reads(&mut ports, 800), [100, 800]);
        ports.note_heard(0);
        assert_eq!(reads(&mut ports, 800), [800, 800]);
        ports.count_datagram_user(-1);
        assert_eq!(reads(&mut ports, 10), [0, 10]);
    }
}
