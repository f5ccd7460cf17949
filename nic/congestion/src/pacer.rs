//! When the next packet may go of a sender that has a rate.

use urxe_proto::Instant;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// See the module. For each packet [`Self::may_send`], then [`Self::handle_sent`] with the rate of
/// that time.
#[derive(Clone, Debug)]
pub struct Pacer {
    slack_ns: u64,
    next_send: Instant,
    /// What the division left over when `next_send` was last moved, in units of 1/rate nanoseconds.
    remainder: u64,
    /// A packet was refused, and waits for `next_send`.
    is_waiting: bool,
}

impl Pacer {
    /// The first packet may go at `now`. A sender that is behind its schedule catches up
    /// `slack_ns` at once, and waits until it may send that much in one go; with 0, each packet
    /// goes at its time.
    #[must_use]
    pub const fn new(now: Instant, slack_ns: u64) -> Self {
        Self {
            slack_ns,
            next_send: now,
            remainder: 0,
            is_waiting: false,
        }
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// A packet of so many bytes was sent, at a rate of more than zero.
    pub fn handle_sent(&mut self, now: Instant, bytes: u32, rate_bps: u64) {
        let behind_ns = now.since(self.next_send);
        if behind_ns > self.slack_ns {
            // What was not used in time is lost: else a pause would be followed by a burst.
            self.next_send = self.next_send.after(behind_ns - self.slack_ns);
        }
        let cost = u64::from(bytes) * 8 * NANOS_PER_SECOND + self.remainder;
        self.next_send = self.next_send.after(cost / rate_bps);
        self.remainder = cost % rate_bps;
    }

    /// The rate is another from now on.
    pub const fn handle_new_rate(&mut self) {
        self.remainder = 0;
    }

    /// [`Self::poll_timeout`] has come: a caller that waits may look again.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.wake_at() <= now {
            self.is_waiting = false;
        }
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// Whether a packet may go now. If not, [`Self::poll_timeout`] tells when.
    pub fn may_send(&mut self, now: Instant) -> bool {
        // With slack, no thread wakes for one packet: after one wait, the next is until several may
        // go.
        let earliest = if self.is_waiting {
            self.wake_at()
        } else {
            self.next_send
        };
        self.is_waiting = earliest > now;
        !self.is_waiting
    }

    /// When the next packet may go, if one was refused.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.is_waiting.then(|| self.wake_at())
    }

    fn wake_at(&self) -> Instant {
        self.next_send.after(self.slack_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_at_their_rate_and_a_pause_is_not_made_up_for() {
        let at = Instant::from_nanos;
        let mut pacer = Pacer::new(at(0), 0);
        // 1,000 bytes at 8 Gbps take a microsecond.
        let mut sent_at = [0; 3];
        for sent in &mut sent_at {
            let now = pacer.poll_timeout().unwrap_or(at(0));
            assert!(pacer.may_send(now));
            *sent = now.as_nanos();
            pacer.handle_sent(now, 1_000, 8_000_000_000);
            assert!(!pacer.may_send(now));
        }
        assert_eq!(sent_at, [0, 1_000, 2_000]);
        assert!(pacer.may_send(at(50_000)));
        pacer.handle_sent(at(50_000), 1_000, 8_000_000_000);
        assert!(!pacer.may_send(at(50_999)) && pacer.may_send(at(51_000)));
    }
}
