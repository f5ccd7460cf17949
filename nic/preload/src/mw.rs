//! Memory windows.
use urxe_device::{
    SendData, SendOp, SendRequest, SendTarget, WindowAccess, WindowBind, WindowType,
};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Number};
use crate::{convert, pd, qp_state};

pub(crate) type MwHandle = Handle<ibv_mw, Number>;

/// `ibv_alloc_mw`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn alloc(pd: *mut ibv_pd, kind: ibv_mw_type) -> Outcome<*mut ibv_mw> {
    let window = match kind {
        IBV_MW_TYPE_1 => WindowType::Type1,
        IBV_MW_TYPE_2 => WindowType::Type2,
        _ => return Err(Errno::INVAL),
    };
    // SAFETY: by the caller's promise.
    let (state, context) = unsafe { (pd::known(pd)?, (*pd).context) };
    let rkey = state
        .nic
        .alloc_window(state.pd, window)
        .map_err(|error| convert::errno(&error))?;
    state.users.add();
    let number = Number::of(rkey >> KEY_BITS);
    let mw = ibv_mw {
        context,
        pd,
        rkey,
        handle: number.get(),
        type_: kind,
    };
    Ok(MwHandle::give(mw, number))
}

/// `ibv_dealloc_mw`.
///
/// # Safety
/// `mw` is ours and live; no thread uses it any more.
pub(crate) unsafe fn dealloc(mw: *mut ibv_mw) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = pd::state((*mw).pd);
        MwHandle::state(mw).ends((*mw).handle)?;
        state
            .nic
            .dealloc_window((*mw).handle << KEY_BITS)
            .map_err(|error| convert::errno(&error))?;
        state.users.remove();
        drop(MwHandle::take_back(mw));
    }
    Ok(())
}

/// The low bits of a window's key are the program's; the others name the window (IBTA 10.6.7.2.1).
const KEY_BITS: u32 = 8;

/// The next key of a window: what `ibv_inc_rkey` of verbs.h makes of it.
const fn next_key(rkey: u32) -> u32 {
    with_own_bits(rkey >> KEY_BITS, rkey.wrapping_add(1))
}

/// The key of the window that `handle` names, with the program's bits of `rkey`.
const fn with_own_bits(handle: u32, rkey: u32) -> u32 {
    const OWN: u32 = (1 << KEY_BITS) - 1;
    handle << KEY_BITS | rkey & OWN
}

/// How to bind `mw` under the new key that it gets by the low 8 bits of `rkey`. The others are not
/// looked at, as by mlx5 and Linux rxe.
///
/// # Safety
/// `mw` is ours and live, and the region in `info` is null or live.
pub(crate) unsafe fn binding(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Outcome<WindowBind> {
    // SAFETY: by the caller's promise.
    let (lkey, rkey) = unsafe {
        let mw = mw.as_ref().ok_or(Errno::INVAL)?;
        let lkey = info.mr.as_ref().map_or(0, |mr| mr.lkey);
        (lkey, with_own_bits(mw.handle, rkey))
    };
    // Local access is the region's affair; programs ask for it all the same.
    let flags = info.mw_access_flags & !IBV_ACCESS_LOCAL_WRITE;
    let access = u8::try_from(flags)
        .ok()
        .and_then(WindowAccess::from_bits)
        .ok_or(Errno::INVAL)?;
    Ok(WindowBind {
        rkey,
        lkey,
        addr: info.addr,
        len: info.length,
        access,
    })
}

/// `ibv_bind_mw`: binds a window of type 1 and gives it its next key. A length of zero unbinds it.
///
/// # Safety
/// `qp` and `mw` are ours and live, `bind` is null or readable and its region null or live.
pub(crate) unsafe fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> Outcome<()> {
    if mw.is_null() || bind.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, bind) = unsafe { (qp_state::state(qp), &*bind) };
    // SAFETY: by the caller's promise.
    let (is_type_1, rkey) = unsafe { ((*mw).type_ == IBV_MW_TYPE_1, next_key((*mw).rkey)) };
    if !is_type_1 {
        return Err(Errno::INVAL);
    }
    let has = |flag| bind.send_flags & flag != 0;
    let request = SendRequest {
        wr_id: bind.wr_id,
        // SAFETY: by the caller's promise.
        op: SendOp::BindWindow(unsafe { binding(mw, rkey, &bind.bind_info) }?),
        data: SendData::Sges(&[]),
        signaled: state.signal_all || has(IBV_SEND_SIGNALED),
        solicited: false,
        fence: has(IBV_SEND_FENCE),
        target: SendTarget::Connection,
    };
    let posted = state.qp.post_send(&request);
    posted.map_err(convert::post_errno)?;
    // SAFETY: by the caller's promise.
    unsafe { (*mw).rkey = rkey };
    Ok(())
}

/// The kind of a window, as a work request needs it: only type 2 is bound by one.
///
/// # Safety
/// `mw` is null or live.
pub(crate) unsafe fn is_type_2(mw: *mut ibv_mw) -> bool {
    // SAFETY: by the caller's promise.
    !mw.is_null() && unsafe { (*mw).type_ } == IBV_MW_TYPE_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_within_their_window() {
        assert_eq!(next_key(0x1234_5600), 0x1234_5601);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
    }
}
