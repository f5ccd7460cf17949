//! What a urxe device does not do: one table, EOPNOTSUPP in the verb's own convention, and one
//! message per kind on stderr ([`report`]).
//!
//! Verbs of this table that take an object which cannot exist (modify an SRQ, free a device memory)
//! stand here all the same: a program with a bug gets an error, not a crash.
use std::ffi::c_int;

use crate::abi::*;
use crate::errno::{Convention, Errno, ErrnoCode, Outcome, Pointer};
use crate::report;

/// EOPNOTSUPP, said once per kind.
pub(crate) fn refuse<T>(what: &'static str) -> Outcome<T> {
    report::unsupported(what);
    Err(Errno::OPNOTSUPP)
}

/// EOPNOTSUPP for what programs ask to find out whether it is there: said only with
/// `URXE_LOG=debug`.
pub(crate) fn probe<T>(what: &'static str) -> Outcome<T> {
    log::debug!("the program asked for {what}, which urxe devices do not support");
    Err(Errno::OPNOTSUPP)
}

/// Functions for the table of exported verbs: `verb(types) -> value = "what";`
macro_rules! verbs {
    ($($name:ident($($ty:ty),*) $(-> $value:ty)? = $what:literal;)*) => {$(
        /// Refuses.
        ///
        /// # Safety
        /// None needed: the arguments are not looked at.
        pub(crate) unsafe fn $name($(_: $ty),*) -> Outcome<verbs!(@value $($value)?)> {
            refuse($what)
        }
    )*};
    (@value) => { () };
    (@value $value:ty) => { $value };
}

verbs! {
    import_pd(*mut ibv_context, u32) -> *mut ibv_pd = "importing a protection domain";
    unimport_pd(*mut ibv_pd) = "importing a protection domain";
    import_mr(*mut ibv_pd, u32) -> *mut ibv_mr = "importing a memory region";
    unimport_mr(*mut ibv_mr) = "importing a memory region";
    import_dm(*mut ibv_context, u32) -> *mut ibv_dm = "importing device memory";
    unimport_dm(*mut ibv_dm) = "importing device memory";
    resolve_l2(*mut ibv_context, *mut ibv_ah_attr, *mut u8, *mut u16) -> c_int = "resolving an Ethernet address";
}

/// Functions for the pointers in a context, and [`fill`], which puts them there:
/// `table.field(types) Convention = "what";`
macro_rules! operations {
    ($($($table:ident).+: $name:ident($($ty:ty),*) $convention:ty = $what:literal;)*) => {
        mod operation {
            #[allow(clippy::wildcard_imports, reason = "the types of every verb")]
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $name($(_: $ty),*) -> <$convention as Convention>::Raw {
                    <$convention>::raw(refuse($what))
                }
            )*
        }

        /// Lets every operation of the table in `vctx` refuse.
        pub(crate) fn fill(vctx: &mut verbs_context) {
            $(operations!(@set vctx $($table).+).$name = Some(operation::$name);)*
        }
    };
    (@set $vctx:ident vctx) => { $vctx };
    (@set $vctx:ident vctx.ops) => { $vctx.context.ops };
}

operations! {
    vctx: read_counters(*mut ibv_counters, *mut u64, u32, u32) ErrnoCode = "counters of flows";
    vctx: attach_counters_point_flow(*mut ibv_counters, *mut ibv_counter_attach_attr, *mut ibv_flow) ErrnoCode = "counters of flows";
    vctx: create_counters(*mut ibv_context, *mut ibv_counters_init_attr) Pointer<ibv_counters> = "counters of flows";
    vctx: destroy_counters(*mut ibv_counters) ErrnoCode = "counters of flows";
    vctx: modify_flow_action_esp(*mut ibv_flow_action, *mut ibv_flow_action_esp_attr) ErrnoCode = "IPsec flow actions";
    vctx: destroy_flow_action(*mut ibv_flow_action) ErrnoCode = "IPsec flow actions";
    vctx: create_flow_action_esp(*mut ibv_context, *mut ibv_flow_action_esp_attr) Pointer<ibv_flow_action> = "IPsec flow actions";
    vctx: modify_qp_rate_limit(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) ErrnoCode = "a rate limit";
    vctx: destroy_rwq_ind_table(*mut ibv_rwq_ind_table) ErrnoCode = "a receive work queue";
    vctx: create_rwq_ind_table(*mut ibv_context, *mut ibv_rwq_ind_table_init_attr) Pointer<ibv_rwq_ind_table> = "a receive work queue";
    vctx: destroy_wq(*mut ibv_wq) ErrnoCode = "a receive work queue";
    vctx: modify_wq(*mut ibv_wq, *mut ibv_wq_attr) ErrnoCode = "a receive work queue";
    vctx: create_wq(*mut ibv_context, *mut ibv_wq_init_attr) Pointer<ibv_wq> = "a receive work queue";
    vctx: ibv_destroy_flow(*mut ibv_flow) ErrnoCode = "flow steering";
    vctx: ibv_create_flow(*mut ibv_qp, *mut ibv_flow_attr) Pointer<ibv_flow> = "flow steering";
}
