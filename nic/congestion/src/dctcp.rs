//! One like DCTCP: a window that is cut by how many packets were marked (Alizadeh et al., "Data
//! Center TCP (DCTCP)", SIGCOMM 2010; RFC 8257), on queue pairs, whose acknowledgements say how
//! many packets came and how many of them were marked.
//!
//! Once in a window's worth of data alpha, the estimate of how much is marked, takes in the part
//! of this window, and if that was not zero, the window is cut by half of alpha. Else it grows by a
//! packet, and before the first mark by as much as is acknowledged.

use alloc::boxed::Box;

use serde::Deserialize;
use urxe_proto::{Acknowledged, CongestionControl, Instant, Loss};

use crate::pacer::Pacer;

use crate::path::Path;

/// Parameters of [`Dctcp`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DctcpParameters {
    /// Weight of the newest window in alpha (g).
    pub gain: f64,
    /// The first window, packets.
    pub first_window_packets: f64,
    /// What is added in a round trip, packets.
    pub additive_packets: f64,
}

impl Default for DctcpParameters {
    fn default() -> Self {
        Self {
            gain: 0.0625,
            first_window_packets: 10.0,
            additive_packets: 1.0,
        }
    }
}

impl DctcpParameters {
    /// What cannot be, for a person.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        if !(self.gain > 0.0 && self.gain <= 1.0) {
            Some("gain is a part: above 0, and at most 1")
        } else if self.first_window_packets < 1.0 || self.additive_packets <= 0.0 {
            Some("first_window_packets is at least 1, and additive_packets above 0")
        } else {
            None
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Dctcp {
    parameters: DctcpParameters,
    mtu_bytes: f64,
    window_bytes: f64,
    alpha: f64,
    is_slow_start: bool,
    /// Packets that came since alpha was updated, and those of them that were marked.
    packets: f64,
    marked: f64,
    acknowledged_bytes: u64,
    /// What was sent when this window began.
    update_after_bytes: u64,
    /// What was sent when a loss last cut the window.
    cut_until_bytes: u64,
    sent_bytes: u64,
    pacer: Pacer,
}

impl Dctcp {
    /// A sender that begins with its first window.
    #[must_use]
    pub fn new(parameters: DctcpParameters, path: Path) -> Self {
        let mtu_bytes = path.mtu();
        Self {
            mtu_bytes,
            window_bytes: parameters.first_window_packets.max(1.0) * mtu_bytes,
            // As RFC 8257, 4.2 recommends.
            alpha: 1.0,
            is_slow_start: true,
            packets: 0.0,
            marked: 0.0,
            acknowledged_bytes: 0,
            update_after_bytes: 0,
            cut_until_bytes: 0,
            sent_bytes: 0,
            pacer: Pacer::new(Instant::from_nanos(0), 0),
            parameters,
        }
    }

    fn set_window(&mut self, bytes: f64) {
        self.window_bytes = bytes.max(self.mtu_bytes);
    }

    /// A window's worth of data is acknowledged.
    fn end_window(&mut self) {
        let gain = self.parameters.gain;
        let part = if self.packets > 0.0 {
            self.marked / self.packets
        } else {
            0.0
        };
        self.alpha += gain * (part - self.alpha);
        if self.marked > 0.0 {
            self.is_slow_start = false;
            self.set_window(self.window_bytes * (1.0 - self.alpha / 2.0));
        }
        self.packets = 0.0;
        self.marked = 0.0;
        self.update_after_bytes = self.sent_bytes;
    }
}

impl CongestionControl for Dctcp {
    fn handle_acknowledged(&mut self, _: Instant, event: &Acknowledged<'_>) {
        let new_bytes = (event.acknowledged_bytes - self.acknowledged_bytes) as f64;
        self.acknowledged_bytes = event.acknowledged_bytes;
        self.sent_bytes = event.sent_bytes;
        self.packets += f64::from(event.feedback.packets);
        self.marked += f64::from(event.feedback.marked);
        if event.feedback.marked > 0 && self.is_slow_start {
            // The first mark of all ends slow start at once, and counts as a window.
            self.end_window();
            return;
        }
        if self.is_slow_start {
            self.window_bytes += new_bytes;
        } else {
            let step_bytes = self.parameters.additive_packets * self.mtu_bytes;
            self.window_bytes += step_bytes * new_bytes / self.window_bytes;
        }
        if event.acknowledged_bytes > self.update_after_bytes {
            self.end_window();
        }
    }

    fn handle_notification(&mut self, _: Instant) {}

    /// As TCP does, once in a window (RFC 5681).
    fn handle_loss(&mut self, _: Instant, loss: Loss) {
        self.is_slow_start = false;
        match loss {
            Loss::Gap if self.acknowledged_bytes < self.cut_until_bytes => {}
            Loss::Gap => {
                self.cut_until_bytes = self.sent_bytes;
                self.set_window(self.window_bytes / 2.0);
            }
            Loss::Silence => self.set_window(self.mtu_bytes),
        }
    }

    fn handle_sent(&mut self, _: Instant, _: u32) {}

    fn handle_timeout(&mut self, _: Instant) {}

    /// The window alone limits it.
    fn may_send(&mut self, now: Instant) -> bool {
        self.pacer.may_send(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn rate_bps(&self) -> Option<u64> {
        None
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window is positive and far below 2^64"
    )]
    fn window_bytes(&self) -> Option<u64> {
        // A packet that would not fit as a whole does not go.
        let packets = (self.window_bytes / self.mtu_bytes) as u64;
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
        line_rate_bps: 10_000_000_000,
        base_round_trip_ns: 10_000,
        mtu_bytes: 1_000,
    };

    /// A window after the other, so many packets of each marked.
    fn windows(dctcp: &mut Dctcp, count: u32, marked: u32) {
        for _ in 0..count {
            let packets = dctcp.window_bytes().unwrap() / 1_000;
            let sent_bytes = dctcp.acknowledged_bytes + 1_000 * packets;
            for number in 1..=packets {
                let event = Acknowledged {
                    acknowledged_bytes: dctcp.acknowledged_bytes + 1_000,
                    sent_bytes,
                    feedback: Feedback {
                        packets: 1,
                        marked: u32::from(number <= u64::from(marked)),
                        ..Feedback::default()
                    },
                };
                dctcp.handle_acknowledged(Instant::default(), &event);
            }
        }
    }

    #[test]
    fn it_doubles_until_the_first_mark_which_cuts_it() {
        let mut dctcp = Dctcp::new(DctcpParameters::default(), PATH);
        windows(&mut dctcp, 2, 0);
        assert!((dctcp.window_bytes - 40_000.0).abs() < 1.0);
        windows(&mut dctcp, 1, 1);
        assert!(!dctcp.is_slow_start);
        // Alpha is 1 less three windows that had hardly a mark; two packets were added since.
        let cut = 40_000.0 * (1.0 - 0.94_f64 * 0.94 * 0.94 / 2.0);
        assert!(
            (dctcp.window_bytes - cut - 2_000.0).abs() < 1_000.0,
            "{}",
            dctcp.window_bytes
        );
    }

    #[test]
    fn few_marks_cut_it_little() {
        let mut dctcp = Dctcp::new(DctcpParameters::default(), PATH);
        dctcp.is_slow_start = false;
        dctcp.alpha = 0.1;
        dctcp.window_bytes = 100_000.0;
        windows(&mut dctcp, 1, 0);
        windows(&mut dctcp, 1, 10);
        // Alpha is a tenth, and stays about that: a twentieth less, two packets more.
        let percent = dctcp.window_bytes / 1_000.0;
        assert!((94.0..=98.0).contains(&percent), "{percent}");
    }

    #[test]
    fn losses_halve_it_once_in_a_window_and_silence_ends_it() {
        let mut dctcp = Dctcp::new(DctcpParameters::default(), PATH);
        windows(&mut dctcp, 1, 0);
        dctcp.sent_bytes += 20_000;
        dctcp.handle_loss(Instant::default(), Loss::Gap);
        dctcp.handle_loss(Instant::default(), Loss::Gap);
        assert!((dctcp.window_bytes - 10_000.0).abs() < 1.0);
        dctcp.handle_loss(Instant::default(), Loss::Silence);
        assert_eq!(dctcp.window_bytes(), Some(1_000));
    }
}
