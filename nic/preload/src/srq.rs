//! Shared receive queues.
use std::ffi::c_int;
use std::sync::Arc;

use urxe_device::{Nic, RecvRequest, Srq, SrqInit, XrcSrqInit};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Number, Users};
use crate::lists::{receive_list, refuse_all};
use crate::object::INHERITED;
use crate::reported::{HasEvents, Reported};
use crate::unsupported::refuse;
use crate::{context, convert, cq_state, pd, xrc};

/// What stands behind a shared receive queue.
pub(crate) struct SrqState {
    pub(crate) srq: Arc<Srq>,
    /// Asynchronous events that the program got.
    pub(crate) events: Reported,
    /// Queue pairs that receive from it.
    pub(crate) users: Users,
    /// Set for one of XRC.
    xrc: Option<Xrc>,
}

/// The objects that an XRC queue refers to.
#[derive(Clone, Copy)]
struct Xrc {
    domain: *mut ibv_xrcd,
    cq: *mut ibv_cq,
}

type SrqHandle = Handle<ibv_srq, SrqState>;

/// The state of a queue of ours.
///
/// # Safety
/// `srq` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(srq: *mut ibv_srq) -> &'a SrqState {
    // SAFETY: by the caller's promise.
    unsafe { SrqHandle::state(srq) }
}

/// Whether it is the parent's, in the child of a fork.
///
/// # Safety
/// As for [`state`].
#[inline]
pub(crate) unsafe fn is_inherited(srq: *mut ibv_srq) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { SrqHandle::is_inherited(srq) }
}

/// The state of a queue that a verb uses: EINVAL for a handle that is not its, EIO if it is the
/// parent's.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn known<'a>(srq: *mut ibv_srq) -> Outcome<&'a SrqState> {
    // SAFETY: by the caller's promise.
    if unsafe { is_inherited(srq) } {
        return Err(INHERITED);
    }
    // SAFETY: as above.
    let (state, handle) = unsafe { (state(srq), (*srq).handle) };
    state.number().is_of(handle).map(|()| state)
}

impl SrqState {
    fn number(&self) -> Number {
        Number::of(self.srq.number().get())
    }
}

/// `ibv_create_srq`.
///
/// # Safety
/// `pd` is ours and live, `attr` is null or readable and writable.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> Outcome<*mut ibv_srq> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe {
        let attr = &mut *attr;
        new(pd, attr.srq_context, &mut attr.attr, None)
    }
}

/// `ibv_create_srq_ex`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable and writable, and its objects are live.
pub(crate) unsafe fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> Outcome<*mut ibv_srq> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let attr = unsafe { &mut *attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) {
        attr.srq_type
    } else {
        IBV_SRQT_BASIC
    };
    if kind == IBV_SRQT_TM || has(IBV_SRQ_INIT_ATTR_TM) {
        return refuse("a shared receive queue with tag matching");
    }
    // SAFETY: by the caller's promise.
    if !has(IBV_SRQ_INIT_ATTR_PD) || attr.pd.is_null() || unsafe { (*attr.pd).context } != context {
        return Err(Errno::INVAL);
    }
    let xrc = match kind {
        IBV_SRQT_BASIC => None,
        IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_XRCD) && has(IBV_SRQ_INIT_ATTR_CQ) => Some(Xrc {
            domain: attr.xrcd,
            cq: attr.cq,
        }),
        _ => return Err(Errno::INVAL),
    };
    // SAFETY: by the caller's promise.
    let is_foreign = xrc.is_some_and(|xrc| unsafe {
        xrc.domain.is_null()
            || xrc.cq.is_null()
            || (*xrc.domain).context != context
            || (*xrc.cq).context != context
    });
    if is_foreign {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { new(attr.pd, attr.srq_context, &mut attr.attr, xrc) }
}

