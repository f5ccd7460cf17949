//! When to send again, and when to give up.
//!
//! Two clocks run while packets are unacknowledged. The *transport timeout* is the one the program
//! set (`timeout`, `retry_cnt`): each time it passes without progress one retry is used up (IBTA
//! 9.7.6.1.3); once they are used up, it goes on at least until [`GIVE_UP_MIN_NS`] have passed. The
//! *probe* is ours: after a few measured round trips of silence the oldest packets are sent again,
//! at no cost in retries, because the usual timeout of 67 ms is a thousand round trips of a local
//! network. It backs off by doubling (RFC 6298, sections 2 and 5.5).
//!
//! The answer to a packet that was sent more than once tells no round trip (Karn's algorithm), but,
//! if the peer is urxe, what it took at least: the time since the packet was sent last. That is all
//! there is where everything that was sent at first is lost, as in front of a full queue. It is too
//! little if the answer is a late one to what was sent first; then those to the others follow, and
//! each says more. While nothing is known, progress does not end the doubling: it may be such a
//! late answer, and a probe that came too early once would come too early every time.

use crate::time::{Instant, earliest};

/// Least probe interval: above the time a responder may hold an acknowledgement back.
const PROBE_MIN_NS: u64 = 2_000_000;
/// Probe interval while no round trip was measured.
const PROBE_INITIAL_NS: u64 = 20_000_000;
/// Longest probe interval.
const PROBE_MAX_NS: u64 = 2_000_000_000;
/// A peer that is said to be gone is believed to be after so much silence at most, nanoseconds, and
/// whatever the timeout: the word may be old or forged, and the peer kept from its processor or
/// stopped for a while.
const GONE_MAX_NS: u64 = 500_000_000;
/// An end that hears nothing gives up after this time at the earliest, nanoseconds, however short
/// the timeout and few the retries. Programs for hardware ask for as little as 100 us and 4 retries
/// (UCX's tests of peer failure). But where the peer's NIC is a thread, that may wait for a
/// processor as long as a few other threads compute: four of Linux's time slices of up to 4 ms (the
/// base slice of EEVDF, scaled by the processors).
const GIVE_UP_MIN_NS: u64 = 16_000_000;
/// RNR retry count that means "for ever".
const RNR_RETRY_INFINITE: u8 = 7;

/// What a passed deadline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Send again; this costs no retry.
    Probe,
    /// Send again; a retry was used up.
    Timeout,
    /// The retries are used up.
    GiveUp,
}

/// Word that the peer is gone.
#[derive(Clone, Copy, Debug)]
struct Gone {
    /// When it is believed, if a probe stays unanswered as well.
    believed_at: Instant,
    /// Whether there was a probe since.
    is_probed: bool,
}

/// The clocks and counters of one requester.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    timeout_ns: Option<u64>,
    retry_count: u8,
    retries_left: u8,
    rnr_retry: u8,
    rnr_left: u8,
    /// When the silence began; `None` when nothing is in flight.
    silent_since: Option<Instant>,
    timeout_from: Instant,
    /// Since when no retry would have been used up, had the peer answered.
    unanswered_from: Instant,
    backoff: u32,
    /// The peer is said to be gone.
    gone: Option<Gone>,
    smoothed_ns: Option<u64>,
    variation_ns: u64,
}

impl Retry {
    pub(crate) fn new(timeout_ns: Option<u64>, retry_count: u8, rnr_retry: u8) -> Self {
        Self {
            timeout_ns,
            retry_count,
            retries_left: retry_count,
            rnr_retry,
            rnr_left: rnr_retry,
            silent_since: None,
            timeout_from: Instant::default(),
            unanswered_from: Instant::default(),
            backoff: 0,
            gone: None,
            smoothed_ns: None,
            variation_ns: 0,
        }
    }

    /// Takes new limits from `modify`, keeping what was measured.
    pub(crate) fn configure(&mut self, timeout_ns: Option<u64>, retry_count: u8, rnr_retry: u8) {
        self.timeout_ns = timeout_ns;
        self.retry_count = retry_count;
        self.retries_left = retry_count;
        self.rnr_retry = rnr_retry;
        self.rnr_left = rnr_retry;
    }

    fn restart_timeout(&mut self, now: Instant) {
        self.timeout_from = now;
        self.unanswered_from = now;
    }

