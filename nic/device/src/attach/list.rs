//! The devices of this host: one per network interface that has an address.

use std::io;

use urxe_udp::{Interface, InterfaceAddress, interfaces};
use urxe_wire::{Gid, Mtu};

use crate::attach::gid_entry::{GidEntry, GidType};
use crate::attach::kind::DeviceKind;
use crate::attach::{gid_table, roce_v1};

/// Prefix of every device's name.
const NAME_PREFIX: &str = "urxe_";

/// A device, as it is before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `urxe_` and the interface's name.
    pub name: String,
    /// What it speaks.
    pub kind: DeviceKind,
    /// The network interface.
    pub netdev: String,
    /// Its index.
    pub ifindex: u32,
    /// Its MTU, bytes.
    pub netdev_mtu_bytes: u32,
    /// Its other end is on this host ([`Interface::within_host`]).
    pub within_host: bool,
    /// Whether it can carry packets now.
    pub is_up: bool,
    /// Its MAC address, where it has one.
    pub mac: Option<[u8; 6]>,
    /// Node GUID, in network byte order.
    pub guid: [u8; 8],
    /// GID table: IPv4 addresses first, then IPv6, each in the interface's order, and later ones
    /// behind them or in empty places ([`GidEntry::is_used`]). The same for every caller in this
    /// process. Where the process has RoCE v1 ([`crate::ROCE_V1_VARIABLE`]), the same again
    /// [`crate::ROCE_V1_DISTANCE`] places behind.
    pub gids: Vec<GidEntry>,
}

impl DeviceInfo {
    /// The largest path MTU that the interface takes.
    #[must_use]
    pub fn active_mtu(&self) -> Mtu {
        Mtu::for_link(self.netdev_mtu_bytes).unwrap_or(Mtu::B256)
    }

    /// The device of an interface, if it can be used.
    fn usable(interface: &Interface) -> Option<Self> {
        let addresses = addresses(interface);
        if addresses.is_empty() || !interface.up || Mtu::for_link(interface.mtu_bytes).is_none() {
            return None;
        }
        Some(Self::of(interface, &addresses))
    }

    fn of(interface: &Interface, addresses: &[GidEntry]) -> Self {
        let has_v1 = interface.mac.is_some() && roce_v1::is_on();
        let gids = gid_table::follow(interface.index, addresses, has_v1);
        let first = gids.iter().find(|entry| entry.is_used());
        Self {
            name: format!("{NAME_PREFIX}{}", interface.name),
            // An environment that cannot be understood is refused where a device is opened.
            kind: DeviceKind::of_process().unwrap_or_default(),
            netdev: interface.name.clone(),
            ifindex: interface.index,
            netdev_mtu_bytes: interface.mtu_bytes,
            within_host: interface.within_host,
            is_up: interface.up && interface.carrier,
            mac: interface.mac,
            guid: guid(interface, first.map_or(Gid([0; 16]), |entry| entry.gid)),
            gids,
        }
    }
}

/// The addresses of an interface that can be used.
fn addresses(interface: &Interface) -> Vec<GidEntry> {
    let usable = |a: &&InterfaceAddress| !a.tentative && !a.duplicate;
    let mut entries: Vec<GidEntry> = interface
        .addresses
        .iter()
        .filter(usable)
        .map(|a| GidEntry {
            gid: Gid::from(a.ip),
            scope_id: a.scope_id,
            kind: GidType::RoceV2,
        })
        .collect();
    entries.sort_by_key(|entry| entry.gid.to_ip().is_ipv6());
    entries
}

/// An EUI-64 of the interface's MAC address (RFC 4291, appendix A); without a MAC, of its address.
fn guid(interface: &Interface, first: Gid) -> [u8; 8] {
    match interface.mac {
        Some([a, b, c, d, e, f]) if interface.mac != Some([0; 6]) => {
            [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
        }
        _ => {
            let mut low = [0; 8];
            low.copy_from_slice(&first.0[8..]);
            low[0] |= 2;
            low
        }
    }
}

/// All devices, by interface index.
///
/// # Errors
/// When the interfaces cannot be listed.
pub fn list() -> io::Result<Vec<DeviceInfo>> {
    Ok(interfaces()?
        .iter()
        .filter_map(DeviceInfo::usable)
        .collect())
}

/// What the device of the interface `ifindex` is now, whether or not it can be used; `None` when
/// the interface is gone.
pub(crate) fn current(ifindex: u32) -> io::Result<Option<DeviceInfo>> {
    let interfaces = interfaces()?;
    let interface = interfaces
        .iter()
        .find(|interface| interface.index == ifindex);
    Ok(interface.map(|interface| DeviceInfo::of(interface, &addresses(interface))))
}
