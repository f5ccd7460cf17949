//! Buffers that the library allocates for the program (`ibv_alloc_buf`), and the one function that
//! registers every kind of memory (`ibv_reg_mr_ex`). Both are newer than the headers that we are
//! built with.
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use urxe_device::{AcrossFork, epoch};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::{dmabuf, memory, pd};

/// What the program got from [`alloc`].
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pd: usize,
    start: usize,
    length: usize,
    /// The process that allocated it: in the child of a fork its protection domain counts no users
    /// of the parent's.
    epoch: u32,
}

/// The buffers that were not freed, by what programs name them with. libibverbs's own handles, of
/// other devices, are pointers to what only it knows: this list tells whose a handle is.
pub(crate) static BUFFERS: AcrossFork<BTreeMap<usize, Buffer>> = AcrossFork::new(BTreeMap::new());

/// Whether a handle is of a buffer of ours.
pub(crate) fn is_ours(buffer: *const ibv_buf) -> bool {
    BUFFERS.lock().contains_key(&buffer.addr())
}

/// `ibv_alloc_buf`: memory of the process, whose first byte begins a page. Its address names it as
/// well.
///
/// # Safety
/// `pd` is ours and live, `handle` is null or writable.
pub(crate) unsafe fn alloc(
    pd: *mut ibv_pd,
    size: usize,
    handle: *mut *mut ibv_buf,
) -> Outcome<*mut c_void> {
    if handle.is_null() || size == 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Errno(libc::ENOMEM));
    }
    let buffer = Buffer {
        pd: pd.expose_provenance(),
        start: start.addr(),
        length: size,
        epoch: epoch(),
    };
    BUFFERS.lock().insert(start.addr(), buffer);
    // SAFETY: by the caller's promise.
    unsafe {
        pd::state(pd).users.add();
        *handle = start.cast();
    }
    Ok(start)
}

/// `ibv_free_buf`.
///
/// # Safety
/// `handle` is of a buffer of ours that is in no region, and its protection domain is live.
pub(crate) unsafe fn free(handle: *mut ibv_buf) -> Outcome<()> {
    let buffer = BUFFERS.lock().remove(&handle.addr());
    let buffer = buffer.ok_or(Errno::INVAL)?;
    // SAFETY: mapped by `alloc`, and by the caller's promise.
    unsafe {
        libc::munmap(handle.cast(), buffer.length);
        let pd: *mut ibv_pd = std::ptr::with_exposed_provenance_mut(buffer.pd);
        if buffer.epoch == epoch() {
            pd::state(pd).users.remove();
        }
    }
    Ok(())
}

/// `ibv_export_buf_dmabuf_fd`. Buffers of ours are plain memory of the process: `ENODATA`, as for
/// those of any device that has nothing better.
///
/// # Safety
/// None needed: nothing is looked at.
pub(crate) unsafe fn export(_: *mut ibv_buf) -> Outcome<c_int> {
    Err(Errno::NODATA)
}

/// `ibv_reg_buf_mr`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    handle: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Outcome<*mut ibv_mr> {
    check_inside(pd, handle, addr, length)?;
    // SAFETY: by the caller's promise.
    unsafe { memory::register(pd, addr, length, access) }
}

/// EINVAL unless the bytes lie in a buffer that was allocated in this protection domain.
fn check_inside(
    pd: *mut ibv_pd,
    handle: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
) -> Outcome<()> {
    let buffers = BUFFERS.lock();
    let buffer = buffers.get(&handle.addr()).ok_or(Errno::INVAL)?;
    let offset = addr.addr().checked_sub(buffer.start).ok_or(Errno::INVAL)?;
    let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
    if buffer.pd != pd.addr() || end > buffer.length {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// `ibv_reg_mr_ex`: memory of the process, of a descriptor, or of a buffer.
///
/// # Safety
/// `pd` is ours and live, `attr` is null or readable as far as its mask says.
pub(crate) unsafe fn register_any(
    pd: *mut ibv_pd,
    attr: *mut ibv_mr_init_attr,
) -> Outcome<*mut ibv_mr> {
    const KNOWN: u64 = IBV_REG_MR_MASK_IOVA
        | IBV_REG_MR_MASK_ADDR
        | IBV_REG_MR_MASK_FD
        | IBV_REG_MR_MASK_FD_OFFSET
        | IBV_REG_MR_MASK_BUF;
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise. A reference to all of it would be too much: older programs
    // have no `buf`.
    let (mask, length, access) = unsafe { ((*attr).comp_mask, (*attr).length, (*attr).access) };
    let has = |bits: u64| mask & bits != 0;
    // A DMA handle, which no context of ours can make, or something newer.
    if has(!KNOWN) {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: by the caller's promise; each only if the mask says that it counts.
    unsafe {
        if has(IBV_REG_MR_MASK_FD) {
            let is_whole = has(IBV_REG_MR_MASK_FD_OFFSET) && has(IBV_REG_MR_MASK_IOVA);
            if !is_whole || has(IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF) {
                return Err(Errno::INVAL);
            }
            let (offset, iova) = ((*attr).fd_offset, (*attr).iova);
            return dmabuf::register(pd, offset, length, iova, (*attr).fd, access);
        }
        if !has(IBV_REG_MR_MASK_ADDR) || has(IBV_REG_MR_MASK_FD_OFFSET) {
            return Err(Errno::INVAL);
        }
        let addr = (*attr).addr;
        if has(IBV_REG_MR_MASK_BUF) {
            check_inside(pd, (*attr).buf, addr, length)?;
        }
        if has(IBV_REG_MR_MASK_IOVA) {
            return memory::register_iova(pd, addr, length, (*attr).iova, access);
        }
        memory::register(pd, addr, length, access)
    }
}
