//! The two time codes of the wire and of queue pair attributes.

/// RNR NAK timer codes in microseconds (IBTA vol 1, table 45). Code 0 is the longest.
const RNR_US: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

/// How long a requester waits after an RNR NAK with this timer code, in microseconds. Only the low
/// five bits count.
#[inline]
pub const fn rnr_timer_us(code: u8) -> u32 {
    RNR_US[(code & 0x1f) as usize]
}

/// The code of the shortest wait that is at least `wait_us` microseconds; 0, the longest, if none
/// is.
pub const fn rnr_timer_code(wait_us: u32) -> u8 {
    let mut code = 1;
    while code < 32 {
        if RNR_US[code as usize] >= wait_us {
            return code;
        }
        code += 1;
    }
    0
}

/// The local ACK timeout of a five-bit exponent in nanoseconds, 4.096 us * 2^exponent; `None` for
/// 0, which means to wait for ever (IBTA vol 1, 9.7.6.1.3). Only the low five bits count.
#[inline]
pub const fn ack_timeout_ns(exponent: u8) -> Option<u64> {
    match exponent & 0x1f {
        0 => None,
        exponent => Some(4_096 << exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes_and_waits_map_to_each_other() {
        for code in 0..32 {
            assert_eq!(rnr_timer_code(rnr_timer_us(code)), code);
        }
        assert_eq!(rnr_timer_us(0), 655_360);
        assert_eq!(rnr_timer_us(1), 10);
        assert_eq!(rnr_timer_us(31), 491_520);
        assert_eq!(rnr_timer_us(12), 640, "the perftest default");
        assert_eq!(rnr_timer_code(0), 1);
        assert_eq!(rnr_timer_code(11), 2);
        assert_eq!(rnr_timer_code(u32::MAX), 0);
    }

    #[test]
    fn ack_timeout_doubles() {
        assert_eq!(ack_timeout_ns(0), None);
        assert_eq!(ack_timeout_ns(1), Some(8_192));
        assert_eq!(ack_timeout_ns(14), Some(67_108_864));
        assert_eq!(ack_timeout_ns(31), Some(8_796_093_022_208));
    }
}
