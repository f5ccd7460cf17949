//! How many packets may be in flight: additive increase, multiplicative decrease, and no growth
//! into queues.
//!
//! RoCE leaves this to the link (PFC) or to the NIC. A UDP socket's receive buffer is neither, so
//! the sender finds out what the peer can take: the window doubles each round trip until a loss, is
//! halved then, and grows by one packet a round trip afterwards (RFC 5681, counted in packets).
//! While a round trip takes longer than the shortest one by more than a target, packets wait in
//! some queue, which a larger window would only make longer: it does not grow then, and shrinks
//! when they wait much longer (the idea of delay-based control, as in TCP Vegas).
//!
//! A queue that is long for many round trips and then overflows is one that others fill, whom only
//! losses stop, such as TCP with CUBIC. A window that goes on holding back would leave the link to
//! them: it grows for a while in spite of the queue, as theirs do.
//!
//! Between two ends that send again only what is missing, a loss costs little, and a link that
//! loses some of its packets is no reason to be slower. A full queue is: a sender that is in it
//! would else stay, and one that comes later starve. The round trip tells which it is.

use super::acknowledge::ACK_HOLD_NS;

/// Window of a new connection, bytes.
const INITIAL_BYTES: u32 = 128 << 10;
/// Least window: with one packet in flight, a lost one would never be noticed by a later one.
const MIN_PACKETS: u32 = 2;

/// Waiting in queues beyond this stops the growth, nanoseconds: 512 KiB at 1 Gbps. Less would take
/// the queue for a processor, where processes outnumber them, for one on the link.
const DELAY_TARGET_NS: u64 = 4_000_000;
/// Waiting beyond this shrinks the window.
const DELAY_EXCESS_NS: u64 = 8_000_000;
/// Waiting alone does not shrink the window below this, bytes.
const DELAY_FLOOR_BYTES: u32 = 512 << 10;

/// A queue that overflows after so many round trips in a row beyond the target is one that others
/// fill: a window that did not grow would leave it to them.
const FILLED_ROUNDS: u32 = 16;
/// For so long a window competes for it, nanoseconds of round trips: several times what CUBIC takes
/// from one loss to the next where a queue holds 8 ms.
const COMPETES_NS: u64 = 4_000_000_000;

/// Packets wait in a queue, and losses are taken for its overflow, while a round trip takes so much
/// longer than the shortest: one part in so many,
const WAITING_SHARE: u64 = 2;
/// and at least this, nanoseconds: twice what a responder may hold an acknowledgement back.
const WAITING_MIN_NS: u64 = 2 * ACK_HOLD_NS;
/// What such a loss leaves of the window, percent: more than half, as others lose, too (CUBIC's
/// factor, RFC 9438, 4.6).
const OVERFLOW_LEAVES_PERCENT: u32 = 70;

/// The share of a window whose loss, in one round trip, is taken for congestion where it is not
/// sent again as a whole: one in so many.
const GAPS_SHARE: u32 = 4;
/// Losses of one round trip that never are.
const GAPS_MIN: u32 = 2;

/// Bounds of a [`Window`], in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Window of a new connection.
    pub initial: u32,
    /// Least window after losses.
    pub min: u32,
    /// Greatest window.
    pub max: u32,
    /// Least window while packets wait, but none is lost.
    pub delay_floor: u32,
}

impl WindowLimits {
    /// Limits for packets of `mtu_bytes`: 128 KiB at first, and at most `max_bytes`.
    #[must_use]
    pub fn for_mtu(mtu_bytes: u32, max_bytes: u32) -> Self {
        let max = (max_bytes / mtu_bytes).max(MIN_PACKETS);
        Self {
            initial: (INITIAL_BYTES / mtu_bytes).min(max),
            min: MIN_PACKETS,
            max,
            delay_floor: DELAY_FLOOR_BYTES / mtu_bytes,
        }
    }
}

