//! The only clock of the NIC.

use urxe_proto::Instant;

/// Now: nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

/// `CLOCK_MONOTONIC`, nanoseconds, as programs read it.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time lives until the call returns; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
