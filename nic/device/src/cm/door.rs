//! Where management datagrams of a device go out and come in: an opened device of the process, so
//! that a peer finds its queue pairs and its management on one port.
//!
//! The program or management opens the device, whichever comes first. If the program has, that one
//! is used. If management is first (a program listens before it has queue pairs), the program gets
//! management's when it opens the device ([`Door::claim`]). When the program closes it, management
//! keeps it.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use urxe_cm::{MAD_LEN, Path, Transmit};
use urxe_udp::{Destination, Framing, Piece, Private, Socket, Transmit as UdpTransmit};
use urxe_wire::{Gid, ROCE_UDP_PORT};

use super::id::Bound;
use super::{gsi, relay};
use crate::attach::gid_entry::GidEntry;
use crate::attach::gid_entry::socket_address;
use crate::attach::list::{DeviceInfo, current};
use crate::engine::port::{Kind, bind_all};
use crate::nic::Nic;
use crate::process::error::Error;

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    nic: Arc<Nic>,
    info: Arc<DeviceInfo>,
    /// The program uses the device, too.
    is_claimed: bool,
    /// What its communication IDs begin with.
    pub(super) slot: u16,
    /// Where the holder of port 4791 passes on what is for this slot.
    pub(super) relay: Option<Private<UnixDatagram>>,
    /// Port 4791, taken over from a process that ended. Sockets to receive from only.
    front: Option<Front>,
    psn: u32,
}

/// See [`Door::front`].
#[derive(Debug)]
struct Front {
    sockets: Vec<Arc<Socket>>,
    /// Passes on from here.
    relay: Option<Private<UnixDatagram>>,
}

impl Door {
    /// Opens the door of a device.
    ///
    /// # Errors
    /// When no slot is free, or the device has lost its addresses.
    pub(super) fn open(info: &DeviceInfo) -> Result<Self, Error> {
        let (nic, is_claimed) = match opened(info.ifindex) {
            Some(nic) => (nic, true),
            None => (Nic::open_unshared(info)?, false),
        };
        if nic.sockets().is_empty() {
            nic.start()?;
        }
        Ok(Self::of(nic, is_claimed))
    }

    /// The door of a device that the process has open.
    pub(super) fn attach(link: u32) -> Option<Self> {
        opened(link)
            .filter(|nic| !nic.sockets().is_empty())
            .map(|nic| Self::of(nic, true))
    }

    fn of(nic: Arc<Nic>, is_claimed: bool) -> Self {
        let slot = nic.sockets().first().map_or(0, |socket| {
            socket.local_address().port().wrapping_sub(ROCE_UDP_PORT)
        });
        Self {
            relay: relay::bind_process(nic.info().ifindex, slot).ok(),
            info: Arc::new(nic.info().clone()),
            nic,
            is_claimed,
            slot,
            front: None,
            psn: 0,
        }
    }

    /// The number of its network interface.
    pub(super) fn link(&self) -> u32 {
        self.nic.info().ifindex
    }

    /// The device as of one of its addresses; `None` if it has lost that.
    pub(super) fn bound_to(&self, local: Gid) -> Option<Bound> {
        let gids = self.nic.gids();
        let index = gids
            .iter()
            .position(|entry| entry.is_v2() && entry.gid == local)?;
        Some(Bound::new(&self.info, u8::try_from(index).ok()?))
    }

    /// The device, for a program that opens it, unless another one has it.
    pub(super) fn claim(&mut self, info: &DeviceInfo) -> Option<Arc<Nic>> {
        if self.is_claimed || self.nic.info().name != info.name {
            return None;
        }
        self.is_claimed = true;
        Some(Arc::clone(&self.nic))
    }

    /// The program is done with `nic`: whether that is the one of this door, which goes on.
    pub(super) fn take_back(&mut self, nic: &Nic) -> bool {
        let is_it = std::ptr::eq(Arc::as_ptr(&self.nic), nic);
        if is_it {
            self.is_claimed = false;
        }
        is_it
    }

    /// Sockets of port 4791 that was taken over, which nothing else reads.
    pub(super) fn front_sockets(&self) -> &[Arc<Socket>] {
        self.front.as_ref().map_or(&[], |front| &front.sockets)
    }

