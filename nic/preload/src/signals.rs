//! Which signals end a blocking call. A read(2) of a kernel's channel goes on after a signal whose
//! handler was installed with `SA_RESTART`, and fails with `EINTR` after any other. ppoll(2), in
//! which calls of ours wait, fails after both, and does not tell which signal it was. So a thread
//! that waits holds back the signals with `SA_RESTART`, and waits for one of them to be pending as
//! well (signalfd(2)): the handler runs when ppoll(2) returns, and the call goes on. Programs
//! without a handler of the other kind, which are most, are spared that: there every interruption
//! is one after which calls go on.
//!
//! libc's functions that install a handler pass through here, so that it is known which signals are
//! to be asked for.
use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sighandler_t, sigset_t};

use crate::errno::{Convention, Errno, MinusOne};
use crate::next::{Next, c_name, call_next};

/// Signals, one bit each: signal n is bit n - 1, as in the kernel's sets.
type Signals = u64;

const COUNT: c_int = 64;

/// Those whose handlers may be others than the two below say.
static CHANGED: AtomicU64 = AtomicU64::new(u64::MAX);
/// Those with a handler and `SA_RESTART`.
static RESTARTING: AtomicU64 = AtomicU64::new(0);
/// Those with a handler and without it.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Those of faults, which a thread that waits does not have; the device handles them.
const FAULTS: Signals =
    bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGFPE) | bit(libc::SIGILL);

/// libc's own signals, of which it does not tell: to cancel threads, and to change the user of all.
/// Both restart.
const LIBCS: Signals = bit(32) | bit(33);

const fn bit(signal: c_int) -> Signals {
    if signal < 1 || signal > COUNT {
        return 0;
    }
    1 << (signal - 1)
}

/// Asks for the handlers that may have changed.
fn refresh() {
    let changed = CHANGED.swap(0, Ordering::Relaxed) & !FAULTS;
    for signal in (1..=COUNT).filter(|signal| changed & bit(*signal) != 0) {
        // SAFETY: plain data, which the call overwrites.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks only. It fails for libc's own signals.
        let asked = unsafe { real_sigaction(signal, std::ptr::null(), &raw mut action) };
        let has_handler =
            asked == 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        let restarts = action.sa_flags & libc::SA_RESTART != 0;
        for (set, is_in) in [
            (&RESTARTING, has_handler && restarts),
            (&INTERRUPTING, has_handler && !restarts),
        ] {
            if is_in {
                set.fetch_or(bit(signal), Ordering::Relaxed);
            } else {
                set.fetch_and(!bit(signal), Ordering::Relaxed);
            }
        }
    }
}

/// A descriptor that is readable while one of some signals is pending.
struct Pending {
    fd: OwnedFd,
    of: Signals,
}

thread_local! {
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
}

/// Bytes of the kernel's sets.
const SET_BYTES: usize = size_of::<Signals>();

/// To be asked before the thread waits: writes to `mask` which signals it has to hold back, and
/// returns the descriptor that is readable when one of them is pending. `None` if there is nothing
/// to hold back.
pub(crate) fn held(mask: &mut sigset_t) -> Option<RawFd> {
    if CHANGED.load(Ordering::Relaxed) != 0 {
        refresh();
    }
    if INTERRUPTING.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut blocked: Signals = 0;
    // SAFETY: asks only, with room for a set of the kernel's.
    unsafe {
        let nothing = std::ptr::null::<Signals>();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            nothing,
            &raw mut blocked,
            SET_BYTES,
        );
    }
    // One that the program blocks may stay pending for long.
    let restarting = (RESTARTING.load(Ordering::Relaxed) | LIBCS) & !blocked;
    let fd = PENDING.try_with(|place| pending(&mut place.borrow_mut(), restarting));
    let fd = fd.ok().flatten()?;
    let all = blocked | restarting;
    // SAFETY: a set of libc's begins with one of the kernel's.
    unsafe {
        *mask = std::mem::zeroed();
        std::ptr::from_mut(mask).cast::<Signals>().write(all);
    }
    Some(fd)
}

fn pending(place: &mut Option<Pending>, of: Signals) -> Option<RawFd> {
    if let Some(known) = place.as_ref().filter(|known| known.of == of) {
        return Some(known.fd.as_raw_fd());
    }
    let before = place.as_ref().map_or(-1, |known| known.fd.as_raw_fd());
    // SAFETY: a set of the kernel's, which the call reads.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_signalfd4,
            before,
            &raw const of,
            SET_BYTES,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        )
    };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    match place {
        Some(known) => known.of = of,
        None => {
            *place = Some(Pending {
                // SAFETY: just opened, and no other code knows it.
                fd: unsafe { OwnedFd::from_raw_fd(fd) },
                of,
            });
        }
    }
    Some(fd)
}

