//! Queues and rates over time.

use alloc::vec::Vec;

use serde::Serialize;

/// What was noted at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// When, nanoseconds.
    pub at_ns: u64,
    /// The longest queue of a port then, bytes.
    pub queue_bytes: u64,
    /// The most that any switch held then, bytes.
    pub buffer_bytes: u64,
    /// Part of the time since the last point that hosts were paused, on average.
    pub paused_part: f64,
    /// Congestion notifications since the last point.
    pub notifications: u64,
    /// New data that arrived since the last point, all hosts together, 10^9 bit/s.
    pub throughput_gbps: f64,
    /// The same of each stream, if they are few.
    pub stream_gbps: Vec<f64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) points: Vec<Point>,
    pub(crate) last_at: u64,
    pub(crate) received_bytes: u64,
    pub(crate) stream_bytes: Vec<u64>,
    pub(crate) notifications: u64,
    pub(crate) paused_ps: u64,
}
