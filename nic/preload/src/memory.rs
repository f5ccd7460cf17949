//! Protection domains and memory regions.
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use urxe_device::{Access, Nic, Pd};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Users};
use crate::{context, convert};

/// What stands behind a protection domain.
pub(crate) struct PdState {
    pub(crate) nic: Arc<Nic>,
    pub(crate) pd: Pd,
    /// Regions and queue pairs in it.
    pub(crate) users: Users,
}

/// What stands behind a memory region. It changes when the region is registered again.
type MrState = Mutex<Region>;

/// What is not in the C struct, or must not depend on what a program writes there.
struct Region {
    lkey: u32,
    base: u64,
    access: Access,
}

type PdHandle = Handle<ibv_pd, PdState>;
type MrHandle = Handle<ibv_mr, MrState>;

/// The state of a protection domain of ours.
///
/// # Safety
/// `pd` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn pd_state<'a>(pd: *mut ibv_pd) -> &'a PdState {
    // SAFETY: by the caller's promise.
    unsafe { PdHandle::state(pd) }
}

/// `ibv_alloc_pd`.
///
/// # Safety
/// `context` is ours and open.
pub(crate) unsafe fn alloc_pd(context: *mut ibv_context) -> Outcome<*mut ibv_pd> {
    // SAFETY: by the caller's promise.
    let state = unsafe { context::state(context) };
    let nic = Arc::clone(&state.nic);
    let pd = nic.alloc_pd();
    state.users.add();
    Ok(PdHandle::give(
        ibv_pd { context, handle: 0 },
        PdState {
            nic,
            pd,
            users: Users::default(),
        },
    ))
}

/// `ibv_dealloc_pd`.
///
/// # Safety
/// `pd` is ours and live; nobody uses it any more.
pub(crate) unsafe fn dealloc_pd(pd: *mut ibv_pd) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = pd_state(pd);
        state.users.none_left()?;
        state
            .nic
            .dealloc_pd(state.pd)
            .map_err(|error| convert::errno(&error))?;
        context::state((*pd).context).users.remove();
        drop(PdHandle::take_back(pd));
    }
    Ok(())
}

/// `ibv_reg_mr`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: by the caller's promise.
    unsafe { register_iova2(pd, addr, length, addr.addr() as u64, access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: by the caller's promise.
    unsafe { register_iova2(pd, addr, length, iova, access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova2`, which all registrations come to.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Outcome<*mut ibv_mr> {
    let flags = convert::access(access)?;
    // SAFETY: by the caller's promise.
    let state = unsafe { pd_state(pd) };
    let region = state
        .nic
        .register(state.pd, addr.addr() as u64, length as u64, iova, flags)
        .map_err(|error| convert::errno(&error))?;
    // SAFETY: by the caller's promise.
    let context = unsafe { (*pd).context };
    let mr = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: region.lkey,
        lkey: region.lkey,
        rkey: region.rkey,
    };
    state.users.add();
    let private = Region {
        lkey: region.lkey,
        base: iova,
        access: flags,
    };
    Ok(MrHandle::give(mr, Mutex::new(private)))
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// `mr` is ours and live; nobody uses it any more.
pub(crate) unsafe fn deregister(mr: *mut ibv_mr) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let pd = pd_state((*mr).pd);
        let lkey = MrHandle::state(mr).lock().lkey;
        pd.nic
            .deregister(lkey)
            .map_err(|error| convert::errno(&error))?;
        pd.users.remove();
        drop(MrHandle::take_back(mr));
    }
    Ok(())
}

/// `ibv_rereg_mr`: registers anew what changes and gives the program's handle the new keys. On
/// failure the old region is as it was (`IBV_REREG_MR_ERR_INPUT`, which is -1).
///
/// # Safety
/// `mr` is ours and live and nobody else uses it now, `pd` is null or a live one.
pub(crate) unsafe fn register_again(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Outcome<c_int> {
    let flags = flags.cast_unsigned();
    if flags == 0 || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (public, state) = unsafe { (&mut *mr, MrHandle::state(mr)) };
    let mut region = state.lock();
    let changes = |flag| flags & flag != 0;
    let new_pd = if changes(IBV_REREG_MR_CHANGE_PD) {
        pd
    } else {
        public.pd
    };
    // SAFETY: the program's protection domain is null or live, and ours if its context is.
    if new_pd.is_null() || unsafe { (*new_pd).context } != public.context {
        return Err(Errno::INVAL);
    }
    let (addr, length, base) = if changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (addr, length, addr.addr() as u64)
    } else {
        (public.addr, public.length, region.base)
    };
    let access = if changes(IBV_REREG_MR_CHANGE_ACCESS) {
        convert::access(access.cast_unsigned())?
    } else {
        region.access
    };
    // SAFETY: both are ours and live.
    let (old_pd, new_pd_state) = unsafe { (pd_state(public.pd), pd_state(new_pd)) };
    let host = addr.addr() as u64;
    let keys = new_pd_state
        .nic
        .register(new_pd_state.pd, host, length as u64, base, access)
        .map_err(|error| convert::errno(&error))?;
    old_pd
        .nic
        .deregister(region.lkey)
        .map_err(|error| convert::errno(&error))?;
    new_pd_state.users.add();
    old_pd.users.remove();
    *region = Region {
        lkey: keys.lkey,
        base,
        access,
    };
    *public = ibv_mr {
        pd: new_pd,
        addr,
        length,
        handle: keys.lkey,
        lkey: keys.lkey,
        rkey: keys.rkey,
        ..*public
    };
    Ok(0)
}
