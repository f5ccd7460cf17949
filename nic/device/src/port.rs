//! The sockets of an opened device: one per GID, all on the UDP port of one slot.
//!
//! RoCEv2 has one port, 4791, but a host runs many processes. A process takes the first slot whose
//! port (4791 + slot) is free on all its addresses; `bind` is the allocation, so nothing is left behind
//! by a crash. A queue pair's number carries the slot, and so tells its peers the port.

use std::io;
use std::sync::Arc;

use urxe_udp::{Options, Socket};
use urxe_wire::{Qpn, ROCE_UDP_PORT};

use crate::error::Error;
use crate::list::GidEntry;
use crate::table::LOCAL_BITS;

/// Processes (more exactly: opened devices) per address.
pub(crate) const SLOTS: u16 = 1 << 10;

/// The UDP port on which a queue pair listens.
pub(crate) fn udp_port(number: Qpn) -> u16 {
    ROCE_UDP_PORT + u16::try_from(number.get() >> LOCAL_BITS).unwrap_or(0) % SLOTS
}

/// A socket and how many queue pairs use it.
#[derive(Debug)]
pub(crate) struct Port {
    /// None where the address could not be bound (it just went away).
    pub(crate) socket: Option<Arc<Socket>>,
    pub(crate) users: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) slot: u16,
    /// One per GID, in the order of the GID table.
    pub(crate) ports: Vec<Port>,
}

impl Ports {
    /// Binds the sockets.
    pub(crate) fn open(gids: &[GidEntry]) -> Result<Self, Error> {
        for slot in 0..SLOTS {
            if let Some(ports) = bind_all(gids, ROCE_UDP_PORT + slot)? {
                return Ok(Self { slot, ports });
            }
        }
        Err(Error::Exhausted("UDP port between 4791 and 5814"))
    }
}

/// Sockets for all addresses, or `None` if the port is taken on one of them.
pub(crate) fn bind_all(gids: &[GidEntry], port: u16) -> Result<Option<Vec<Port>>, Error> {
    let mut ports = Vec::with_capacity(gids.len());
    for entry in gids {
        let socket = match Socket::bind(entry.with_port(port), &Options::default()) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => None,
            Err(error) => return Err(error.into()),
        };
        ports.push(Port { socket, users: 0 });
    }
    if ports.iter().all(|port| port.socket.is_none()) {
        return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL).into());
    }
    Ok(Some(ports))
}
