//! The GID table: one entry per address of the interface for RoCE v2, and further behind, where the
//! program was started so, one for RoCE v1.
use std::ffi::{c_int, c_uint};
use std::mem::offset_of;
use std::sync::Arc;

use urxe_device::{DeviceInfo, DeviceKind, Gid, GidEntry, GidType};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::port::{PORT, check_port};
use crate::{context, device, kind};

/// RoCE v1 and v2 in `enum ibv_gid_type_sysfs`, which is private to rdma-core and which
/// `ibv_query_gid_type` uses: there IB and RoCE v1 share 0.
const SYSFS_ROCE_V1: c_uint = 0;
const SYSFS_ROCE_V2: c_uint = 1;

/// The table as it is now, in the order of the index.
///
/// # Safety
/// `context` is ours and open.
unsafe fn table(context: *mut ibv_context) -> Arc<[GidEntry]> {
    // SAFETY: by the caller's promise.
    let nic = &unsafe { context::state(context) }.nic;
    nic.follow_link();
    kind::gids(nic.info(), nic.gids())
}

/// # Safety
/// `context` is ours and open.
unsafe fn entry(context: *mut ibv_context, port: u32, index: u32) -> Outcome<Option<GidEntry>> {
    check_port(port)?;
    // SAFETY: by the caller's promise.
    let of_kind = unsafe { context::state(context) }.nic.info().kind;
    if index >= u32::from(kind::table_lengths(of_kind).0) {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let entries = unsafe { table(context) };
    Ok(usize::try_from(index)
        .ok()
        .and_then(|index| entries.get(index).copied())
        .filter(GidEntry::is_used))
}

/// The index of the entry that a datagram to `gid` came to by packets of a type: its own, or of a
/// multicast group the first of the same kind.
///
/// # Safety
/// `context` is ours and open.
pub(crate) unsafe fn index_for(
    context: *mut ibv_context,
    port: u8,
    gid: Gid,
    kind: GidType,
) -> Outcome<u8> {
    check_port(port.into())?;
    // SAFETY: by the caller's promise.
    let entries = unsafe { table(context) };
    let is_v4 = gid.to_ip().is_ipv4();
    let fits = |entry: &GidEntry| {
        entry.is_used()
            && entry.kind == kind
            && (entry.gid == gid || gid.is_multicast() && entry.gid.to_ip().is_ipv4() == is_v4)
    };
    let index = entries.iter().position(fits).ok_or(Errno(libc::ENOENT))?;
    u8::try_from(index).map_err(|_| Errno::INVAL)
}

/// `ibv_query_gid`: an unused entry is all zeros.
///
/// # Safety
/// `context` is ours and open, `gid` is null or writable.
pub(crate) unsafe fn query(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> Outcome<c_int> {
    let index = u32::try_from(index).map_err(|_| Errno::INVAL)?;
    // SAFETY: by the caller's promise.
    let entry = unsafe { entry(context, port.into(), index) }?;
    if gid.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { (*gid).raw = entry.map_or([0; 16], |entry| entry.gid.0) };
    Ok(0)
}

/// `ibv_query_gid_type` (private to rdma-core; `ibv_devinfo` uses it).
///
/// # Safety
/// `context` is ours and open, `kind` is null or writable.
pub(crate) unsafe fn query_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> Outcome<c_int> {
    // SAFETY: by the caller's promise.
    let found = unsafe { entry(context, port.into(), index) }?;
    if kind.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe {
        *kind = match found.map(|entry| entry.kind) {
            Some(GidType::RoceV1) => SYSFS_ROCE_V1,
            Some(GidType::RoceV2) | None => SYSFS_ROCE_V2,
        }
    };
    Ok(0)
}

fn c_entry(index: usize, entry: &GidEntry, info: &DeviceInfo) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index: index.try_into().unwrap_or(u32::MAX),
        port_num: PORT.into(),
        gid_type: match entry.kind {
            _ if info.kind == DeviceKind::Iwarp => IBV_GID_TYPE_IB,
            GidType::RoceV1 => IBV_GID_TYPE_ROCE_V1,
            GidType::RoceV2 => IBV_GID_TYPE_ROCE_V2,
        },
        ndev_ifindex: info.ifindex,
    }
}

/// What both extended queries refuse: flags (there are none), a struct shorter than the first
/// version of it, or one that no attribute of the kernel's interface holds, whose length has 16
/// bits.
fn check_extended(flags: u32, entry_size: usize) -> Outcome<()> {
    const FIRST_VERSION: usize = offset_of!(ibv_gid_entry, ndev_ifindex) + size_of::<u32>();
    if flags == 0 && (FIRST_VERSION..=u16::MAX.into()).contains(&entry_size) {
        Ok(())
    } else {
        Err(Errno::INVAL)
    }
}

/// # Safety
/// `to` has `entry_size` writable bytes.
unsafe fn put(answer: &ibv_gid_entry, to: *mut u8, entry_size: usize) {
    // SAFETY: `check_extended` made sure that a whole entry fits.
    unsafe {
        to.write_bytes(0, entry_size);
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(answer).cast(),
            to,
            size_of::<ibv_gid_entry>(),
        );
    }
}

/// `ibv_query_gid_ex`: ENODATA for an unused entry.
///
/// # Safety
/// `context` is ours and open, `to` is null or has `entry_size` writable bytes.
pub(crate) unsafe fn query_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> Outcome<()> {
    check_extended(flags, entry_size)?;
    // SAFETY: by the caller's promise.
    let (found, info) = unsafe {
        (
            entry(context, port, index)?,
            device::info((*context).device),
        )
    };
    let found = found.ok_or(Errno::NODATA)?;
    if to.is_null() {
        return Err(Errno::INVAL);
    }
    let answer = c_entry(index.try_into().unwrap_or(usize::MAX), &found, &info);
    // SAFETY: by the caller's promise.
    unsafe { put(&answer, to.cast(), entry_size) };
    Ok(())
}

/// `ibv_query_gid_table`: the number of entries written.
///
/// # Safety
/// `context` is ours and open, `to` has `max_entries` writable entries of `entry_size` bytes.
pub(crate) unsafe fn query_table(
    context: *mut ibv_context,
    to: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> Outcome<isize> {
    check_extended(flags, entry_size)?;
    // SAFETY: by the caller's promise.
    let (entries, info) = unsafe { (table(context), device::info((*context).device)) };
    if to.is_null() && max_entries > 0 {
        return Err(Errno::INVAL);
    }
    let used = entries.iter().enumerate();
    let used: Vec<_> = used.filter(|(_, entry)| entry.is_used()).collect();
    if used.len() > max_entries {
        // The whole table or nothing, as libibverbs has it.
        return Err(Errno::INVAL);
    }
    for (position, (index, entry)) in used.iter().enumerate() {
        let answer = c_entry(*index, entry, &info);
        let place = to.cast::<u8>().wrapping_add(position * entry_size);
        // SAFETY: by the caller's promise, and `position` is below `max_entries`.
        unsafe { put(&answer, place, entry_size) };
    }
    Ok(used.len().cast_signed())
}
