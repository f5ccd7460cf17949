//! Memory that the next message is likely to be placed in, brought into the cache while nothing else is to do. A program that has a
//! thousand receives posted (UCX) has each message placed in memory that it has not touched for a thousand messages.

use urxe_proto::{PdId, Sge};

/// A line of the cache.
const LINE_BYTES: u64 = 64;
/// Programs keep in front of a buffer what they know of it (UCX its descriptor), and look at it next.
const BEFORE_BYTES: u64 = 128;
/// Of a longer message the beginning: the rest comes in by itself, as it is written in order.
const BYTES_MAX: u32 = 8192;

/// Where a message is expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) pd: PdId,
    pub(crate) sge: Sge,
    /// As many bytes as the last one had.
    pub(crate) bytes: u32,
}

/// Asks for `bytes` bytes of memory at `at`, to write them. They need not be there.
pub(crate) fn fetch(at: u64, bytes: u32) {
    let from = at.wrapping_sub(BEFORE_BYTES);
    let lines = (BEFORE_BYTES + u64::from(bytes.min(BYTES_MAX))).div_ceil(LINE_BYTES);
    for line in 0..lines {
        prefetch(from.wrapping_add(line * LINE_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch(at: u64) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    // SAFETY: a hint, at whatever address.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(at as *const i8) };
}

/// There is no such function for other processors yet.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_at: u64) {}
