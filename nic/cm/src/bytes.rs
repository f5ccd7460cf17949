//! Big-endian fields of a management datagram, at offsets from its start.

/// Length of every management datagram, bytes.
pub const MAD_LEN: usize = 256;

/// A management datagram as it is on the wire.
pub(crate) type Raw = [u8; MAD_LEN];

/// The big-endian number in the `len` bytes (at most 8) at `at`.
pub(crate) fn get(raw: &Raw, at: usize, len: usize) -> u64 {
    raw[at..at + len]
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Writes the low `len` bytes of `value` at `at`.
pub(crate) fn put(raw: &mut Raw, at: usize, len: usize, value: u64) {
    raw[at..at + len].copy_from_slice(&value.to_be_bytes()[8 - len..]);
}

/// 16 bits.
pub(crate) fn get16(raw: &Raw, at: usize) -> u16 {
    get(raw, at, 2) as u16
}

/// 24 bits.
pub(crate) fn get24(raw: &Raw, at: usize) -> u32 {
    get(raw, at, 3) as u32
}

/// 32 bits.
pub(crate) fn get32(raw: &Raw, at: usize) -> u32 {
    get(raw, at, 4) as u32
}

/// The `N` bytes at `at`.
pub(crate) fn array<const N: usize>(raw: &Raw, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&raw[at..at + N]);
    bytes
}

/// Writes bytes at `at`.
pub(crate) fn put_array(raw: &mut Raw, at: usize, bytes: &[u8]) {
    raw[at..at + bytes.len()].copy_from_slice(bytes);
}
