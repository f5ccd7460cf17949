//! HPCC: the load of every link of the path, from what the switches write into packets (Li et al.,
//! "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1).
//!
//! The inflight bytes of a link are its queue and what its rate sends in the base round trip. The
//! window is set so that those of the busiest link are a little less than fill it: by a factor
//! when they are more, or when it was only added to for long, and by addition else. Every
//! acknowledgement reacts to what it brings, on the window of one round trip ago, so that none
//! reacts to the same queue twice.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::Deserialize;
use urxe_proto::{Acknowledged, CongestionControl, Hop, Instant, Loss};

use crate::pacer::Pacer;

use crate::path::{Path, bytes_in, rate_of, to_rate};

/// Parameters of [`Hpcc`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HpccParameters {
    /// How busy a link shall be, part of its rate (eta).
    pub target_utilisation: f64,
    /// Round trips that only add, before the window follows the load anyway (maxStage).
    pub additive_stages: u32,
    /// Senders that a link is expected to have (N): what is added in a round trip (`W_AI`) is this
    /// part of what the target leaves free of the first window.
    pub expected_flows: f64,
    /// Least rate, 10^6 bit/s.
    pub min_rate_mbps: f64,
}

impl Default for HpccParameters {
    fn default() -> Self {
        Self {
            target_utilisation: 0.95,
            additive_stages: 5,
            expected_flows: 100.0,
            min_rate_mbps: 100.0,
        }
    }
}