/// # Safety
/// `pd` is ours and live, and so are the objects in `xrc`.
unsafe fn new(
    pd: *mut ibv_pd,
    srq_context: *mut std::ffi::c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<Xrc>,
) -> Outcome<*mut ibv_srq> {
    // SAFETY: by the caller's promise.
    let (domain, context) = unsafe { (pd::known(pd)?, (*pd).context) };
    let init = SrqInit {
        pd: domain.pd,
        max_requests: attr.max_wr,
        max_sges: attr.max_sge,
        // It is armed by ibv_modify_srq; here it is ignored, as the manual page says.
        limit: 0,
        xrc: xrc
            .map(|xrc| {
                // SAFETY: by the caller's promise.
                let (domain, cq) = unsafe { (xrc::known(xrc.domain)?, cq_state::known(xrc.cq)?) };
                Outcome::Ok(XrcSrqInit {
                    xrcd: domain.xrcd,
                    cq: Arc::clone(&cq.cq),
                })
            })
            .transpose()?,
    };
    let srq = create_on(&domain.nic, &init)?;
    let granted = srq.query().map_err(|error| convert::errno(&error))?;
    attr.max_wr = granted.max_requests;
    attr.max_sge = granted.max_sges;
    let number = srq.number().get();
    domain.users.add();
    if let Some(xrc) = xrc {
        // SAFETY: by the caller's promise.
        unsafe {
            xrc::state(xrc.domain).users.add();
            cq_state::state(xrc.cq).users.add();
        }
    }
    let public = ibv_srq {
        context,
        srq_context,
        pd,
        handle: number,
        ..ibv_srq::default()
    };
    let private = SrqState {
        srq,
        events: Reported::default(),
        users: Users::default(),
        xrc,
    };
    let made = SrqHandle::give(public, private);
    // SAFETY: just made, and not yet given to the program.
    unsafe { HasEvents::lock(made).initialise() };
    // SAFETY: by the caller's promise.
    unsafe { context::state(context) }
        .events
        .add_srq(number, made);
    Ok(made)
}

fn create_on(nic: &Arc<Nic>, init: &SrqInit) -> Outcome<Arc<Srq>> {
    nic.create_srq(init).map_err(|error| {
        log::debug!("creating a shared receive queue: {error}");
        convert::errno(&error)
    })
}

/// `ibv_modify_srq`.
///
/// # Safety
/// `srq` is ours and live, `attr` is null or readable.
pub(crate) unsafe fn modify(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> Outcome<()> {
    let mask = mask.cast_unsigned();
    if attr.is_null() || mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, attr) = unsafe { (known(srq)?, &*attr) };
    let wanted = |bit, value| (mask & bit != 0).then_some(value);
    state
        .srq
        .modify(
            wanted(IBV_SRQ_MAX_WR, attr.max_wr),
            wanted(IBV_SRQ_LIMIT, attr.srq_limit),
        )
        .map_err(|error| convert::errno(&error))
}

/// `ibv_query_srq`.
///
/// # Safety
/// `srq` is ours and live, `attr` is null or writable.
pub(crate) unsafe fn query(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> Outcome<()> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let found = unsafe { known(srq) }?
        .srq
        .query()
        .map_err(|error| convert::errno(&error))?;
    // SAFETY: by the caller's promise.
    unsafe {
        *attr = ibv_srq_attr {
            max_wr: found.max_requests,
            max_sge: found.max_sges,
            srq_limit: found.limit,
        };
    }
    Ok(())
}

/// `ibv_get_srq_num`: by which senders name an XRC queue.
///
/// # Safety
/// `srq` is ours and live, `number` is null or writable.
pub(crate) unsafe fn number(srq: *mut ibv_srq, number: *mut u32) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    let state = unsafe { state(srq) };
    if number.is_null() || state.xrc.is_none() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { *number = state.srq.number().get() };
    Ok(())
}

/// `ibv_destroy_srq`: waits for the program to acknowledge the events it got.
///
/// # Safety
/// `srq` is ours and live; no thread uses it any more, but for acknowledging.
pub(crate) unsafe fn destroy(srq: *mut ibv_srq) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = state(srq);
        state.number().ends((*srq).handle)?;
        state.users.none_left()?;
        state
            .srq
            .destroy()
            .map_err(|error| convert::errno(&error))?;
        context::state((*srq).context)
            .events
            .forget_srq(state.srq.number().get());
        HasEvents::lock(srq).wait_for(&state.events, &raw const (*srq).events_completed);
        pd::state((*srq).pd).users.remove();
        if let Some(xrc) = state.xrc {
            xrc::state(xrc.domain).users.remove();
            cq_state::state(xrc.cq).users.remove();
        }
        drop(SrqHandle::take_back(srq));
    }
    Ok(())
}

/// `ibv_post_srq_recv`: posts the list up to the first request that is refused, which `bad` then
/// names.
///
/// # Safety
/// `srq` is ours and live, `wr` is a list of requests, `bad` is null or writable.
pub(crate) unsafe extern "C" fn post(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the caller's promise.
    if unsafe { is_inherited(srq) } {
        // SAFETY: by the caller's promise.
        return unsafe { refuse_all(wr, bad) };
    }
    // SAFETY: by the caller's promise.
    let queue = &unsafe { state(srq) }.srq;
    let post = |request: &RecvRequest<'_>| queue.post(request);
    // SAFETY: by the caller's promise.
    unsafe { receive_list(wr, bad, post) }
}
