//! The first arguments of verbs: whose they are, and what a verb of an object does in the child of
//! a fork.
//!
//! The child has copies of its parent's objects. What threads that it does not have were amid is as
//! it was then, so nothing is asked of them. Verbs that end one succeed, and all others fail with
//! EIO, as for objects of a device that was removed. Devices, contexts and protection domains can
//! be used; behind a context there is a device of the child's own then.
use urxe_device::epoch;

use crate::errno::{Convention, Errno, Outcome};

/// Anything a verb takes as its first argument.
pub(crate) trait Object: Copy {
    /// Whether it is a null pointer.
    fn is_nothing(self) -> bool;

    /// Whether it belongs to a device of ours.
    ///
    /// # Safety
    /// It is a live object.
    unsafe fn is_ours(self) -> bool;

    /// Whether it is the parent's. One that stands for something new in the child does so from now
    /// on, unless the verb `ends` it.
    ///
    /// # Safety
    /// It is a live object of ours.
    unsafe fn is_inherited(self, ends: bool) -> Outcome<bool>;
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