/// Whether one of the signals that a thread has held back had its handler replaced meanwhile, by
/// one after which calls do not go on.
pub(crate) fn has_turned(mask: &sigset_t) -> bool {
    if CHANGED.load(Ordering::Relaxed) == 0 {
        return false;
    }
    refresh();
    // SAFETY: `held` has written a set of the kernel's there.
    let held = unsafe { std::ptr::from_ref(mask).cast::<Signals>().read() };
    held & INTERRUPTING.load(Ordering::Relaxed) != 0
}

/// Whether a call goes on whose wait was interrupted by a handler; it may have held back those that
/// restart.
pub(crate) fn restarts(has_held: bool) -> bool {
    if has_held {
        return false;
    }
    // A handler may have come since, or by another way than libc's.
    CHANGED.store(u64::MAX, Ordering::Relaxed);
    refresh();
    INTERRUPTING.load(Ordering::Relaxed) == 0
}

/// The program has installed a handler.
fn note_installed(signal: c_int) {
    CHANGED.fetch_or(bit(signal), Ordering::Relaxed);
    urxe_device::find_handlers(signal);
}

/// # Safety
/// As its manual page says.
unsafe fn real_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    call_next!(
        SIGACTION,
        fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
        signal,
        new,
        old
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
}

static SIGACTION: Next = Next::libc(c"sigaction");

/// What the program installs, but that its handler blocks no faults: it may use verbs, and a peer
/// may access memory that is gone.
///
/// # Safety
/// `new` is readable.
unsafe fn without_faults(new: *const libc::sigaction) -> libc::sigaction {
    // SAFETY: by the caller's promise.
    let mut action = unsafe { new.read() };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: a set of libc's.
        unsafe { libc::sigdelset(&raw mut action.sa_mask, signal) };
    }
    action
}

/// `sigaction` of libc.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if new.is_null() || [libc::SIGSEGV, libc::SIGBUS].contains(&signal) {
        // SAFETY: by the caller's promise.
        let status = unsafe { real_sigaction(signal, new, old) };
        if !new.is_null() {
            note_installed(signal);
        }
        return status;
    }
    // SAFETY: by the caller's promise.
    let status = unsafe {
        let new = without_faults(new);
        real_sigaction(signal, &raw const new, old)
    };
    note_installed(signal);
    status
}

/// Interposes libc's older functions for the same: `STATIC: name(signal, arguments) -> result;`
macro_rules! installers {
    ($($next:ident: $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $failed:expr;)*) => {
        $(
            static $next: Next = Next::libc(c_name!(stringify!($name)));

            #[doc = concat!("`", stringify!($name), "` of libc.")]
            ///
            /// # Safety
            /// As its manual page says.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(signal: c_int $(, $arg: $ty)*) -> $ret {
                let done = call_next!($next, fn(c_int $(, $ty)*) -> $ret, signal $(, $arg)*);
                note_installed(signal);
                done.unwrap_or_else(|| {
                    Errno::NOSYS.set();
                    $failed
                })
            }
        )*

        /// Finds them before the program runs: a program may call them in a signal handler, where
        /// looking them up is not safe.
        #[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
        static FIND_INSTALLERS: extern "C" fn() = {
            extern "C" fn find() {
                SIGACTION.address();
                $($next.address();)*
            }
            find
        };
    };
}

installers! {
    SIGNAL: signal(handler: sighandler_t) -> sighandler_t = libc::SIG_ERR;
    BSD_SIGNAL: bsd_signal(handler: sighandler_t) -> sighandler_t = libc::SIG_ERR;
    SSIGNAL: ssignal(handler: sighandler_t) -> sighandler_t = libc::SIG_ERR;
    SYSV_SIGNAL: sysv_signal(handler: sighandler_t) -> sighandler_t = libc::SIG_ERR;
    SYSV_SIGNAL_2: __sysv_signal(handler: sighandler_t) -> sighandler_t = libc::SIG_ERR;
    SIGSET: sigset(handler: sighandler_t) -> sighandler_t = libc::SIG_ERR;
    SIGIGNORE: sigignore() -> c_int = -1;
    SIGINTERRUPT: siginterrupt(interrupts: c_int) -> c_int = -1;
}
