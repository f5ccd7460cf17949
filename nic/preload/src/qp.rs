//! Queue pairs: creation, states, attributes, destruction. Every queue pair of ours has room for the
//! extended interface; only `ibv_create_qp_ex` with send operations opens it to the program.
use std::ffi::c_int;
use std::sync::Arc;

use urxe_device::{Qp, QpInit, QpType};

use crate::abi::*;
use crate::channel::Unacknowledged;
use crate::errno::{Errno, Outcome};
use crate::handle::Handle;
use crate::unsupported::refuse;
use crate::{context, convert, cq, pd, qp_ex};

/// What stands behind a queue pair.
pub(crate) struct QpState {
    pub(crate) qp: Qp,
    /// Requests posted with the extended interface.
    pub(crate) builder: qp_ex::Builder,
    /// Asynchronous events the program got and did not acknowledge.
    pub(crate) events: Unacknowledged,
    /// Every send completes visibly, signaled or not.
    pub(crate) signal_all: bool,
    /// Whether the program may use `ibv_qp_ex`.
    extended: bool,
}

type QpHandle = Handle<ibv_qp_ex, QpState>;

/// The state of a queue pair of ours.
///
/// # Safety
/// `qp` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(qp: *mut ibv_qp) -> &'a QpState {
    // SAFETY: by the caller's promise; every queue pair of ours is an extended one.
    unsafe { QpHandle::state(qp.cast()) }
}

/// What the two ways of creating a queue pair have in common.
struct Wanted {
    pd: *mut ibv_pd,
    /// Operations of the extended interface, if it is wanted.
    operations: Option<u64>,
}

/// `ibv_create_qp`.
///
/// # Safety
/// `pd` is ours and live, `attr` is null or readable and writable, and its objects are live.
pub(crate) unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> Outcome<*mut ibv_qp> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe {
        new(
            &Wanted {
                pd,
                operations: None,
            },
            &mut *attr,
        )
    }
}

/// `ibv_create_qp_ex`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable and writable, and its objects are live.
pub(crate) unsafe fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Outcome<*mut ibv_qp> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let wanted = unsafe { wanted(context, &*attr) }?;
    // The extended struct starts with the members of the other: verbs.h relies on that too.
    // SAFETY: by the caller's promise.
    unsafe { new(&wanted, &mut *attr.cast::<ibv_qp_init_attr>()) }
}

/// # Safety
/// The protection domain in `attr` is null or live.
unsafe fn wanted(context: *mut ibv_context, attr: &ibv_qp_init_attr_ex) -> Outcome<Wanted> {
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let has = |bit| attr.comp_mask & bit != 0;
    if attr.comp_mask & !known != 0 || has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0
    {
        return refuse("a queue pair with XRC, TSO, RSS or creation flags");
    }
    // SAFETY: by the caller's promise.
    if !has(IBV_QP_INIT_ATTR_PD) || attr.pd.is_null() || unsafe { (*attr.pd).context } != context {
        return Err(Errno::INVAL);
    }
    let operations = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags);
    if operations.is_some_and(|operations| operations & !qp_ex::OPERATIONS != 0) {
        return refuse("a queue pair with memory windows, TSO or atomic writes");
    }
    Ok(Wanted {
        pd: attr.pd,
        operations,
    })
}

/// # Safety
/// The protection domain is ours, and the objects in `attr` are null or live.
unsafe fn new(wanted: &Wanted, attr: &mut ibv_qp_init_attr) -> Outcome<*mut ibv_qp> {
    let qp_type = match attr.qp_type {
        IBV_QPT_RC => QpType::Rc,
        IBV_QPT_UC => return refuse("an unreliable connected queue pair (UC)"),
        IBV_QPT_UD => return refuse("an unreliable datagram queue pair (UD)"),
        IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => return refuse("an XRC queue pair"),
        IBV_QPT_RAW_PACKET => return refuse("a raw packet queue pair"),
        IBV_QPT_DRIVER => return refuse("a vendor's own kind of queue pair"),
        _ => return Err(Errno::INVAL),
    };
    if !attr.srq.is_null() {
        return refuse("a shared receive queue");
    }
    // SAFETY: by the caller's promise.
    let context = unsafe { (*wanted.pd).context };
    for cq in [attr.send_cq, attr.recv_cq] {
        // SAFETY: by the caller's promise.
        if cq.is_null() || unsafe { (*cq).context } != context {
            return Err(Errno::INVAL);
        }
    }
    // SAFETY: by the caller's promise; the queues are ours since their context is.
    let (domain, send_cq, recv_cq) = unsafe {
        (
            pd::state(wanted.pd),
            cq::state(attr.send_cq),
            cq::state(attr.recv_cq),
        )
    };
    let init = QpInit {
        qp_type,
        pd: Some(domain.pd),
        send_cq: Some(Arc::clone(&send_cq.cq)),
        recv_cq: Some(Arc::clone(&recv_cq.cq)),
        srq: None,
        xrcd: None,
        capacity: convert::capacity(&attr.cap),
    };
    let qp = domain
        .nic
        .create_qp(&init)
        .map_err(|error| convert::errno(&error))?;
    let number = qp.number().get();
    attr.cap = convert::c_capacity(&init.capacity);
    let public = ibv_qp {
        context,
        qp_context: attr.qp_context,
        pd: wanted.pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: std::ptr::null_mut(),
        handle: number,
        qp_num: number,
        state: IBV_QPS_RESET,
        qp_type: attr.qp_type,
        ..ibv_qp::default()
    };
    for users in [&domain.users, &send_cq.users, &recv_cq.users] {
        users.add();
    }
    let private = QpState {
        qp,
        builder: qp_ex::Builder::default(),
        events: Unacknowledged::default(),
        signal_all: attr.sq_sig_all != 0,
        extended: wanted.operations.is_some(),
    };
    let mut c = ibv_qp_ex {
        qp_base: public,
        ..ibv_qp_ex::default()
    };
    if let Some(operations) = wanted.operations {
        qp_ex::set_operations(&mut c, operations);
    }
    let made: *mut ibv_qp = QpHandle::give(c, private).cast();
    // SAFETY: by the caller's promise.
    unsafe { context::state(context) }
        .events
        .add_qp(number, made);
    Ok(made)
}

