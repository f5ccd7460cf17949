//! The kernel's clocks.

use libc::clockid_t;

/// What a clock says: `CLOCK_MONOTONIC`, or `CLOCK_MONOTONIC_COARSE`, which costs less and tells
/// the time of the last timer interrupt, a few milliseconds ago at most.
pub(crate) fn now_ns(clock: clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for the time.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