    /// Whether port 4791 is this process's.
    pub(super) fn is_holder(&self) -> bool {
        self.slot == 0 || self.front.is_some()
    }

    /// Where to pass on from.
    pub(super) fn holder_relay(&self) -> Option<&UnixDatagram> {
        let relay = match &self.front {
            Some(front) => front.relay.as_ref(),
            None => self.relay.as_ref().filter(|_| self.slot == 0),
        };
        relay.map(|relay| &**relay)
    }

    /// Takes port 4791 over if it is free.
    pub(super) fn try_to_hold(&mut self) {
        if self.is_holder() {
            return;
        }
        // Not the device's addresses: it may be about to learn of the change that brought us here,
        // and nothing would bring us here again.
        let Ok(Some(DeviceInfo { mut gids, .. })) = current(self.link()) else {
            return;
        };
        gids.retain(GidEntry::is_v2);
        let taps = self.nic.taps();
        let kind = Kind {
            ifindex: self.link(),
            has_frames: false,
            held_bytes: 0,
        };
        if let Ok(Some(ports)) = bind_all(&gids, kind, taps, ROCE_UDP_PORT) {
            let sockets = ports.into_iter().filter_map(|port| port.socket).collect();
            let relay = relay::bind_process(self.link(), 0).ok();
            self.front = Some(Front { sockets, relay });
        }
    }

    /// Lets go of port 4791 that was taken over, if the addresses are others now: to be taken over
    /// again on them. Returns whether it did.
    pub(super) fn follow(&mut self, gids: &[GidEntry]) -> bool {
        let Some(front) = &self.front else {
            return false;
        };
        let bound = front
            .sockets
            .iter()
            .map(|socket| socket.local_address().ip());
        let addresses = gids.iter().filter(|entry| entry.is_v2());
        let is_outdated = !bound.eq(addresses.map(|entry| entry.gid.to_ip()));
        if is_outdated {
            self.front = None;
        }
        is_outdated
    }

    /// The device is gone. A program that has it open still closes it.
    pub(super) fn end(self) {
        if !self.is_claimed {
            self.nic.progress().stop();
        }
    }

    /// Sends a datagram. What cannot be sent is lost: it will be repeated.
    pub(super) fn send(&mut self, transmit: &Transmit) {
        let path = &transmit.path;
        let to = socket_address(path.remote, self.link(), path.port);
        let sockets = self.nic.sockets();
        let Some(socket) = socket_of(&sockets, path.local) else {
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
                framing: Framing::Never,
                whole: None,
                iov: &[Piece::new(&packet)],
            };
            let _ = socket.send(&transmit);
            self.psn = self.psn.wrapping_add(1);
        }
    }
}

/// A device that the process has open on an interface; if it has several, one that has its ports.
fn opened(link: u32) -> Option<Arc<Nic>> {
    crate::nic::opened::opened()
        .into_iter()
        .filter(|nic| nic.info().ifindex == link && !nic.is_closed())
        .max_by_key(|nic| !nic.sockets().is_empty())
}

fn socket_of(sockets: &[Arc<Socket>], local: Gid) -> Option<&Arc<Socket>> {
    let ip = local.to_ip();
    sockets
        .iter()
        .find(|socket| !socket.has_frames_only() && socket.local_address().ip() == ip)
}

/// Where a peer that sends from `source` wants its answers: to that port, if it is one of a slot,
/// else (Linux and hardware choose their source ports freely, and from 49152 up) to the well-known
/// one.
fn reply_port(source: SocketAddr) -> u16 {
    let port = source.port();
    if (ROCE_UDP_PORT..ROCE_UDP_PORT + crate::engine::port::SLOTS).contains(&port) {
        port
    } else {
        ROCE_UDP_PORT
    }
}

/// The way back to where a datagram came from.
pub(super) fn path(link: u32, local: SocketAddr, source: SocketAddr) -> Path {
    Path {
        link,
        local: Gid::from(local.ip()),
        remote: Gid::from(source.ip()),
        port: reply_port(source),
        from: Some(source.port()),
    }
}
