//! The files that programs read under `/sys/class/infiniband/<device>`: what the kernel shows for a
//! RoCE device, for devices that no kernel knows.
//!
//! Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux.
use std::ffi::{CStr, c_char, c_int};

use urxe_device::DeviceInfo;

use crate::device;
use crate::errno::{Convention, Errno, MinusOne, Outcome};
use crate::next::{Next, call_next};
use crate::query::link;
use crate::speed;

/// Where the devices' folders are.
pub(crate) const CLASS: &str = "/sys/class/infiniband";

/// The text of the file at `path`, if it lies in the folder of a device of ours: `None` is not ours,
/// `Some(None)` is ours but there is no such file.
pub(crate) fn read(path: &str) -> Option<Option<String>> {
    let inside = path.strip_prefix(CLASS)?.strip_prefix('/')?;
    let (name, file) = inside.split_once('/')?;
    let info = name.starts_with("urxe_").then(|| device::named(name))??;
    Some(content(&info, file.trim_end_matches('/')))
}

/// The text of a file in a device's folder, with the newline that sysfs ends it with.
fn content(info: &DeviceInfo, file: &str) -> Option<String> {
    let guid = info
        .guid
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    let guid = guid.collect::<Vec<_>>().join(":");
    let text = match file {
        "node_type" => "1: CA".to_owned(),
        "node_guid" | "sys_image_guid" => guid,
        "node_desc" => format!("urxe on {}", info.netdev),
        "fw_ver" => env!("CARGO_PKG_VERSION").to_owned(),
        "parent" => info.netdev.clone(),
        _ => port_content(info, file.strip_prefix("ports/1/")?)?,
    };
    Some(text + "\n")
}

fn port_content(info: &DeviceInfo, file: &str) -> Option<String> {
    if let Some((folder, index)) = file.rsplit_once('/') {
        return table_content(info, folder, index.parse().ok()?);
    }
    Some(match file {
        "state" if info.is_up => "4: ACTIVE".to_owned(),
        "state" => "1: DOWN".to_owned(),
        "phys_state" if info.is_up => "5: LinkUp".to_owned(),
        "phys_state" => "3: Disabled".to_owned(),
        "link_layer" => "Ethernet".to_owned(),
        "rate" => rate(&info.netdev),
        "lid" | "sm_lid" => "0x0".to_owned(),
        "lid_mask_count" | "sm_sl" => "0".to_owned(),
        "cap_mask" => "0x04010000".to_owned(),
        _ => return None,
    })
}

fn table_content(info: &DeviceInfo, folder: &str, index: usize) -> Option<String> {
    if folder == "pkeys" {
        return (index == 0).then(|| "0xffff".to_owned());
    }
    if index >= crate::gid::TABLE_LENGTH.into() {
        return None;
    }
    let entry = info.gids.get(index);
    match folder {
        "gids" => {
            let gid = entry.map_or([0; 16], |entry| entry.gid.0);
            let groups = gid
                .chunks(2)
                .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
            Some(groups.collect::<Vec<_>>().join(":"))
        }
        // The kernel has no attributes for an unused entry.
        "gid_attrs/types" => entry.map(|_| "RoCE v2".to_owned()),
        "gid_attrs/ndevs" => entry.map(|_| info.netdev.clone()),
        _ => None,
    }
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
    match read(&path.join("/")) {
        Some(text) => {
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
fn put(text: Option<String>, room: &mut [u8]) -> Outcome<c_int> {
    let text = text.ok_or(Errno(libc::ENOENT))?;
    let text = text.trim_end_matches('\n').as_bytes();
    let length = text.len().min(room.len());
    room[..length].copy_from_slice(&text[..length]);
    if let Some(end) = room.get_mut(length) {
        *end = 0;
    }
    c_int::try_from(length).map_err(|_| Errno::INVAL)
}
