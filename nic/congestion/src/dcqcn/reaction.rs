//! The reaction point: the rate of one queue pair, and when its next packet may go.

use alloc::boxed::Box;

use urxe_proto::{Acknowledged, CongestionControl, Instant, Loss, NotifiedControl};

use super::parameters::{DcqcnParameters, FirstRate};
use crate::pacer::Pacer;

/// Alpha, the estimate of how congested the path is, when it is 1.
const ALPHA_ONE: u64 = 1 << 20;

/// See the module. Call order: [`Self::new`] for the first CNP, [`Self::handle_cnp`] for each later
/// one, and for each packet [`Self::may_send`], then [`Self::handle_sent`]. Once
/// [`Self::is_recovered`] it is of no more use.
#[derive(Clone, Debug)]
pub struct ReactionPoint {
    parameters: DcqcnParameters,
    rate_bps: u64,
    target_bps: u64,
    alpha: u64,
    /// A CNP came since alpha was updated.
    was_notified: bool,
    alpha_at: Instant,
    raise_at: Instant,
    bytes_until_raise: u64,
    timer_raises: u32,
    byte_raises: u32,
    cut_at: Instant,
    pacer: Pacer,
}

impl ReactionPoint {
    /// The first CNP came at `now`, while the queue pair was sending at `rate_bps`.
    #[must_use]
    pub fn new(parameters: DcqcnParameters, now: Instant, rate_bps: u64) -> Self {
        let least = parameters.min_rate_bps.max(1);
        let rate_bps = rate_bps.min(parameters.line_rate_bps).max(least);
        let mut point = Self {
            parameters,
            rate_bps,
            target_bps: rate_bps,
            alpha: ALPHA_ONE,
            was_notified: false,
            alpha_at: now.after(parameters.alpha_interval_ns.max(1)),
            raise_at: now,
            bytes_until_raise: 0,
            timer_raises: 0,
            byte_raises: 0,
            cut_at: now,
            pacer: Pacer::new(now, parameters.pacing_slack_ns),
        };
        point.cut(now);
        point
    }

    // ---- getters -----------------------------------------------------------------------------

    /// The rate as of the last call, bits per second on the wire of UDP payload.
    #[must_use]
    pub const fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// The rate that it returns to, bits per second.
    #[must_use]
    pub const fn target_bps(&self) -> u64 {
        self.target_bps
    }

    /// Alpha in millionths: 0 for a free path, 1,000,000 for one on which every interval brought a
    /// CNP.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most a million")]
    pub const fn alpha_ppm(&self) -> u32 {
        (self.alpha * 1_000_000 / ALPHA_ONE) as u32
    }

    /// Whether it is back at the line rate, and limits nothing.
    #[must_use]
    pub const fn is_recovered(&self) -> bool {
        self.rate_bps >= self.parameters.line_rate_bps
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// A CNP came.
    pub fn handle_cnp(&mut self, now: Instant) {
        self.advance(now);
        self.was_notified = true;
        if now.since(self.cut_at) >= self.parameters.cut_interval_ns {
            self.cut(now);
        }
    }

    /// A packet of so many bytes was sent.
    pub fn handle_sent(&mut self, now: Instant, bytes: u32) {
        self.pacer.handle_sent(now, bytes, self.rate_bps);
        self.count_bytes(bytes.into());
    }

    /// [`Self::poll_timeout`] has come: a caller that waits may look again.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.pacer.handle_timeout(now);
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// Whether a packet may go now. If not, [`Self::poll_timeout`] tells when.
    pub fn may_send(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.pacer.may_send(now)
    }

    /// When the next packet may go, if one was refused.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout()
    }

    // ---- the rate ----------------------------------------------------------------------------

    fn cut(&mut self, now: Instant) {
        let was_raised = self.timer_raises > 0 || self.byte_raises > 0;
        if self.parameters.clamps_target || was_raised {
            self.target_bps = self.rate_bps;
        }
        let cut = self.rate_bps / 2 * self.alpha / ALPHA_ONE;
        let least = self.parameters.min_rate_bps.max(1);
        self.rate_bps = (self.rate_bps - cut).max(least);
        self.pacer.handle_new_rate();
        self.cut_at = now;
        self.raise_at = now.after(self.parameters.raise_interval_ns.max(1));
        self.bytes_until_raise = self.parameters.raise_bytes.max(1);
        self.timer_raises = 0;
        self.byte_raises = 0;
    }

