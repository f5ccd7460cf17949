//! Completion queues. Every queue of ours has room for the extended interface, whether it was created
//! by `ibv_create_cq` or by `ibv_create_cq_ex`.
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use urxe_device::{Cq, Moderation};

use crate::abi::*;
use crate::channel::{self, ChannelState};
use crate::errno::{Errno, Outcome};
use crate::handle::{Growing, Handle, Number, Users};
use crate::object::INHERITED;
use crate::reported::{HasEvents, Reported};
use crate::{context, convert, cq_ex, pd};

/// What stands behind a completion queue.
pub(crate) struct CqState {
    pub(crate) cq: Arc<Cq>,
    /// Events that the program got: of the channel, and asynchronous ones.
    pub(crate) events: Reported,
    pub(crate) async_events: Reported,
    /// Queue pairs that complete here.
    pub(crate) users: Users,
    /// Names the queue in events.
    cookie: u64,
    /// The parent domain it was created in, or null.
    pub(crate) parent: AtomicPtr<ibv_pd>,
    /// Where `ibv_start_poll` is.
    pub(crate) cursor: cq_ex::Cursor,
}

pub(crate) type CqHandle = Handle<Growing<ibv_cq_ex>, CqState>;

/// The state of a queue of ours.
///
/// # Safety
/// `cq` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(cq: *mut ibv_cq) -> &'a CqState {
    // SAFETY: by the caller's promise; every queue of ours is an extended one.
    unsafe { CqHandle::state(cq.cast()) }
}

/// Whether it is the parent's, in the child of a fork.
///
/// # Safety
/// As for [`state`].
#[inline]
pub(crate) unsafe fn is_inherited(cq: *mut ibv_cq) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { CqHandle::is_inherited(cq.cast()) }
}

/// The state of a queue that a verb uses: EINVAL for a handle that is not its, EIO if it is the parent's.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn known<'a>(cq: *mut ibv_cq) -> Outcome<&'a CqState> {
    // SAFETY: by the caller's promise.
    if unsafe { is_inherited(cq) } {
        return Err(INHERITED);
    }
    // SAFETY: as above.
    let (state, handle) = unsafe { (state(cq), (*cq).handle) };
    state.number().is_of(handle).map(|()| state)
}

impl CqState {
    fn number(&self) -> Number {
        Number::of(self.cookie as u32)
    }
}

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
        cursor: cq_ex::Cursor::default(),
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
/// `cq` is ours and live; nobody uses it any more, but for acknowledging.
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
