//! Memory that is going to be used soon, brought into the cache before.
//!
//! Two uses. Where the next message is likely to be placed, while nothing else is to do: a program
//! that has a thousand receives posted (UCX) has each message placed in memory that it has not
//! touched for a thousand messages. And the next packet of a long message, while the one before is
//! copied: copies of a packet each are too short for the processor to foresee the next.

use urxe_proto::{PdId, Sge};

/// A line of the cache.
const LINE_BYTES: usize = 64;
/// Programs keep in front of a buffer what they know of it (UCX its descriptor), and look at it
/// next.
const BEFORE_BYTES: u64 = 128;
/// Of a message that is longer than a frame the beginning: the rest comes in by itself, as it is
/// written in order.
const BYTES_MAX: u32 = 18_432;

/// Where a message is expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) pd: PdId,
    pub(crate) sge: Sge,
    /// As many bytes as the last one had.
    pub(crate) bytes: u32,
}

/// A message of `bytes` bytes is expected at `at`. The memory need not be there.
pub(crate) fn expect_message(at: u64, bytes: u32) {
    let bytes = BEFORE_BYTES + u64::from(bytes.min(BYTES_MAX));
    for offset in (0..bytes).step_by(LINE_BYTES) {
        fetch(at.wrapping_sub(BEFORE_BYTES).wrapping_add(offset));
    }
}

/// Asks for a line of memory, to write it.
#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch(at: u64) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    let at = at as *const i8;
    // SAFETY: a hint, at whatever address.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(at) };
}

/// Rust has no such function for other processors yet.
#[cfg(not(target_arch = "x86_64"))]
fn fetch(_at: u64) {}