    /// Does what the two timers had to do up to `now`.
    fn advance(&mut self, now: Instant) {
        self.update_alpha(now);
        while !self.is_recovered() && self.raise_at <= now {
            self.timer_raises += 1;
            self.raise();
            let interval = self.parameters.raise_interval_ns.max(1);
            self.raise_at = self.raise_at.after(interval);
        }
    }

    /// All updates of alpha up to `now`: they are many more than the packets between them, and only
    /// the first can have a notification to count.
    fn update_alpha(&mut self, now: Instant) {
        if self.alpha_at > now {
            return;
        }
        let interval = self.parameters.alpha_interval_ns.max(1);
        let updates = now.since(self.alpha_at) / interval + 1;
        self.alpha_at = self.alpha_at.after(updates * interval);
        let divisor = u64::from(self.parameters.gain_divisor.max(1));
        if core::mem::take(&mut self.was_notified) {
            let kept = self.alpha - self.alpha.div_ceil(divisor);
            let raised = (kept + ALPHA_ONE / divisor).min(ALPHA_ONE);
            self.alpha = decayed(raised, divisor, updates - 1);
        } else {
            self.alpha = decayed(self.alpha, divisor, updates);
        }
    }

    fn count_bytes(&mut self, mut bytes: u64) {
        while bytes >= self.bytes_until_raise && !self.is_recovered() {
            bytes -= self.bytes_until_raise;
            self.bytes_until_raise = self.parameters.raise_bytes.max(1);
            self.byte_raises += 1;
            self.raise();
        }
        self.bytes_until_raise = self.bytes_until_raise.saturating_sub(bytes).max(1);
    }

    /// One raise, of the kind that the counters say (figure 7 of the paper).
    fn raise(&mut self) {
        let f = self.parameters.fast_recovery_raises;
        let (most, least) = (
            self.timer_raises.max(self.byte_raises),
            self.timer_raises.min(self.byte_raises),
        );
        if least > f {
            let step = self.parameters.hyper_step_bps;
            self.target_bps += step.saturating_mul(u64::from(least - f));
        } else if most > f {
            self.target_bps += self.parameters.additive_step_bps;
        }
        self.target_bps = self.target_bps.min(self.parameters.line_rate_bps);
        self.rate_bps = self.rate_bps.midpoint(self.target_bps);
        // Halves alone never get there.
        let left_bps = self.target_bps - self.rate_bps;
        if left_bps <= self.parameters.additive_step_bps {
            self.rate_bps = self.target_bps;
        }
        self.pacer.handle_new_rate();
    }
}

