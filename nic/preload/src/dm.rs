//! Device memory: allocated here, copied to and from, and registered.
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use urxe_device::DeviceMemory;

use crate::abi::*;
use crate::errno::{Convention, Errno, ErrnoCode, Outcome};
use crate::handle::{Handle, Number};
use crate::memory::{self, Backing, Wanted};
use crate::object::INHERITED;
use crate::{context, convert};

pub(crate) type DmHandle = Handle<ibv_dm, DmState>;

/// What stands behind device memory.
pub(crate) struct DmState {
    /// Each region of it holds it, too.
    memory: Arc<DeviceMemory>,
    number: Number,
}

/// Copies to and from device memory begin and end at multiples of this.
const ALIGN: usize = 4;

/// `ibv_alloc_dm`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable.
pub(crate) unsafe fn alloc(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> Outcome<*mut ibv_dm> {
    // SAFETY: by the caller's promise.
    if attr.is_null() || unsafe { (*attr).comp_mask } != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, attr) = unsafe { (context::state(context), &*attr) };
    let memory = state
        .nic
        .alloc_dm(attr.length as u64, attr.log_align_req)
        .map_err(|error| convert::errno(&error))?;
    state.users.add();
    let number = Number::fresh();
    let dm = ibv_dm {
        context,
        memcpy_to_dm: Some(copy_to),
        memcpy_from_dm: Some(copy_from),
        comp_mask: 0,
        handle: number.get(),
    };
    let memory = Arc::new(memory);
    Ok(DmHandle::give(dm, DmState { memory, number }))
}

/// `ibv_free_dm`.
///
/// # Safety
/// `dm` is ours and live; no thread uses it any more.
pub(crate) unsafe fn free(dm: *mut ibv_dm) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = DmHandle::state(dm);
        state.number.ends((*dm).handle)?;
        if Arc::strong_count(&state.memory) > 1 {
            return Err(Errno::BUSY);
        }
        context::state((*dm).context).users.remove();
        drop(DmHandle::take_back(dm));
    }
    Ok(())
}

/// `ibv_reg_dm_mr`. Addresses in it count from zero, which the program has to ask for.
///
/// # Safety
/// `pd` and `dm` are ours and live.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: by the caller's promise.
    let (same_context, state) = unsafe { ((*dm).context == (*pd).context, DmHandle::state(dm)) };
    // SAFETY: by the caller's promise.
    state.number.is_of(unsafe { (*dm).handle })?;
    // SAFETY: by the caller's promise.
    if unsafe { DmHandle::is_inherited(dm) } {
        return Err(INHERITED);
    }
    let memory = &state.memory;
    if !same_context || access & IBV_ACCESS_ZERO_BASED == 0 {
        return Err(Errno::INVAL);
    }
    let wanted = Wanted {
        addr: std::ptr::null_mut(),
        length,
        host: memory.address(offset, length as u64).ok_or(Errno::INVAL)?,
        base: 0,
        access,
        backing: Some(Backing::DeviceMemory {
            _memory: Arc::clone(memory),
        }),
    };
    // SAFETY: by the caller's promise.
    unsafe { memory::new(pd, wanted) }
}

/// `ibv_dm_export_dmabuf_fd`: a descriptor of the memory file, which the program closes. It can be
/// mapped, and registered by `ibv_reg_dmabuf_mr`, here and in other processes.
///
/// # Safety
/// `dm` is ours and live.
pub(crate) unsafe fn export(dm: *mut ibv_dm) -> Outcome<c_int> {
    // SAFETY: by the caller's promise.
    let memory = &unsafe { DmHandle::state(dm) }.memory;
    let file = memory.file().try_clone_to_owned();
    file.map(IntoRawFd::into_raw_fd)
        .map_err(|error| Errno::of(&error))
}

/// The bytes of `dm` that a copy concerns.
///
/// # Safety
/// `dm` is ours and live.
unsafe fn range(dm: *mut ibv_dm, offset: u64, length: usize) -> Outcome<*mut u8> {
    // As on hardware: programs learn of it here rather than there.
    if !offset.is_multiple_of(ALIGN as u64) || !length.is_multiple_of(ALIGN) {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let at = unsafe { DmHandle::state(dm) }
        .memory
        .address(offset, length as u64);
    at.map(|at| std::ptr::with_exposed_provenance_mut(at as usize))
        .ok_or(Errno(libc::EFAULT))
}

unsafe extern "C" fn copy_to(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the program's device memory is live and it has as many bytes; the two do not overlap.
    let copied = unsafe {
        range(dm, offset, length).map(|to| std::ptr::copy_nonoverlapping(from.cast(), to, length))
    };
    ErrnoCode::raw(copied)
}

unsafe extern "C" fn copy_from(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the program's device memory is live and it has as much room; the two do not overlap.
    let copied = unsafe {
        range(dm, offset, length).map(|from| {
            std::ptr::copy_nonoverlapping(from.cast_const(), to.cast(), length);
        })
    };
    ErrnoCode::raw(copied)
}
