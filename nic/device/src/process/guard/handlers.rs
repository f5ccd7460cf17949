//! The handlers of SIGSEGV and SIGBUS, ours and the program's.

use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void, siginfo_t};

use super::call::{Outcome, leave, urxe_guard_frame_now, urxe_guard_set_frame};
use crate::process::across_fork::AcrossFork;

pub(super) const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// `SEGV_ACCERR` of <signal.h>: mapped, but not for this.
const PROTECTED: c_int = 2;

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Our handlers, one for each other handler that the program put in front: that may call ours,
/// which then must not call it again.
const HANDLERS: [Handler; 4] = [handle::<0>, handle::<1>, handle::<2>, handle::<3>];

/// What handled each signal before each of ours.
static BEFORE: [[AtomicPtr<libc::sigaction>; 2]; 4] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; 2] }; 4];

fn before(level: usize, signal: c_int) -> Option<&'static libc::sigaction> {
    let at = usize::from(signal != SIGNALS[0]);
    // SAFETY: null, or what `install` left there for good.
    unsafe { BEFORE[level][at].load(Ordering::Acquire).as_ref() }
}

/// Whether it is a function.
fn is_function(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

pub(super) fn is_installed() -> bool {
    before(0, libc::SIGSEGV).is_some()
}

/// What handles a signal now.
fn current(signal: c_int) -> libc::sigaction {
    // SAFETY: plain data, which the call overwrites.
    let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut current) };
    current
}

/// Which of ours it is.
fn level_of(action: &libc::sigaction) -> Option<usize> {
    HANDLERS
        .iter()
        .position(|ours| *ours as usize == action.sa_sigaction)
}

/// Whether a function of the program's is in front of ours. One that gives a signal back to the
/// system, as a crash reporter does, is not in our way.
pub(super) fn has_function_in_front(signal: c_int) -> bool {
    let current = current(signal);
    level_of(&current).is_none() && is_function(&current)
}

pub(super) fn has_programs() -> bool {
    level_of(&current(libc::SIGSEGV))
        .and_then(|level| before(level, libc::SIGSEGV))
        .is_some_and(is_function)
}

/// Lets the calling thread take the signals.
pub(super) fn unblock() {
    // SAFETY: the set is initialised before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_UNBLOCK,
            &raw const set,
            std::ptr::null::<libc::sigset_t>(),
            size_of::<u64>(),
        );
    }
}

/// Held by the thread that puts our handlers in front.
pub(crate) static INSTALLING: AcrossFork<()> = AcrossFork::new(());

pub(super) fn install() {
    let _alone = INSTALLING.lock();
    for (at, signal) in SIGNALS.into_iter().enumerate() {
        let current = current(signal);
        if level_of(&current).is_some() {
            continue;
        }
        // One that the program puts in front again has its level already.
        let is_same = |known: &libc::sigaction| {
            known.sa_sigaction == current.sa_sigaction && known.sa_flags == current.sa_flags
        };
        let levels = 0..HANDLERS.len();
        let Some(level) = levels
            .into_iter()
            .find(|level| before(*level, signal).is_none_or(is_same))
        else {
            continue;
        };
        let ours = libc::sigaction {
            sa_sigaction: HANDLERS[level] as usize,
            sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | (current.sa_flags & libc::SA_NODEFER),
            ..current
        };
        if before(level, signal).is_none() {
            // It stays for the life of the process: the handler may run at any time.
            BEFORE[level][at].store(Box::into_raw(Box::new(current)), Ordering::Release);
        }
        // SAFETY: the handler calls nothing that a signal handler must not, and passes on what is
        // not ours.
        unsafe { libc::sigaction(signal, &raw const ours, std::ptr::null_mut()) };
    }
}

thread_local! {
    /// Whether the next guarded access is one of `offer`. Set and read outside of the handler.
    static OFFERS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

pub(super) fn allow_one() {
    let _ = OFFERS.try_with(|offers| offers.set(true));
}

pub(super) fn allow_none() {
    let _ = OFFERS.try_with(|offers| offers.set(false));
}

/// Whether the interrupted access is an offer whose fault has not been passed on yet; once.
fn takes_offer() -> bool {
    OFFERS
        .try_with(|offers| offers.replace(false))
        .unwrap_or(false)
}

extern "C" fn handle<const LEVEL: usize>(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    let frame = urxe_guard_frame_now();
    // SAFETY: the kernel gives both.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr()) };
    if frame == 0 || code <= 0 {
        pass_on::<LEVEL>(signal, info, context);
        return;
    }
    let is_protected = signal == libc::SIGSEGV && code == PROTECTED;
    if is_protected && takes_offer() {
        // It is a fault of the program's until its handler returns, should it return.
        urxe_guard_set_frame(0);
        pass_on::<LEVEL>(signal, info, context);
        urxe_guard_set_frame(frame);
        return;
    }
    let outcome = Outcome {
        code: if is_protected {
            Outcome::PROTECTED
        } else {
            Outcome::GONE
        },
        at: at.expose_provenance() as u64,
    };
    // SAFETY: the context is the interrupted thread's; the frame is that of a guarded access that
    // has not ended.
    unsafe { leave(context, frame, &outcome) };
}

fn pass_on<const LEVEL: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = before(LEVEL, signal);
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The access happens again, and ends the process as it would have without us. A signal that
        // was sent (kill(2)) does not come again by itself. A library that interposes libc's
        // function would stop a handler there, so this is the kernel's own form of one: the flags,
        // a function that is not needed, and the signals that are blocked meanwhile.
        let action = [handler as u64, 0, 0, 0];
        // SAFETY: plain data; system calls and raise(3) may be made here.
        unsafe {
            let nothing = std::ptr::null::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                action.as_ptr(),
                nothing,
                size_of::<u64>(),
            );
            if (*info).si_code <= 0 && handler == libc::SIG_DFL {
                libc::raise(signal);
            }
        }
    } else if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: the program installed a function of this kind.
        let handler: Handler = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the program installed a function of this kind.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}
