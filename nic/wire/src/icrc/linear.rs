//! The arithmetic behind the shortcuts: CRC states as polynomials over GF(2).
//!
//! A state is a polynomial modulo the CRC's, bit-reflected: the top bit of the word is the
//! coefficient of x^0. To pass over one zero byte is to multiply by x^8. A byte `b` of the message
//! followed by n more adds b x^(8 (n + 1)) to the final state, independently of all other bytes.
//! The polynomial is primitive, so x has order 2^32 - 1, and to pass over bytes backwards is to
//! multiply by a power, too.

/// The CRC-32 polynomial, reflected, without its x^32.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
const ORDER: u64 = u32::MAX as u64;

/// What four bits that leave the low end of a state add to it again.
const REDUCE_NIBBLE: [u32; 16] = {
    let mut table = [0; 16];
    let mut nibble = 0;
    while nibble < 16 {
        table[nibble] = times_x(times_x(times_x(times_x(nibble as u32))));
        nibble += 1;
    }
    table
};

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ if a & 1 != 0 { POLYNOMIAL } else { 0 }
}

/// The product of two states; about 25 ns.
pub(super) const fn multiply(a: u32, b: u32) -> u32 {
    // All multiples of b by a polynomial of degree below 4; bit 3 of the index is x^0.
    let mut multiples = [0; 16];
    multiples[8] = b;
    multiples[4] = times_x(b);
    multiples[2] = times_x(multiples[4]);
    multiples[1] = times_x(multiples[2]);
    let mut index = 3;
    while index < 16 {
        multiples[index] = multiples[index & (index - 1)] ^ multiples[index & index.wrapping_neg()];
        index += 1;
    }
    // Horner's rule by nibbles of a, from the highest power down, which is from the low end up.
    let mut product = 0u32;
    let mut shift = 0;
    while shift < 32 {
        product = (product >> 4) ^ REDUCE_NIBBLE[(product & 15) as usize];
        product ^= multiples[(a >> shift & 15) as usize];
        shift += 4;
    }
    product
}

