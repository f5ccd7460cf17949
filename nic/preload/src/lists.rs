//! Lists of requests, and of their scatter/gather elements.
use std::ffi::c_int;

use arrayvec::ArrayVec;
use urxe_device::{Error, RecvRequest, Sge};

use crate::abi::*;
use crate::convert;
use crate::errno::{Errno, Outcome};
use crate::object::INHERITED;

/// Scatter/gather elements that a request of ours may have at most.
pub(crate) const MAX_SGE: usize = 32;

/// A request's list of elements, converted, without an allocation.
pub(crate) type SgeList = ArrayVec<Sge, MAX_SGE>;

/// Converts a list of elements.
///
/// # Safety
/// `list` has `count` readable elements.
pub(crate) unsafe fn sge_list(list: *const ibv_sge, count: usize) -> Outcome<SgeList> {
    if count == 0 {
        return Ok(SgeList::new());
    }
    if count > MAX_SGE || list.is_null() {
        return Err(Errno::INVAL);
    }
    // A program in C may have its list where a structure of Rust could not be (libiscsi: in a
    // packed one). SAFETY: by the caller's promise.
    let elements = (0..count).map(|index| unsafe { list.add(index).read_unaligned() });
    Ok(elements.map(|element| convert::sge(&element)).collect())
}

/// The elements of a work request.
///
/// # Safety
/// `list` has `count` readable elements.
pub(crate) unsafe fn request_list(list: *const ibv_sge, count: c_int) -> Outcome<SgeList> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: by the caller's promise.
    unsafe { sge_list(list, count) }
}

/// Refuses requests for a queue of the parent's, in the child of a fork; the first is `bad` then.
///
/// # Safety
/// `bad` is null or writable.
#[cold]
pub(crate) unsafe fn refuse_all<W>(wr: *mut W, bad: *mut *mut W) -> c_int {
    if !bad.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { *bad = wr };
    }
    INHERITED.0
}

/// Posts receives up to the first that is refused, which `bad` then names; returns its error.
///
/// # Safety
/// `wr` is a list of requests, `bad` is null or writable.
pub(crate) unsafe fn receive_list(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl Fn(&RecvRequest<'_>) -> Result<(), Error>,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: by the caller's promise.
        let request = unsafe { &*wr };
        // SAFETY: by the caller's promise.
        if let Err(errno) = unsafe { receive_one(request, &post) } {
            if !bad.is_null() {
                // SAFETY: by the caller's promise.
                unsafe { *bad = wr };
            }
            return errno.0;
        }
        wr = request.next;
    }
    0
}

/// # Safety
/// The list of `wr` is readable.
unsafe fn receive_one(
    wr: &ibv_recv_wr,
    post: &impl Fn(&RecvRequest<'_>) -> Result<(), Error>,
) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    let list = unsafe { request_list(wr.sg_list, wr.num_sge) }?;
    let request = RecvRequest {
        wr_id: wr.wr_id,
        sges: list.as_slice(),
    };
    post(&request).map_err(|error| convert::errno(&error))
}
