//! The files that programs read in a device's folders in sysfs: what the kernel shows for a RoCE device,
//! for devices that no kernel knows. Where the folders are: [`tree`].
//!
//! Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux.
use std::ffi::{CStr, c_char, c_int};

use urxe_device::{DeviceInfo, GidEntry};

use crate::errno::{Convention, Errno, MinusOne, Outcome};
use crate::next::{Next, call_next};
use crate::query::link;
use crate::speed;
use crate::tree::{self, Place};

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A file that can be read, with its text.
    File(String),
    /// A folder.
    Folder,
    /// A symbolic link, and where it leads.
    Link(&'static str),
}

/// What there is in a device's own folder at `path`, the names in it.
pub(crate) fn device_node(info: &DeviceInfo, path: &[&str]) -> Option<Node> {
    match path {
        [] | ["ports"] => Some(Node::Folder),
        ["subsystem"] => Some(Node::Link("../../../../class/infiniband")),
        ["ports", "1", inside @ ..] => port_node(info, inside),
        [name] => device_text(info, name).map(line),
        _ => None,
    }
}

/// The names in a folder of a device: what [`device_node`] knows.
pub(crate) fn device_names(info: &DeviceInfo, path: &[&str]) -> Vec<String> {
    const DEVICE: &[&str] = &[
        "fw_ver",
        "node_desc",
        "node_guid",
        "node_type",
        "parent",
        "ports",
        "subsystem",
        "sys_image_guid",
        "uevent",
    ];
    const PORT: &[&str] = &[
        "cap_mask",
        "gid_attrs",
        "gids",
        "lid",
        "lid_mask_count",
        "link_layer",
        "phys_state",
        "pkeys",
        "rate",
        "sm_lid",
        "sm_sl",
        "state",
    ];
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let indices = |length: usize| 0..length;
    match path {
        [] => owned(DEVICE),
        ["ports"] => owned(&["1"]),
        ["ports", "1"] => owned(PORT),
        ["ports", "1", "gid_attrs"] => owned(&["ndevs", "types"]),
        ["ports", "1", "pkeys"] => owned(&["0"]),
        ["ports", "1", "gids"] => indices(crate::gid::TABLE_LENGTH.into())
            .map(|index| index.to_string())
            .collect(),
        ["ports", "1", "gid_attrs", _] => indices(info.gids.len())
            .filter(|index| info.gids[*index].is_used())
            .map(|index| index.to_string())
            .collect(),
        _ => Vec::new(),
    }
}

/// A file's text, with the newline that sysfs ends it with.
fn line(mut text: String) -> Node {
    text.push('\n');
    Node::File(text)
}

/// Bytes as sysfs writes GUIDs and GIDs.
fn groups(bytes: &[u8]) -> String {
    let groups = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    groups.collect::<Vec<_>>().join(":")
}

fn device_text(info: &DeviceInfo, file: &str) -> Option<String> {
    Some(match file {
        "node_type" => "1: CA".to_owned(),
        "node_guid" | "sys_image_guid" => groups(&info.guid),
        "node_desc" => format!("urxe on {}", info.netdev),
        "fw_ver" => env!("CARGO_PKG_VERSION").to_owned(),
        "parent" => info.netdev.clone(),
        "uevent" => format!("NAME={}", info.name),
        _ => return None,
    })
}

fn port_node(info: &DeviceInfo, path: &[&str]) -> Option<Node> {
    match path {
        [] | ["gids" | "pkeys" | "gid_attrs"] | ["gid_attrs", "types" | "ndevs"] => {
            Some(Node::Folder)
        }
        ["pkeys", "0"] => Some(line("0xffff".to_owned())),
        ["gids", index] => gid_text(info, index, |entry| {
            groups(&entry.map_or([0; 16], |entry| entry.gid.0)).into()
        }),
        // The kernel has no attributes for an unused entry.
        ["gid_attrs", "types", index] => {
            gid_text(info, index, |entry| entry.map(|_| "RoCE v2".to_owned()))
        }
        ["gid_attrs", "ndevs", index] => {
            gid_text(info, index, |entry| entry.map(|_| info.netdev.clone()))
        }
        [name] => port_text(info, name).map(line),
        _ => None,
    }
}

