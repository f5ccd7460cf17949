//! The part of the file system that a kernel with our devices would have, beside what the real one has:
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
//! The folders that hold the links are shared with real devices. How paths lead through all this: [`crate::tree`].
//!
//! Source: Documentation/ABI/stable/sysfs-class-infiniband and Documentation/ABI/testing/sysfs-bus-pci of Linux.
mod counters;
mod device;
mod function;
mod verbs;

use std::ffi::{CStr, c_char, c_int};

use urxe_device::DeviceInfo;

use crate::errno::{Convention, Errno, MinusOne, Outcome};
use crate::next::{Next, call_next};
use crate::tree::{self, Found};

pub(crate) use function::MARK;
pub(crate) use verbs::{MAJOR as UVERBS_MAJOR, uverbs_name};

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A file that can be read, and what is in it.
    File(Vec<u8>),
    /// A file that is there and has nothing to say: reading it is this error.
    Mute(Errno),
    /// A folder of ours alone.
    Folder,
    /// A folder that real devices have entries in, too.
    Shared,
    /// A symbolic link, and where it leads.
    Link(String),
    /// A character device, by its minor number.
    Character(u32),
}

impl Node {
    /// A file's text, with the newline that sysfs ends it with.
    fn line(mut text: String) -> Self {
        text.push('\n');
        Self::File(text.into_bytes())
    }

    /// A file of a fixed text.
    fn text(text: &str) -> Self {
        Self::line(text.to_owned())
    }

    fn link(target: &str) -> Self {
        Self::Link(target.to_owned())
    }
}

/// Makes what is at a place of a device's part of the tree.
type Make = fn(&DeviceInfo) -> Node;

/// What a folder of a device holds.
enum Content {
    /// These names.
    Names(&'static [(&'static str, Make)]),
    /// The same, and one that is made of the device's.
    NamesAnd(&'static [(&'static str, Make)], Vec<(String, Make)>),
    /// The numbers below this one.
    Numbers(usize, fn(&DeviceInfo, usize) -> Node),
    /// Counters.
    Counters(&'static [counters::Counter]),
}

impl Content {
    fn names(&self) -> Vec<String> {
        let owned = |(name, _): &(&str, Make)| (*name).to_owned();
        match self {
            Self::Names(table) => table.iter().map(owned).collect(),
            Self::NamesAnd(table, more) => {
                let more = more.iter().map(|(name, _)| name.clone());
                table.iter().map(owned).chain(more).collect()
            }
            Self::Numbers(count, _) => (0..*count).map(|number| number.to_string()).collect(),
            Self::Counters(table) => table.iter().map(|each| each.name.to_owned()).collect(),
        }
    }

    fn node(&self, info: &DeviceInfo, name: &str) -> Option<Node> {
        let named = |table: &[(&str, Make)]| {
            let found = table.iter().find(|(each, _)| *each == name);
            found.map(|(_, make)| make(info))
        };
        match self {
            Self::Names(table) => named(table),
            Self::NamesAnd(table, more) => named(table).or_else(|| {
                let found = more.iter().find(|(each, _)| each == name);
                found.map(|(_, make)| make(info))
            }),
            Self::Numbers(count, make) => {
                let number: usize = name.parse().ok()?;
                (number < *count && name == number.to_string()).then(|| make(info, number))
            }
            Self::Counters(table) => {
                let found = table.iter().find(|each| each.name == name);
                found.map(|counter| counter.read(info))
            }
        }
    }
}

/// The folder that stands for a name in a table.
fn folder(_: &DeviceInfo) -> Node {
    Node::Folder
}

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
        let is_missing = !tree::is_really_there("/sys/class/infiniband_verbs/abi_version");
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
        ["infiniband", name, inside @ ..] if *name == info.name => device::content(inside),
        ["infiniband_verbs"] => Some(one(uverbs_name(info))),
        ["infiniband_verbs", name] if *name == uverbs_name(info) => {
            Some(Content::Names(verbs::VERBS))
        }
        ["net"] => Some(one(info.netdev.clone())),
        ["net", name] if *name == info.netdev => Some(Content::Names(function::INTERFACE)),
        _ => None,
    }
}

/// `ibv_read_sysfs_file`: the length of the text without its newline, or -1.
///
/// # Safety
/// `dir` and `file` are strings, `buf` has `size` writable bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    static NEXT: Next = Next::verb(c"ibv_read_sysfs_file", c"IBVERBS_1.0");
    if dir.is_null() || file.is_null() || buf.is_null() {
        return MinusOne::raw(Err(Errno::INVAL));
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { [CStr::from_ptr(dir), CStr::from_ptr(file)] }.map(CStr::to_string_lossy);
    let text = match tree::lookup(&path.join("/"), true) {
        Found::Elsewhere(_) => {
            return call_next!(
                NEXT,
                fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int,
                dir,
                file,
                buf,
                size
            )
            .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)));
        }
        Found::Ours(_, Node::File(text)) => Ok(text),
        Found::Ours(_, Node::Mute(errno)) | Found::Missing(errno) => Err(errno),
        Found::Ours(..) => Err(Errno(libc::EISDIR)),
    };
    let room = std::ptr::slice_from_raw_parts_mut(buf.cast::<u8>(), size);
    // SAFETY: by the caller's promise.
    MinusOne::raw(put(text, unsafe { &mut *room }))
}

/// Writes the text without its newline, and a zero where there is room for one.
fn put(text: Outcome<Vec<u8>>, room: &mut [u8]) -> Outcome<c_int> {
    let text = text?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let length = text.len().min(room.len());
    room[..length].copy_from_slice(&text[..length]);
    if let Some(end) = room.get_mut(length) {
        *end = 0;
    }
    c_int::try_from(length).map_err(|_| Errno::INVAL)
}
