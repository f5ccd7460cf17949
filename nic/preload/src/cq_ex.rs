//! The extended completion queue: start, next, end, and a reader for each field.
use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

use crate::abi::*;
use crate::cq_state::Shown;
use crate::handle::Growing;
use crate::object::INHERITED;
use crate::{convert, cq_state};

/// For fields that were not asked for at creation, and of libibverbs newer than we are.
unsafe extern "C" fn read_nothing(_: *mut ibv_cq_ex) -> u64 {
    0
}

unsafe extern "C" fn poll_refused(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    libc::EOPNOTSUPP
}

/// A new queue's structure, without readers: only a program that creates it by `ibv_create_cq_ex`
/// gets those.
pub(crate) fn without_readers(mut cq: ibv_cq_ex) -> Growing<ibv_cq_ex> {
    cq.start_poll = Some(poll_refused);
    let refusal = read_nothing as unsafe extern "C" fn(*mut ibv_cq_ex) -> u64 as *const c_void;
    // SAFETY: functions follow the identifier of a request. The first argument of each is the
    // queue, and what it returns is an integer of at most this size.
    unsafe { Growing::new(cq, offset_of!(ibv_cq_ex, start_poll), refusal) }
}

pub(crate) fn set_readers(cq: &mut ibv_cq_ex, fields: u64) {
    let has = |field: u32| fields & u64::from(field) != 0;
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
    if has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
        cq.read_completion_ts = Some(read_completion_ts);
    }
    if has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
        cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
}

/// Shows the next completion in the public fields, or says ENOENT.
///
/// # Safety
/// `cq` is ours and live.
unsafe fn show_next(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: by the caller's promise.
    let state = unsafe { cq_state::state(cq.cast()) };
    let mut kept = state.cursor.lock();
    let Some((completion, stamp_ns)) = state.cq.poll_one() else {
        return libc::ENOENT;
    };
    let wall_clock = kept.wall_clock.as_mut();
    let shown = Shown {
        wc: convert::work_completion(&completion),
        stamp_ns,
        wall_ns: wall_clock.map_or(0, |clock| clock.at(stamp_ns)),
    };
    kept.shown = shown;
    // SAFETY: by the caller's promise.
    unsafe {
        (*cq).wr_id = shown.wc.wr_id;
        (*cq).status = shown.wc.status;
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program's attributes are null or readable.
    if !attr.is_null() && unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the program's queue is live.
    unsafe {
        if cq_state::is_inherited(cq.cast()) {
            return INHERITED.0;
        }
        show_next(cq)
    }
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
            let $wc = unsafe { cq_state::state(cq.cast()) }.cursor.lock().shown.wc;
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

/// By the clock that `ibv_query_rt_values_ex` reads.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: the program's queue is live.
    unsafe { cq_state::state(cq.cast()) }
        .cursor
        .lock()
        .shown
        .stamp_ns
}

/// Nanoseconds since 1970.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: the program's queue is live.
    unsafe { cq_state::state(cq.cast()) }
        .cursor
        .lock()
        .shown
        .wall_ns
}
