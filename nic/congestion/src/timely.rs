//! TIMELY: rates from round trips and their gradient (Mittal et al., "TIMELY: RTT-based Congestion
//! Control for the Datacenter", SIGCOMM 2015, algorithm 1), and its patched form (Zhu et al., "ECN
//! or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY", CoNEXT 2016, algorithm 2).
//!
//! Below a round trip the rate grows, above another it is cut, and between them it follows the
//! gradient alone. So any split of a link whose queue stands still is an equilibrium. The patched
//! form follows the distance to a round trip as well, which only the fair split is at.

use alloc::boxed::Box;

use serde::Deserialize;
use urxe_proto::{Acknowledged, CongestionControl, Instant, Loss};

use crate::pacer::Pacer;

use crate::path::{Path, to_rate};

/// What the patched form reacts by (beta), in place of [`BETA`].
const PATCHED_BETA: f64 = 0.008;
const BETA: f64 = 0.8;
/// The gradient from which on the patched form's weight is one, and below whose negative it is
/// zero.
const WEIGHT_FULL_AT: f64 = 0.25;

/// Parameters of [`Timely`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimelyParameters {
    /// Below this round trip the rate only grows, nanoseconds (`T_low`).
    pub low_ns: u64,
    /// Above this it is cut, whatever the gradient, nanoseconds (`T_high`).
    pub high_ns: u64,
    /// What a gradient is measured by, nanoseconds (minRTT).
    pub min_round_trip_ns: u64,
    /// Additive step, 10^6 bit/s (delta).
    pub additive_step_mbps: f64,
    /// Weight of the newest difference of two round trips (alpha).
    pub gradient_gain: f64,
    /// How much a gradient cuts (beta); `None`: 0.8, or 0.008 for the patched form.
    pub decrease_gain: Option<f64>,
    /// Raises in a row from which on steps are greater.
    pub hyper_after: u32,
    /// How many steps such a raise is (N).
    pub hyper_steps: f64,
    /// Data between two updates, bytes.
    pub segment_bytes: u64,
    /// Least rate, 10^6 bit/s.
    pub min_rate_mbps: f64,
    /// Whether it is the patched form, whose reference is `low_ns`.
    pub patched: bool,
}

impl Default for TimelyParameters {
    fn default() -> Self {
        Self {
            low_ns: 50_000,
            high_ns: 500_000,
            min_round_trip_ns: 20_000,
            additive_step_mbps: 10.0,
            gradient_gain: 0.875,
            decrease_gain: None,
            hyper_after: 5,
            hyper_steps: 5.0,
            segment_bytes: 16_384,
            min_rate_mbps: 100.0,
            patched: false,
        }
    }
}