impl HpccParameters {
    /// What cannot be, for a person.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        if !(self.target_utilisation > 0.0 && self.target_utilisation <= 1.0) {
            Some("target_utilisation is a part: above 0, and at most 1")
        } else if self.expected_flows < 1.0 || self.min_rate_mbps <= 0.0 {
            Some("expected_flows is at least 1, and min_rate_mbps above 0")
        } else {
            None
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Hpcc {
    parameters: HpccParameters,
    base_ns: f64,
    /// The first window, and the greatest.
    max_bytes: f64,
    min_bytes: f64,
    additive_bytes: f64,
    window_bytes: f64,
    /// The window that acknowledgements of this round trip start from (`W_c`).
    reference_bytes: f64,
    /// The smoothed load (U).
    utilisation: f64,
    stage: u32,
    /// What was sent when the round trip began.
    update_after_bytes: u64,
    last: Vec<Hop>,
    pacer: Pacer,
}

impl Hpcc {
    /// A sender that begins at the line rate.
    #[must_use]
    pub fn new(parameters: HpccParameters, path: Path) -> Self {
        let max_bytes = path.bandwidth_delay_bytes();
        let free = 1.0 - parameters.target_utilisation;
        let base_ns = path.base_round_trip_ns.max(1) as f64;
        Self {
            base_ns,
            max_bytes,
            min_bytes: bytes_in(parameters.min_rate_mbps * 1e6, base_ns).min(max_bytes),
            additive_bytes: max_bytes * free / parameters.expected_flows.max(1.0),
            window_bytes: max_bytes,
            reference_bytes: max_bytes,
            utilisation: 1.0,
            stage: 0,
            update_after_bytes: 0,
            last: Vec::new(),
            pacer: Pacer::new(Instant::from_nanos(0), 0),
            parameters,
        }
    }

    /// Takes in the load of the busiest link since the last acknowledgement, if anything is to be
    /// learnt of it (function `MeasureInflight`).
    fn measure(&mut self, path: &[Hop]) {
        let mut busiest: Option<(f64, f64)> = None;
        for (hop, last) in path.iter().zip(&self.last) {
            let span_ns = hop.at_ns.saturating_sub(last.at_ns) as f64;
            if span_ns <= 0.0 || hop.rate_bps == 0 {
                continue;
            }
            let link_bps = hop.rate_bps as f64;
            let sent = hop.sent_bytes.saturating_sub(last.sent_bytes) as f64;
            let queue = hop.queue_bytes.min(last.queue_bytes) as f64;
            let load = queue / bytes_in(link_bps, self.base_ns) + rate_of(sent, span_ns) / link_bps;
            if busiest.is_none_or(|(most, _)| load > most) {
                busiest = Some((load, span_ns));
            }
        }
        if let Some((load, span_ns)) = busiest {
            let weight = span_ns.min(self.base_ns) / self.base_ns;
            self.utilisation += weight * (load - self.utilisation);
        }
    }

    /// The window for the load (function `ComputeWind`).
    fn compute(&mut self, is_new_round: bool) {
        let target = self.parameters.target_utilisation;
        let follows = self.utilisation >= target || self.stage >= self.parameters.additive_stages;
        let base = if follows {
            self.reference_bytes / (self.utilisation / target)
        } else {
            self.reference_bytes
        };
        self.window_bytes = (base + self.additive_bytes).clamp(self.min_bytes, self.max_bytes);
        if is_new_round {
            self.stage = if follows { 0 } else { self.stage + 1 };
            self.reference_bytes = self.window_bytes;
        }
        self.pacer.handle_new_rate();
    }

    fn rate(&self) -> u64 {
        to_rate(rate_of(self.window_bytes, self.base_ns))
    }
}

impl CongestionControl for Hpcc {
    fn handle_acknowledged(&mut self, _: Instant, event: &Acknowledged<'_>) {
        let path = event.feedback.path;
        if path.is_empty() {
            return;
        }
        // The first, and the first of another way: there is nothing to compare it with.
        if path.len() == self.last.len() {
            let is_new_round = event.acknowledged_bytes > self.update_after_bytes;
            self.measure(path);
            self.compute(is_new_round);
            if is_new_round {
                self.update_after_bytes = event.sent_bytes;
            }
        } else {
            self.update_after_bytes = event.sent_bytes;
        }
        self.last.clear();
        self.last.extend_from_slice(path);
    }

    fn handle_notification(&mut self, _: Instant) {}

    /// The load says all that a loss could.
    fn handle_loss(&mut self, _: Instant, _: Loss) {}

    fn handle_sent(&mut self, now: Instant, bytes: u32) {
        let rate_bps = self.rate();
        self.pacer.handle_sent(now, bytes, rate_bps);
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
        Some(self.rate())
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window is positive and far below 2^64"
    )]
    fn window_bytes(&self) -> Option<u64> {
        Some(self.window_bytes as u64)
    }

    fn packets_per_acknowledgement(&self) -> Option<u32> {
        Some(1)
    }

    fn boxed_clone(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_proto::Feedback;

    /// 12,500 bytes of window.
    const PATH: Path = Path {
        line_rate_bps: 10_000_000_000,
        base_round_trip_ns: 10_000,
        mtu_bytes: 1_000,
    };

    /// A link that was as busy as it can be, with a queue, seen every `span_ns`.
    fn hop(number: u64, span_ns: u64, queue_bytes: u64) -> Hop {
        Hop {
            at_ns: number * span_ns,
            queue_bytes,
            sent_bytes: number * span_ns * 10 / 8,
            rate_bps: 10_000_000_000,
        }
    }

    fn acknowledge(hpcc: &mut Hpcc, acknowledged_bytes: u64, sent_bytes: u64, hop: Hop) {
        let event = Acknowledged {
            acknowledged_bytes,
            sent_bytes,
            feedback: Feedback {
                path: &[hop],
                ..Feedback::default()
            },
        };
        hpcc.handle_acknowledged(Instant::from_nanos(hop.at_ns), &event);
    }

    #[test]
    fn a_queue_of_one_window_halves_the_window_at_once_and_only_once_in_a_round_trip() {
        let mut hpcc = Hpcc::new(HpccParameters::default(), PATH);
        // W_AI = 12,500 x 5 % / 100.
        assert!((hpcc.additive_bytes - 6.25).abs() < 1e-9);
        acknowledge(&mut hpcc, 1_000, 12_500, hop(1, 10_000, 12_500));
        acknowledge(&mut hpcc, 13_000, 25_000, hop(2, 10_000, 12_500));
        // The link has one window on the wire and one in the queue.
        let halved = 12_500.0 * 0.95 / 2.0 + 6.25;
        assert!((hpcc.window_bytes - halved).abs() < 1e-6);
        // The next tells the same, of the same round trip.
        acknowledge(&mut hpcc, 14_000, 25_000, hop(3, 10_000, 12_500));
        let from_there = halved * 0.95 / 2.0 + 6.25;
        assert!((hpcc.window_bytes - from_there).abs() < 1e-6);
        acknowledge(&mut hpcc, 15_000, 25_000, hop(4, 10_000, 12_500));
        assert!(
            (hpcc.window_bytes - from_there).abs() < 1e-6,
            "from the same window again"
        );
    }

    #[test]
    fn a_free_path_is_taken_after_some_round_trips_of_small_steps() {
        let mut hpcc = Hpcc::new(HpccParameters::default(), PATH);
        hpcc.reference_bytes = 1_250.0;
        let mut windows = Vec::new();
        for round in 1..=8_u64 {
            // A tenth of the rate, no queue.
            let mut idle = hop(round, 10_000, 0);
            idle.sent_bytes /= 10;
            hpcc.utilisation = 0.1;
            acknowledge(&mut hpcc, 1_000 * round, 1_000 * round, idle);
            windows.push(hpcc.window_bytes);
        }
        // The first has nothing to compare with; five add.
        assert!((windows[5] - (1_250.0 + 5.0 * 6.25)).abs() < 1e-6);
        assert!(windows[6] > 9.0 * windows[5], "{windows:?}");
    }
}
