//! How long to wait. The codes are 4.096 us times two to the power of the code, five bits (IBTA vol
//! 1, 12.7.34).

/// Code of how long an end may take to answer: 4.3 s, as Linux has it.
pub const RESPONSE_TIMEOUT: u8 = 20;
/// How often a message is repeated before the peer counts as unreachable, as Linux has it.
pub const MAX_RETRIES: u8 = 15;
/// Code of how long a device takes to acknowledge (134 ms): what Linux rxe says of itself.
pub const ACK_DELAY: u8 = 15;
/// Code of a packet's life time on Ethernet (268 ms), as Linux has it.
const PACKET_LIFE_TIME: u8 = 16;
/// Code of how long a program may take to answer a request before it is repeated: 69 s.
pub(super) const SERVICE_TIMEOUT: u8 = 24;

/// Code of the longest that a peer may say it takes to answer, 34 s: eight times what Linux says.
/// It may say up to 2.4 hours, and so keep what it began, and does not go on with, for as long.
const PEER_TIMEOUT_MAX: u8 = 23;

/// The first repetition comes after this time, each further one after twice the time before it, up
/// to the response timeout. Linux waits for the whole response timeout from the start, so that one
/// lost datagram costs seconds.
const FIRST_RETRY_NS: u64 = 32_000_000;
/// How often a message is repeated to a peer that asked to wait, about 1 s. What it waits for, an
/// answer or a confirmation, may be lost, and is not to be missed for as long as the peer's program
/// may take. Linux does not repeat anything meanwhile.
pub(super) const PATIENT_RETRY_NS: u64 = FIRST_RETRY_NS << 5;
/// How long an answered resolution is remembered, to answer repetitions.
pub(super) const REMEMBER_ANSWER_NS: u64 = 10_000_000_000;

/// Nanoseconds of a code.
pub(super) const fn code_ns(code: u8) -> u64 {
    4096 << (code & 31)
}

/// When to repeat after `attempts` repetitions.
pub(super) fn retry_ns(attempts: u8, response_timeout: u8) -> u64 {
    let doubled = FIRST_RETRY_NS << attempts.min(20);
    let longest = code_ns(response_timeout.min(PEER_TIMEOUT_MAX));
    doubled.min(longest.max(FIRST_RETRY_NS))
}

/// The local ACK timeout of a queue pair: the packet's way there and back, and what the peer's
/// device takes (IBTA vol 1, 12.7.34). In the codes' arithmetic this is the larger, or one more if
/// they are about equal.
#[must_use]
pub const fn ack_timeout_code(peer_ack_delay: u8) -> u8 {
    let way = PACKET_LIFE_TIME + 1;
    let code = if way >= peer_ack_delay {
        way + (peer_ack_delay + 1 >= way) as u8
    } else {
        peer_ack_delay + (way + 1 >= peer_ack_delay) as u8
    };
    if code > 31 { 31 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_slow_down_to_the_response_timeout() {
        assert_eq!(retry_ns(0, RESPONSE_TIMEOUT), FIRST_RETRY_NS);
        assert_eq!(retry_ns(3, RESPONSE_TIMEOUT), 8 * FIRST_RETRY_NS);
        assert_eq!(retry_ns(15, RESPONSE_TIMEOUT), 4096 << 20);
        assert_eq!(retry_ns(9, 0), FIRST_RETRY_NS);
        assert_eq!(retry_ns(15, 31), 4096 << PEER_TIMEOUT_MAX);
    }

    #[test]
    fn ack_timeouts_cover_way_and_delay() {
        assert_eq!(ack_timeout_code(0), 17);
        assert_eq!(ack_timeout_code(15), 17);
        assert_eq!(ack_timeout_code(16), 18);
        assert_eq!(ack_timeout_code(20), 20);
        assert_eq!(ack_timeout_code(31), 31);
    }
}
