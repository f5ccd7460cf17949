//! Swift: a window that keeps the delay near a target (Kumar et al., "Swift: Delay is Simple and
//! Effective for Congestion Control in the Datacenter", SIGCOMM 2020, algorithm 1).
//!
//! The target grows with the switches on the way (topology scaling) and with the root of the
//! number of flows, which shows in the window (flow scaling). Delay in the peer has a target and a
//! window of its own; the smaller window counts. A window below a packet is paced: a packet in as
//! many round trips as the window is a part of it.

use alloc::boxed::Box;

use serde::Deserialize;
use urxe_proto::{Acknowledged, CongestionControl, Instant, Loss};

use crate::pacer::Pacer;

use crate::path::{Path, rate_of, to_rate};
use crate::square_root::square_root;

/// Parameters of [`Swift`]. Windows are in packets.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwiftParameters {
    /// Target of the delay in the network without a switch, nanoseconds.
    pub base_target_ns: u64,
    /// What each switch on the way adds to it, nanoseconds (h-bar).
    pub hop_ns: u64,
    /// What flow scaling adds to it at most, nanoseconds (`fs_range`).
    pub flow_range_ns: u64,
    /// Up to this window it adds all of that (`fs_min_cwnd`).
    pub flow_min_packets: f64,
    /// From this window on it adds nothing (`fs_max_cwnd`).
    pub flow_max_packets: f64,
    /// Target of the delay in the peer, nanoseconds.
    pub endpoint_target_ns: u64,
    /// What a round trip below the target adds to the window (ai).
    pub additive_packets: f64,
    /// How much a delay above the target cuts it (beta).
    pub decrease_gain: f64,
    /// The greatest part that is cut at once (`max_mdf`).
    pub max_decrease: f64,
    /// The least window.
    pub min_window_packets: f64,
    /// Silences in a row from which on the window is the least (`RETX_RESET_THRESHOLD`).
    pub reset_after: u32,
}

impl Default for SwiftParameters {
    fn default() -> Self {
        Self {
            base_target_ns: 25_000,
            hop_ns: 1_000,
            flow_range_ns: 50_000,
            flow_min_packets: 0.1,
            flow_max_packets: 100.0,
            endpoint_target_ns: 100_000,
            additive_packets: 1.0,
            decrease_gain: 0.8,
            max_decrease: 0.5,
            min_window_packets: 0.001,
            reset_after: 5,
        }
    }
}

impl SwiftParameters {
    /// What cannot be, for a person.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        let parts = [self.decrease_gain, self.max_decrease];
        if self.base_target_ns == 0 || self.endpoint_target_ns == 0 {
            Some("base_target_ns and endpoint_target_ns are above 0")
        } else if !(self.flow_min_packets > 0.0 && self.flow_min_packets < self.flow_max_packets) {
            Some("flow_min_packets is above 0 and below flow_max_packets")
        } else if !parts.iter().all(|part| (0.0..1.0).contains(part)) {
            Some("decrease_gain and max_decrease are parts: from 0, and below 1")
        } else if self.additive_packets <= 0.0 || self.min_window_packets <= 0.0 {
            Some("additive_packets and min_window_packets are above 0")
        } else {
            None
        }
    }
}

/// One of the two windows.
#[derive(Clone, Copy, Debug)]
struct Window {
    packets: f64,
    decreased_at: Instant,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Swift {
    parameters: SwiftParameters,
    mtu_bytes: f64,
    max_packets: f64,
    fabric: Window,
    endpoint: Window,
    round_trip_ns: u64,
    silences: u32,
    acknowledged_bytes: u64,
    pacer: Pacer,
}

impl Swift {
    /// A sender that begins with what fills the network, as far as it is known.
    #[must_use]
    pub fn new(parameters: SwiftParameters, path: Path) -> Self {
        let mtu_bytes = path.mtu();
        let first = Window {
            packets: (path.bandwidth_delay_bytes() / mtu_bytes).max(1.0),
            decreased_at: Instant::default(),
        };
        // At the line rate, the longest round trip that it would ever aim at.
        let longest_ns = parameters.base_target_ns
            + parameters.flow_range_ns
            + path.base_round_trip_ns
            + parameters.endpoint_target_ns;
        let most = Path {
            base_round_trip_ns: longest_ns,
            ..path
        };
        Self {
            mtu_bytes,
            max_packets: (most.bandwidth_delay_bytes() / mtu_bytes).max(1.0),
            fabric: first,
            endpoint: first,
            round_trip_ns: path.base_round_trip_ns,
            silences: 0,
            acknowledged_bytes: 0,
            pacer: Pacer::new(Instant::from_nanos(0), 0),
            parameters,
        }
    }

