//! What stands behind completion queues.
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use urxe_device::{Cq, Mutex, MutexGuard};

use crate::abi::*;
use crate::errno::Outcome;
use crate::handle::{Growing, Handle, Number, Users};
use crate::object::INHERITED;
use crate::reported::Reported;
use crate::wall_clock::WallClock;

/// The completion that the readers show. One is taken at a time, so that a program may mix both
/// ways of polling a queue.
#[derive(Default)]
pub(crate) struct Cursor(Mutex<Kept>);

#[derive(Clone, Copy, Default)]
pub(crate) struct Shown {
    pub(crate) wc: ibv_wc,
    /// When it came, by the device's clock, and by the wall clock where the program wants that.
    pub(crate) stamp_ns: u64,
    pub(crate) wall_ns: u64,
}

/// What a [`Cursor`] keeps.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) shown: Shown,
    /// Set for a queue with timestamps by the wall clock.
    pub(crate) wall_clock: Option<WallClock>,
}

impl Cursor {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }
}

/// What stands behind a completion queue.
pub(crate) struct CqState {
    pub(crate) cq: Arc<Cq>,
    /// Events that the program got: of the channel, and asynchronous ones.
    pub(crate) events: Reported,
    pub(crate) async_events: Reported,
    /// Queue pairs that complete here.
    pub(crate) users: Users,
    /// Names the queue in events.
    pub(crate) cookie: u64,
    /// The parent domain it was created in, or null.
    pub(crate) parent: AtomicPtr<ibv_pd>,
    /// Where `ibv_start_poll` is.
    pub(crate) cursor: Cursor,
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

/// The state of a queue that a verb uses: EINVAL for a handle that is not its, EIO if it is the
/// parent's.
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
    pub(crate) fn number(&self) -> Number {
        Number::of(self.cookie as u32)
    }
}
