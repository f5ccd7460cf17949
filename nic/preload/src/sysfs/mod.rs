//! The part of the file system that a kernel with our devices would have, beside what the real one
//! has:
//!
//! | path | what |
//! |---|---|
//! | `/sys/class/infiniband/<device>` | a link to the device |
//! | `/sys/class/infiniband_verbs/uverbs<n>` | a link to its character device |
//! | `/sys/class/pci_bus/<bus>` | a link to the bus |
//! | `/sys/bus/pci/devices/<function>` | a link to the function |
//! | `/sys/devices/pci<bus>/pci_bus/<bus>` | the bus ([`function`]) |
//! | `/sys/devices/pci<bus>/<function>` | the PCI function that the device belongs to ([`function`]) |
//! | `/sys/devices/pci<bus>/<function>/infiniband/<device>` | the device ([`device`]) |
//! | `/sys/devices/pci<bus>/<function>/infiniband_verbs/uverbs<n>` | its character device ([`verbs`]) |
//! | `/sys/devices/pci<bus>/<function>/net/<interface>` | its network interface ([`function`]) |
//! | `/dev/infiniband/uverbs<n>` | the character device, which cannot be opened |
//!
//! The folders that hold the links are shared with real devices. How paths lead through all this:
//! [`crate::tree`].
//!
//! Source: Documentation/ABI/stable/sysfs-class-infiniband and
//! Documentation/ABI/testing/sysfs-bus-pci of Linux.
mod content;
mod counters;
mod device;
mod function;
mod node;
mod verbs;

use urxe_device::DeviceInfo;

use crate::kernel_files::is_really_there;
use content::{Content, Make, folder};

pub(crate) use function::MARK;
pub(crate) use node::Node;
pub(crate) use verbs::{MAJOR as UVERBS_MAJOR, uverbs_name};

/// The shared folders, and what of ours is in them.
const SHARED: &[(&[&str], Entries)] = &[
    (&["sys"], Entries::Fixed(&["bus", "class", "devices"])),
    (&["sys", "bus"], Entries::Fixed(&["pci"])),
    (&["sys", "bus", "pci"], Entries::Fixed(&["devices"])),
    (
        &["sys", "bus", "pci", "devices"],
        Entries::Links(
            |info| function::of(info).address(),
            |info| format!("../../../devices/{}", function::of(info).place()),
        ),
    ),
    (
        &["sys", "class"],
        Entries::Fixed(&["infiniband", "infiniband_verbs", "pci_bus"]),
    ),
    (
        &["sys", "class", "infiniband"],
        Entries::Links(
            |info| info.name.clone(),
            |info| {
                format!(
                    "../../devices/{}/infiniband/{}",
                    function::of(info).place(),
                    info.name
                )
            },
        ),
    ),
    (&["sys", "class", "infiniband_verbs"], VERBS),
    (
        &["sys", "class", "pci_bus"],
        Entries::Links(
            |info| function::of(info).bus(),
            |info| {
                let bus = function::of(info).bus();
                format!("../../devices/pci{bus}/pci_bus/{bus}")
            },
        ),
    ),
    (
        &["sys", "devices"],
        Entries::Folders(|info| format!("pci{}", function::of(info).bus())),
    ),
    (&["dev"], Entries::Fixed(&["infiniband"])),
    (&["dev", "infiniband"], Entries::Characters(uverbs_name)),
];

const VERBS: Entries = Entries::Links(uverbs_name, |info| {
    format!(
        "../../devices/{}/infiniband_verbs/{}",
        function::of(info).place(),
        uverbs_name(info)
    )
});

/// What of ours is in a shared folder.
#[derive(Clone, Copy)]
enum Entries {
    /// Other shared folders.
    Fixed(&'static [&'static str]),
    /// A link for each device: its name, and where it leads.
    Links(fn(&DeviceInfo) -> String, fn(&DeviceInfo) -> String),
    /// A folder for each device.
    Folders(fn(&DeviceInfo) -> String),
    /// A character device for each.
    Characters(fn(&DeviceInfo) -> String),
}

/// The version of the verbs interface to the kernel, where there is no real one.
const ABI_VERSION: (&[&str], &str, &str) =
    (&["sys", "class", "infiniband_verbs"], "abi_version", "6");

fn shared(names: &[&str]) -> Option<Entries> {
    let found = SHARED.iter().find(|(folder, _)| *folder == names);
    found.map(|(_, entries)| *entries)
}