    /// A packet that expects an answer was sent.
    pub(crate) fn handle_sent(&mut self, now: Instant) {
        if self.silent_since.is_none() {
            self.silent_since = Some(now);
            self.restart_timeout(now);
        }
    }

    /// The peer acknowledged something new. `in_flight` says whether more is outstanding.
    pub(crate) fn handle_progress(&mut self, now: Instant, in_flight: bool) {
        self.retries_left = self.retry_count;
        self.rnr_left = self.rnr_retry;
        if self.smoothed_ns.is_some() {
            self.backoff = 0;
        }
        self.gone = None;
        self.silent_since = in_flight.then_some(now);
        self.restart_timeout(now);
    }

    /// The peer answered without progress (a NAK): the silence is broken, the retries are not
    /// reset.
    pub(crate) fn handle_answer(&mut self, now: Instant) {
        self.gone = None;
        if self.silent_since.is_some() {
            self.silent_since = Some(now);
        }
    }

    /// The peer answered what it was asked for later: it is at work, and comes to what is missing.
    /// As long as it does, no retry is used up.
    pub(crate) fn handle_later_answer(&mut self, now: Instant) {
        self.handle_answer(now);
        self.restart_timeout(now);
    }

    /// The peer is not ready until `until`. False when the RNR retries are used up.
    pub(crate) fn handle_rnr(&mut self, until: Instant) -> bool {
        if self.rnr_retry != RNR_RETRY_INFINITE {
            if self.rnr_left == 0 {
                return false;
            }
            self.rnr_left -= 1;
        }
        self.retries_left = self.retry_count;
        self.backoff = 0;
        self.gone = None;
        self.silent_since = Some(until);
        self.restart_timeout(until);
        true
    }

    /// The peer is said to be gone. That is believed when it answers nothing for the transport
    /// timeout: from then on there is no point in using up the retries.
    pub(crate) fn handle_gone(&mut self, now: Instant) {
        if self.gone.is_none() {
            let timeout_ns = self.timeout_ns.unwrap_or(GONE_MAX_NS);
            self.gone = Some(Gone {
                believed_at: now.after(timeout_ns.clamp(GIVE_UP_MIN_NS, GONE_MAX_NS)),
                is_probed: false,
            });
            self.backoff = 0;
            self.silent_since = self.silent_since.map(|_| now);
        }
    }

