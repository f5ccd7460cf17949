//! The network interfaces of the process's network namespace and their addresses, by rtnetlink(7).
//!
//! An ordinary user may ask. Neither /sys/class/net nor /proc/net is read: mounted in another
//! network namespace, they show that one's.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};

use crate::netlink::Netlink;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// The kernel's number for it, and the scope of its IPv6 link-local addresses.
    pub index: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The largest IP packet that it takes.
    pub mtu_bytes: u32,
    /// The Ethernet address, if it has one (all zero for loopback).
    pub mac: Option<[u8; 6]>,
    /// Switched on (IFF_UP of linux/if.h).
    pub up: bool,
    /// The link has a carrier (IFF_LOWER_UP). IFF_RUNNING says so up to a second later, when
    /// packets long pass.
    pub carrier: bool,
    /// Reaches this host only (IFF_LOOPBACK).
    pub loopback: bool,
    /// Its other end is on this host: loopback, or one end of a veth pair.
    pub within_host: bool,
    /// The link's state as RFC 2863 sees it, in words: "up", "down", "lower layer down", "unknown"
    /// (drivers that do not tell), ...
    pub link_state: &'static str,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Length of its network's prefix in bits.
    pub prefix_bits: u8,
    /// What bind wants for it: the interface's index for an IPv6 link-local address, otherwise 0.
    pub scope_id: u32,
    /// Duplicate address detection (RFC 4862) has not finished: bind fails with EADDRNOTAVAIL.
    pub tentative: bool,
    /// Duplicate address detection found another owner: it will never be usable.
    pub duplicate: bool,
    /// An additional address of a network of which the interface has one already (IPv4), or a
    /// temporary address (IPv6, RFC 8981).
    pub secondary: bool,
    /// Still works, but new connections should use another one (RFC 4862).
    pub deprecated: bool,
}

impl InterfaceAddress {
    /// The address with a port and its scope, as [`Socket::bind`](crate::Socket::bind) wants it.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => SocketAddr::from((ip, port)),
            IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, self.scope_id)),
        }
    }
}

/// All interfaces, by index.
///
/// # Errors
///
/// Those of socket(2), and what the kernel answers: EPERM or EACCES where a sandbox forbids
/// netlink.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let netlink = Netlink::open()?;
    let mut interfaces = Vec::new();
    netlink.dump(
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
        |message| {
            if let RouteNetlinkMessage::NewLink(link) = message {
                interfaces.push(interface(&link));
            }
        },
    )?;
    let mut addresses = Vec::new();
    netlink.dump(
        RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        |message| {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                addresses.push(address);
            }
        },
    )?;
    interfaces.sort_by_key(|interface| interface.index);
    interfaces.dedup_by_key(|interface| interface.index);
    for message in addresses {
        // An address of an interface that came after the first dump is left out, like the
        // interface.
        if let Some(interface) = interfaces
            .iter_mut()
            .find(|interface| interface.index == message.header.index)
            && let Some(address) = address(&message)
            && !interface.addresses.contains(&address)
        {
            interface.addresses.push(address);
        }
    }
    Ok(interfaces)
}

fn interface(link: &LinkMessage) -> Interface {
    let flags = link.header.flags;
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        mtu_bytes: 0,
        mac: None,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback),
        within_host: flags.contains(LinkFlags::Loopback),
        link_state: "unknown",
        addresses: Vec::new(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu_bytes = *mtu,
            LinkAttribute::Address(bytes) => interface.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::OperState(state) => interface.link_state = state_in_words(*state),
            LinkAttribute::LinkInfo(infos) => {
                interface.within_host |= infos.contains(&LinkInfo::Kind(InfoKind::Veth));
            }
            _ => {}
        }
    }
    interface
}

fn state_in_words(state: State) -> &'static str {
    match state {
        State::Up => "up",
        State::Down => "down",
        State::LowerLayerDown => "lower layer down",
        State::NotPresent => "not present",
        State::Testing => "testing",
        State::Dormant => "dormant",
        _ => "unknown",
    }
}

fn address(message: &AddressMessage) -> Option<InterfaceAddress> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // linux/if_addr.h: on a point-to-point link IFA_ADDRESS is the other end, and IFA_LOCAL
            // ours.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let ip = local.or(peer)?;
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Some(InterfaceAddress {
        ip,
        prefix_bits: message.header.prefix_len,
        scope_id: if link_local { message.header.index } else { 0 },
        tentative: flags.contains(AddressFlags::Tentative)
            && !flags.contains(AddressFlags::Optimistic),
        duplicate: flags.contains(AddressFlags::Dadfailed),
        secondary: flags.contains(AddressFlags::Secondary),
        deprecated: flags.contains(AddressFlags::Deprecated),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_there() {
        let interfaces = interfaces().unwrap();
        let loopback = interfaces
            .iter()
            .find(|interface| interface.loopback)
            .expect("a loopback device");
        assert_eq!(
            (loopback.index, loopback.name.as_str(), loopback.mac),
            (1, "lo", Some([0; 6]))
        );
        assert!(loopback.within_host);
        if loopback.up {
            let address = loopback
                .addresses
                .iter()
                .find(|address| address.ip == Ipv4Addr::LOCALHOST)
                .unwrap();
            assert_eq!(
                (address.prefix_bits, address.scope_id, address.tentative),
                (8, 0, false)
            );
            assert!(loopback.mtu_bytes >= 1500);
        }
    }

    #[test]
    fn a_link_local_address_carries_its_scope() {
        let ip = "fe80::1".parse().unwrap();
        let mut message = AddressMessage::default();
        message.header.index = 5;
        message.header.prefix_len = 64;
        message.attributes = vec![
            AddressAttribute::Address(ip),
            AddressAttribute::Flags(AddressFlags::Tentative | AddressFlags::Noprefixroute),
        ];
        let address = address(&message).unwrap();
        assert!(address.tentative && !address.secondary);
        assert_eq!(address.with_port(4791), "[fe80::1%5]:4791".parse().unwrap());
    }

    #[test]
    fn on_a_point_to_point_link_the_local_address_is_ours() {
        let mut message = AddressMessage::default();
        message.attributes = vec![
            AddressAttribute::Address("192.0.2.2".parse().unwrap()),
            AddressAttribute::Local("192.0.2.1".parse().unwrap()),
        ];
        assert_eq!(address(&message).unwrap().ip, IpAddr::from([192, 0, 2, 1]));
    }
}
