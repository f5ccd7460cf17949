//! Completion timestamps by the wall clock. They are taken by the device's clock and moved by what
//! the wall clock is ahead of it, which is measured now and then, not for each. Two completions
//! then are as far apart as by the device's clock, and none goes back.
use std::time::{SystemTime, UNIX_EPOCH};

use urxe_device::Cq;

/// How long a measured lead is good for. Slewed by 500 ppm, the most that Linux does
/// (`adjtimex(2)`), a clock is off by 50 us then.
const GOOD_FOR_NS: u64 = 100_000_000;
/// A wall clock that is so far behind the last timestamp was set back: time goes back for the
/// program, too.
const SET_BACK_NS: u64 = 1_000_000_000;
/// A measurement takes this long unless the thread is interrupted, and is repeated, so often at
/// most.
const SOON_NS: u64 = 2_000;
const ATTEMPTS: usize = 5;

/// What makes the timestamps of one completion queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    /// The wall clock's time less the device's, and when that was measured by the latter.
    lead_ns: u64,
    measured_at_ns: Option<u64>,
    /// The last timestamp.
    last_ns: u64,
}

impl WallClock {
    /// Nanoseconds since 1970 when the device's clock showed `stamp_ns`; not before what was
    /// returned last.
    pub(crate) fn at(&mut self, stamp_ns: u64) -> u64 {
        self.at_with(stamp_ns, Cq::timestamp_now_ns, wall_now_ns)
    }

    fn at_with(
        &mut self,
        stamp_ns: u64,
        mut device_now_ns: impl FnMut() -> u64,
        mut wall_now_ns: impl FnMut() -> u64,
    ) -> u64 {
        let is_good = |at_ns: u64| stamp_ns.saturating_sub(at_ns) < GOOD_FOR_NS;
        if !self.measured_at_ns.is_some_and(is_good) {
            self.measure(&mut device_now_ns, &mut wall_now_ns);
        }
        let wanted_ns = stamp_ns.wrapping_add(self.lead_ns);
        if self.last_ns.saturating_sub(wanted_ns) < SET_BACK_NS {
            self.last_ns = self.last_ns.max(wanted_ns);
        } else {
            self.last_ns = wanted_ns;
        }
        self.last_ns
    }

    fn measure(
        &mut self,
        device_now_ns: &mut impl FnMut() -> u64,
        wall_now_ns: &mut impl FnMut() -> u64,
    ) {
        let mut shortest_ns = u64::MAX;
        for _ in 0..ATTEMPTS {
            let before_ns = device_now_ns();
            let wall_ns = wall_now_ns();
            let took_ns = device_now_ns().saturating_sub(before_ns);
            if took_ns < shortest_ns {
                shortest_ns = took_ns;
                self.lead_ns = wall_ns.wrapping_sub(before_ns + took_ns / 2);
                self.measured_at_ns = Some(before_ns);
            }
            if took_ns < SOON_NS {
                return;
            }
        }
    }
}

fn wall_now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

    /// Timestamps of stamps, each asked for when the wall clock is ahead by the lead beside it.
    fn timestamps(asked: &[(u64, u64)]) -> Vec<u64> {
        let mut clock = WallClock::default();
        let times = asked.iter().map(|&(stamp_ns, lead_ns)| {
            // Reading the clocks takes time.
            let now_ns = std::cell::Cell::new(stamp_ns + 500);
            let tick = || {
                now_ns.set(now_ns.get() + 40);
                now_ns.get()
            };
            clock.at_with(stamp_ns, tick, || tick() + lead_ns)
        });
        times.collect()
    }

    #[test]
    fn timestamps_are_as_far_apart_as_by_the_devices_clock() {
        let stamps: Vec<_> = (1..1000).map(|n| n * 77).collect();
        let asked: Vec<_> = stamps.iter().map(|&at| (at, EPOCH_NS + at % 13)).collect();
        let times = timestamps(&asked);
        let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.eq(std::iter::repeat_n(77, 998)));
        assert!(times[0].abs_diff(EPOCH_NS + 77) < 50);
    }

    #[test]
    fn none_goes_back_when_the_wall_clock_is_slow() {
        const SLOW_NS: u64 = EPOCH_NS - 50_000;
        let times = timestamps(&[
            (0, EPOCH_NS),
            (GOOD_FOR_NS - 1, EPOCH_NS),
            (GOOD_FOR_NS + 600, SLOW_NS),
            (GOOD_FOR_NS + 90_000, SLOW_NS),
        ]);
        assert_eq!(times[1] - times[0], GOOD_FOR_NS - 1);
        assert_eq!(times[2], times[1]);
        assert!(times[3].abs_diff(GOOD_FOR_NS + 90_000 + SLOW_NS) < 50);
    }

    #[test]
    fn a_wall_clock_that_was_set_is_followed() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        for lead_ns in [EPOCH_NS - HOUR_NS, EPOCH_NS + HOUR_NS] {
            let times = timestamps(&[(1_000, EPOCH_NS), (GOOD_FOR_NS + 2_000, lead_ns)]);
            assert!(times[1].abs_diff(GOOD_FOR_NS + 2_000 + lead_ns) < 50);
        }
    }

    #[test]
    fn an_interrupted_measurement_is_repeated() {
        let (now_ns, mut reads) = (std::cell::Cell::new(0), 0);
        let device = || {
            reads += 1;
            // Between the two readings of the first measurement.
            now_ns.set(now_ns.get() + if reads == 2 { 5_000_000 } else { 30 });
            now_ns.get()
        };
        let mut clock = WallClock::default();
        let time_ns = clock.at_with(10, device, || now_ns.get() + EPOCH_NS);
        assert!(time_ns.abs_diff(EPOCH_NS + 10) < 50, "{time_ns}");
    }
}
