//! The square root, which `core` has of integers alone.

/// Fraction bits of the result.
const FRACTION: u32 = 20;

/// The square root of a number that is not negative and below 2^23, to a millionth.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller's numbers are small and positive"
)]
pub(crate) const fn square_root(value: f64) -> f64 {
    let scaled = (value * (1_u64 << (2 * FRACTION)) as f64) as u64;
    scaled.isqrt() as f64 / (1_u64 << FRACTION) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_of_a_root_is_the_number() {
        for value in [0.0, 0.001, 0.1, 1.0, 2.0, 100.0, 1e6] {
            let root = square_root(value);
            assert!((root * root - value).abs() <= 3e-6 * f64::max(value, 1.0));
        }
    }
}
