//! Files of the tree, read through libibverbs.
use std::ffi::{CStr, c_char, c_int};

use crate::errno::{Convention, Errno, MinusOne, Outcome};
use crate::next::{Next, call_next};
use crate::sysfs::Node;
use crate::tree::{self, Found};

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
