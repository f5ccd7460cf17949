//! Which way a frame takes: to a neighbour on the interface's network, at the link address that the
//! kernel knows, or, for an address of the host itself, by the loopback interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;

use libc::CLOCK_MONOTONIC_COARSE;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::clock::now_ns;
use crate::frames::neighbours::ethernet_address;
use crate::interfaces::{Interface, InterfaceAddress, interfaces};
use crate::netlink::Netlink;

/// A link address is asked for again after this long, nanoseconds.
const KNOWN_NS: u64 = 1_000_000_000;
/// One that the kernel does not have yet, sooner.
const UNKNOWN_NS: u64 = 10_000_000;
/// Neighbours remembered.
const NEIGHBOURS_MAX: usize = 256;
/// Where the datagram goes that makes the kernel look for a neighbour: "discard" (RFC 863).
const DISCARD_PORT: u16 = 9;
/// Link addresses of the loopback interface.
const NOWHERE: [u8; 6] = [0; 6];

/// Why frames cannot go to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// It is on none of the interface's networks: only a router could pass packets on.
    OffLink,
    /// No host on the link has it, or that host does not answer.
    NoAnswer,
}

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) ifindex: u32,
    pub(super) from_mac: [u8; 6],
    pub(super) to_mac: [u8; 6],
}

#[derive(Debug)]
struct Neighbour {
    ip: IpAddr,
    mac: Option<[u8; 6]>,
    until_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Hops {
    local: SocketAddr,
    interface: Interface,
    /// The loopback interface's index, where the host has one.
    loopback: Option<u32>,
    neighbours: Vec<Neighbour>,
}

impl Hops {
    /// Those from `local`, an address of the interface `ifindex`.
    pub(super) fn look(local: SocketAddr, ifindex: u32) -> io::Result<Self> {
        let mut all = interfaces()?;
        let loopback = all.iter().find(|one| one.loopback).map(|one| one.index);
        let at = all.iter().position(|one| one.index == ifindex);
        let interface = at.map(|at| all.swap_remove(at)).filter(|interface| {
            interface.mac.is_some() && interface.addresses.iter().any(|a| a.ip == local.ip())
        });
        Ok(Self {
            local,
            interface: interface
                .ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))?,
            loopback,
            neighbours: Vec::new(),
        })
    }

    pub(super) fn ifindex(&self) -> u32 {
        self.interface.index
    }

    /// Whether a frame that came by an interface, and says that it is from `source`, may be: the
    /// host's own addresses are on none of its links.
    pub(super) fn may_come(&self, ifindex: u32, source: IpAddr) -> bool {
        if Some(ifindex) == self.loopback {
            return self.is_own(source);
        }
        ifindex == self.interface.index && !self.is_own(source) && self.is_on_link(source)
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        let addresses = &self.interface.addresses;
        addresses.iter().any(|address| address.ip == ip)
            || self.interface.loopback && self.is_on_link(ip)
    }

    fn is_on_link(&self, ip: IpAddr) -> bool {
        self.interface
            .addresses
            .iter()
            .any(|address| has(address, ip))
    }

    /// The way to an address, as far as the kernel knows it.
    pub(super) fn find(&mut self, to: IpAddr) -> Result<Hop, Unreachable> {
        if self.is_own(to) {
            return Ok(Hop {
                ifindex: self.loopback.ok_or(Unreachable::NoAnswer)?,
                from_mac: NOWHERE,
                to_mac: NOWHERE,
            });
        }
        let now = now_ns(CLOCK_MONOTONIC_COARSE);
        let at = self.neighbours.iter().position(|known| known.ip == to);
        let known = at.filter(|&at| now < self.neighbours[at].until_ns);
        let mac = match known {
            Some(at) => self.neighbours[at].mac,
            None => self.ask_kernel(to, at, now)?,
        };
        Ok(Hop {
            ifindex: self.interface.index,
            from_mac: self.interface.mac.unwrap_or_default(),
            to_mac: mac.ok_or(Unreachable::NoAnswer)?,
        })
    }

    #[cold]
    fn ask_kernel(
        &mut self,
        to: IpAddr,
        at: Option<usize>,
        now: u64,
    ) -> Result<Option<[u8; 6]>, Unreachable> {
        if !self.is_on_link(to) {
            return Err(Unreachable::OffLink);
        }
        let mac = self.link_address(to);
        if mac.is_none() {
            // Best effort: without it there is no answer either.
            let _ = self.provoke(to);
        }
        if at.is_none() && self.neighbours.len() == NEIGHBOURS_MAX {
            self.neighbours.clear();
        }
        let neighbour = Neighbour {
            ip: to,
            mac,
            until_ns: now + mac.map_or(UNKNOWN_NS, |_| KNOWN_NS),
        };
        match at {
            Some(at) => self.neighbours[at] = neighbour,
            None => self.neighbours.push(neighbour),
        }
        Ok(mac)
    }

    fn link_address(&self, of: IpAddr) -> Option<[u8; 6]> {
        match of {
            IpAddr::V4(ip) => {
                let questions = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
                ethernet_address(questions.as_fd(), &self.interface.name, ip)
            }
            IpAddr::V6(_) => self.link_address6(of).ok().flatten(),
        }
    }

    /// By rtnetlink(7): there is no other question about one of IPv6.
    fn link_address6(&self, of: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let mut question = NeighbourMessage::default();
        question.header.family = AddressFamily::Inet6;
        let mut found = None;
        Netlink::open()?.dump(RouteNetlinkMessage::GetNeighbour(question), |row| {
            let RouteNetlinkMessage::NewNeighbour(row) = row else {
                return;
            };
            let is_it = row.attributes.iter().any(|attribute| {
                let NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) = attribute else {
                    return false;
                };
                IpAddr::V6(*ip) == of
            });
            let is_valid = !matches!(
                row.header.state,
                NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
            );
            if row.header.ifindex == self.interface.index && is_it && is_valid {
                found = row.attributes.iter().find_map(|attribute| match attribute {
                    NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
                    _ => None,
                });
            }
        })?;
        Ok(found)
    }

    /// Makes the kernel look for a neighbour, as it does for any datagram to one: this is empty.
    fn provoke(&self, to: IpAddr) -> io::Result<()> {
        let with_port = |ip: IpAddr, port| match ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, self.interface.index).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let socket = UdpSocket::bind(with_port(self.local.ip(), 0))?;
        socket.set_nonblocking(true)?;
        socket.send_to(&[], with_port(to, DISCARD_PORT))?;
        Ok(())
    }
}