impl TimelyParameters {
    /// What cannot be, for a person.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        let gains = [self.gradient_gain, self.decrease_gain.unwrap_or(BETA)];
        if self.low_ns == 0 || self.low_ns > self.high_ns || self.min_round_trip_ns == 0 {
            Some("low_ns and min_round_trip_ns are above 0, and high_ns is at least low_ns")
        } else if gains.iter().any(|gain| !(0.0..=1.0).contains(gain)) {
            Some("gradient_gain and decrease_gain are parts, from 0 to 1")
        } else if self.additive_step_mbps <= 0.0 || self.min_rate_mbps <= 0.0 {
            Some("additive_step_mbps and min_rate_mbps are above 0")
        } else {
            None
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Timely {
    parameters: TimelyParameters,
    line_bps: f64,
    rate_bps: f64,
    packets_per_segment: u32,
    last_ns: Option<f64>,
    /// The smoothed difference of two round trips.
    difference_ns: f64,
    raises: u32,
    updated_at_bytes: u64,
    pacer: Pacer,
}

impl Timely {
    /// A sender that begins at the line rate.
    #[must_use]
    pub fn new(parameters: TimelyParameters, path: Path) -> Self {
        let packets = parameters.segment_bytes / u64::from(path.mtu_bytes.max(1));
        Self {
            line_bps: path.line_rate(),
            rate_bps: path.line_rate(),
            packets_per_segment: u32::try_from(packets).unwrap_or(u32::MAX).max(1),
            last_ns: None,
            difference_ns: 0.0,
            raises: 0,
            updated_at_bytes: 0,
            pacer: Pacer::new(Instant::from_nanos(0), 0),
            parameters,
        }
    }

    fn update(&mut self, round_trip_ns: f64) {
        let parameters = &self.parameters;
        let Some(last_ns) = self.last_ns.replace(round_trip_ns) else {
            return;
        };
        let gain = parameters.gradient_gain;
        self.difference_ns += gain * (round_trip_ns - last_ns - self.difference_ns);
        let gradient = self.difference_ns / parameters.min_round_trip_ns.max(1) as f64;
        let (low_ns, high_ns) = (parameters.low_ns as f64, parameters.high_ns as f64);
        let step_bps = parameters.additive_step_mbps * 1e6;
        let usual = if parameters.patched {
            PATCHED_BETA
        } else {
            BETA
        };
        let beta = parameters.decrease_gain.unwrap_or(usual);
        let rate_bps = if round_trip_ns < low_ns {
            self.raises = 0;
            self.rate_bps + step_bps
        } else if round_trip_ns > high_ns {
            self.raises = 0;
            self.rate_bps * (1.0 - usual_beta(parameters) * (1.0 - high_ns / round_trip_ns))
        } else if parameters.patched {
            let weight = ((gradient + WEIGHT_FULL_AT) / (2.0 * WEIGHT_FULL_AT)).clamp(0.0, 1.0);
            let error = (round_trip_ns - low_ns) / low_ns;
            step_bps * (1.0 - weight) + self.rate_bps * (1.0 - beta * weight * error)
        } else if gradient <= 0.0 {
            self.raises += 1;
            let is_hyper = self.raises >= parameters.hyper_after;
            let steps = if is_hyper {
                parameters.hyper_steps
            } else {
                1.0
            };
            self.rate_bps + steps * step_bps
        } else {
            self.raises = 0;
            self.rate_bps * (1.0 - beta * gradient)
        };
        let least_bps = parameters.min_rate_mbps * 1e6;
        self.rate_bps = rate_bps.min(self.line_bps).max(least_bps);
        self.pacer.handle_new_rate();
    }
}

/// How much a round trip that is too long cuts: as in the unpatched form.
fn usual_beta(parameters: &TimelyParameters) -> f64 {
    if parameters.patched {
        BETA
    } else {
        parameters.decrease_gain.unwrap_or(BETA)
    }
}

impl CongestionControl for Timely {
    fn handle_acknowledged(&mut self, _: Instant, event: &Acknowledged<'_>) {
        let since = event.acknowledged_bytes - self.updated_at_bytes;
        if since >= self.parameters.segment_bytes {
            self.updated_at_bytes = event.acknowledged_bytes;
            self.update(event.feedback.round_trip_ns as f64);
        }
    }

    fn handle_notification(&mut self, _: Instant) {}

    /// It was made for networks without loss.
    fn handle_loss(&mut self, _: Instant, _: Loss) {}

    fn handle_sent(&mut self, now: Instant, bytes: u32) {
        self.pacer.handle_sent(now, bytes, to_rate(self.rate_bps));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.pacer.handle_timeout(now);
    }

    fn may_send(&mut self, now: Instant) -> bool {
        self.pacer.may_send(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout()
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(to_rate(self.rate_bps))
    }

    fn window_bytes(&self) -> Option<u64> {
        None
    }

    fn packets_per_acknowledgement(&self) -> Option<u32> {
        Some(self.packets_per_segment)
    }

    fn boxed_clone(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path {
        line_rate_bps: 10_000_000_000,
        base_round_trip_ns: 10_000,
        mtu_bytes: 1_024,
    };

    fn timely(patched: bool, rate_bps: f64) -> Timely {
        let parameters = TimelyParameters {
            patched,
            ..TimelyParameters::default()
        };
        let mut timely = Timely::new(parameters, PATH);
        timely.rate_bps = rate_bps;
        timely
    }

    #[track_caller]
    fn assert_rate(timely: &Timely, expected_bps: f64) {
        let difference = (timely.rate_bps - expected_bps).abs();
        assert!(difference < 1.0, "{} bit/s", timely.rate_bps);
    }

    #[test]
    fn short_round_trips_raise_and_long_ones_cut() {
        let mut timely = timely(false, 1e9);
        timely.update(30_000.0);
        assert_rate(&timely, 1e9);
        timely.update(40_000.0);
        assert_rate(&timely, 1.01e9);
        timely.update(1_000_000.0);
        // Twice T_high: half of beta.
        assert_rate(&timely, 1.01e9 * 0.6);
    }

    #[test]
    fn between_the_two_it_follows_the_gradient() {
        let mut timely = timely(false, 1e9);
        timely.update(100_000.0);
        timely.update(102_000.0);
        let gradient = 0.875 * 2_000.0 / 20_000.0;
        assert_rate(&timely, 1e9 * (1.0 - 0.8 * gradient));
        let before = timely.rate_bps;
        for _ in 0..4 {
            timely.update(90_000.0);
        }
        // The first is still below the smoothed difference of none.
        assert_rate(&timely, before + 4.0 * 10e6);
        timely.update(90_000.0);
        assert_rate(&timely, before + 4.0 * 10e6 + 5.0 * 10e6);
    }

    #[test]
    fn a_standing_queue_moves_the_patched_form_alone() {
        for (patched, expected_bps) in [(false, 1.01e9), (true, 1e9 * (1.0 - 0.004) + 5e6)] {
            let mut timely = timely(patched, 1e9);
            timely.update(100_000.0);
            timely.update(100_000.0);
            assert_rate(&timely, expected_bps);
        }
    }
}
