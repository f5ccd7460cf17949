//! What a walk tells of.
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_short, c_ushort, c_void};
use std::mem::offset_of;

use libc::stat as Stat;

/// `FTSENT` of fts.h. Its name follows, and what stat says of it is on the heap.
#[repr(C)]
pub struct Entry {
    pub(super) cycle: *mut Self,
    pub(super) parent: *mut Self,
    pub(super) link: *mut Self,
    pub(super) number: c_long,
    pub(super) pointer: *mut c_void,
    pub(super) accpath: *mut c_char,
    pub(super) path: *mut c_char,
    pub(super) errno: c_int,
    pub(super) symfd: c_int,
    pub(super) pathlen: c_ushort,
    pub(super) namelen: c_ushort,
    pub(super) ino: libc::ino_t,
    pub(super) dev: libc::dev_t,
    pub(super) nlink: libc::nlink_t,
    pub(super) level: c_short,
    pub(super) info: c_ushort,
    pub(super) flags: c_ushort,
    pub(super) instr: c_ushort,
    pub(super) statp: *mut Stat,
    pub(super) name: [c_char; 1],
}

fn size_of_entry(name: &CStr) -> usize {
    (offset_of!(Entry, name) + name.to_bytes_with_nul().len()).max(size_of::<Entry>())
}

/// A new entry, of malloc: zeros but for its names.
pub(super) fn make(parent: *mut Entry, level: c_short, path: CString, name: &CStr) -> *mut Entry {
    // SAFETY: as many bytes as are written, of an entry, whose fields may all be zero.
    unsafe {
        let entry: *mut Entry = libc::calloc(1, size_of_entry(name)).cast();
        let statp: *mut Stat = libc::calloc(1, size_of::<Stat>()).cast();
        if entry.is_null() || statp.is_null() {
            std::process::abort();
        }
        (*entry).parent = parent;
        (*entry).level = level;
        (*entry).statp = statp;
        (*entry).namelen = name.to_bytes().len().try_into().unwrap_or(u16::MAX);
        (*entry).pathlen = path.to_bytes().len().try_into().unwrap_or(u16::MAX);
        (*entry).path = path.into_raw();
        (*entry).accpath = (*entry).path;
        let bytes = name.to_bytes_with_nul();
        let to = entry.cast::<u8>().add(offset_of!(Entry, name));
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        entry
    }
}

/// # Safety
/// The entry is one of [`make`] and not used any more.
pub(super) unsafe fn free(entry: *mut Entry) {
    // SAFETY: by the caller's promise.
    unsafe {
        drop(CString::from_raw((*entry).path));
        libc::free((*entry).statp.cast());
        libc::free(entry.cast());
    }
}
