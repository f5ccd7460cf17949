//! Big-endian fields of fixed-size byte arrays. With a constant range the bounds checks vanish at
//! compile time.

use core::ops::Range;

/// The unsigned big-endian number in `range`, which is at most 8 bytes long.
#[inline(always)]
pub(crate) fn get<const N: usize>(bytes: &[u8; N], range: Range<usize>) -> u64 {
    let mut value = 0;
    for &byte in &bytes[range] {
        value = value << 8 | u64::from(byte);
    }
    value
}

/// Writes the low bytes of `value` to `range`, most significant first.
#[inline(always)]
pub(crate) fn put<const N: usize>(bytes: &mut [u8; N], range: Range<usize>, value: u64) {
    let len = range.end - range.start;
    bytes[range].copy_from_slice(&value.to_be_bytes()[8 - len..]);
}
