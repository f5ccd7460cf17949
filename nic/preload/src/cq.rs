//! Completion queues. Every queue of ours has room for the extended interface, whether it was
//! created by `ibv_create_cq` or by `ibv_create_cq_ex`.
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use urxe_device::Moderation;

use crate::abi::*;
use crate::channel::{self, ChannelState};
use crate::cq_state::{CqHandle, CqState, Cursor, is_inherited, known, state};
use crate::errno::{Errno, Outcome};
use crate::handle::Users;
use crate::object::INHERITED;
use crate::reported::{HasEvents, Reported};
use crate::unsupported::refuse;
use crate::wall_clock::WallClock;
use crate::{context, convert, cq_ex, pd};

/// `ibv_create_cq`.
///
/// # Safety
/// `context` is ours and open, `channel` is null or one of it.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> Outcome<*mut ibv_cq> {
    let cqe = u32::try_from(cqe).map_err(|_| Errno::INVAL)?;
    let vector = u32::try_from(vector).map_err(|_| Errno::INVAL)?;
    // SAFETY: by the caller's promise.
    unsafe { new(context, cqe, cq_context, channel, vector) }.map(<*mut ibv_cq_ex>::cast)
}

const TIMESTAMPS: u64 =
    (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// The fields that a completion may have; others (VLANs, flow tags) are refused.
const FIELDS: u64 = IBV_WC_STANDARD_FLAGS as u64 | TIMESTAMPS;

/// `ibv_create_cq_ex`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable.
pub(crate) unsafe fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> Outcome<*mut ibv_cq_ex> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let attr = unsafe { &*attr };
    if attr.wc_flags & !FIELDS != 0 {
        return refuse("completions with VLANs, flow tags or tag matching");
    }
    if attr.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
        return Err(Errno::INVAL);
    }
    let parent = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
        attr.parent_domain
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: by the caller's promise; it is ours if its context is.
    if !parent.is_null() && unsafe { (*parent).context != context || !pd::is_parent(parent) } {
        return Err(Errno::INVAL);
    }
    if !parent.is_null() {
        // SAFETY: ours, as was checked.
        unsafe { pd::known(parent) }?;
    }
    let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let made = unsafe {
        new(
            context,
            attr.cqe,
            attr.cq_context,
            attr.channel,
            attr.comp_vector,
        )
    }?;
    // SAFETY: just made, and not yet given to the program.
    let state = unsafe { state(made.cast()) };
    if attr.wc_flags & TIMESTAMPS != 0 {
        state.cq.keep_timestamps();
    }
    if attr.wc_flags & u64::from(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0 {
        state.cursor.lock().wall_clock = Some(WallClock::default());
    }
    if !parent.is_null() {
        // SAFETY: ours, as was checked.
        unsafe { pd::state(parent) }.users.add();
        state.parent.store(parent, Ordering::Relaxed);
    }
    // SAFETY: as above.
    cq_ex::set_readers(unsafe { &mut *made }, attr.wc_flags);
    Ok(made)
}

/// Makes a queue with at least `cqe` entries.
///
/// # Safety
/// As for [`create`].
pub(crate) unsafe fn new(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
) -> Outcome<*mut ibv_cq_ex> {
    // SAFETY: by the caller's promise.
    let (owner, vectors) = unsafe { (context::state(context), (*context).num_comp_vectors) };
    if cqe == 0 || vector >= vectors.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    let listener = if channel.is_null() {
        None
    // SAFETY: by the caller's promise.
    } else if unsafe { (*channel).context } != context {
        return Err(Errno::INVAL);
    } else {
        // SAFETY: by the caller's promise.
        unsafe {
            if channel::is_inherited(channel) {
                return Err(INHERITED);
            }
            Some(channel::state(channel))
        }
    };
    let cookie = ChannelState::new_cookie();
    let device_channel = listener.map(|listener| Arc::clone(&listener.channel));
    let cq = owner
        .nic
        .create_cq(cqe as usize, device_channel, cookie)
        .map_err(|error| convert::errno(&error))?;
    let public = ibv_cq_ex {
        context,
        channel,
        cq_context,
        handle: cookie as u32,
        cqe: c_int::try_from(cq.depth()).unwrap_or(c_int::MAX),
        ..ibv_cq_ex::default()
    };
    let private = CqState {
        cq,
        events: Reported::default(),
        async_events: Reported::default(),
        users: Users::default(),
        cookie,
        parent: AtomicPtr::default(),
        cursor: Cursor::default(),
    };
    owner.users.add();
    let made: *mut ibv_cq_ex = CqHandle::give(cq_ex::without_readers(public), private).cast();
    // SAFETY: just made, and not yet given to the program.
    unsafe { HasEvents::lock(made.cast::<ibv_cq>()).initialise() };
    if !channel.is_null() {
        // SAFETY: by the caller's promise, and just made.
        unsafe { channel::listen(channel, cookie, made.cast()) };
    }
    owner.events.add_cq(cookie, made.cast());
    Ok(made)
}

