//! Protection domains, parent domains and thread domains.
use std::sync::Arc;

use urxe_device::{Nic, Pd};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Number, Users};
use crate::object::INHERITED;
use crate::of_process::OfProcess;
use crate::{context, convert};

/// What stands behind a protection domain.
pub(crate) struct PdState {
    pub(crate) nic: Arc<Nic>,
    pub(crate) pd: Pd,
    number: Number,
    /// Objects in it.
    pub(crate) users: Users,
    /// Set for a parent domain: another name for a protection domain.
    parent: Option<Parent>,
}

/// What a parent domain stands for. A program may give it functions that allocate memory for
/// queues; queues of ours are not in memory that a program could allocate, so they are never
/// called.
struct Parent {
    pd: *mut ibv_pd,
    thread_domain: *mut ibv_td,
}

type PdHandle = Handle<ibv_pd, OfProcess<PdState>>;

/// A thread domain promises that the objects in it are used by one thread at a time. There is
/// nothing to gain from that here.
type TdHandle = Handle<ibv_td, Users>;

/// The state of a protection domain of ours.
///
/// # Safety
/// `pd` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(pd: *mut ibv_pd) -> &'a PdState {
    // SAFETY: by the caller's promise.
    unsafe { PdHandle::state(pd) }
}

/// Whether a protection domain is the parent's. Unless it is to be deallocated, it is not from now
/// on: one of this process stands behind it, in which is nothing yet.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn is_inherited(pd: *mut ibv_pd, ends: bool) -> Outcome<bool> {
    // SAFETY: by the caller's promise.
    let (state, context) = unsafe { (PdHandle::state(pd), (*pd).context) };
    if ends || !state.is_inherited() {
        return Ok(state.is_inherited());
    }
    // SAFETY: by the caller's promise; a parent domain keeps the one that it stands for.
    unsafe {
        context::is_inherited(context, false)?;
        if let Some(parent) = &state.parent {
            is_inherited(parent.pd, false)?;
        }
    }
    state.renew(|before| {
        let parent = before.parent.as_ref();
        let (nic, pd) = match parent {
            Some(parent) => {
                // SAFETY: as above.
                let original = unsafe { self::state(parent.pd) };
                original.users.add();
                (Arc::clone(&original.nic), original.pd)
            }
            None => {
                // SAFETY: as above.
                let nic = Arc::clone(&unsafe { context::state(context) }.nic);
                let pd = nic.alloc_pd();
                (nic, pd)
            }
        };
        // SAFETY: by the caller's promise.
        unsafe { context::state(context) }.users.add();
        Ok(PdState {
            nic,
            pd,
            number: before.number,
            users: Users::default(),
            parent: parent.map(|parent| Parent {
                pd: parent.pd,
                // Its thread domain is the parent process's.
                thread_domain: std::ptr::null_mut(),
            }),
        })
    })?;
    Ok(false)
}

/// Whether a thread domain is the parent's.
///
/// # Safety
/// `td` is ours and live.
pub(crate) unsafe fn is_thread_inherited(td: *mut ibv_td) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { TdHandle::is_inherited(td) }
}

/// The state of a protection domain that a verb uses: EINVAL for a handle that is not its. The
/// parent's is this process's from now on.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn known<'a>(pd: *mut ibv_pd) -> Outcome<&'a PdState> {
    // SAFETY: by the caller's promise.
    unsafe {
        is_inherited(pd, false)?;
        let state = state(pd);
        state.number.is_of((*pd).handle).map(|()| state)
    }
}

/// Whether a protection domain of ours is a parent domain.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn is_parent(pd: *mut ibv_pd) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { state(pd) }.parent.is_some()
}

/// `ibv_alloc_pd`.
///
/// # Safety
/// `context` is ours and open.
pub(crate) unsafe fn alloc(context: *mut ibv_context) -> Outcome<*mut ibv_pd> {
    // SAFETY: by the caller's promise.
    let state = unsafe { context::state(context) };
    let nic = Arc::clone(&state.nic);
    let pd = nic.alloc_pd();
    state.users.add();
    let number = Number::fresh();
    let handle = number.get();
    Ok(PdHandle::give(
        ibv_pd { context, handle },
        OfProcess::new(PdState {
            nic,
            pd,
            number,
            users: Users::default(),
            parent: None,
        }),
    ))
}

/// `ibv_dealloc_pd`, of parent domains as well.
///
/// # Safety
/// `pd` is ours and live; no thread uses it any more.
pub(crate) unsafe fn dealloc(pd: *mut ibv_pd) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let this = state(pd);
        this.number.ends((*pd).handle)?;
        this.users.none_left()?;
        if let Some(parent) = &this.parent {
            state(parent.pd).users.remove();
            if !parent.thread_domain.is_null() {
                TdHandle::state(parent.thread_domain).remove();
            }
        } else {
            this.nic
                .dealloc_pd(this.pd)
                .map_err(|error| convert::errno(&error))?;
        }
        context::state((*pd).context).users.remove();
        drop(PdHandle::take_back(pd));
    }
    Ok(())
}

/// `ibv_alloc_parent_domain`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable, and its objects are null or live.
pub(crate) unsafe fn alloc_parent(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> Outcome<*mut ibv_pd> {
    const KNOWN: u32 =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let attr = unsafe { &*attr };
    if attr.comp_mask & !KNOWN != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: by the caller's promise.
    let of_us = unsafe {
        !attr.pd.is_null()
            && (*attr.pd).context == context
            && (attr.td.is_null() || (*attr.td).context == context)
    };
    // SAFETY: by the caller's promise; it is ours since its context is.
    if !of_us || unsafe { is_parent(attr.pd) } {
        return Err(Errno::INVAL);
    }
    // SAFETY: as above.
    unsafe {
        is_inherited(attr.pd, false)?;
        if !attr.td.is_null() && is_thread_inherited(attr.td) {
            return Err(INHERITED);
        }
    }
    // SAFETY: as above.
    let original = unsafe {
        if !attr.td.is_null() {
            TdHandle::state(attr.td).add();
        }
        context::state(context).users.add();
        state(attr.pd)
    };
    original.users.add();
    let number = Number::fresh();
    let handle = number.get();
    Ok(PdHandle::give(
        ibv_pd { context, handle },
        OfProcess::new(PdState {
            nic: Arc::clone(&original.nic),
            pd: original.pd,
            number,
            users: Users::default(),
            parent: Some(Parent {
                pd: attr.pd,
                thread_domain: attr.td,
            }),
        }),
    ))
}

/// `ibv_alloc_td`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable.
pub(crate) unsafe fn alloc_thread(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> Outcome<*mut ibv_td> {
    // SAFETY: by the caller's promise.
    if attr.is_null() || unsafe { (*attr).comp_mask } != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { context::state(context) }.users.add();
    Ok(TdHandle::give(ibv_td { context }, Users::default()))
}

/// `ibv_dealloc_td`.
///
/// # Safety
/// `td` is ours and live; no thread uses it any more.
pub(crate) unsafe fn dealloc_thread(td: *mut ibv_td) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        TdHandle::state(td).none_left()?;
        context::state((*td).context).users.remove();
        drop(TdHandle::take_back(td));
    }
    Ok(())
}