/// Whether an address is of the same network.
fn has(network: &InterfaceAddress, ip: IpAddr) -> bool {
    let (ours, theirs, width) = match (network.ip, ip) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            (ours.to_bits().into(), theirs.to_bits().into(), 32)
        }
        (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
        _ => return false,
    };
    let host_bits = width - u32::from(network.prefix_bits).min(width);
    let different: u128 = ours ^ theirs;
    different.checked_shr(host_bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(addresses: &[(&str, u8)], is_loopback: bool) -> Hops {
        let mut all = interfaces().unwrap();
        let mut interface = all.swap_remove(0);
        interface.index = 7;
        interface.loopback = is_loopback;
        let template = InterfaceAddress {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            prefix_bits: 8,
            scope_id: 0,
            tentative: false,
            duplicate: false,
            secondary: false,
            deprecated: false,
        };
        interface.addresses = addresses
            .iter()
            .map(|(ip, prefix_bits)| InterfaceAddress {
                ip: ip.parse().unwrap(),
                prefix_bits: *prefix_bits,
                ..template
            })
            .collect();
        let local = SocketAddr::new(interface.addresses[0].ip, 4791);
        Hops {
            local,
            interface,
            loopback: Some(1),
            neighbours: Vec::new(),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_on_no_network_of_the_interface_is_off_link() {
        let mut hops = hops(&[("10.9.0.1", 24), ("2001:db8::1", 64)], false);
        for far in ["10.9.1.2", "2001:db8:1::2", "fe80::2", "0.0.0.0"] {
            assert_eq!(hops.find(ip(far)), Err(Unreachable::OffLink), "{far}");
        }
        for near in ["10.9.0.200", "2001:db8::ffff"] {
            assert!(hops.is_on_link(ip(near)), "{near}");
        }
    }

    #[test]
    fn the_hosts_own_addresses_are_behind_the_loopback_interface() {
        let mut hops = hops(&[("10.9.0.1", 24), ("10.9.0.7", 24)], false);
        for own in ["10.9.0.1", "10.9.0.7"] {
            let hop = hops.find(ip(own)).unwrap();
            assert_eq!((hop.ifindex, hop.to_mac), (1, NOWHERE));
            assert!(hops.may_come(1, ip(own)) && !hops.may_come(7, ip(own)));
        }
        assert!(hops.may_come(7, ip("10.9.0.2")));
        for (ifindex, source) in [(1, "10.9.0.2"), (8, "10.9.0.2"), (7, "10.9.1.2")] {
            assert!(!hops.may_come(ifindex, ip(source)), "{ifindex} {source}");
        }
    }

    #[test]
    fn all_of_a_loopback_interfaces_network_is_the_host() {
        let mut hops = hops(&[("127.0.0.1", 8)], true);
        assert_eq!(hops.find(ip("127.0.0.2")).unwrap().ifindex, 1);
    }
}
