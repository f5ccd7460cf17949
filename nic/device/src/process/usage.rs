//! How long threads ran, as the kernel counts it, and what a thread that polls makes of it
//! ([`Poller`]).

use std::cell::Cell;

use urxe_duty::{Advice, Poller, Usage};

use crate::process::across_fork::AcrossFork;
use crate::process::clock::now;

/// The processor-time clocks of the background threads.
pub(crate) static BACKGROUND: AcrossFork<Vec<libc::clockid_t>> = AcrossFork::new(Vec::new());

/// While it lives, the thread that made it counts as a background thread.
pub(crate) struct CountedInBackground(Option<libc::clockid_t>);

impl CountedInBackground {
    pub(crate) fn new() -> Self {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the calling thread, and room for its clock.
        let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        let clock = (status == 0).then_some(clock);
        BACKGROUND.lock().extend(clock);
        Self(clock)
    }
}

impl Drop for CountedInBackground {
    fn drop(&mut self) {
        // The kernel gives the number of a thread that ended, and so its clock, to others.
        BACKGROUND.lock().retain(|clock| Some(*clock) != self.0);
    }
}

/// In the child of a fork these threads are not there.
pub(crate) fn forget_all() {
    if let Some(mut clocks) = BACKGROUND.try_lock() {
        clocks.clear();
    }
}

thread_local! {
    static POLLER: Cell<Poller> = const { Cell::new(Poller::new()) };
}

/// The calling thread polled, and packets came or not. What it should do now. `work` is what its
/// process has got done so far, posts among it.
pub(crate) fn advise(packets_came: bool, work: u64) -> Advice {
    // A thread that ends has no such variable any more, and no time to wait.
    POLLER
        .try_with(|cell| {
            let mut poller = cell.get();
            let advice = poller.poll(packets_came, work, now, usage);
            cell.set(poller);
            advice
        })
        .unwrap_or(Advice::Spin)
}

/// Times that threads of the process were made to leave their processor.
pub(crate) fn preemptions() -> i64 {
    counted(libc::RUSAGE_SELF).ru_nivcsw
}

/// What the kernel counts for the process, or for the calling thread.
fn counted(whose: libc::c_int) -> libc::rusage {
    // SAFETY: getrusage writes the structure; all zeros is a valid one.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    }
}

/// What the calling thread used.
fn usage() -> Usage {
    let usage = counted(libc::RUSAGE_THREAD);
    let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    Usage {
        preemptions: usage.ru_nivcsw,
        sleeps: usage.ru_nvcsw,
        ran_ns: (ns(usage.ru_utime) + ns(usage.ru_stime)).cast_unsigned(),
        background_ns: background_ns(),
    }
}

/// How long the background threads ran; nothing while one begins or ends.
fn background_ns() -> u64 {
    let Some(clocks) = BACKGROUND.try_lock() else {
        return 0;
    };
    clocks.iter().map(|&clock| clock_ns(clock)).sum()
}

/// What a clock shows; nothing after a fork, when its thread is not there.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for the time, which stays as it is if there is no such clock.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_thread_is_counted_only_while_it_runs() {
        let clocks = || BACKGROUND.lock().clone();
        let thread = std::thread::spawn(move || {
            let background = CountedInBackground::new();
            let clock = background.0.unwrap();
            assert!(clocks().contains(&clock));
            let before = usage().ran_ns;
            while usage().ran_ns < before + 3_000_000 {}
            assert!(clock_ns(clock) >= before + 3_000_000);
            let is_counted = |_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                usage().background_ns >= before + 3_000_000
            };
            assert!(
                (0..1_000).any(is_counted),
                "others have the lock now and then"
            );
            clock
        });
        let clock = thread.join().unwrap();
        assert!(!clocks().contains(&clock));
    }
}
