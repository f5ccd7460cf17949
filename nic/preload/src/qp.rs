//! Queue pairs: creation, states, attributes, destruction. Every queue pair of ours has room for
//! the extended interface; only `ibv_create_qp_ex` with send operations opens it to the program.
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use urxe_device::{AttrMask, Capacity, Gid, Qp, QpInit, QpType, Qpn};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::Users;
use crate::qp_state::{Objects, QpHandle, QpState, known, state};
use crate::reported::{HasEvents, Reported};
use crate::requests::Builder;
use crate::unsupported::{probe, refuse};
use crate::{context, convert, cq_state, pd, qp_ex, srq, xrc};

/// What only `ibv_create_qp_ex` can ask for.
struct Wanted {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
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
        let wanted = Wanted {
            context: (*pd).context,
            pd,
            xrcd: null_mut(),
            operations: None,
        };
        new(&wanted, &mut *attr)
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
    let wanted = wanted(context, unsafe { &*attr })?;
    // The extended struct starts with the members of the other: verbs.h relies on that too.
    // SAFETY: by the caller's promise.
    unsafe { new(&wanted, &mut *attr.cast::<ibv_qp_init_attr>()) }
}

fn wanted(context: *mut ibv_context, attr: &ibv_qp_init_attr_ex) -> Outcome<Wanted> {
    const KNOWN: u32 = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_MAX_TSO_HEADER
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let has = |bit| attr.comp_mask & bit != 0;
    if has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header != 0 {
        return refuse("a queue pair with TCP segmentation (TSO)");
    }
    if attr.comp_mask & !KNOWN != 0 || has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0
    {
        return refuse("a queue pair with RSS or creation flags");
    }
    let given = |bit, object: bool| !has(bit) || object;
    if !given(IBV_QP_INIT_ATTR_PD, !attr.pd.is_null())
        || !given(IBV_QP_INIT_ATTR_XRCD, !attr.xrcd.is_null())
    {
        return Err(Errno::INVAL);
    }
    Ok(Wanted {
        context,
        pd: only_if(has(IBV_QP_INIT_ATTR_PD), attr.pd),
        xrcd: only_if(has(IBV_QP_INIT_ATTR_XRCD), attr.xrcd),
        operations: has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags),
    })
}

/// A pointer that has a meaning only if `has`.
fn only_if<T>(has: bool, object: *mut T) -> *mut T {
    if has { object } else { null_mut() }
}

/// The type of a queue pair.
fn kind_of(qp_type: ibv_qp_type) -> Outcome<QpType> {
    Ok(match qp_type {
        IBV_QPT_RC => QpType::Rc,
        IBV_QPT_UC => QpType::Uc,
        IBV_QPT_UD => QpType::Ud,
        IBV_QPT_XRC_SEND => QpType::XrcInitiator,
        IBV_QPT_XRC_RECV => QpType::XrcTarget,
        IBV_QPT_RAW_PACKET => return refuse("a raw packet queue pair"),
        IBV_QPT_DRIVER => return refuse("a vendor's own kind of queue pair"),
        _ => return Err(Errno::INVAL),
    })
}

/// What a queue pair of type `kind` refers to of what the program gave; the rest it may leave
/// uninitialised.
fn objects(kind: QpType, wanted: &Wanted, attr: &ibv_qp_init_attr) -> Outcome<Objects> {
    let is_target = kind == QpType::XrcTarget;
    let objects = Objects {
        pd: only_if(!is_target, wanted.pd),
        send_cq: only_if(kind.sends(), attr.send_cq),
        recv_cq: only_if(kind.receives(), attr.recv_cq),
        srq: only_if(kind.receives(), attr.srq),
        xrcd: only_if(is_target, wanted.xrcd),
    };
    let misses = (!is_target && objects.pd.is_null())
        || (is_target && objects.xrcd.is_null())
        || (kind.sends() && objects.send_cq.is_null())
        || (kind.receives() && objects.recv_cq.is_null());
    if misses {
        return Err(Errno::INVAL);
    }
    Ok(objects)
}