    fn window(&self) -> f64 {
        self.fabric.packets.min(self.endpoint.packets)
    }

    /// The delay in the network to aim at (function `TargetDelay`).
    fn target_ns(&self, hops: u32) -> f64 {
        let parameters = &self.parameters;
        let range_ns = parameters.flow_range_ns as f64;
        let of = |packets: f64| 1.0 / square_root(packets.max(1e-6));
        let most = of(parameters.flow_max_packets);
        let span = of(parameters.flow_min_packets) - most;
        let scaled = if span > 0.0 {
            range_ns / span * (of(self.fabric.packets) - most)
        } else {
            0.0
        };
        let hops_ns = f64::from(hops) * parameters.hop_ns as f64;
        parameters.base_target_ns as f64 + hops_ns + scaled.clamp(0.0, range_ns)
    }

    /// Moves a window by a delay and its target.
    fn moved(
        &self,
        now: Instant,
        window: Window,
        delay_ns: f64,
        target_ns: f64,
        acked: f64,
    ) -> Window {
        let parameters = &self.parameters;
        let mut packets = window.packets;
        if delay_ns < target_ns {
            let step = parameters.additive_packets * acked;
            packets += if packets >= 1.0 { step / packets } else { step };
        } else if self.may_decrease(now, window) {
            let cut = parameters.decrease_gain * (delay_ns - target_ns) / delay_ns;
            packets *= 1.0 - cut.min(parameters.max_decrease);
        }
        self.noted(now, window, packets)
    }

    /// A round trip has passed since the last cut.
    fn may_decrease(&self, now: Instant, window: Window) -> bool {
        now.since(window.decreased_at) >= self.round_trip_ns
    }

    fn noted(&self, now: Instant, before: Window, packets: f64) -> Window {
        let least = self.parameters.min_window_packets.max(1e-6);
        let packets = packets.clamp(least, self.max_packets.max(least));
        Window {
            packets,
            decreased_at: if packets < before.packets {
                now
            } else {
                before.decreased_at
            },
        }
    }

    fn cut(&mut self, now: Instant) {
        let left = 1.0 - self.parameters.max_decrease;
        for is_fabric in [true, false] {
            let window = if is_fabric {
                self.fabric
            } else {
                self.endpoint
            };
            if self.may_decrease(now, window) {
                let cut = self.noted(now, window, window.packets * left);
                if is_fabric {
                    self.fabric = cut;
                } else {
                    self.endpoint = cut;
                }
            }
        }
    }

    fn rate(&self) -> Option<u64> {
        let window = self.window();
        let bytes = window * self.mtu_bytes;
        (window < 1.0).then(|| to_rate(rate_of(bytes, self.round_trip_ns.max(1) as f64)))
    }
}

impl CongestionControl for Swift {
    fn handle_acknowledged(&mut self, now: Instant, event: &Acknowledged<'_>) {
        self.silences = 0;
        let acked = (event.acknowledged_bytes - self.acknowledged_bytes) as f64 / self.mtu_bytes;
        self.acknowledged_bytes = event.acknowledged_bytes;
        let feedback = &event.feedback;
        self.round_trip_ns = feedback.round_trip_ns;
        let remote_ns = feedback.remote_ns as f64;
        let fabric_ns = feedback.round_trip_ns.saturating_sub(feedback.remote_ns) as f64;
        let target_ns = self.target_ns(feedback.hops);
        self.fabric = self.moved(now, self.fabric, fabric_ns, target_ns, acked);
        let endpoint_ns = self.parameters.endpoint_target_ns as f64;
        self.endpoint = self.moved(now, self.endpoint, remote_ns, endpoint_ns, acked);
        self.pacer.handle_new_rate();
    }

    fn handle_notification(&mut self, _: Instant) {}

    fn handle_loss(&mut self, now: Instant, loss: Loss) {
        if loss == Loss::Silence {
            self.silences += 1;
            if self.silences >= self.parameters.reset_after {
                self.fabric = self.noted(now, self.fabric, 0.0);
                self.endpoint = self.noted(now, self.endpoint, 0.0);
                return;
            }
        }
        self.cut(now);
    }

