//! How long batches of packets may be: as long as the kernel takes them, but short on a slow link.
//!
//! Each system call has its price. But where the kernel cuts batches apart, or a link is emulated,
//! it may be the sender's own processor that carries the packets on: the call returns when the last
//! of a long batch has left, and then the link waits until there is another. (TCP sizes its batches
//! by its rate, too.) What a token bucket holds bridges that on very slow links: WRITEs both ways
//! over MTU 1500 and a bucket of 10 KB were faster with short batches by 1.4 at 1 Gbps, by 1.2 at
//! 700 Mbps, and by nothing at 500. And a rate so low may well be that of a slow processor, which
//! long batches relieve: between emulated ones WRITEs took up to 1.6 times as long with short ones.

use urxe_udp::MAX_TRANSMIT_BYTES;

/// Only links up to this rate count as slow. Where a processor is the limit, smaller batches would
/// only make it slower.
const SLOW_BPS: u64 = 2_500_000_000;
/// Below this rate batches become long again, ...
const VERY_SLOW_BPS: u64 = 350_000_000;
/// ... until it is above this: that is what long batches reach on a link of 1 Gbps.
const NOT_SO_SLOW_BPS: u64 = 550_000_000;
/// Half of what a token bucket usually holds.
const BURST_NS: u64 = 50_000;
/// One packet of the largest path MTU, four of 1 KiB.
const BURST_MIN_BYTES: usize = 4_400;

/// How many bytes a batch may have.
#[derive(Debug, Default)]
pub(crate) struct BatchLength {
    is_very_slow: bool,
}

impl BatchLength {
    /// Of a batch that goes out at `rate_bps`, if that is known.
    pub(crate) fn at_rate(&mut self, rate_bps: Option<u64>) -> usize {
        let Some(rate_bps) = rate_bps else {
            return MAX_TRANSMIT_BYTES;
        };
        self.is_very_slow = if self.is_very_slow {
            rate_bps < NOT_SO_SLOW_BPS
        } else {
            rate_bps < VERY_SLOW_BPS
        };
        if self.is_very_slow || rate_bps > SLOW_BPS {
            return MAX_TRANSMIT_BYTES;
        }
        let bytes = rate_bps / 8 * BURST_NS / 1_000_000_000;
        usize::try_from(bytes).map_or(MAX_TRANSMIT_BYTES, |bytes| {
            bytes.clamp(BURST_MIN_BYTES, MAX_TRANSMIT_BYTES)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_short_where_a_link_is_slow() {
        const MBPS: u64 = 1_000_000;
        let mut length = BatchLength::default();
        let cases = [
            (None, MAX_TRANSMIT_BYTES),
            (Some(u64::MAX), MAX_TRANSMIT_BYTES),
            (Some(3000 * MBPS), MAX_TRANSMIT_BYTES),
            (Some(2000 * MBPS), 12_500),
            (Some(1000 * MBPS), 6_250),
            (Some(500 * MBPS), BURST_MIN_BYTES),
            (Some(300 * MBPS), MAX_TRANSMIT_BYTES),
            // What a slow processor gains by it is no reason to go back.
            (Some(500 * MBPS), MAX_TRANSMIT_BYTES),
            (None, MAX_TRANSMIT_BYTES),
            (Some(600 * MBPS), BURST_MIN_BYTES),
        ];
        for (rate_bps, bytes) in cases {
            assert_eq!(length.at_rate(rate_bps), bytes, "{rate_bps:?}");
        }
    }
}
