//! What a sender is told of its network before it begins.

const BITS_PER_BYTE: f64 = 8.0;
const NANOS_PER_SECOND: f64 = 1e9;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Rate of the adapter's port, bits per second. No sender goes above.
    pub line_rate_bps: u64,
    /// The longest round trip of the network while nothing waits, nanoseconds.
    pub base_round_trip_ns: u64,
    /// Data of a full packet, bytes.
    pub mtu_bytes: u32,
}

impl Path {
    pub(crate) const fn line_rate(&self) -> f64 {
        self.line_rate_bps as f64
    }

    pub(crate) fn mtu(&self) -> f64 {
        f64::from(self.mtu_bytes)
    }

    /// What fills the network at the line rate, bytes.
    pub(crate) fn bandwidth_delay_bytes(&self) -> f64 {
        bytes_in(self.line_rate(), self.base_round_trip_ns as f64)
    }
}

/// Bytes of a rate, bits per second, in a time.
pub(crate) const fn bytes_in(rate_bps: f64, nanos: f64) -> f64 {
    rate_bps / BITS_PER_BYTE / NANOS_PER_SECOND * nanos
}

/// The rate at which so many bytes go in a time, bits per second.
pub(crate) const fn rate_of(bytes: f64, nanos: f64) -> f64 {
    bytes * BITS_PER_BYTE * NANOS_PER_SECOND / nanos
}

/// A rate that packets can be paced by.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^64"
)]
pub(crate) fn to_rate(bps: f64) -> u64 {
    bps.max(1.0) as u64
}
