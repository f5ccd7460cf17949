//! The public symbols: the one table that says for each verb its arguments, how it returns failure,
//! and what of ours answers it. The dynamic linker gives programs these instead of libibverbs's.
//!
//! Each looks at its first argument: an object of one of our devices goes to our function, any
//! other to the libibverbs behind us, a null pointer is EINVAL in the verb's own convention.
//!
//! Our definitions carry no version and so satisfy references to every version, also those of
//! IBVERBS_1.0 by programs built before 2007, whose structs differ; such programs are not
//! supported.
//!
//! Not here, and so libibverbs's own also under us:
//! - functions of values alone: `ibv_*_str`, `ibv_rate_to_*`, `*_to_ibv_rate`, `ibv_copy_*_kern`,
//!   `ibv_get_sysfs_path`;
//! - `ibv_fork_init`, `ibv_is_fork_initialized`, `ibv_do[nt]fork_range`: they protect memory that a
//!   device reaches by DMA; urxe reaches memory as the process itself and needs nothing;
//! - `ibv_register_driver` and all of IBVERBS_PRIVATE but `ibv_query_gid_type`: libibverbs and its
//!   drivers among themselves.
use std::ffi::{c_char, c_int, c_uint, c_void};

use urxe_device::Uncancelled;

use crate::abi::*;
use crate::blocking::{self, Function};
use crate::errno::{Convention, Errno, ErrnoCode, MinusOne, NegativeErrno, Plain, Pointer};
use crate::next::{Next, c_name, call_next};
use crate::object::{Object, answer_of_inherited};
use crate::{
    ah, buffers, channel, context, cq, descriptors, device, dm, dmabuf, events, gid, memory,
    opening, pd, qp, query, srq, unsupported,
};

/// Defines the verbs of the table: `"VERSION" Convention: verb(object: type, ...) = ours;`
macro_rules! verbs {
    ($(
        $version:literal $convention:ty:
        $name:ident($first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) = $ours:path;
    )*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of libibverbs, symbol version ", $version, ".")]
            ///
            /// # Safety
            /// As its manual page says: pointers are valid, objects are live.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(
                $first: $first_ty $(, $arg: $ty)*
            ) -> <$convention as Convention>::Raw {
                static NEXT: Next = Next::verb(c_name!(stringify!($name)), c_name!($version));
                if $first.is_nothing() {
                    return <$convention>::raw(Err(Errno::INVAL));
                }
                // SAFETY: by the caller's promise.
                if unsafe { $first.is_ours() } {
                    let _uncancelled = Uncancelled::new();
                    // SAFETY: as above.
                    let inherited = unsafe {
                        answer_of_inherited::<$convention>(stringify!($name), $first)
                    };
                    if let Some(answer) = inherited {
                        return answer;
                    }
                    // SAFETY: the caller's promise holds for the function that answers.
                    return <$convention>::raw(unsafe { $ours($first $(, $arg)*) });
                }
                let next = call_next!(
                    NEXT,
                    fn($first_ty $(, $ty)*) -> <$convention as Convention>::Raw,
                    $first $(, $arg)*
                );
                next.unwrap_or_else(|| <$convention>::raw(Err(Errno::NOSYS)))
            }
        )*
    };
}

