//! Where management datagrams of a device go out and come in: the sockets of a slot.
//!
//! They are the same sockets that an opened device of the process uses for its queue pairs, so that a
//! peer finds both on one port. Whoever comes first binds them: if a program listens before it has queue
//! pairs, the device that it opens later takes them over ([`Door::adopt`]), and reads them as long as it
//! is open.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Weak};

use urxe_cm::{MAD_LEN, Transmit};
use urxe_udp::{Destination, Piece, Socket, Transmit as UdpTransmit};
use urxe_wire::{Gid, ROCE_UDP_PORT};

use super::{gsi, relay};
use crate::error::Error;
use crate::exit;
use crate::list::{DeviceInfo, GidEntry, socket_address};
use crate::nic::Nic;
use crate::port::{Port, Ports};

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) info: DeviceInfo,
    /// What its communication IDs begin with.
    pub(super) slot: u16,
    sockets: Vec<Arc<Socket>>,
    /// The opened device that reads the sockets.
    reader: Weak<Nic>,
    /// Where the holder of port 4791 passes on what is for this slot.
    pub(super) relay: Option<UnixDatagram>,
    /// Port 4791, taken over from a process that ended. Sockets to receive from only.
    pub(super) front: Option<Front>,
    psn: u32,
}

/// See [`Door::front`].
#[derive(Debug)]
pub(super) struct Front {
    pub(super) sockets: Vec<Arc<Socket>>,
    /// Passes on from here.
    pub(super) relay: Option<UnixDatagram>,
}

fn bound(ports: &Ports) -> Vec<Arc<Socket>> {
    ports
        .ports
        .iter()
        .filter_map(|port| port.socket.clone())
        .collect()
}

impl Door {
    /// Opens the door of a device: with the sockets of one that the process has opened, if there is one.
    ///
    /// # Errors
    /// When no slot is free, or the device has lost its addresses.
    pub(super) fn open(info: &DeviceInfo) -> Result<Self, Error> {
        let opened = exit::opened().into_iter().find_map(|nic| {
            let sockets = nic.sockets()?.to_vec();
            let is_it = nic.info().ifindex == info.ifindex && !nic.is_closed();
            is_it.then(|| (Arc::downgrade(&nic), sockets))
        });
        let (reader, sockets) = match opened {
            Some(opened) => opened,
            None => (Weak::new(), bound(&Ports::open(&info.gids)?)),
        };
        let port = sockets
            .first()
            .map_or(ROCE_UDP_PORT, |socket| socket.local_address().port());
        let slot = port.wrapping_sub(ROCE_UDP_PORT);
        Ok(Self {
            info: info.clone(),
            slot,
            sockets,
            reader,
            relay: relay::bind_process(info.ifindex, slot).ok(),
            front: None,
            psn: 0,
        })
    }

    /// The sockets, for a device that the process opens now, which will read them.
    pub(super) fn adopt(&mut self, nic: &Arc<Nic>, gids: &[GidEntry]) -> Option<Ports> {
        if self.has_reader() || self.info.gids != gids {
            return None;
        }
        self.reader = Arc::downgrade(nic);
        let socket_of = |entry: &GidEntry| self.socket(entry.gid).cloned();
        let ports = gids
            .iter()
            .map(|entry| Port {
                socket: socket_of(entry),
                users: 0,
            })
            .collect();
        Some(Ports {
            slot: self.slot,
            ports,
        })
    }

    /// Whether an opened device reads the sockets.
    pub(super) fn has_reader(&self) -> bool {
        self.reader.upgrade().is_some_and(|nic| !nic.is_closed())
    }

    /// The sockets that nobody else reads.
    pub(super) fn unread(&self) -> impl Iterator<Item = &Arc<Socket>> {
        let own = if self.has_reader() {
            &[][..]
        } else {
            &self.sockets
        };
        let front = self.front.as_ref().map_or(&[][..], |front| &front.sockets);
        own.iter().chain(front)
    }

    /// Whether port 4791 is this process's.
    pub(super) fn is_holder(&self) -> bool {
        self.slot == 0 || self.front.is_some()
    }

    /// Where to pass on from.
    pub(super) fn holder_relay(&self) -> Option<&UnixDatagram> {
        match &self.front {
            Some(front) => front.relay.as_ref(),
            None => self.relay.as_ref().filter(|_| self.slot == 0),
        }
    }

    /// Takes port 4791 over if it is free.
    pub(super) fn try_to_hold(&mut self) {
        if !self.is_holder()
            && let Ok(Some(ports)) = crate::port::bind_all(&self.info.gids, ROCE_UDP_PORT)
        {
            let sockets = ports
                .iter()
                .filter_map(|port| port.socket.clone())
                .collect();
            let relay = relay::bind_process(self.info.ifindex, 0).ok();
            self.front = Some(Front { sockets, relay });
        }
    }

    fn socket(&self, local: Gid) -> Option<&Arc<Socket>> {
        let ip = local.to_ip();
        self.sockets
            .iter()
            .find(|socket| socket.local_address().ip() == ip)
    }

    /// Sends a datagram. What cannot be sent is lost: it will be repeated.
    pub(super) fn send(&mut self, transmit: &Transmit) {
        let path = &transmit.path;
        let to = socket_address(path.remote, self.info.ifindex, path.port);
        let Some(socket) = self.socket(path.local) else {
            return;
        };
        let destination = Destination::new(to);
        let from = socket.local_address();
        let mad: &[u8; MAD_LEN] = &transmit.mad;
        if let Some(packet) = gsi::packet(from, destination.address(), self.psn, mad) {
            let transmit = UdpTransmit {
                destination: &destination,
                segment_size: None,
                tos: 0,
                iov: &[Piece::new(&packet)],
            };
            let _ = socket.send(&transmit);
            self.psn = self.psn.wrapping_add(1);
        }
    }
}

/// Where a peer that sends from `source` wants its answers: to that port, if it is one of a slot, else
/// (Linux and hardware choose their source ports freely, and from 49152 up) to the well-known one.
pub(super) fn reply_port(source: SocketAddr) -> u16 {
    let port = source.port();
    if (ROCE_UDP_PORT..ROCE_UDP_PORT + crate::port::SLOTS).contains(&port) {
        port
    } else {
        ROCE_UDP_PORT
    }
}