/// x to the power of 8 `bytes`, which may be negative.
const fn x_to_bytes(bytes: i64) -> u32 {
    let mut exponent = (8 * bytes).rem_euclid(ORDER as i64) as u64;
    let mut square = ONE >> 1;
    let mut power = ONE;
    while exponent != 0 {
        if exponent & 1 != 0 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    power
}

/// What a big-endian 16-bit field adds to the state at some point after it, as a table per nibble:
/// 256 bytes of cache.
pub(super) struct FieldMap([[u32; 16]; 4]);

impl FieldMap {
    /// For a field followed by `after` more bytes.
    pub(super) const fn new(after: i64) -> Self {
        let mut map = Self([[0; 16]; 4]);
        let mut nibble = 0;
        while nibble < 4 {
            let mut value = 0;
            while value < 16 {
                let field = (value as u16) << (4 * nibble);
                map.0[nibble][value] = multiply(field.swap_bytes() as u32, x_to_bytes(after + 2));
                value += 1;
            }
            nibble += 1;
        }
        map
    }

    /// For a value that stands in two places.
    pub(super) const fn and(mut self, other: &Self) -> Self {
        let mut at = 0;
        while at < 64 {
            self.0[at / 16][at % 16] ^= other.0[at / 16][at % 16];
            at += 1;
        }
        self
    }

    #[inline]
    pub(super) const fn apply(&self, field: u16) -> u32 {
        let field = field as usize;
        self.0[0][field & 15]
            ^ self.0[1][field >> 4 & 15]
            ^ self.0[2][field >> 8 & 15]
            ^ self.0[3][field >> 12]
    }
}

/// The BTH's byte 4 as a change of the state before the BTH: a 16-bit field whose high byte is byte
/// 3 and whose low byte is byte 4, followed by -5 bytes.
pub(super) static UNMASK: FieldMap = FieldMap::new(-5);

/// [`UNMASK`] of the usual byte 4, zero.
pub(super) const UNMASK_ZERO: u32 = FieldMap::new(-5).apply(0xff);

/// x to the power of -8 n, for n below 256 and for multiples of 256: 2 KB, used only where the ID
/// must be found.
static BACK: [[u32; 256]; 2] = {
    let mut table = [[ONE; 256]; 2];
    let mut row = 0;
    while row < 2 {
        let step = x_to_bytes(if row == 0 { -1 } else { -256 });
        let mut at = 1;
        while at < 256 {
            table[row][at] = multiply(table[row][at - 1], step);
            at += 1;
        }
        row += 1;
    }
    table
};

/// The 16-bit field that adds `difference` to the state `after` bytes behind it, if there is one.
/// `after` is cut to 16 bits.
#[inline]
pub(super) fn find_field(difference: u32, after: usize) -> Option<u16> {
    let bytes = after.wrapping_add(2);
    let high = BACK[1][bytes >> 8 & 0xff];
    let low = BACK[0][bytes & 0xff];
    let field = multiply(multiply(difference, low), high);
    u16::try_from(field).ok().map(u16::swap_bytes)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::super::crc::crc32;
    use super::*;

    /// The state after `bytes` from the state zero, by the textbook.
    fn state_after(bytes: &[u8]) -> u32 {
        let mut state = 0u32;
        for &byte in bytes {
            state ^= u32::from(byte);
            for _ in 0..8 {
                state = times_x(state);
            }
        }
        state
    }

    /// The library takes other instructions for other lengths, and none of it is ours.
    #[test]
    fn sums_of_any_length_and_place_are_those_of_the_textbook() {
        let bytes: Vec<u8> = (0..9_000u32).map(|at| ((at * at) >> 7) as u8).collect();
        let lengths = (0..700).chain([1023, 1024, 1036, 2048, 4096, 4108, 8_900]);
        for len in lengths {
            for start in [0, 1, 12, 63] {
                let bytes = &bytes[start..start + len];
                assert_eq!(crc32(!0, bytes), !state_after(bytes), "{len} at {start}");
                // From a state that is not the first.
                let (head, tail) = bytes.split_at(len / 3);
                assert_eq!(
                    crc32(crc32(!0, head), tail),
                    !state_after(bytes),
                    "{len} at {start}, in two"
                );
            }
        }
    }

    #[test]
    fn multiplication_is_that_of_polynomials() {
        let (mut a, mut b) = (0x1234_5678u32, 0x9abc_def1u32);
        for _ in 0..1000 {
            let mut expected = 0;
            let mut power = b;
            for bit in (0..32).rev() {
                if a >> bit & 1 != 0 {
                    expected ^= power;
                }
                power = times_x(power);
            }
            assert_eq!(multiply(a, b), expected);
            assert_eq!(multiply(b, a), expected);
            a = a.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b = b.wrapping_mul(22_695_477).wrapping_add(1);
        }
    }

    #[test]
    fn powers_invert_each_other() {
        for bytes in [0, 1, 22, 255, 256, 4096, 65_535] {
            assert_eq!(multiply(x_to_bytes(bytes), x_to_bytes(-bytes)), ONE);
        }
    }

    #[test]
    fn fields_contribute_what_the_textbook_says_and_are_found_again() {
        for after in [0usize, 2, 24, 255, 300, 4120] {
            let map = FieldMap::new(after as i64);
            for field in [1u16, 0x00ff, 0x1234, 0xff00, 0xffff] {
                let mut bytes = std::vec![0; after + 2];
                bytes[..2].copy_from_slice(&field.to_be_bytes());
                assert_eq!(map.apply(field), state_after(&bytes));
                assert_eq!(find_field(map.apply(field), after), Some(field));
            }
        }
    }

    #[test]
    fn only_one_difference_in_65536_is_some_field() {
        let mut found = 0;
        let mut difference = 1u32;
        for _ in 0..1_000_000 {
            difference = difference
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223);
            found += u32::from(find_field(difference, 1100).is_some());
        }
        // 15.3 expected.
        assert!((2..40).contains(&found), "{found}");
    }

    #[test]
    fn unmask_moves_byte_4_in_front_of_the_bth() {
        for byte in 0..=255u8 {
            let before = UNMASK.apply(u16::from(byte));
            let expected = state_after(&[0, 0, 0, 0, byte, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(multiply(before, x_to_bytes(12)), expected);
        }
        assert_eq!(UNMASK_ZERO, UNMASK.apply(0xff));
    }
}