verbs! {
    // Devices and contexts.
    "IBVERBS_1.1" Pointer<c_char>: ibv_get_device_name(device: *mut ibv_device) = device::name;
    "IBVERBS_1.9" MinusOne: ibv_get_device_index(device: *mut ibv_device) = device::index;
    "IBVERBS_1.1" Plain<u64>: ibv_get_device_guid(device: *mut ibv_device) = device::guid;
    "IBVERBS_1.1" Pointer<ibv_context>: ibv_open_device(device: *mut ibv_device) = opening::open;
    "IBVERBS_1.1" MinusOne: ibv_close_device(context: *mut ibv_context) = context::close;
    "IBVERBS_1.1" ErrnoCode: ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) = query::device;
    "IBVERBS_1.1" ErrnoCode: ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) = query::port_compat;
    "IBVERBS_1.16" ErrnoCode: ibv_query_port_speed(context: *mut ibv_context, port: u32, speed: *mut u64) = query::port_speed;
    "IBVERBS_1.1" MinusOne: ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) = gid::query;
    "IBVERBS_1.11" ErrnoCode: _ibv_query_gid_ex(context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) = gid::query_ex;
    "IBVERBS_1.11" NegativeErrno: _ibv_query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags: u32, entry_size: usize) = gid::query_table;
    "IBVERBS_PRIVATE_34" MinusOne: ibv_query_gid_type(context: *mut ibv_context, port: u8, index: c_uint, kind: *mut c_uint) = gid::query_type;
    "IBVERBS_1.1" MinusOne: ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) = query::pkey;
    "IBVERBS_1.5" MinusOne: ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) = query::pkey_index;
    "IBVERBS_1.1" MinusOne: ibv_resolve_eth_l2_from_gid(context: *mut ibv_context, attr: *mut ibv_ah_attr, mac: *mut u8, vlan: *mut u16) = unsupported::resolve_l2;

    // Asynchronous events.
    "IBVERBS_1.1" Plain<()>: ibv_ack_async_event(event: *mut ibv_async_event) = events::acknowledge;

    // Protection domains and memory.
    "IBVERBS_1.1" Pointer<ibv_pd>: ibv_alloc_pd(context: *mut ibv_context) = pd::alloc;
    "IBVERBS_1.1" ErrnoCode: ibv_dealloc_pd(pd: *mut ibv_pd) = pd::dealloc;
    "IBVERBS_1.1" Pointer<ibv_mr>: ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) = memory::register;
    "IBVERBS_1.7" Pointer<ibv_mr>: ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) = memory::register_iova;
    "IBVERBS_1.8" Pointer<ibv_mr>: ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) = memory::register_iova2;
    "IBVERBS_1.12" Pointer<ibv_mr>: ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) = dmabuf::register;
    "IBVERBS_1.15" Pointer<ibv_mr>: ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) = buffers::register_any;
    "IBVERBS_1.16" MinusOne: ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) = dm::export;
    "IBVERBS_1.17" Pointer<c_void>: ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) = buffers::alloc;
    "IBVERBS_1.17" Plain<()>: ibv_free_buf(buf: *mut ibv_buf) = buffers::free;
    "IBVERBS_1.18" MinusOne: ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) = buffers::export;
    "IBVERBS_1.17" Pointer<ibv_mr>: ibv_reg_buf_mr(pd: *mut ibv_pd, buf: *mut ibv_buf, addr: *mut c_void, length: usize, access: c_int) = buffers::register;
    "IBVERBS_1.1" MinusOne: ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) = memory::register_again;
    "IBVERBS_1.1" ErrnoCode: ibv_dereg_mr(mr: *mut ibv_mr) = memory::deregister;
    "IBVERBS_1.10" Pointer<ibv_pd>: ibv_import_pd(context: *mut ibv_context, handle: u32) = unsupported::import_pd;
    "IBVERBS_1.10" Plain<()>: ibv_unimport_pd(pd: *mut ibv_pd) = unsupported::unimport_pd;
    "IBVERBS_1.10" Pointer<ibv_mr>: ibv_import_mr(pd: *mut ibv_pd, handle: u32) = unsupported::import_mr;
    "IBVERBS_1.10" Plain<()>: ibv_unimport_mr(mr: *mut ibv_mr) = unsupported::unimport_mr;
    "IBVERBS_1.13" Pointer<ibv_dm>: ibv_import_dm(context: *mut ibv_context, handle: u32) = unsupported::import_dm;
    "IBVERBS_1.13" Plain<()>: ibv_unimport_dm(dm: *mut ibv_dm) = unsupported::unimport_dm;

    // Completion channels and queues.
    "IBVERBS_1.0" Pointer<ibv_comp_channel>: ibv_create_comp_channel(context: *mut ibv_context) = channel::create;
    "IBVERBS_1.0" ErrnoCode: ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) = channel::destroy;
    "IBVERBS_1.1" Plain<()>: ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) = channel::acknowledge;
    "IBVERBS_1.1" Pointer<ibv_cq>: ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int) = cq::create;
    "IBVERBS_1.1" ErrnoCode: ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) = cq::resize;
    "IBVERBS_1.1" ErrnoCode: ibv_destroy_cq(cq: *mut ibv_cq) = cq::destroy;

    // Queue pairs.
    "IBVERBS_1.1" Pointer<ibv_qp>: ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) = qp::create;
    "IBVERBS_1.6" Pointer<ibv_qp_ex>: ibv_qp_to_qp_ex(qp: *mut ibv_qp) = qp::extended;
    "IBVERBS_1.1" ErrnoCode: ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) = qp::modify;
    "IBVERBS_1.1" ErrnoCode: ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) = qp::query;
    "IBVERBS_1.14" Plain<c_int>: ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) = qp::data_in_order;
    "IBVERBS_1.1" ErrnoCode: ibv_destroy_qp(qp: *mut ibv_qp) = qp::destroy;
    "IBVERBS_1.10" ErrnoCode: ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) = qp::set_ece;
    "IBVERBS_1.10" ErrnoCode: ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) = qp::query_ece;
    "IBVERBS_1.1" ErrnoCode: ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) = qp::attach_multicast;
    "IBVERBS_1.1" ErrnoCode: ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) = qp::detach_multicast;

    // Shared receive queues and address handles.
    "IBVERBS_1.1" Pointer<ibv_srq>: ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) = srq::create;
    "IBVERBS_1.1" ErrnoCode: ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) = srq::modify;
    "IBVERBS_1.1" ErrnoCode: ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) = srq::query;
    "IBVERBS_1.1" ErrnoCode: ibv_destroy_srq(srq: *mut ibv_srq) = srq::destroy;
    "IBVERBS_1.1" Pointer<ibv_ah>: ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) = ah::create;
    "IBVERBS_1.1" MinusOne: ibv_init_ah_from_wc(context: *mut ibv_context, port: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, attr: *mut ibv_ah_attr) = ah::init_from_wc;
    "IBVERBS_1.1" Pointer<ibv_ah>: ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port: u8) = ah::create_from_wc;
    "IBVERBS_1.1" ErrnoCode: ibv_destroy_ah(ah: *mut ibv_ah) = ah::destroy;
}