fn port_text(info: &DeviceInfo, file: &str) -> Option<String> {
    Some(match file {
        "state" if info.is_up => "4: ACTIVE".to_owned(),
        "state" => "1: DOWN".to_owned(),
        "phys_state" if info.is_up => "5: LinkUp".to_owned(),
        "phys_state" => "3: Disabled".to_owned(),
        "link_layer" => "Ethernet".to_owned(),
        "rate" => rate(&info.netdev),
        "lid" => format!("{:#x}", urxe_device::lid(&info.gids)),
        "sm_lid" => "0x0".to_owned(),
        "lid_mask_count" | "sm_sl" => "0".to_owned(),
        "cap_mask" => "0x04010000".to_owned(),
        _ => return None,
    })
}

/// The text about an entry of the GID table; it is given the entry if that is used.
fn gid_text(
    info: &DeviceInfo,
    index: &str,
    text: impl FnOnce(Option<&GidEntry>) -> Option<String>,
) -> Option<Node> {
    let index: usize = index.parse().ok()?;
    if index >= crate::gid::TABLE_LENGTH.into() {
        return None;
    }
    let entry = info.gids.get(index).filter(|entry| entry.is_used());
    text(entry).map(line)
}

/// What there is in the folder of a device's character device, which programs open through libibverbs
/// and not by themselves.
pub(crate) fn verbs_node(info: &DeviceInfo, path: &[&str]) -> Option<Node> {
    let text = match path {
        [] => return Some(Node::Folder),
        ["subsystem"] => return Some(Node::Link("../../../../class/infiniband_verbs")),
        ["abi_version"] => "1".to_owned(),
        ["ibdev"] => info.name.clone(),
        ["dev"] => format!("{UVERBS_MAJOR}:{}", minor(info)),
        ["uevent"] => format!(
            "MAJOR={UVERBS_MAJOR}\nMINOR={}\nDEVNAME=infiniband/{}",
            minor(info),
            uverbs_name(&info.name)
        ),
        _ => return None,
    };
    Some(line(text))
}

/// The names in the folder of [`verbs_node`].
pub(crate) const VERBS_NAMES: &[&str] = &["abi_version", "dev", "ibdev", "subsystem", "uevent"];

/// The name of a device's character device.
pub(crate) fn uverbs_name(device: &str) -> String {
    format!("uverbs_{device}")
}

/// Numbers of the character device: the kernel's (Documentation/admin-guide/devices.txt of Linux) for
/// verbs, with a minor number that no kernel device has.
pub(crate) const UVERBS_MAJOR: u32 = 231;

pub(crate) fn minor(info: &DeviceInfo) -> u32 {
    const FIRST: u32 = 0x8_0000;
    FIRST | info.ifindex & (FIRST - 1)
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
    format!("{} Gb/sec ({lanes}X)", lanes * lane_mbps / 1000)
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
    match tree::lookup(&path.join("/"), true) {
        Some(found) => {
            let text = match found {
                Ok(Place::Sysfs(Node::File(text))) => Ok(text),
                Ok(_) => Err(Errno(libc::EISDIR)),
                Err(errno) => Err(errno),
            };
            let room = std::ptr::slice_from_raw_parts_mut(buf.cast::<u8>(), size);
            // SAFETY: by the caller's promise.
            MinusOne::raw(put(text, unsafe { &mut *room }))
        }
        None => call_next!(
            NEXT,
            fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int,
            dir,
            file,
            buf,
            size
        )
        .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS))),
    }
}

/// Writes the text without its newline, and a zero where there is room for one.
fn put(text: Outcome<String>, room: &mut [u8]) -> Outcome<c_int> {
    let text = text?;
    let text = text.trim_end_matches('\n').as_bytes();
    let length = text.len().min(room.len());
    room[..length].copy_from_slice(&text[..length]);
    if let Some(end) = room.get_mut(length) {
        *end = 0;
    }
    c_int::try_from(length).map_err(|_| Errno::INVAL)
}
