//! The first arguments of verbs: whose they are, and what a verb of an object does in the child of a fork.
//!
//! The child has copies of its parent's objects. What threads that it does not have were amid is as it was then, so nothing is asked
//! of them: verbs that end one succeed, and all others fail with EIO, as for objects of a device that was removed. Devices,
//! contexts and protection domains can be used; behind a context there is a device of the child's own then.
use urxe_device::epoch;

use crate::abi::*;
use crate::errno::{Convention, Errno, Outcome};
use crate::{ah, buffers, channel, context, cq, dm, events, memory, mw, pd, qp, srq, xrc};

/// Anything a verb takes as its first argument.
pub(crate) trait Object: Copy {
    /// Whether it is a null pointer.
    fn is_nothing(self) -> bool;

    /// Whether it belongs to a device of ours.
    ///
    /// # Safety
    /// It is a live object.
    unsafe fn is_ours(self) -> bool;

    /// Whether it is the parent's. One that stands for something new in the child does so from now on, unless the verb `ends` it.
    ///
    /// # Safety
    /// It is a live object of ours.
    unsafe fn is_inherited(self, ends: bool) -> Outcome<bool>;
}

macro_rules! objects {
    ($($ty:ty: |$object:ident, $ends:ident| $ours:expr, $inherited:expr;)*) => {$(
        impl Object for *mut $ty {
            fn is_nothing(self) -> bool {
                self.is_null()
            }
            unsafe fn is_ours(self) -> bool {
                let $object = self;
                // SAFETY: the object is live, and so is the context or device it points to.
                unsafe { $ours }
            }
            unsafe fn is_inherited(self, $ends: bool) -> Outcome<bool> {
                let $object = self;
                // SAFETY: by the caller's promise.
                unsafe { $inherited }
            }
        }
    )*};
}

objects! {
    ibv_context: |context, ends| is_our_context(context), context::is_inherited(context, ends);
    ibv_pd: |pd, ends| is_our_context((*pd).context), pd::is_inherited(pd, ends);
    ibv_td: |td, _ends| is_our_context((*td).context), Ok(pd::is_thread_inherited(td));
    ibv_mr: |mr, _ends| is_our_context((*mr).context), Ok(memory::MrHandle::is_inherited(mr));
    ibv_mw: |mw, _ends| is_our_context((*mw).context), Ok(mw::MwHandle::is_inherited(mw));
    ibv_dm: |dm, _ends| is_our_context((*dm).context), Ok(dm::DmHandle::is_inherited(dm));
    ibv_comp_channel: |channel, _ends| is_our_context((*channel).context), Ok(channel::is_inherited(channel));
    ibv_cq: |cq, _ends| is_our_context((*cq).context), Ok(cq::is_inherited(cq));
    ibv_srq: |srq, _ends| is_our_context((*srq).context), Ok(srq::is_inherited(srq));
    ibv_qp: |qp, _ends| is_our_context((*qp).context), Ok(qp::is_inherited(qp));
    ibv_ah: |ah, _ends| is_our_context((*ah).context), Ok(ah::AhHandle::is_inherited(ah));
    ibv_xrcd: |xrcd, _ends| is_our_context((*xrcd).context), Ok(xrc::is_inherited(xrcd));
    ibv_async_event: |event, _ends| events::is_ours(event), Ok(events::is_inherited(event));
}

impl Object for *mut ibv_device {
    fn is_nothing(self) -> bool {
        self.is_null()
    }
    unsafe fn is_ours(self) -> bool {
        // SAFETY: by the caller's promise.
        unsafe { is_our_device(self) }
    }
    unsafe fn is_inherited(self, _ends: bool) -> Outcome<bool> {
        Ok(false)
    }
}

impl Object for *mut ibv_buf {
    fn is_nothing(self) -> bool {
        self.is_null()
    }
    unsafe fn is_ours(self) -> bool {
        buffers::is_ours(self)
    }
    unsafe fn is_inherited(self, _ends: bool) -> Outcome<bool> {
        Ok(false)
    }
}

/// What a verb of ours returns without being called, if that is so.
///
/// # Safety
/// `object` is a live object of ours.
pub(crate) unsafe fn answer_of_inherited<C: Convention>(
    verb: &str,
    object: impl Object,
) -> Option<C::Raw> {
    if epoch() == 0 {
        return None;
    }
    let ends = is_end(verb);
    // SAFETY: by the caller's promise.
    match unsafe { object.is_inherited(ends) } {
        Ok(false) => None,
        Ok(true) if ends => Some(C::done()),
        Ok(true) => Some(C::raw(Err(INHERITED))),
        Err(errno) => Some(C::raw(Err(errno))),
    }
}

/// What is said of an object of the parent's, where it is not a verb's first argument, too.
pub(crate) const INHERITED: Errno = Errno(libc::EIO);

/// Whether a verb ends its object, or acknowledges what will never come again.
fn is_end(verb: &str) -> bool {
    let verb = verb.trim_start_matches("ibv_");
    ["destroy_", "dealloc_", "dereg_", "free_", "close_", "ack_"]
        .iter()
        .any(|beginning| verb.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::{ErrnoCode, MinusOne};

    #[test]
    fn verbs_that_end_objects_are_known_by_their_names() {
        for verb in [
            "ibv_destroy_qp",
            "ibv_dealloc_pd",
            "dealloc_mw",
            "ibv_dereg_mr",
            "free_dm",
            "ibv_close_device",
        ] {
            assert!(is_end(verb), "{verb}");
        }
        for verb in [
            "ibv_create_qp",
            "ibv_modify_qp",
            "req_notify_cq",
            "ibv_query_device",
        ] {
            assert!(!is_end(verb), "{verb}");
        }
        assert_eq!((ErrnoCode::done(), MinusOne::done()), (0, 0));
    }
}
