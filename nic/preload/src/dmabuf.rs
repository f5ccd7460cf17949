//! Memory that is registered by a descriptor: that of a memory file, of udmabuf, or of another
//! device that lets a process map it. A device made of sockets reaches what its process can map,
//! and nothing else.
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use urxe_device::Mapping;

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::memory::{self, Backing, Wanted};
use crate::unsupported::probe;

/// The rights with which the device itself writes.
const WRITES: u32 = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
/// The rights that such a region may have (ibv_reg_mr(3)).
const RIGHTS: u32 = WRITES | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;

/// `ibv_reg_dmabuf_mr`.
///
/// A program that asks with a descriptor that is none wants to know whether memory of a GPU can be
/// registered, and takes any error but `EOPNOTSUPP` for yes (NCCL, UCX). It cannot, so that is the
/// answer, and not `EBADF`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: any number may be asked for.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return probe("a DMA-BUF memory region");
    }
    let access = access.cast_unsigned();
    if access & !RIGHTS != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: open, as was asked, and the program's to keep open until this returns.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let mapping = Mapping::shared(&file, offset, length as u64, access & WRITES != 0);
    let mapping = mapping.map_err(|error| match Errno::of(&error) {
        Errno(libc::ENODEV) => {
            log::info!(
                "memory of descriptor {fd} cannot be mapped into the process, so urxe cannot reach it"
            );
            Errno::OPNOTSUPP
        }
        errno => errno,
    })?;
    let wanted = Wanted {
        // As libibverbs has it: the offset, because there is no address of the program's.
        addr: std::ptr::without_provenance_mut::<c_void>(offset as usize),
        length,
        host: mapping.address(),
        base: iova,
        access,
        backing: Some(Backing::Mapping { _mapping: mapping }),
    };
    // SAFETY: by the caller's promise.
    unsafe { memory::new(pd, wanted) }
}
