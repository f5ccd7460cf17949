//! What a device and its port show: what the kernel shows for a RoCE device.
use std::sync::atomic::{AtomicBool, Ordering};

use urxe_device::{DeviceInfo, DeviceKind, GidEntry, GidType};

use super::content::{Content, Make, folder};
use super::node::Node;
use super::{counters, function};
use crate::elf;
use crate::errno::Errno;
use crate::kind;
use crate::query::link;
use crate::speed;

/// What a folder of a device of this kind holds, the names on the way to it.
pub(super) fn content(of_kind: DeviceKind, inside: &[&str]) -> Option<Content> {
    let (gids, pkeys) = kind::table_lengths(of_kind);
    let (gids, pkeys) = (usize::from(gids), usize::from(pkeys));
    Some(match inside {
        [] if is_of_mpich() => Content::Names(&DEVICE[1..]),
        [] => Content::Names(DEVICE),
        ["ports"] => Content::Names(&[("1", folder)]),
        ["ports", "1"] => Content::Names(PORT),
        ["ports", "1", "counters"] => Content::Counters(counters::STANDARD),
        ["ports", "1", "hw_counters"] => Content::Counters(counters::HARDWARE),
        ["ports", "1", "gids"] => Content::Numbers(gids, gid),
        ["ports", "1", "gid_attrs"] => Content::Names(&[("ndevs", folder), ("types", folder)]),
        ["ports", "1", "gid_attrs", "ndevs"] => Content::Numbers(gids, |info, index| {
            attribute(info, index, |_| info.netdev.clone())
        }),
        ["ports", "1", "gid_attrs", "types"] => Content::Numbers(gids, |info, index| {
            attribute(info, index, |entry| {
                let text = match entry.kind {
                    // As the kernel words it.
                    GidType::RoceV1 => "IB/RoCE v1",
                    GidType::RoceV2 => "RoCE v2",
                };
                text.to_owned()
            })
        }),
        ["ports", "1", "pkeys"] => Content::Numbers(pkeys, |_, _| Node::text("0xffff")),
        _ => return None,
    })
}

/// Whether the process is one of MPICH, which looks up the PCI function of a libfabric device in
/// hwloc and ends where hwloc has it not. PyPI's MPICH brings an hwloc that finds no PCI functions
/// at all, so that it ends with every adapter that has one. Without the link to it a device is to
/// libfabric what Linux rxe's is, on no bus.
fn is_of_mpich() -> bool {
    static IS: AtomicBool = AtomicBool::new(false);
    // It may be loaded at any time.
    if !IS.load(Ordering::Relaxed) && elf::next_definition(c"MPIR_Err_create_code").is_some() {
        IS.store(true, Ordering::Relaxed);
    }
    IS.load(Ordering::Relaxed)
}

/// The first is the link to the PCI function, see [`is_of_mpich`].
const DEVICE: &[(&str, Make)] = &[
    ("device", |info| {
        Node::Link(format!("../../../{}", function::of(info).address()))
    }),
    ("fw_ver", |_| Node::text(env!("CARGO_PKG_VERSION"))),
    ("node_desc", |info| {
        Node::line(format!("urxe on {}", info.netdev))
    }),
    ("node_guid", |info| Node::line(groups(&info.guid))),
    ("node_type", |info| Node::text(kind::names(info.kind).0)),
    ("parent", |info| Node::line(info.netdev.clone())),
    ("ports", folder),
    ("subsystem", |_| {
        Node::link("../../../../../class/infiniband")
    }),
    ("sys_image_guid", |info| Node::line(groups(&info.guid))),
    ("uevent", |info| Node::line(format!("NAME={}", info.name))),
];

const PORT: &[(&str, Make)] = &[
    ("cap_mask", |info| {
        Node::line(format!("{:#010x}", kind::port_flags(info.kind)))
    }),
    ("counters", folder),
    ("gid_attrs", folder),
    ("gids", folder),
    ("hw_counters", folder),
    ("lid", |info| {
        Node::line(format!("{:#x}", urxe_device::lid(&info.gids)))
    }),
    ("lid_mask_count", |_| Node::text("0")),
    ("link_layer", |_| Node::text("Ethernet")),
    ("phys_state", |info| {
        Node::text(if info.is_up {
            "5: LinkUp"
        } else {
            "3: Disabled"
        })
    }),
    ("pkeys", folder),
    ("rate", |info| Node::line(rate(&info.netdev))),
    ("sm_lid", |_| Node::text("0x0")),
    ("sm_sl", |_| Node::text("0")),
    ("state", |info| {
        Node::text(if info.is_up { "4: ACTIVE" } else { "1: DOWN" })
    }),
];

/// Bytes as sysfs writes GUIDs and GIDs.
fn groups(bytes: &[u8]) -> String {
    let groups = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}

fn entry(info: &DeviceInfo, index: usize) -> Option<GidEntry> {
    let gids = kind::gids(info, info.gids.clone().into());
    gids.get(index).copied().filter(GidEntry::is_used)
}

fn gid(info: &DeviceInfo, index: usize) -> Node {
    Node::line(groups(
        &entry(info, index).map_or([0; 16], |entry| entry.gid.0),
    ))
}

/// An attribute of an entry of the GID table. The kernel has none for an unused entry.
fn attribute(info: &DeviceInfo, index: usize, text: impl Fn(&GidEntry) -> String) -> Node {
    entry(info, index).map_or(Node::Mute(Errno::INVAL), |entry| Node::line(text(&entry)))
}

/// The port's rate, as the kernel words it, by the codes that `ibv_query_port` gives.
fn rate(netdev: &str) -> String {
    let (width, speed) = link(speed::of(netdev));
    let lanes = if width == 1 { 1 } else { 4 };
    let lane_mbps = match speed {
        1 => 2_500,
        2 => 5_000,
        8 => 10_000,
        32 => 25_000,
        _ => 50_000,
    };
    let mbps = lanes * lane_mbps;
    let tenths = mbps % 1000 / 100;
    let fraction = if tenths == 0 {
        String::new()
    } else {
        format!(".{tenths}")
    };
    let name = match speed {
        1 => " SDR",
        2 => " DDR",
        8 => " FDR10",
        32 => " EDR",
        _ => " HDR",
    };
    format!("{}{fraction} Gb/sec ({lanes}X{name})", mbps / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_a_wire_has_the_rate_of_ibv_query_port() {
        assert_eq!(rate("lo"), "25 Gb/sec (1X EDR)");
    }

    #[test]
    fn unused_gid_table_entries_are_zero_and_have_no_attributes() {
        let info = DeviceInfo {
            name: "urxe_x".into(),
            kind: DeviceKind::Roce,
            netdev: "x".into(),
            ifindex: 1,
            netdev_mtu_bytes: 1500,
            within_host: false,
            is_up: true,
            mac: None,
            guid: [0; 8],
            gids: vec![],
        };
        let types = content(DeviceKind::Roce, &["ports", "1", "gid_attrs", "types"]).unwrap();
        assert_eq!(types.node(&info, "3"), Some(Node::Mute(Errno::INVAL)));
        assert_eq!(types.node(&info, "03"), None);
        assert_eq!(types.node(&info, "64"), None);
        let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
        assert_eq!(gid(&info, 3), Node::text(zero));
    }
}