/// # Safety
/// The context is ours and open, the objects of `wanted` and `attr` are null or live.
unsafe fn new(wanted: &Wanted, attr: &mut ibv_qp_init_attr) -> Outcome<*mut ibv_qp> {
    let kind = kind_of(attr.qp_type)?;
    let objects = objects(kind, wanted, attr)?;
    // SAFETY: by the caller's promise.
    if !unsafe { objects.are_of(wanted.context) } {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise; they are ours since their context is.
    unsafe { objects.check() }?;
    if let Some(operations) = wanted.operations
        && !qp_ex::supports(kind, operations)
    {
        return refuse("a queue pair with operations that its type does not have, or with TSO");
    }
    // SAFETY: by the caller's promise; the objects are ours since their context is.
    let (owner, init) = unsafe {
        (
            context::state(wanted.context),
            device_init(kind, &objects, convert::capacity(&attr.cap)),
        )
    };
    let qp = owner.nic.create_qp(&init).map_err(|error| {
        log::debug!("creating a queue pair: {error}");
        convert::errno(&error)
    })?;
    attr.cap = convert::c_capacity(&qp.init().capacity);
    let number = qp.number().get();
    // SAFETY: as above.
    let made = unsafe {
        give(
            Arc::new(qp),
            kind,
            objects,
            attr.qp_context,
            wanted,
            attr.sq_sig_all != 0,
        )
    };
    owner.events.add_qp(number, made);
    Ok(made)
}

/// # Safety
/// The objects are ours and live.
unsafe fn device_init(kind: QpType, objects: &Objects, capacity: Capacity) -> QpInit {
    let queue = |cq: *mut ibv_cq| {
        // SAFETY: by the caller's promise.
        (!cq.is_null()).then(|| Arc::clone(&unsafe { cq_state::state(cq) }.cq))
    };
    // SAFETY: by the caller's promise.
    unsafe {
        QpInit {
            qp_type: kind,
            pd: (!objects.pd.is_null()).then(|| pd::state(objects.pd).pd),
            send_cq: queue(objects.send_cq),
            recv_cq: queue(objects.recv_cq),
            srq: (!objects.srq.is_null()).then(|| Arc::clone(&srq::state(objects.srq).srq)),
            xrcd: (!objects.xrcd.is_null()).then(|| xrc::state(objects.xrcd).xrcd),
            capacity,
        }
    }
}

/// Hands a queue pair to C.
///
/// # Safety
/// The objects are ours and live.
unsafe fn give(
    qp: Arc<Qp>,
    kind: QpType,
    objects: Objects,
    qp_context: *mut c_void,
    wanted: &Wanted,
    signal_all: bool,
) -> *mut ibv_qp {
    let number = qp.number().get();
    let public = ibv_qp {
        context: wanted.context,
        qp_context,
        // Also that of an XRC target, which needs none: librdmacm takes it for what is made next.
        pd: wanted.pd,
        send_cq: objects.send_cq,
        recv_cq: objects.recv_cq,
        srq: objects.srq,
        handle: number,
        qp_num: number,
        state: IBV_QPS_RESET,
        qp_type: match kind {
            QpType::Rc => IBV_QPT_RC,
            QpType::Uc => IBV_QPT_UC,
            QpType::Ud => IBV_QPT_UD,
            QpType::XrcInitiator => IBV_QPT_XRC_SEND,
            QpType::XrcTarget => IBV_QPT_XRC_RECV,
        },
        ..ibv_qp::default()
    };
    // SAFETY: by the caller's promise.
    unsafe { objects.for_each(Users::add) };
    let private = QpState {
        qp,
        kind,
        builder: Builder::default(),
        events: Reported::default(),
        signal_all,
        extended: wanted.operations.is_some(),
        objects,
    };
    let extended = ibv_qp_ex {
        qp_base: public,
        ..ibv_qp_ex::default()
    };
    let c = qp_ex::with_operations(extended, wanted.operations.unwrap_or(0));
    let made: *mut ibv_qp = QpHandle::give(c, private).cast();
    // SAFETY: just made, and not yet given to the program.
    unsafe { HasEvents::lock(made).initialise() };
    made
}

/// `ibv_open_qp`: another handle of an XRC target.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable, its domain null or live.
pub(crate) unsafe fn open(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> Outcome<*mut ibv_qp> {
    const NEEDED: u32 = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    // SAFETY: by the caller's promise.
    let Some(attr) = (unsafe { attr.as_ref() }) else {
        return Err(Errno::INVAL);
    };
    if attr.comp_mask & NEEDED != NEEDED
        || attr.comp_mask & !(NEEDED | IBV_QP_OPEN_ATTR_CONTEXT) != 0
        || attr.qp_type != IBV_QPT_XRC_RECV
        || attr.xrcd.is_null()
    {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let xrcd = unsafe { xrc::known(attr.xrcd) }?;
    // SAFETY: by the caller's promise; what is registered is live while it is.
    let shared = unsafe {
        context::state(context).events.with_qp(attr.qp_num, |qp| {
            let of = state(qp);
            let is_same =
                of.kind == QpType::XrcTarget && xrc::state(of.objects.xrcd).xrcd == xrcd.xrcd;
            is_same.then(|| Arc::clone(&of.qp))
        })
    };
    let Some(qp) = shared.flatten() else {
        // SAFETY: by the caller's promise.
        let is_own = unsafe { context::state(context) }
            .nic
            .may_have_numbered(Qpn::new(attr.qp_num));
        return if is_own {
            Err(Errno::INVAL)
        } else {
            refuse("an XRC target of another process, or of another opening of the device")
        };
    };
    let objects = Objects {
        pd: null_mut(),
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        xrcd: attr.xrcd,
    };
    let wanted = Wanted {
        context,
        pd: null_mut(),
        xrcd: attr.xrcd,
        operations: None,
    };
    let has_context = attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
    let qp_context = only_if(has_context, attr.qp_context);
    // SAFETY: by the caller's promise.
    let made = unsafe { give(qp, QpType::XrcTarget, objects, qp_context, &wanted, false) };
    // SAFETY: by the caller's promise.
    unsafe { context::state(context) }
        .events
        .add_qp(attr.qp_num, made);
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
    let (state, attr) = unsafe { (known(qp)?, &*attr) };
    let mask = convert::attribute_mask(mask)?;
    // SAFETY: by the caller's promise.
    let nic = &unsafe { context::state((*qp).context) }.nic;
    let attributes = convert::attributes(attr, mask, nic)?;
    state.qp.modify(&attributes, mask).map_err(|error| {
        log::debug!(
            "modifying queue pair {:#x}: {error}",
            state.qp.number().get()
        );
        convert::errno(&error)
    })?;
    if mask.contains(AttrMask::STATE) {
        // SAFETY: by the caller's promise.
        unsafe { (*qp).state = attr.qp_state };
    }
    Ok(())
}

/// `ibv_query_qp`: everything, whatever the mask asks for. The public state is set, as libibverbs
/// does, only where the mask asks for it: UCX queries addresses after an error, and expects the
/// state that it has set itself.
///
/// # Safety
/// `qp` is ours and live, `attr` and `init` are null or writable.
pub(crate) unsafe fn query(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> Outcome<()> {
    if attr.is_null() || init.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, public) = unsafe { (known(qp)?, &mut *qp) };
    let attributes = state.qp.query().map_err(|error| convert::errno(&error))?;
    let cap = convert::c_capacity(&state.qp.init().capacity);
    let found = convert::c_attributes(&attributes, cap);
    if mask.cast_unsigned() & IBV_QP_STATE != 0 {
        public.state = found.qp_state;
    }
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

/// `ibv_destroy_qp`: waits for the program to acknowledge the events it got. EBUSY while the queue
/// pair is attached to a multicast group.
///
/// # Safety
/// `qp` is ours and live; no thread uses it any more, but for acknowledging.
pub(crate) unsafe fn destroy(qp: *mut ibv_qp) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = state(qp);
        state.number().ends((*qp).handle)?;
        if state.qp.is_in_group() {
            return Err(Errno::BUSY);
        }
        context::state((*qp).context)
            .events
            .forget_qp(state.qp.number().get(), qp);
        // An XRC target lives until the last handle of it is destroyed.
        if Arc::strong_count(&state.qp) == 1 {
            state.qp.destroy();
        }
        HasEvents::lock(qp).wait_for(&state.events, &raw const (*qp).events_completed);
        state.objects.for_each(Users::remove);
        drop(QpHandle::take_back(qp.cast()));
    }
    Ok(())
}

/// `ibv_attach_mcast`. RoCE has no LID.
///
/// # Safety
/// `qp` is ours and live, `gid` is null or readable.
pub(crate) unsafe fn attach_multicast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe { known(qp)?.qp.attach_multicast(group(gid)?) }.map_err(|error| convert::errno(&error))
}

/// `ibv_detach_mcast`.
///
/// # Safety
/// `qp` is ours and live, `gid` is null or readable.
pub(crate) unsafe fn detach_multicast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe { known(qp)?.qp.detach_multicast(group(gid)?) }.map_err(|error| convert::errno(&error))
}

/// # Safety
/// `gid` is null or readable.
unsafe fn group(gid: *const ibv_gid) -> Outcome<Gid> {
    // SAFETY: by the caller's promise; both members of the union are 16 bytes of any value.
    unsafe { gid.as_ref().map(|gid| Gid(gid.raw)) }.ok_or(Errno::INVAL)
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
    probe("enhanced connection establishment (ECE)")
}

/// `ibv_query_ece`.
///
/// # Safety
/// None needed.
pub(crate) unsafe fn query_ece(_: *mut ibv_qp, _: *mut ibv_ece) -> Outcome<()> {
    probe("enhanced connection establishment (ECE)")
}