/// Whether a folder is one that real devices have entries in, too.
pub(crate) fn is_shared(names: &[&str]) -> bool {
    shared(names).is_some()
}

/// The longest path of a shared folder, bytes.
pub(crate) const LONGEST_SHARED: usize = "/sys/class/infiniband_verbs".len();

/// What there is of ours at a path without links, the names in it.
pub(crate) fn node(devices: &[DeviceInfo], names: &[&str]) -> Option<Node> {
    if is_shared(names) {
        return Some(Node::Shared);
    }
    let (name, folder) = names.split_last()?;
    if let Some(entries) = shared(folder) {
        return shared_node(devices, folder, entries, name);
    }
    let (info, content) = content(devices, folder)?;
    content.node(info, name)
}

fn shared_node(
    devices: &[DeviceInfo],
    folder: &[&str],
    entries: Entries,
    name: &str,
) -> Option<Node> {
    if (folder, name) == (ABI_VERSION.0, ABI_VERSION.1) {
        let is_missing = !is_really_there("/sys/class/infiniband_verbs/abi_version");
        return is_missing.then(|| Node::text(ABI_VERSION.2));
    }
    let named = |of: fn(&DeviceInfo) -> String| devices.iter().find(|info| of(info) == name);
    match entries {
        Entries::Fixed(_) => None,
        Entries::Links(of, target) => named(of).map(|info| Node::Link(target(info))),
        Entries::Folders(of) => named(of).map(|_| Node::Folder),
        Entries::Characters(of) => named(of).map(|info| Node::Character(verbs::number(info))),
    }
}

/// Our names in the folder at a path without links.
pub(crate) fn names(devices: &[DeviceInfo], names: &[&str]) -> Vec<String> {
    let Some(entries) = shared(names) else {
        return content(devices, names).map_or_else(Vec::new, |(_, content)| content.names());
    };
    let mut found: Vec<String> = match entries {
        Entries::Fixed(fixed) => fixed.iter().map(|name| (*name).to_owned()).collect(),
        Entries::Links(of, _) | Entries::Folders(of) | Entries::Characters(of) => {
            devices.iter().map(of).collect()
        }
    };
    if names == ABI_VERSION.0 {
        found.push(ABI_VERSION.1.to_owned());
    }
    found
}

/// What a folder of ours holds, and a device that it belongs to: a bus has several.
fn content<'a>(devices: &'a [DeviceInfo], names: &[&str]) -> Option<(&'a DeviceInfo, Content)> {
    let ["sys", "devices", root, inside @ ..] = names else {
        return None;
    };
    let on_bus = |info: &&DeviceInfo| *root == format!("pci{}", function::of(info).bus());
    match inside {
        [] => {
            let first = devices.iter().find(on_bus)?;
            let functions = devices.iter().filter(on_bus);
            Some((first, function::bus(functions)))
        }
        ["pci_bus"] => {
            let first = devices.iter().find(on_bus)?;
            let one = (function::of(first).bus(), folder as Make);
            Some((first, Content::NamesAnd(&[], vec![one])))
        }
        ["pci_bus", bus] => {
            let first = devices.iter().find(on_bus)?;
            let is_it = function::of(first).bus() == *bus;
            is_it.then_some((first, Content::Names(function::BUS)))
        }
        [address, inside @ ..] => {
            let is_it =
                |info: &&DeviceInfo| on_bus(info) && function::of(info).address() == *address;
            let info = devices.iter().find(is_it)?;
            Some((info, function_content(info, inside)?))
        }
    }
}

fn function_content(info: &DeviceInfo, inside: &[&str]) -> Option<Content> {
    let one = |name: String| Content::NamesAnd(&[], vec![(name, folder as Make)]);
    match inside {
        [] => Some(Content::Names(function::FUNCTION)),
        ["infiniband"] => Some(one(info.name.clone())),
        ["infiniband", name, inside @ ..] if *name == info.name => {
            device::content(info.kind, inside)
        }
        ["infiniband_verbs"] => Some(one(uverbs_name(info))),
        ["infiniband_verbs", name] if *name == uverbs_name(info) => {
            Some(Content::Names(verbs::VERBS))
        }
        ["net"] => Some(one(info.netdev.clone())),
        ["net", name] if *name == info.netdev => Some(Content::Names(function::INTERFACE)),
        _ => None,
    }
}
