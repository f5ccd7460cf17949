//! The buffer of a switch: which queue may have how much of it, when to pause a sender, when to
//! mark a packet.
//!
//! As in HPCC's public simulator: bytes are counted where they came in. A priority with flow
//! control has headroom for what still arrives after a pause; of what is neither headroom nor
//! reserved, each may take a part of what is free.

use crate::scenario::{EcnConfig, SwitchConfig};

/// A sender may go on when so many bytes fewer than its limit are left.
const XON_BYTES: u64 = 3_000;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Where all may have a part.
    Shared,
    /// Into the headroom of the port that it came in at.
    Headroom,
    /// There is no room.
    Drop,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuffer {
    buffer_bytes: u64,
    port_reserve_bytes: u64,
    shared_shift: u32,
    lossy_bytes: Option<u64>,
    /// Neither reserved nor headroom.
    shared_bytes: u64,
    /// Of these, in use: what ports have above their reserve.
    shared_used: u64,
    /// Of everything, in use.
    pub(crate) used: u64,
    pub(crate) used_max: u64,
}

impl SharedBuffer {
    /// The buffer of a switch with ports of these rates.
    pub(crate) fn new(config: SwitchConfig, rates_gbps: impl Iterator<Item = f64>) -> Self {
        let kept: u64 = rates_gbps
            .map(|rate| {
                let headroom = if config.pfc {
                    headroom_bytes(&config, rate)
                } else {
                    0
                };
                config.port_reserve_bytes + headroom
            })
            .sum();
        Self {
            buffer_bytes: config.buffer_bytes,
            port_reserve_bytes: config.port_reserve_bytes,
            shared_shift: config.shared_shift,
            lossy_bytes: config.lossy_bytes,
            shared_bytes: config.buffer_bytes.saturating_sub(kept),
            shared_used: 0,
            used: 0,
            used_max: 0,
        }
    }

    /// What one queue may have now.
    fn limit_bytes(&self) -> u64 {
        let free = self.shared_bytes.saturating_sub(self.shared_used);
        self.port_reserve_bytes + (free >> self.shared_shift)
    }

    /// A packet with flow control came in at a port with so much in either place, and so much
    /// headroom.
    pub(crate) fn judge_lossless(
        &self,
        ingress_bytes: u64,
        headroom_used: u64,
        bytes: u64,
        headroom_max: u64,
    ) -> Verdict {
        if self.used + bytes > self.buffer_bytes {
            Verdict::Drop
        } else if headroom_used == 0 && ingress_bytes + bytes <= self.limit_bytes() {
            Verdict::Shared
        } else if headroom_used + bytes <= headroom_max {
            Verdict::Headroom
        } else {
            Verdict::Drop
        }
    }

    /// A packet without flow control is to wait where `egress_bytes` do.
    pub(crate) fn judge_lossy(&self, egress_bytes: u64, bytes: u64) -> Verdict {
        let limit = self.lossy_bytes.unwrap_or_else(|| self.limit_bytes());
        if egress_bytes + bytes <= limit && self.used + bytes <= self.buffer_bytes {
            Verdict::Shared
        } else {
            Verdict::Drop
        }
    }

    /// A packet was taken in, at a port that has `ingress_bytes` with it, or into its headroom.
    pub(crate) fn take(&mut self, verdict: Verdict, ingress_bytes: u64, bytes: u64) {
        if verdict == Verdict::Shared {
            let over = ingress_bytes.saturating_sub(self.port_reserve_bytes);
            self.shared_used += over.min(bytes);
        }
        self.used += bytes;
        self.used_max = self.used_max.max(self.used);
    }

    /// So much left that had come in at a port that had `ingress_bytes` with it, and so much that
    /// was in the headroom.
    pub(crate) fn release(&mut self, ingress_bytes: u64, bytes: u64, from_headroom: u64) {
        let over = ingress_bytes.saturating_sub(self.port_reserve_bytes);
        self.shared_used -= over.min(bytes);
        self.used -= bytes + from_headroom;
    }

    /// Whether the sender at a port is to pause.
    pub(crate) fn wants_pause(&self, ingress_bytes: u64, headroom_used: u64) -> bool {
        headroom_used > 0 || ingress_bytes > self.limit_bytes()
    }

    /// Whether a paused sender may go on.
    pub(crate) fn allows_resume(&self, ingress_bytes: u64, headroom_used: u64) -> bool {
        headroom_used == 0
            && (ingress_bytes == 0 || ingress_bytes + XON_BYTES <= self.limit_bytes())
    }
}

