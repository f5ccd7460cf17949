//! The extended completion queue: start, next, end, and a reader for each field.
use std::ffi::{c_int, c_uint};

use parking_lot::{Mutex, MutexGuard};

use crate::abi::*;
use crate::cq::new;
use crate::errno::{Errno, Outcome};
use crate::unsupported::refuse;
use crate::{convert, cq};

/// The completion that the readers show. One is taken at a time, so that a program may mix both ways
/// of polling a queue.
#[derive(Default)]
pub(crate) struct Cursor(Mutex<ibv_wc>);

impl Cursor {
    fn lock(&self) -> MutexGuard<'_, ibv_wc> {
        self.0.lock()
    }
}

/// The fields that every completion has; others (timestamps, VLANs, flow tags) are refused.
const FIELDS: u64 = IBV_WC_STANDARD_FLAGS as u64;

/// `ibv_create_cq_ex`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> Outcome<*mut ibv_cq_ex> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let attr = unsafe { &*attr };
    if attr.wc_flags & !FIELDS != 0 {
        return refuse("completion timestamps, VLANs or flow tags");
    }
    if attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 {
        return refuse("a completion queue in a parent domain");
    }
    let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let made = unsafe {
        new(
            context,
            attr.cqe,
            attr.cq_context,
            attr.channel,
            attr.comp_vector,
        )
    }?;
    // SAFETY: just made, and not yet given to the program.
    set_readers(unsafe { &mut *made });
    Ok(made)
}

fn set_readers(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
}

/// Shows the next completion in the public fields, or says ENOENT.
///
/// # Safety
/// `cq` is ours and live.
unsafe fn show_next(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: by the caller's promise.
    let state = unsafe { cq::state(cq.cast()) };
    let mut shown = state.cursor.lock();
    if state.cq.poll(1, |completion| {
        *shown = convert::work_completion(&completion)
    }) == 0
    {
        return libc::ENOENT;
    }
    // SAFETY: by the caller's promise.
    unsafe {
        (*cq).wr_id = shown.wr_id;
        (*cq).status = shown.status;
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program's attributes are null or readable.
    if !attr.is_null() && unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the program's queue is live.
    unsafe { show_next(cq) }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program's queue is live.
    unsafe { show_next(cq) }
}

unsafe extern "C" fn end_poll(_: *mut ibv_cq_ex) {}

/// Readers: `name -> type = |completion| value;`
macro_rules! readers {
    ($($name:ident -> $ty:ty = |$wc:pat_param| $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: the program's queue is live.
            let $wc = *unsafe { cq::state(cq.cast()) }.cursor.lock();
            $value
        }
    )*};
}

readers! {
    read_opcode -> ibv_wc_opcode = |wc| wc.opcode;
    read_vendor_err -> u32 = |wc| wc.vendor_err;
    read_byte_len -> u32 = |wc| wc.byte_len;
    // SAFETY: both members of the union are 32 bits of any value.
    read_imm_data -> u32 = |wc| unsafe { wc.__bindgen_anon_1.imm_data };
    read_qp_num -> u32 = |wc| wc.qp_num;
    read_src_qp -> u32 = |wc| wc.src_qp;
    read_wc_flags -> c_uint = |wc| wc.wc_flags;
    read_slid -> u32 = |wc| wc.slid.into();
    read_sl -> u8 = |wc| wc.sl;
    read_dlid_path_bits -> u8 = |wc| wc.dlid_path_bits;
}