/// Rates follow from notifications alone. What is under way is the queue pair's own affair.
impl CongestionControl for ReactionPoint {
    fn handle_acknowledged(&mut self, _: Instant, _: &Acknowledged<'_>) {}

    fn handle_notification(&mut self, now: Instant) {
        self.handle_cnp(now);
    }

    fn handle_loss(&mut self, _: Instant, _: Loss) {}

    fn handle_sent(&mut self, now: Instant, bytes: u32) {
        self.handle_sent(now, bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn may_send(&mut self, now: Instant) -> bool {
        self.may_send(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.rate_bps())
    }

    fn window_bytes(&self) -> Option<u64> {
        None
    }

    fn is_idle(&self) -> bool {
        self.is_recovered()
    }

    fn boxed_clone(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

impl NotifiedControl for DcqcnParameters {
    fn notification_interval_ns(&self) -> u64 {
        self.cnp_interval_ns
    }

    fn begin(&self, now: Instant, measured_bps: Option<u64>) -> Box<dyn CongestionControl> {
        let measured_bps = match self.first_rate {
            FirstRate::Line => None,
            FirstRate::Measured => measured_bps,
        };
        let rate_bps = measured_bps.unwrap_or(self.line_rate_bps);
        Box::new(ReactionPoint::new(*self, now, rate_bps))
    }
}

/// `alpha` times (1 - 1/`divisor`) to the power of `updates`, rounded down.
const fn decayed(mut alpha: u64, divisor: u64, mut updates: u64) -> u64 {
    const ONE: u64 = 1 << 32;
    let mut factor = ONE - ONE.div_ceil(divisor);
    while updates > 0 && alpha > 0 {
        if updates % 2 == 1 {
            alpha = (alpha * factor) >> 32;
        }
        factor = (factor * factor) >> 32;
        updates /= 2;
    }
    alpha
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS: u64 = 1_000_000_000;
    const NANOS_PER_SECOND: u64 = 1_000_000_000;
    const PARAMETERS: DcqcnParameters = DcqcnParameters {
        line_rate_bps: 40 * GBPS,
        min_rate_bps: 10_000_000,
        first_rate: FirstRate::Line,
        gain_divisor: 256,
        alpha_interval_ns: 55_000,
        cut_interval_ns: 4_000,
        raise_interval_ns: 300_000,
        raise_bytes: 10_000_000,
        fast_recovery_raises: 5,
        additive_step_bps: 40_000_000,
        hyper_step_bps: 400_000_000,
        clamps_target: true,
        cnp_interval_ns: 50_000,
        pacing_slack_ns: 0,
    };

    const fn at_us(micros: u64) -> Instant {
        Instant::from_nanos(1_000 * micros)
    }

    fn cut_once() -> ReactionPoint {
        ReactionPoint::new(PARAMETERS, at_us(0), 40 * GBPS)
    }

    fn rate_at(point: &mut ReactionPoint, now: Instant) -> u64 {
        point.advance(now);
        point.rate_bps()
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_remembers_it() {
        let point = cut_once();
        assert_eq!(
            (point.rate_bps(), point.target_bps()),
            (20 * GBPS, 40 * GBPS)
        );
        assert_eq!(point.alpha_ppm(), 1_000_000);
    }

    #[test]
    fn later_ones_cut_by_half_of_alpha() {
        let mut point = cut_once();
        // 16 updates without a notification: (255/256)^16 = 0.939.
        let now = at_us(16 * 55);
        point.advance(now);
        assert!((939_000..940_000).contains(&point.alpha_ppm()));
        let before = point.rate_bps();
        point.handle_cnp(now);
        let expected = before * (2_000_000 - u64::from(point.alpha_ppm())) / 2_000_000;
        assert!(point.rate_bps().abs_diff(expected) < before / 10_000);
        assert_eq!(point.target_bps(), before);
    }

    #[test]
    fn alpha_falls_alike_in_every_interval_however_rarely_read() {
        let mut often = cut_once();
        let mut seldom = cut_once();
        for interval in 1..=500 {
            often.advance(at_us(55 * interval));
        }
        seldom.advance(at_us(55 * 500));
        let exact = 1e6 * (255.0_f64 / 256.0).powi(500);
        for point in [often, seldom] {
            let difference = f64::from(point.alpha_ppm()) - exact;
            assert!(difference.abs() < 0.002 * exact, "{difference} of {exact}");
        }
    }

    #[test]
    fn alpha_approaches_the_share_of_intervals_with_a_notification() {
        let mut point = cut_once();
        for interval in 1..4_000 {
            if interval % 4 == 0 {
                point.handle_cnp(at_us(55 * interval));
            }
            point.advance(at_us(55 * interval + 1));
        }
        assert!(
            point.alpha_ppm().abs_diff(250_000) < 3_000,
            "{}",
            point.alpha_ppm()
        );
    }

    #[test]
    fn a_second_notification_at_once_is_of_the_same_congestion() {
        let mut point = cut_once();
        point.handle_cnp(at_us(3));
        assert_eq!(point.rate_bps(), 20 * GBPS);
        point.handle_cnp(at_us(4));
        assert_eq!(point.rate_bps(), 10 * GBPS);
    }

    #[test]
    fn a_burst_of_notifications_need_not_lower_the_target() {
        let parameters = DcqcnParameters {
            clamps_target: false,
            ..PARAMETERS
        };
        let mut point = ReactionPoint::new(parameters, at_us(0), 40 * GBPS);
        point.handle_cnp(at_us(4));
        assert_eq!(
            (point.rate_bps(), point.target_bps()),
            (10 * GBPS, 40 * GBPS)
        );
        let raised = rate_at(&mut point, at_us(304));
        assert_eq!(raised, 25 * GBPS);
        point.handle_cnp(at_us(305));
        assert_eq!(point.target_bps(), raised);
    }

    #[test]
    fn never_below_the_least_rate() {
        let mut point = cut_once();
        for micros in 1..1_000 {
            point.handle_cnp(at_us(10 * micros));
        }
        assert!(point.rate_bps() >= PARAMETERS.min_rate_bps);
        assert!(point.rate_bps() < 2 * PARAMETERS.min_rate_bps);
    }

    #[test]
    fn five_raises_go_halfway_back_the_next_by_a_step() {
        let mut point = ReactionPoint::new(PARAMETERS, at_us(0), 8 * GBPS);
        let mut expected = 4 * GBPS;
        for raise in 1..=5 {
            expected = expected.midpoint(8 * GBPS);
            assert_eq!(rate_at(&mut point, at_us(300 * raise)), expected);
        }
        assert_eq!(point.target_bps(), 8 * GBPS);
        point.advance(at_us(300 * 6));
        assert_eq!(point.target_bps(), 8 * GBPS + PARAMETERS.additive_step_bps);
    }

    #[test]
    fn hyper_increase_needs_both_counters() {
        let mut point = ReactionPoint::new(PARAMETERS, at_us(0), 8 * GBPS);
        point.advance(at_us(300 * 6));
        let before = point.target_bps();
        for _ in 0..6 * 10_000 {
            point.count_bytes(1_000);
        }
        // Five byte raises are additive by the timer's count, the sixth is the first hyper one.
        let steps = 5 * PARAMETERS.additive_step_bps + PARAMETERS.hyper_step_bps;
        assert_eq!(point.target_bps(), before + steps);
    }

    #[test]
    fn recovers_to_the_line_rate_and_stays_there_unasked() {
        let mut point = cut_once();
        assert!(point.may_send(Instant::from_nanos(3_600 * NANOS_PER_SECOND)));
        assert!(point.is_recovered());
        assert_eq!(point.rate_bps(), PARAMETERS.line_rate_bps);
    }

    #[test]
    fn packets_leave_at_the_rate() {
        let parameters = DcqcnParameters {
            raise_interval_ns: NANOS_PER_SECOND,
            ..PARAMETERS
        };
        // 3 Gbps and a third: intervals are no whole nanoseconds.
        let mut point = ReactionPoint::new(parameters, at_us(0), 20 * GBPS / 3);
        let mut now = at_us(0);
        let mut bytes = 0;
        while now < at_us(10_000) {
            while point.may_send(now) {
                point.handle_sent(now, 1_000);
                bytes += 1_000;
            }
            let next = point.poll_timeout().expect("a packet waits");
            assert!(next > now);
            now = next;
            point.handle_timeout(now);
        }
        let rate_bps = bytes * 8 * 100;
        assert!(
            (10 * GBPS / 3).abs_diff(rate_bps) < GBPS / 1_000,
            "{rate_bps}"
        );
    }

    #[test]
    fn slack_makes_batches_at_the_rate_and_no_burst_after_a_pause() {
        let parameters = DcqcnParameters {
            raise_interval_ns: NANOS_PER_SECOND,
            pacing_slack_ns: 100_000,
            ..PARAMETERS
        };
        let mut point = ReactionPoint::new(parameters, at_us(0), 2 * GBPS);
        let (mut now, mut wakes, mut bytes) = (at_us(0), 0, 0);
        while now < at_us(20_000) {
            while point.may_send(now) {
                point.handle_sent(now, 1_000);
                bytes += 1_000;
            }
            wakes += 1;
            now = point.poll_timeout().expect("a packet waits");
        }
        let rate_bps: u64 = bytes * 8 * 50;
        assert!(rate_bps.abs_diff(GBPS) < GBPS / 50, "{rate_bps}");
        assert!((150..=200).contains(&wakes), "{wakes} wake-ups");
        let late = now.after(NANOS_PER_SECOND / 2);
        let mut burst = 0;
        while point.may_send(late) {
            point.handle_sent(late, 1_000);
            burst += 1;
        }
        assert!(
            (12..=14).contains(&burst),
            "{burst} packets: 100 us at 1 Gbps"
        );
    }
}