/// What arrives in three times the delay, at line rate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few hundred kilobytes"
)]
pub(crate) fn headroom_bytes(config: &SwitchConfig, rate_gbps: f64) -> u64 {
    (3.0 * rate_gbps * config.headroom_delay_ns as f64 / 8.0) as u64
}

/// When a port marks packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking {
    min_bytes: u64,
    max_bytes: u64,
    /// Of what may be drawn, 2^32, just below the greater length.
    max_draw: u64,
}

impl Marking {
    /// Of a port with this rate.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a probability is at most 1, and a queue a few megabytes"
    )]
    pub(crate) fn new(config: &EcnConfig, rate_gbps: f64) -> Self {
        const ONE: f64 = (1_u64 << 32) as f64;
        let scaled = |bytes: u64| (bytes as f64 * rate_gbps / 25.0) as u64;
        Self {
            min_bytes: scaled(config.min_bytes_per_25g),
            max_bytes: scaled(config.max_bytes_per_25g),
            max_draw: (config.max_probability * ONE) as u64,
        }
    }

    /// No packet is marked that meets no more.
    pub(crate) const fn unmarked_bytes(&self) -> u64 {
        self.min_bytes
    }

    /// A packet that meets so much is marked if a number below 2^32 is below this.
    #[inline]
    pub(crate) const fn marks_below(&self, queue_bytes: u64) -> u64 {
        if queue_bytes <= self.min_bytes {
            0
        } else if queue_bytes >= self.max_bytes {
            1 << 32
        } else {
            let above = queue_bytes - self.min_bytes;
            self.max_draw * above / (self.max_bytes - self.min_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::HashFields;

    const CONFIG: SwitchConfig = SwitchConfig {
        cut_through: false,
        latency_ns: 0,
        buffer_bytes: 1_000_000,
        port_reserve_bytes: 10_000,
        shared_shift: 3,
        lossy_bytes: None,
        pfc: true,
        headroom_delay_ns: 1_000,
        ecn: None,
        hash: HashFields::Ports,
    };

    #[test]
    fn a_port_pauses_at_an_eighth_of_what_is_free_above_its_reserve() {
        // 4 ports of 40 Gbps: 15,000 bytes of headroom and 10,000 of reserve each leave 900,000.
        let mut buffer = SharedBuffer::new(CONFIG, [40.0; 4].into_iter());
        let room = headroom_bytes(&CONFIG, 40.0);
        let mut ingress = 0;
        while buffer.judge_lossless(ingress, 0, 1_000, room) == Verdict::Shared {
            ingress += 1_000;
            buffer.take(Verdict::Shared, ingress, 1_000);
        }
        // x - 10,000 = (900,000 - (x - 10,000)) / 8, so x = 110,000.
        assert_eq!(ingress, 110_000);
        assert!(!buffer.wants_pause(ingress, 0));
        // What arrives in three delays still fits: nothing is lost.
        let mut headroom = 0;
        while buffer.judge_lossless(ingress, headroom, 1_000, room) == Verdict::Headroom {
            headroom += 1_000;
            buffer.take(Verdict::Headroom, ingress, 1_000);
            assert!(buffer.wants_pause(ingress, headroom));
        }
        assert_eq!(headroom, 15_000);
        buffer.release(ingress, 0, headroom);
        assert!(!buffer.allows_resume(ingress, 0));
        while ingress > 0 {
            buffer.release(ingress, 1_000, 0);
            ingress -= 1_000;
        }
        assert_eq!((buffer.used, buffer.shared_used), (0, 0));
        assert!(buffer.allows_resume(0, 0));
    }

    #[test]
    fn a_queue_without_flow_control_is_cut_at_its_limit() {
        let config = SwitchConfig {
            lossy_bytes: Some(3_000),
            pfc: false,
            ..CONFIG
        };
        let buffer = SharedBuffer::new(config, [10.0; 2].into_iter());
        assert_eq!(buffer.judge_lossy(2_000, 1_000), Verdict::Shared);
        assert_eq!(buffer.judge_lossy(2_001, 1_000), Verdict::Drop);
    }

    #[test]
    fn marks_grow_linearly_between_lengths_that_grow_with_the_rate() {
        let config = EcnConfig {
            min_bytes_per_25g: 100_000,
            max_bytes_per_25g: 400_000,
            max_probability: 0.2,
        };
        let percent = |queue, rate| (Marking::new(&config, rate).marks_below(queue) * 100) >> 32;
        assert_eq!(percent(100_000, 25.0), 0);
        assert_eq!(percent(250_000 + 300, 25.0), 10);
        assert_eq!(percent(1_000_000 + 1_200, 100.0), 10);
        assert_eq!(percent(400_000, 25.0), 100);
    }
}