/// A congestion window.
#[derive(Clone, Debug)]
pub struct Window {
    limits: WindowLimits,
    packets: u32,
    slow_start_until: u32,
    acked_since_growth: u32,
    shortest_ns: u64,
    /// How much longer than the shortest the last round trip took.
    waited_ns: u64,
    /// Packets that the peer missed in this round.
    gaps: u32,
    /// Round trips in a row beyond the target.
    filled_rounds: u32,
    /// For how much longer it competes, nanoseconds of round trips.
    competes_ns: u64,
    /// Packets and the end of slow start before the last silence, in case nothing was lost then.
    before_silence: Option<(u32, u32)>,
    /// Congestion control says how much may be in flight, in place of what is found out here.
    is_granted: bool,
}

impl Window {
    /// The window of a new connection.
    #[must_use]
    pub const fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            packets: limits.initial,
            slow_start_until: limits.max,
            acked_since_growth: 0,
            shortest_ns: u64::MAX,
            waited_ns: 0,
            gaps: 0,
            filled_rounds: 0,
            competes_ns: 0,
            before_silence: None,
            is_granted: false,
        }
    }

    /// Congestion control lets so many packets be in flight from now on: one at least, and no more
    /// than the greatest window. `None`: it says nothing any more.
    pub fn grant(&mut self, packets: Option<u32>) {
        self.is_granted = packets.is_some();
        if let Some(packets) = packets {
            self.packets = packets.clamp(1, self.limits.max);
        } else {
            self.packets = self.packets.max(self.limits.min);
        }
    }

    /// A round trip took so long.
    pub fn handle_round_trip(&mut self, nanos: u64) {
        self.shortest_ns = self.shortest_ns.min(nanos);
        self.waited_ns = nanos - self.shortest_ns;
        self.competes_ns = self.competes_ns.saturating_sub(nanos);
        self.filled_rounds = if self.waited_ns > DELAY_TARGET_NS {
            self.filled_rounds.saturating_add(1)
        } else {
            0
        };
        if !self.is_granted
            && !self.competes()
            && self.waited_ns > DELAY_EXCESS_NS
            && self.packets > self.limits.delay_floor
        {
            self.packets = (self.packets - self.packets / 8).max(self.limits.delay_floor);
            self.slow_start_until = self.packets;
        }
    }

    /// Changes the greatest window.
    pub fn set_max(&mut self, max_packets: u32) {
        self.limits.max = max_packets.max(self.limits.min);
        self.packets = self.packets.min(self.limits.max);
    }

    /// Packets that may be in flight.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// `count` packets were acknowledged, while the window was what limited the sender or not.
    pub fn handle_acked(&mut self, count: u32, was_limited: bool) {
        let is_held = self.waited_ns > DELAY_TARGET_NS && !self.competes();
        if !was_limited || self.is_granted || is_held {
            return;
        }
        if self.packets < self.slow_start_until {
            self.packets = (self.packets + count).min(self.limits.max);
            return;
        }
        self.acked_since_growth += count;
        if self.acked_since_growth >= self.packets {
            self.acked_since_growth = 0;
            self.packets = (self.packets + 1).min(self.limits.max);
        }
    }

    /// Whether it takes its share of a queue that others fill.
    #[must_use]
    pub const fn competes(&self) -> bool {
        self.competes_ns > 0
    }

    /// A packet was lost, and later ones arrived.
    pub fn handle_loss(&mut self) {
        self.shrink_to(50);
    }

    fn shrink_to(&mut self, percent: u32) {
        if self.is_granted {
            return;
        }
        self.before_silence = None;
        self.packets = (self.packets * percent / 100).max(self.limits.min);
        self.slow_start_until = self.packets;
        self.acked_since_growth = 0;
    }

    /// A peer that keeps what arrives early misses `count` packets more. While packets wait in a
    /// queue, it was full. Else a few in a round trip are the noise of a link: as only they are
    /// sent again, they are no reason to be slower.
    pub fn handle_gaps(&mut self, count: u32, is_new_round: bool) {
        if is_new_round {
            self.gaps = 0;
        }
        if self.waited_ns > (self.shortest_ns / WAITING_SHARE).max(WAITING_MIN_NS) {
            if count > 0 && is_new_round {
                if self.filled_rounds >= FILLED_ROUNDS && !self.competes() {
                    self.competes_ns = COMPETES_NS;
                }
                self.shrink_to(OVERFLOW_LEAVES_PERCENT);
            }
            return;
        }
        self.gaps += count;
        if self.gaps > GAPS_MIN.max(self.packets / GAPS_SHARE) {
            self.gaps = 0;
            self.handle_loss();
        }
    }

    /// Nothing was heard for a while: start over from the least window.
    pub fn handle_silence(&mut self) {
        if self.is_granted {
            return;
        }
        self.before_silence = Some((self.packets, self.slow_start_until));
        self.slow_start_until = (self.packets / 2).max(self.limits.min);
        self.packets = self.limits.min;
        self.acked_since_growth = 0;
    }

    /// The silence was no loss, only long: what was sent before it is answered (RFC 4015 calls it a
    /// spurious timeout).
    pub fn undo_silence(&mut self) {
        if let Some((packets, slow_start_until)) = self.before_silence.take()
            && !self.is_granted
        {
            self.packets = packets.min(self.limits.max);
            self.slow_start_until = slow_start_until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WindowLimits = WindowLimits {
        initial: 8,
        min: 2,
        max: 64,
        delay_floor: 16,
    };

    #[test]
    fn doubles_each_round_trip_until_a_loss_halves_it() {
        let mut window = Window::new(LIMITS);
        window.handle_acked(8, true);
        assert_eq!(window.packets(), 16);
        window.handle_loss();
        assert_eq!(window.packets(), 8);
        window.handle_acked(8, true);
        assert_eq!(window.packets(), 9, "one packet a round trip after a loss");
    }

    #[test]
    fn a_silence_that_was_no_loss_is_undone_unless_one_follows() {
        let mut window = Window::new(LIMITS);
        window.handle_acked(8, true);
        let mut lossy = window.clone();
        window.handle_silence();
        assert_eq!(window.packets(), 2);
        window.undo_silence();
        assert_eq!(window.packets(), 16);
        window.handle_acked(16, true);
        assert_eq!(window.packets(), 32, "slow start goes on");
        lossy.handle_silence();
        lossy.handle_loss();
        lossy.undo_silence();
        assert_eq!(lossy.packets(), 2);
    }

    #[test]
    fn stays_within_its_limits() {
        let mut window = Window::new(LIMITS);
        for _ in 0..20 {
            window.handle_acked(window.packets(), true);
        }
        assert_eq!(window.packets(), 64);
        for _ in 0..20 {
            window.handle_loss();
        }
        assert_eq!(window.packets(), 2);
    }

    #[test]
    fn does_not_grow_into_a_queue_and_leaves_a_long_one() {
        const MS: u64 = 1_000_000;
        let mut window = Window::new(LIMITS);
        window.handle_round_trip(MS / 10);
        window.handle_acked(24, true);
        assert_eq!(window.packets(), 32);
        window.handle_round_trip(5 * MS);
        window.handle_acked(32, true);
        assert_eq!(window.packets(), 32, "round trips are 4.9 ms too long");
        for _ in 0..100 {
            window.handle_round_trip(9 * MS);
        }
        assert_eq!(window.packets(), 16, "down to the floor, no further");
        window.handle_round_trip(MS / 10);
        window.handle_acked(16, true);
        assert_eq!(window.packets(), 17);
    }

    /// The share of a window beside one that grows by 0.53 packets a round trip until packets are
    /// lost and keeps 70 % then, as CUBIC where its windows are small (RFC 9438, 4.3), for a queue
    /// that holds 8 ms of a link that carries 30 packets in a millisecond.
    fn share_beside_cubic(rounds: u32) -> f64 {
        const PACKETS_A_MS: f64 = 30.0;
        const QUEUE_MS: f64 = 8.0;
        let limits = WindowLimits {
            max: 1_000,
            ..LIMITS
        };
        let mut window = Window::new(limits);
        let mut other = 8.0;
        let (mut ours, mut theirs) = (0.0, 0.0);
        for round in 0..rounds {
            let waits_ms = (f64::from(window.packets()) + other) / PACKETS_A_MS;
            window.handle_round_trip(100_000 + (1e6 * waits_ms.min(QUEUE_MS)) as u64);
            window.handle_acked(window.packets(), true);
            if waits_ms > QUEUE_MS {
                window.handle_gaps(1, true);
                other *= 0.7;
            } else {
                other += 0.53;
            }
            if round > rounds / 4 {
                ours += f64::from(window.packets());
                theirs += other;
            }
        }
        ours / (ours + theirs)
    }

    #[test]
    fn takes_its_share_of_a_queue_that_a_sender_fills_which_only_losses_stop() {
        let even_shares = 2.0 * share_beside_cubic(8_000);
        assert!(
            (1.0 / 1.5..1.5).contains(&even_shares),
            "{even_shares:.2} times an even share"
        );
    }

    #[test]
    fn competes_no_more_when_nothing_was_lost_for_long() {
        const MS: u64 = 1_000_000;
        let mut window = Window::new(LIMITS);
        window.handle_round_trip(MS / 10);
        window.handle_acked(24, true);
        window.handle_round_trip(5 * MS);
        window.handle_gaps(1, true);
        assert!(!window.competes(), "it may have filled the queue itself");
        for _ in 0..FILLED_ROUNDS {
            window.handle_round_trip(5 * MS);
        }
        window.handle_gaps(1, true);
        assert!(window.competes());
        let before = window.packets();
        window.handle_acked(before, true);
        assert_eq!(window.packets(), before + 1);
        for _ in 0..1_000 {
            window.handle_round_trip(5 * MS);
        }
        assert!(!window.competes());
        window.handle_acked(64, true);
        assert_eq!(window.packets(), before + 1);
    }

    #[test]
    fn a_loss_is_noise_unless_packets_wait() {
        const US: u64 = 1_000;
        let mut window = Window::new(LIMITS);
        window.handle_round_trip(50 * US);
        window.handle_acked(24, true);
        assert_eq!(window.packets(), 32);
        window.handle_round_trip(140 * US);
        window.handle_gaps(2, true);
        assert_eq!(window.packets(), 32, "an acknowledgement may be held back");
        window.handle_round_trip(160 * US);
        window.handle_gaps(2, true);
        assert_eq!(window.packets(), 22);
        window.handle_gaps(2, false);
        assert_eq!(window.packets(), 22, "once a round trip");
        window.handle_gaps(0, true);
        assert_eq!(window.packets(), 22, "nothing is missing");
    }

    #[test]
    fn many_losses_are_no_noise_even_if_nothing_waits() {
        let mut window = Window::new(LIMITS);
        window.handle_acked(24, true);
        window.handle_gaps(8, true);
        assert_eq!(window.packets(), 32);
        window.handle_gaps(1, false);
        assert_eq!(window.packets(), 16, "more than a quarter");
    }

    #[test]
    fn a_lower_maximum_takes_effect_at_once() {
        let mut window = Window::new(LIMITS);
        window.set_max(4);
        assert_eq!(window.packets(), 4);
        window.set_max(0);
        assert_eq!(window.packets(), 2, "never below the least window");
    }

    #[test]
    fn what_congestion_control_grants_is_not_changed_by_anything_else() {
        let mut window = Window::new(LIMITS);
        window.grant(Some(20));
        window.handle_acked(20, true);
        window.handle_loss();
        window.handle_gaps(20, true);
        window.handle_silence();
        window.undo_silence();
        window.handle_round_trip(1_000);
        window.handle_round_trip(20_000_000);
        assert_eq!(window.packets(), 20);
        window.grant(Some(0));
        assert_eq!(window.packets(), 1, "else nothing would ever go");
        window.grant(Some(1_000));
        assert_eq!(window.packets(), 64, "what the device may have in flight");
        window.grant(None);
        window.handle_loss();
        assert_eq!(window.packets(), 32);
    }

    #[test]
    fn does_not_grow_while_the_program_is_the_limit() {
        let mut window = Window::new(LIMITS);
        window.handle_acked(8, false);
        assert_eq!(window.packets(), 8);
    }
}