    fn handle_sent(&mut self, now: Instant, bytes: u32) {
        if let Some(rate_bps) = self.rate() {
            // A window is data: a part of a packet is one of a full one.
            let data = bytes.min(self.mtu_bytes as u32);
            self.pacer.handle_sent(now, data, rate_bps);
        }
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
        self.rate()
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window is positive and far below 2^64"
    )]
    fn window_bytes(&self) -> Option<u64> {
        let packets = self.window().max(1.0) as u64;
        Some(packets * self.mtu_bytes as u64)
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

    const PATH: Path = Path {
        line_rate_bps: 100_000_000_000,
        base_round_trip_ns: 10_000,
        mtu_bytes: 1_000,
    };

    fn acknowledge(swift: &mut Swift, at_ns: u64, round_trip_ns: u64, remote_ns: u64) {
        let event = Acknowledged {
            acknowledged_bytes: swift.acknowledged_bytes + 1_000,
            sent_bytes: 0,
            feedback: Feedback {
                round_trip_ns,
                remote_ns,
                hops: 1,
                ..Feedback::default()
            },
        };
        swift.handle_acknowledged(Instant::from_nanos(at_ns), &event);
    }

    #[test]
    fn the_target_grows_with_switches_and_with_small_windows() {
        let mut swift = Swift::new(SwiftParameters::default(), PATH);
        let mut target_at = |packets, hops| {
            swift.fabric.packets = packets;
            swift.target_ns(hops)
        };
        assert!((target_at(100.0, 5) - 30_000.0).abs() < 1.0);
        assert!((target_at(1_000.0, 0) - 25_000.0).abs() < 1.0);
        assert!((target_at(0.1, 0) - 75_000.0).abs() < 1.0);
        assert!((target_at(0.01, 0) - 75_000.0).abs() < 1.0);
        // 1 / sqrt(1) between 1 / sqrt(100) and 1 / sqrt(0.1).
        let part = (1.0 - 0.1) / (3.162_277_66 - 0.1);
        assert!((target_at(1.0, 0) - (25_000.0 + 50_000.0 * part)).abs() < 1.0);
    }

    #[test]
    fn it_adds_a_packet_in_a_round_trip_and_cuts_once_in_one() {
        let mut swift = Swift::new(SwiftParameters::default(), PATH);
        let first = swift.window();
        for _ in 0..125 {
            acknowledge(&mut swift, 20_000, 10_000, 0);
        }
        assert!((swift.window() - first - 1.0).abs() < 0.01);
        let before = swift.window();
        // Target 26 us: 0.8 x half of the delay is above it.
        acknowledge(&mut swift, 200_000, 52_000, 0);
        assert!((swift.window() - before * 0.6).abs() < 0.01);
        acknowledge(&mut swift, 210_000, 52_000, 0);
        assert!((swift.window() - before * 0.6).abs() < 0.01, "too soon");
        acknowledge(&mut swift, 1_200_000, 1_000_000, 0);
        assert!(
            (swift.window() - before * 0.3).abs() < 0.01,
            "no more than half"
        );
    }

    #[test]
    fn delay_in_the_peer_has_a_window_of_its_own() {
        let mut swift = Swift::new(SwiftParameters::default(), PATH);
        acknowledge(&mut swift, 300_000, 210_000, 200_000);
        assert!(swift.fabric.packets > swift.endpoint.packets);
        assert!(
            (swift.window() - 125.0 * 0.6).abs() < 0.1,
            "{}",
            swift.window()
        );
    }

    #[test]
    fn a_window_below_a_packet_is_paced() {
        let mut swift = Swift::new(SwiftParameters::default(), PATH);
        swift.fabric.packets = 0.25;
        swift.round_trip_ns = 40_000;
        assert_eq!(swift.window_bytes(), Some(1_000));
        let now = Instant::from_nanos(0);
        assert!(swift.may_send(now));
        swift.handle_sent(now, 1_000);
        assert!(!swift.may_send(Instant::from_nanos(159_000)));
        // A packet in four round trips.
        assert_eq!(swift.poll_timeout(), Some(Instant::from_nanos(160_000)));
    }

    #[test]
    fn losses_cut_and_silence_after_silence_resets() {
        let mut swift = Swift::new(SwiftParameters::default(), PATH);
        let at = |us: u64| Instant::from_nanos(1_000 * us);
        swift.handle_loss(at(100), Loss::Gap);
        swift.handle_loss(at(101), Loss::Gap);
        assert!((swift.window() - 62.5).abs() < 0.01);
        for silence in 1..=5 {
            swift.handle_loss(at(1_000 * silence), Loss::Silence);
        }
        assert!((swift.window() - 0.001).abs() < 1e-9);
    }
}