/// `ibv_qp_to_qp_ex`: null unless the queue pair was created with send operations.
///
/// # Safety
/// `qp` is ours and live.
pub(crate) unsafe fn extended(qp: *mut ibv_qp) -> Outcome<*mut ibv_qp_ex> {
    // SAFETY: by the caller's promise.
    if unsafe { state(qp) }.extended {
        Ok(qp.cast())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

/// `ibv_modify_qp`.
///
/// # Safety
/// `qp` is ours and live, `attr` is null or readable.
pub(crate) unsafe fn modify(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> Outcome<()> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, attr) = unsafe { (state(qp), &*attr) };
    let mask = convert::attribute_mask(mask)?;
    let attributes = convert::attributes(attr, mask)?;
    state.qp.modify(&attributes, mask).map_err(|error| {
        log::debug!(
            "modifying queue pair {:#x}: {error}",
            state.qp.number().get()
        );
        convert::errno(&error)
    })?;
    if mask.contains(urxe_device::AttrMask::STATE) {
        // SAFETY: by the caller's promise.
        unsafe { (*qp).state = attr.qp_state };
    }
    Ok(())
}

/// `ibv_query_qp`: everything, whatever the mask asks for.
///
/// # Safety
/// `qp` is ours and live, `attr` and `init` are null or writable.
pub(crate) unsafe fn query(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    if attr.is_null() || init.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, public) = unsafe { (state(qp), &mut *qp) };
    let attributes = state.qp.query().map_err(|error| convert::errno(&error))?;
    let cap = convert::c_capacity(&state.qp.init().capacity);
    let found = convert::c_attributes(&attributes, cap);
    public.state = found.qp_state;
    // SAFETY: by the caller's promise.
    unsafe {
        *attr = found;
        *init = ibv_qp_init_attr {
            qp_context: public.qp_context,
            send_cq: public.send_cq,
            recv_cq: public.recv_cq,
            srq: public.srq,
            cap,
            qp_type: public.qp_type,
            sq_sig_all: state.signal_all.into(),
        };
    }
    Ok(())
}

/// `ibv_query_qp_data_in_order`: no promise is made.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn data_in_order(_: *mut ibv_qp, _: ibv_wr_opcode, _: u32) -> Outcome<c_int> {
    Ok(0)
}

/// `ibv_destroy_qp`: waits for the program to acknowledge the events it got.
///
/// # Safety
/// `qp` is ours and live; nobody uses it any more, but for acknowledging.
pub(crate) unsafe fn destroy(qp: *mut ibv_qp) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let (public, state) = (&*qp, state(qp));
        context::state(public.context)
            .events
            .forget_qp(state.qp.number().get());
        state.qp.destroy();
        state.events.wait_for_none();
        pd::state(public.pd).users.remove();
        cq::state(public.send_cq).users.remove();
        cq::state(public.recv_cq).users.remove();
        drop(QpHandle::take_back(qp.cast()));
    }
    Ok(())
}

/// `ibv_set_ece`: there are no enhanced connection options; a program that sets none is content.
///
/// # Safety
/// `ece` is null or readable.
pub(crate) unsafe fn set_ece(_: *mut ibv_qp, ece: *mut ibv_ece) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    if !ece.is_null() && unsafe { (*ece).vendor_id } == 0 {
        return Ok(());
    }
    refuse("enhanced connection establishment (ECE)")
}

/// `ibv_query_ece`.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn query_ece(_: *mut ibv_qp, _: *mut ibv_ece) -> Outcome<()> {
    refuse("enhanced connection establishment (ECE)")
}
