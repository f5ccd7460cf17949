//! Completion channels.
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use urxe_device::{CompletionChannel, Mutex, MutexGuard};

use crate::abi::*;
use crate::blocking::{self, Frame};
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Users};
use crate::object::INHERITED;
use crate::reported::HasEvents;
use crate::{context, convert, cq_state};

/// A queue that may have events, by the cookie in them. Not by its address: an event may be in the
/// channel when its queue is destroyed, and the address in use again.
struct Listening(*mut ibv_cq);

// SAFETY: only used while the map that holds it is locked, and destroying a queue removes it first.
unsafe impl Send for Listening {}

/// What stands behind a completion channel.
pub(crate) struct ChannelState {
    /// The device's channel.
    pub(crate) channel: Arc<CompletionChannel>,
    /// Shared with threads that wait for an event, which may outlast the channel.
    queues: Arc<Mutex<HashMap<u64, Listening>>>,
    users: Users,
}

type ChannelHandle = Handle<ibv_comp_channel, ChannelState>;

/// The state of a channel of ours.
///
/// # Safety
/// `channel` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(channel: *mut ibv_comp_channel) -> &'a ChannelState {
    // SAFETY: by the caller's promise.
    unsafe { ChannelHandle::state(channel) }
}

/// Whether it is the parent's, in the child of a fork.
///
/// # Safety
/// As for [`state`].
#[inline]
pub(crate) unsafe fn is_inherited(channel: *mut ibv_comp_channel) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { ChannelHandle::is_inherited(channel) }
}

impl ChannelState {
    fn queues(&self) -> MutexGuard<'_, HashMap<u64, Listening>> {
        self.queues.lock()
    }

    /// A cookie for a new queue, not used before in this process.
    pub(crate) fn new_cookie() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

/// From now on events of `channel` with this cookie are events of `cq`.
///
/// # Safety
/// Both are ours and live.
pub(crate) unsafe fn listen(channel: *mut ibv_comp_channel, cookie: u64, cq: *mut ibv_cq) {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = state(channel);
        state.queues().insert(cookie, Listening(cq));
        state.users.add();
        count_queue(channel, 1);
    }
}

/// From now on events with this cookie are dropped.
///
/// # Safety
/// `channel` is ours and live.
pub(crate) unsafe fn forget(channel: *mut ibv_comp_channel, cookie: u64) {
    // SAFETY: by the caller's promise.
    unsafe {
        let state = state(channel);
        state.queues().remove(&cookie);
        state.users.remove();
        count_queue(channel, -1);
    }
}

/// Counts the queues of a channel where libibverbs does: in the public member, under the mutex of
/// the context.
///
/// # Safety
/// `channel` is ours and live.
unsafe fn count_queue(channel: *mut ibv_comp_channel, change: c_int) {
    // SAFETY: by the caller's promise; a mutex of zeros is one with default attributes.
    unsafe {
        let mutex = (&raw mut (*(*channel).context).mutex).cast();
        libc::pthread_mutex_lock(mutex);
        (*channel).refcnt += change;
        libc::pthread_mutex_unlock(mutex);
    }
}

/// `ibv_create_comp_channel`.
///
/// # Safety
/// `context` is ours and open.
pub(crate) unsafe fn create(context: *mut ibv_context) -> Outcome<*mut ibv_comp_channel> {
    // SAFETY: by the caller's promise.
    let state = unsafe { context::state(context) };
    let channel = state
        .nic
        .create_channel()
        .map_err(|error| convert::errno(&error))?;
    state.users.add();
    let public = ibv_comp_channel {
        context,
        fd: channel.fd(),
        refcnt: 0,
    };
    let private = ChannelState {
        channel,
        queues: Arc::default(),
        users: Users::default(),
    };
    Ok(ChannelHandle::give(public, private))
}

/// `ibv_destroy_comp_channel`. Threads that wait for an event of it get `EBADF`.
///
/// # Safety
/// `channel` is ours and live; no thread uses it any more.
pub(crate) unsafe fn destroy(channel: *mut ibv_comp_channel) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        state(channel).users.none_left()?;
        context::state((*channel).context).users.remove();
        state(channel).channel.close();
        drop(ChannelHandle::take_back(channel));
    }
    Ok(())
}

crate::routed::calls! {
    /// `ibv_get_cq_event` of a channel of ours: blocks, unless the program made the channel's
    /// descriptor non-blocking.
    get_event = begin_get_event;
}

/// # Safety
/// The arguments are the program's of `ibv_get_cq_event`: the channel is null or ours and live, the
/// others are null or writable.
unsafe extern "C" fn begin_get_event(frame: &mut Frame) -> bool {
    let [channel, cq, cq_context] = frame.arguments;
    let channel: *mut ibv_comp_channel = std::ptr::with_exposed_provenance_mut(channel);
    let cq: *mut *mut ibv_cq = std::ptr::with_exposed_provenance_mut(cq);
    let cq_context: *mut *mut c_void = std::ptr::with_exposed_provenance_mut(cq_context);
    if channel.is_null() || cq.is_null() || cq_context.is_null() {
        return frame.finish(Err(Errno::INVAL));
    }
    // SAFETY: by the caller's promise.
    if unsafe { is_inherited(channel) } {
        return frame.finish(Err(INHERITED));
    }
    // SAFETY: by the caller's promise.
    let state = unsafe { state(channel) };
    let queues = Arc::clone(&state.queues);
    blocking::begin(frame, state.channel.begin_wait(), move |cookie| {
        let queues = queues.lock();
        // An event of a queue that is gone is dropped.
        let found = queues.get(&cookie)?;
        // SAFETY: by the caller's promise; the queue is live while the map is locked, and counting
        // the event keeps it so until the program acknowledges.
        unsafe {
            cq_state::state(found.0).events.add();
            *cq = found.0;
            *cq_context = (*found.0).cq_context;
        }
        Some(Ok(0))
    })
}

/// `ibv_ack_cq_events`.
///
/// # Safety
/// `cq` is ours and live.
pub(crate) unsafe fn acknowledge(cq: *mut ibv_cq, count: c_uint) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe { HasEvents::lock(cq).acknowledge(&raw mut (*cq).comp_events_completed, count) };
    Ok(())
}