    /// A round trip was measured (RFC 6298, section 2).
    pub(crate) fn handle_round_trip(&mut self, nanos: u64) {
        self.backoff = 0;
        match self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(nanos);
                self.variation_ns = nanos / 2;
            }
            Some(smoothed) => {
                self.variation_ns = (3 * self.variation_ns + smoothed.abs_diff(nanos)) / 4;
                self.smoothed_ns = Some((7 * smoothed + nanos) / 8);
            }
        }
    }

    /// A round trip took so long, or longer.
    pub(crate) fn handle_at_least(&mut self, nanos: u64) {
        match self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(nanos);
                self.variation_ns = nanos / 2;
            }
            // A probe after that would come too early.
            Some(_) if nanos > self.patience_ns() => {
                self.smoothed_ns = Some(nanos);
                self.variation_ns = self.variation_ns.max(nanos / 4);
            }
            Some(_) => {}
        }
    }

    /// The smoothed round trip, once one was measured.
    pub(crate) const fn round_trip_ns(&self) -> Option<u64> {
        self.smoothed_ns
    }

    /// How long to wait before the first probe.
    fn patience_ns(&self) -> u64 {
        self.smoothed_ns.map_or(PROBE_INITIAL_NS, |smoothed| {
            PROBE_MIN_NS.max(smoothed + 4 * self.variation_ns + PROBE_MIN_NS / 2)
        })
    }

    fn probe_interval_ns(&self) -> u64 {
        (self.patience_ns() << self.backoff.min(12)).min(PROBE_MAX_NS)
    }

    fn probe_at(&self) -> Option<Instant> {
        let since = self.silent_since?;
        let at = since.after(self.probe_interval_ns());
        match self.gone {
            // There is no point in waiting longer for the answer to the last probe than for the
            // first.
            Some(gone) if gone.is_probed => {
                Some(at.min(gone.believed_at.max(since.after(self.patience_ns()))))
            }
            _ => Some(at),
        }
    }

    fn timeout_at(&self) -> Option<Instant> {
        self.silent_since?;
        let at = self.timeout_from.after(self.timeout_ns?);
        if self.retries_left > 0 {
            return Some(at);
        }
        let patient = self.timeout_from.after(PROBE_MIN_NS);
        Some(at.max(patient.min(self.give_up_from())))
    }

    /// The earliest time to give up.
    fn give_up_from(&self) -> Instant {
        self.unanswered_from.after(GIVE_UP_MIN_NS)
    }

    /// When [`Self::expire`] wants to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        earliest(self.probe_at(), self.timeout_at())
    }

    /// Looks at the clocks at `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Expired> {
        if self.timeout_at().is_some_and(|at| at <= now) {
            self.timeout_from = now;
            self.silent_since = Some(now);
            if self.retries_left == 0 {
                if now < self.give_up_from() {
                    return Some(Expired::Probe);
                }
                return Some(Expired::GiveUp);
            }
            self.retries_left -= 1;
            return Some(Expired::Timeout);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.backoff += 1;
            self.silent_since = Some(now);
            if let Some(gone) = &mut self.gone {
                if gone.is_probed && gone.believed_at <= now {
                    return Some(Expired::GiveUp);
                }
                gone.is_probed = true;
            }
            return Some(Expired::Probe);
        }
        None
    }

    /// A NAK that brings no progress uses up a retry. False when there are none left.
    pub(crate) fn use_retry(&mut self) -> bool {
        if self.retries_left == 0 {
            return false;
        }
        self.retries_left -= 1;
        true
    }

    /// Stops the clocks.
    pub(crate) fn stop(&mut self) {
        self.silent_since = None;
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * MS)
    }

    /// When the probe was due that was sent next.
    fn probed(retry: &mut Retry) -> Instant {
        let now = retry.deadline().unwrap();
        assert_eq!(retry.expire(now), Some(Expired::Probe));
        now
    }

    #[test]
    fn nothing_in_flight_has_no_deadline() {
        assert_eq!(Retry::new(Some(67 * MS), 7, 7).deadline(), None);
    }

    #[test]
    fn gives_up_after_the_retries_and_not_before() {
        let mut retry = Retry::new(Some(10 * MS), 2, 7);
        retry.handle_sent(at(0));
        let mut seen = [0, 0, 0];
        let mut now = at(0);
        while seen[2] == 0 {
            now = retry.deadline().expect("a packet is in flight");
            match retry.expire(now) {
                Some(Expired::Probe) => seen[0] += 1,
                Some(Expired::Timeout) => seen[1] += 1,
                Some(Expired::GiveUp) => seen[2] += 1,
                None => panic!("a deadline that does nothing"),
            }
        }
        assert_eq!(seen[1], 2);
        assert_eq!(now, at(30), "timeout * (retry_cnt + 1)");
    }

    #[test]
    fn a_peer_has_time_to_get_its_processor_with_any_timeout() {
        let mut retry = Retry::new(Some(MS / 2), 4, 7);
        for start in [at(0), at(15)] {
            retry.handle_sent(start);
            for each in 1..=4 {
                let now = retry.deadline().unwrap();
                assert_eq!(now, start.after(each * MS / 2), "as early as asked for");
                assert_eq!(retry.expire(now), Some(Expired::Timeout));
            }
            // An answer in time.
            if start == at(0) {
                while retry.deadline().unwrap() < at(15) {
                    probed(&mut retry);
                }
                retry.handle_progress(at(15), true);
            }
        }
        let end = loop {
            let now = retry.deadline().unwrap();
            if retry.expire(now) == Some(Expired::GiveUp) {
                break now;
            }
        };
        assert_eq!(end, at(15 + 16));
    }

    #[test]
    fn a_timeout_of_zero_probes_for_ever() {
        let mut retry = Retry::new(None, 0, 7);
        retry.handle_sent(at(0));
        (0..100).for_each(|_| _ = probed(&mut retry));
    }

    /// When a peer that is said to be gone from 5 ms on is given up, and how many probes it gets.
    fn given_up_at(timeout_ns: Option<u64>, round_trip_ns: Option<u64>) -> (Instant, u32) {
        let mut retry = Retry::new(timeout_ns, 7, 7);
        round_trip_ns
            .into_iter()
            .for_each(|nanos| retry.handle_round_trip(nanos));
        retry.handle_sent(at(0));
        retry.handle_gone(at(5));
        retry.handle_gone(at(6));
        let mut probes = 0;
        loop {
            let now = retry.deadline().unwrap();
            match retry.expire(now) {
                Some(Expired::GiveUp) => return (now, probes),
                Some(Expired::Probe) => probes += 1,
                Some(Expired::Timeout) => {}
                None => panic!("a deadline that does nothing"),
            }
        }
    }

    #[test]
    fn a_gone_peer_is_believed_after_the_timeout_or_half_a_second() {
        for round_trip_ns in [None, Some(20_000), Some(MS)] {
            for (timeout_ns, silence_ms) in [
                (None, 500),
                (Some(2000 * MS), 500),
                (Some(268 * MS), 268),
                (Some(67 * MS), 67),
            ] {
                let (end, probes) = given_up_at(timeout_ns, round_trip_ns);
                // What was sent last has time to be answered.
                let silence_ns = end.since(at(5));
                let range = silence_ms * MS..=silence_ms * MS + PROBE_INITIAL_NS;
                let told = format!("{timeout_ns:?} {round_trip_ns:?}: {silence_ns}");
                assert!(range.contains(&silence_ns), "{told}");
                assert!(probes > 0, "{told}");
            }
        }
        // However short the timeout, it has time to get its processor.
        let (end, _) = given_up_at(Some(3 * MS), Some(20_000));
        assert!((at(5 + 16)..at(24)).contains(&end), "{end:?}");
    }

    #[test]
    fn a_peer_that_answers_is_not_gone() {
        let mut retry = Retry::new(None, 7, 7);
        for answer in [
            |retry: &mut Retry| retry.handle_progress(at(10), true),
            |retry: &mut Retry| retry.handle_answer(at(10)),
            |retry: &mut Retry| assert!(retry.handle_rnr(at(10))),
        ] {
            retry.handle_sent(at(0));
            retry.handle_gone(at(5));
            answer(&mut retry);
            (0..10).for_each(|_| _ = probed(&mut retry));
        }
    }

    #[test]
    fn measured_round_trips_shorten_the_probe() {
        let mut retry = Retry::new(None, 7, 7);
        retry.handle_sent(at(0));
        let before = retry.deadline().unwrap();
        retry.handle_round_trip(20_000);
        assert!(retry.deadline().unwrap() < before);
    }

    #[test]
    fn a_probe_stays_backed_off_until_a_round_trip_was_measured() {
        let mut retry = Retry::new(None, 7, 7);
        retry.handle_sent(at(0));
        let first = probed(&mut retry);
        retry.handle_progress(first, true);
        let second = retry.deadline().unwrap();
        assert_eq!(second.since(first), 2 * PROBE_INITIAL_NS);
        retry.handle_round_trip(30 * MS);
        retry.handle_progress(first, true);
        let third = retry.deadline().unwrap();
        assert_eq!(third.since(first), (30 + 4 * 15 + 1) * MS);
    }

    #[test]
    fn what_a_round_trip_takes_at_least_ends_the_doubling() {
        let mut retry = Retry::new(None, 7, 7);
        retry.handle_sent(at(0));
        let first = probed(&mut retry);
        let answered = first.after(2 * MS);
        retry.handle_at_least(2 * MS);
        retry.handle_progress(answered, true);
        let second = retry.deadline().unwrap();
        assert_eq!(second.since(answered), (2 + 4 + 1) * MS);
        // The answers to what was sent later come later.
        retry.handle_at_least(30 * MS);
        let third = retry.deadline().unwrap();
        assert!(third.since(answered) > 30 * MS);
        retry.handle_at_least(29 * MS);
        assert_eq!(retry.deadline(), Some(third), "it waits longer already");
    }

    #[test]
    fn rnr_retries_end_unless_infinite() {
        let mut retry = Retry::new(None, 7, 1);
        assert!(retry.handle_rnr(at(1)));
        assert!(!retry.handle_rnr(at(2)));
        let mut forever = Retry::new(None, 7, 7);
        assert!((0..100).all(|_| forever.handle_rnr(at(1))));
    }
}
