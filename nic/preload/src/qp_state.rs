//! What stands behind queue pairs.
use std::sync::Arc;

use urxe_device::{Qp, QpType};

use crate::abi::*;
use crate::errno::Outcome;
use crate::handle::{Growing, Handle, Number, Users};
use crate::object::INHERITED;
use crate::reported::Reported;
use crate::requests::Builder;
use crate::{cq_state, pd, srq, xrc};

/// What stands behind a queue pair.
pub(crate) struct QpState {
    /// Shared by the handles of an XRC target.
    pub(crate) qp: Arc<Qp>,
    /// Its type, which decides where requests go.
    pub(crate) kind: QpType,
    /// Requests posted with the extended interface.
    pub(crate) builder: Builder,
    /// Asynchronous events that the program got.
    pub(crate) events: Reported,
    /// Every send completes visibly, signaled or not.
    pub(crate) signal_all: bool,
    /// Whether the program may use `ibv_qp_ex`.
    pub(crate) extended: bool,
    pub(crate) objects: Objects,
}

/// The objects that a queue pair refers to; null for those that its type does not have.
#[derive(Clone, Copy)]
pub(crate) struct Objects {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) xrcd: *mut ibv_xrcd,
}

impl Objects {
    /// Runs `f` for each object's count of users.
    ///
    /// # Safety
    /// The objects are ours and live.
    pub(crate) unsafe fn for_each(&self, f: impl Fn(&Users)) {
        // SAFETY: by the caller's promise.
        unsafe {
            if !self.pd.is_null() {
                f(&pd::state(self.pd).users);
            }
            for cq in [self.send_cq, self.recv_cq] {
                if !cq.is_null() {
                    f(&cq_state::state(cq).users);
                }
            }
            if !self.srq.is_null() {
                f(&srq::state(self.srq).users);
            }
            if !self.xrcd.is_null() {
                f(&xrc::state(self.xrcd).users);
            }
        }
    }

    /// EINVAL for a handle that is not an object's.
    ///
    /// # Safety
    /// The objects are ours and live.
    pub(crate) unsafe fn check(&self) -> Outcome<()> {
        // SAFETY: by the caller's promise.
        unsafe {
            if !self.pd.is_null() {
                pd::known(self.pd)?;
            }
            for cq in [self.send_cq, self.recv_cq] {
                if !cq.is_null() {
                    cq_state::known(cq)?;
                }
            }
            if !self.srq.is_null() {
                srq::known(self.srq)?;
            }
            if !self.xrcd.is_null() {
                xrc::known(self.xrcd)?;
            }
        }
        Ok(())
    }

    /// Whether all are of `context`.
    ///
    /// # Safety
    /// The objects are null or live.
    pub(crate) unsafe fn are_of(&self, context: *mut ibv_context) -> bool {
        // SAFETY: by the caller's promise.
        let contexts = unsafe {
            [
                self.pd.as_ref().map(|pd| pd.context),
                self.send_cq.as_ref().map(|cq| cq.context),
                self.recv_cq.as_ref().map(|cq| cq.context),
                self.srq.as_ref().map(|srq| srq.context),
                self.xrcd.as_ref().map(|xrcd| xrcd.context),
            ]
        };
        contexts.into_iter().flatten().all(|its| its == context)
    }
}

pub(crate) type QpHandle = Handle<Growing<ibv_qp_ex>, QpState>;

/// The state of a queue pair of ours.
///
/// # Safety
/// `qp` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(qp: *mut ibv_qp) -> &'a QpState {
    // SAFETY: by the caller's promise; every queue pair of ours is an extended one.
    unsafe { QpHandle::state(qp.cast()) }
}

/// Whether it is the parent's, in the child of a fork.
///
/// # Safety
/// As for [`state`].
#[inline]
pub(crate) unsafe fn is_inherited(qp: *mut ibv_qp) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { QpHandle::is_inherited(qp.cast()) }
}

/// The state of a queue pair that a verb uses: EINVAL for a handle that is not its, EIO if it is
/// the parent's.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn known<'a>(qp: *mut ibv_qp) -> Outcome<&'a QpState> {
    // SAFETY: by the caller's promise.
    if unsafe { is_inherited(qp) } {
        return Err(INHERITED);
    }
    // SAFETY: as above.
    let (state, handle) = unsafe { (state(qp), (*qp).handle) };
    state.number().is_of(handle).map(|()| state)
}

impl QpState {
    pub(crate) fn number(&self) -> Number {
        Number::of(self.qp.number().get())
    }
}
