//! The operations that programs reach through pointers in a context, not through symbols: the
//! inline functions of verbs.h call them. Each stands here with how it returns failure.
use std::ffi::{c_int, c_uint};

use urxe_device::Uncancelled;

use crate::abi::*;
use crate::errno::{Convention, ErrnoCode, Pointer};
use crate::object::answer_of_inherited;
use crate::{cq, dm, memory, mw, pd, post, qp, query, srq, unsupported, xrc};

/// `table.field(arguments) Convention = ours;`
macro_rules! operations {
    ($($($table:ident).+: $name:ident($first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)*) $convention:ty = $ours:path;)*) => {
        mod operation {
            #[allow(clippy::wildcard_imports, reason = "the types of every verb")]
            use super::*;
            $(
                /// # Safety
                /// As the manual page of the verb says.
                pub(super) unsafe extern "C" fn $name(
                    $first: $first_ty $(, $arg: $ty)*
                ) -> <$convention as Convention>::Raw {
                    let _uncancelled = Uncancelled::new();
                    // SAFETY: by the caller's promise.
                    let inherited = unsafe {
                        answer_of_inherited::<$convention>(stringify!($name), $first)
                    };
                    if let Some(answer) = inherited {
                        return answer;
                    }
                    // SAFETY: by the caller's promise.
                    <$convention>::raw(unsafe { $ours($first $(, $arg)*) })
                }
            )*
        }

        /// Puts every operation into a new context: ours, and a refusal for the rest.
        pub(crate) fn fill(vctx: &mut verbs_context) {
            unsupported::fill(vctx);
            $(operations!(@set vctx $($table).+).$name = Some(operation::$name);)*
            // These run once per message and return a count or an errno as they are.
            vctx.context.ops.poll_cq = Some(cq::poll);
            vctx.context.ops.post_send = Some(post::post_send);
            vctx.context.ops.post_recv = Some(post::post_recv);
            vctx.context.ops.post_srq_recv = Some(srq::post);
        }
    };
    (@set $vctx:ident vctx) => { $vctx };
    (@set $vctx:ident vctx.ops) => { $vctx.context.ops };
}

operations! {
    vctx.ops: req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) ErrnoCode = cq::request_notification;
    vctx: query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, size: usize) ErrnoCode = query::port;
    vctx: query_device_ex(context: *mut ibv_context, input: *const ibv_query_device_ex_input, attr: *mut ibv_device_attr_ex, size: usize) ErrnoCode = query::device_ex;
    vctx: create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) Pointer<ibv_cq_ex> = cq::create_ex;
    vctx: modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) ErrnoCode = cq::modify;
    vctx: query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) ErrnoCode = query::values;
    vctx: alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) Pointer<ibv_pd> = pd::alloc_parent;
    vctx: alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) Pointer<ibv_td> = pd::alloc_thread;
    vctx: dealloc_td(td: *mut ibv_td) ErrnoCode = pd::dealloc_thread;
    vctx: alloc_null_mr(pd: *mut ibv_pd) Pointer<ibv_mr> = memory::alloc_null;
    vctx: advise_mr(pd: *mut ibv_pd, advice: ib_uverbs_advise_mr_advice, flags: u32, list: *mut ibv_sge, count: u32) ErrnoCode = memory::advise;
    vctx: alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) Pointer<ibv_dm> = dm::alloc;
    vctx: free_dm(dm: *mut ibv_dm) ErrnoCode = dm::free;
    vctx: reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: usize, access: c_uint) Pointer<ibv_mr> = dm::register;
    vctx.ops: alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) Pointer<ibv_mw> = mw::alloc;
    vctx.ops: bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) ErrnoCode = mw::bind;
    vctx.ops: dealloc_mw(mw: *mut ibv_mw) ErrnoCode = mw::dealloc;
    vctx: create_srq_ex(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) Pointer<ibv_srq> = srq::create_ex;
    vctx: get_srq_num(srq: *mut ibv_srq, number: *mut u32) ErrnoCode = srq::number;
    vctx: open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) Pointer<ibv_xrcd> = xrc::open;
    vctx: close_xrcd(xrcd: *mut ibv_xrcd) ErrnoCode = xrc::close;
    vctx: open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) Pointer<ibv_qp> = qp::open;
    vctx: create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) Pointer<ibv_qp> = qp::create_ex;
}
