//! Which signals a thread blocks. One that blocks those of faults and polls would be killed when a
//! peer accesses memory that the program has unmapped (`urxe_device::forget_mask`). So libc's
//! functions that change what a thread blocks pass through here: the thread finds out when it next
//! accesses such memory, and pays for it only then.
//!
//! Jumps are among them: they bring back what was blocked when the place to jump to was set.

use std::ffi::{c_int, c_ulong};

use crate::blocking::{self, Function};
use crate::next::{Next, c_name};

/// Functions of libc before which the thread's mask is forgotten:
/// `STATIC: name(arguments) -> result;`. It is asked for again only when memory is accessed, and so
/// after them.
macro_rules! changes {
    ($($next:ident: $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            static $next: Next = Next::libc(c_name!(stringify!($name)));

            crate::routed::routed! {
                #[doc = concat!("`", stringify!($name), "` of libc.")]
                $name($($arg: $ty),*) -> $ret = routes::$name;
            }
        )*

        mod routes {
            #[allow(clippy::wildcard_imports, reason = "what the macro's caller has")]
            use super::*;
            $(
                pub(super) extern "C" fn $name() -> Function {
                    urxe_device::forget_mask();
                    blocking::next(&$next)
                }
            )*
        }

        /// Finds them before the program runs: a program may call them in a signal handler, where
        /// looking them up is not safe.
        #[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
        static FIND_NEXT: extern "C" fn() = {
            extern "C" fn find() {
                $($next.address();)*
            }
            find
        };
    };
}

changes! {
    PTHREAD_SIGMASK: pthread_sigmask(how: c_int, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> c_int;
    SIGPROCMASK: sigprocmask(how: c_int, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> c_int;
    SIGBLOCK: sigblock(mask: c_int) -> c_int;
    SIGSETMASK: sigsetmask(mask: c_int) -> c_int;
    SIGHOLD: sighold(signal: c_int) -> c_int;
    SIGLONGJMP: siglongjmp(to: usize, value: c_int) -> c_ulong;
    LONGJMP: longjmp(to: usize, value: c_int) -> c_ulong;
    LONGJMP_CHK: __longjmp_chk(to: usize, value: c_int) -> c_ulong;
    SETCONTEXT: setcontext(context: usize) -> c_int;
    SWAPCONTEXT: swapcontext(from: usize, to: usize) -> c_int;
}
