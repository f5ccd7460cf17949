//! Time in picoseconds, and how long bytes take at a rate.

/// Picoseconds in a nanosecond.
pub(crate) const PS_PER_NS: u64 = 1_000;

/// Fraction bits of [`Pace`].
const FRACTION: u32 = 16;

/// How long a byte takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace(u64);

impl Pace {
    /// At so many 10^9 bits per second.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive, and a byte takes less than years"
    )]
    pub(crate) fn of_gbps(rate_gbps: f64) -> Self {
        Self((8_000.0 / rate_gbps * f64::from(1 << FRACTION)) as u64)
    }

    /// So many bytes, picoseconds.
    #[inline]
    pub(crate) const fn of_bytes(self, bytes: u64) -> u64 {
        (self.0 * bytes) >> FRACTION
    }

    /// Bytes in so many picoseconds.
    pub(crate) const fn bytes_in(self, time_ps: u64) -> u64 {
        (time_ps << FRACTION) / self.0
    }
}

/// So many bytes in so many picoseconds, 10^9 bit/s.
pub(crate) fn gbps(bytes: u64, time_ps: u64) -> f64 {
    if time_ps == 0 {
        return 0.0;
    }
    bytes as f64 * 8_000.0 / time_ps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialisation_times_are_exact_to_a_picosecond_in_a_packet() {
        assert_eq!(Pace::of_gbps(10.0).of_bytes(1_250), 1_000_000);
        assert_eq!(Pace::of_gbps(100.0).of_bytes(64), 5_120);
        let fdr = Pace::of_gbps(14.0625 * 4.0 * 64.0 / 66.0).of_bytes(2_082);
        assert!(fdr.abs_diff(305_360) <= 1, "{fdr}");
        assert_eq!(Pace::of_gbps(8.0).bytes_in(1_000_000), 1_000);
    }
}
