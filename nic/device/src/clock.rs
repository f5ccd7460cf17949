//! The only clock of the NIC.

use std::sync::OnceLock;
use std::time::Instant as StdInstant;

use urxe_proto::Instant;

/// Now, in nanoseconds since the first call in this process (`CLOCK_MONOTONIC`).
pub(crate) fn now() -> Instant {
    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    let elapsed = ORIGIN.get_or_init(StdInstant::now).elapsed();
    // One is added so that "now" is after the origin even at the first call.
    Instant::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX - 1) + 1)
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