/// `ibv_resize_cq`.
///
/// # Safety
/// `cq` is ours and live.
pub(crate) unsafe fn resize(cq: *mut ibv_cq, cqe: c_int) -> Outcome<()> {
    let cqe = u32::try_from(cqe).map_err(|_| Errno::INVAL)?;
    // SAFETY: by the caller's promise.
    let state = unsafe { known(cq) }?;
    state
        .cq
        .resize(cqe as usize)
        .map_err(|error| convert::errno(&error))?;
    // SAFETY: by the caller's promise.
    unsafe { (*cq).cqe = c_int::try_from(state.cq.depth()).unwrap_or(c_int::MAX) };
    Ok(())
}

/// `ibv_modify_cq`: when events are raised.
///
/// # Safety
/// `cq` is ours and live, `attr` is null or readable.
pub(crate) unsafe fn modify(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> Outcome<()> {
    if attr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, attr) = unsafe { (known(cq)?, &*attr) };
    if attr.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
        return Err(Errno::INVAL);
    }
    if attr.attr_mask & IBV_CQ_ATTR_MODERATE != 0 {
        state.cq.moderate(Moderation {
            count: attr.moderate.cq_count,
            period_ns: u64::from(attr.moderate.cq_period) * 1000,
        });
    }
    Ok(())
}

/// `ibv_destroy_cq`: waits for the program to acknowledge the events it got.
///
/// # Safety
/// `cq` is ours and live; no thread uses it any more, but for acknowledging.
pub(crate) unsafe fn destroy(cq: *mut ibv_cq) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = state(cq);
        state.number().ends((*cq).handle)?;
        state.users.none_left()?;
        let (owner, channel) = (context::state((*cq).context), (*cq).channel);
        state.cq.retire();
        if !channel.is_null() {
            channel::forget(channel, state.cookie);
        }
        owner.events.forget_cq(state.cookie);
        let lock = HasEvents::lock(cq);
        lock.wait_for(&state.events, &raw const (*cq).comp_events_completed);
        lock.wait_for(&state.async_events, &raw const (*cq).async_events_completed);
        let parent = state.parent.load(Ordering::Relaxed);
        if !parent.is_null() {
            pd::state(parent).users.remove();
        }
        owner.users.remove();
        drop(CqHandle::take_back(cq.cast()));
    }
    Ok(())
}

/// `ibv_req_notify_cq`.
///
/// # Safety
/// `cq` is ours and live.
pub(crate) unsafe fn request_notification(cq: *mut ibv_cq, solicited_only: c_int) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe { state(cq) }.cq.arm(solicited_only != 0);
    Ok(())
}

/// `ibv_poll_cq`: the number of completions taken, or a negative number.
///
/// # Safety
/// `cq` is ours and live, `wc` has room for `num_entries`.
pub(crate) unsafe extern "C" fn poll(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let Ok(limit) = usize::try_from(num_entries) else {
        return -libc::EINVAL;
    };
    // SAFETY: by the caller's promise.
    if unsafe { is_inherited(cq) } {
        return -INHERITED.0;
    }
    let mut place = wc;
    // SAFETY: by the caller's promise.
    let taken = unsafe { state(cq) }.cq.poll(limit, |completion| {
        // SAFETY: by the caller's promise, and the device calls this at most `limit` times.
        unsafe {
            place.write(convert::work_completion(&completion));
            place = place.add(1);
        }
    });
    c_int::try_from(taken).unwrap_or(c_int::MAX)
}