crate::routed::routed! {
    /// `ibv_get_async_event` of libibverbs, symbol version IBVERBS_1.1.
    ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int = route_get_async_event;
    /// `ibv_get_cq_event` of libibverbs, symbol version IBVERBS_1.1.
    ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int = route_get_cq_event;
}

/// # Safety
/// The object is null or live.
unsafe fn route(object: impl Object, ours: unsafe extern "C" fn(), next: &Next) -> Function {
    // SAFETY: by the caller's promise.
    if object.is_nothing() || unsafe { object.is_ours() } {
        ours as Function
    } else {
        blocking::next(next)
    }
}

unsafe extern "C" fn route_get_async_event(context: *mut ibv_context) -> Function {
    static NEXT: Next = Next::verb(c"ibv_get_async_event", c"IBVERBS_1.1");
    // SAFETY: the program's context is null or open.
    unsafe { route(context, events::get, &NEXT) }
}

unsafe extern "C" fn route_get_cq_event(channel: *mut ibv_comp_channel) -> Function {
    static NEXT: Next = Next::verb(c"ibv_get_cq_event", c"IBVERBS_1.1");
    // SAFETY: the program's channel is null or live.
    unsafe { route(channel, channel::get_event, &NEXT) }
}

/// `ibv_get_device_list`: all devices, ours and those of the libibverbs behind us.
///
/// # Safety
/// `num_devices` is null or writable.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let _uncancelled = Uncancelled::new();
    // SAFETY: by the caller's promise.
    unsafe { device::list(num_devices) }
}

/// `ibv_free_device_list`.
///
/// # Safety
/// `list` is null or came from [`ibv_get_device_list`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: by the caller's promise.
    unsafe { device::free_list(list) };
}

/// `ibv_import_device`: a context by the descriptor of another one.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    static NEXT: Next = Next::verb(c"ibv_import_device", c"IBVERBS_1.10");
    if descriptors::is_device(fd) {
        return Pointer::raw(unsupported::refuse("importing a device"));
    }
    call_next!(NEXT, fn(c_int) -> *mut ibv_context, fd)
        .unwrap_or_else(|| Pointer::raw(Err(Errno::NOSYS)))
}
