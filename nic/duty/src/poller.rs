//! What a polling thread does when nothing comes.
//!
//! It spins as long as it has the processor to itself. Where others want it, spinning is the wrong
//! thing: the peer on the same processor, or the kernel thread that carries the packets, cannot run
//! until the spinner's time slice ends, milliseconds a message. `sched_yield` is no way out: since
//! Linux 6.15 it costs the rest of the slice, so that a thread that yields among busy strangers
//! starves. But a thread that sent something, and has no answer after longer than a peer takes,
//! yields once: Linux puts a peer that slept on the processor of the thread that woke it by
//! sending, though others are idle.
//!
//! The kernel tells how long a thread ran, how often it was made to leave its processor, and how
//! often it left by itself. A thread that did not run for a good part of a millisecond without
//! having asked for it shares its processor. From then on, for a while, when it finds nothing for
//! some microseconds, it waits for a packet, briefly, in the kernel. However long nothing comes,
//! such waits stay short: the program may have other things to poll, as ranks of MPI that share
//! their host's memory have, and nothing of these ends a wait. The background threads of the
//! process are not waited for: on a processor of one's own, to sleep and to be woken costs more.

use urxe_proto::Instant;

use crate::constants::{
    CONTENDED_MAX_NS, CONTENDED_TIMES, DOUBLINGS, LOST_MIN_NS, POLLS_BEFORE_LOOK,
    POLLS_BETWEEN_WAITS, POLLS_PER_LOOK, SAMPLE_NS, SAMPLES_APART_MAX_NS, WAIT_NS, YIELD_NS,
};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Poller {
    polls: u32,
    /// What the program had got done when it last looked.
    work: u64,
    /// Since when it has polled in vain with nothing done, as far as it looked; `None` once it has
    /// yielded.
    vain_since: Option<Instant>,
    /// Waits since packets came.
    waits: u32,
    /// When it last asked, and what it was told; `None` after a wait.
    sampled: Option<(Instant, Usage)>,
    contended_until: Instant,
}

/// What a thread should do that polled in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Poll again.
    Spin,
    /// Let others have the processor that are ready to run, once.
    Yield,
    /// Wait for packets in the kernel, for so many nanoseconds at most.
    Wait(u64),
}

/// What the kernel counts for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Times that it was made to leave its processor.
    pub preemptions: i64,
    /// Times that it left by itself, to sleep: then the kernel does not tell for how long it was
    /// kept away.
    pub sleeps: i64,
    /// How long it ran.
    pub ran_ns: u64,
    /// How long the background threads of the process ran.
    pub background_ns: u64,
}

impl Default for Poller {
    fn default() -> Self {
        Self::new()
    }
}

impl Poller {
    /// A thread that has not polled yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            polls: 0,
            work: 0,
            vain_since: None,
            waits: 0,
            sampled: None,
            contended_until: Instant::from_nanos(0),
        }
    }

    /// The thread polled, and packets came or not. `work` is what its process has got done so far,
    /// posts among it.
    pub fn poll(
        &mut self,
        packets_came: bool,
        work: u64,
        now: impl FnOnce() -> Instant,
        usage: impl FnOnce() -> Usage,
    ) -> Advice {
        if packets_came {
            self.polls = 0;
            self.waits = 0;
            return Advice::Spin;
        }
        self.polls = self.polls.wrapping_add(1);
        let pause = if self.waits == 0 {
            POLLS_PER_LOOK
        } else {
            POLLS_BETWEEN_WAITS
        };
        let looks = self.polls > POLLS_BEFORE_LOOK && self.polls.is_multiple_of(pause);
        if !looks {
            return Advice::Spin;
        }
        let now = now();
        if !self.is_contended(now, usage) {
            return self.yield_once(now, work);
        }
        let wait_ns = WAIT_NS << self.waits.min(DOUBLINGS);
        self.waits = self.waits.saturating_add(1);
        self.sampled = None;
        Advice::Wait(wait_ns)
    }

    fn yield_once(&mut self, now: Instant, work: u64) -> Advice {
        if core::mem::replace(&mut self.work, work) != work {
            self.vain_since = Some(now);
        }
        if self
            .vain_since
            .is_some_and(|since| now.since(since) >= YIELD_NS)
        {
            self.vain_since = None;
            return Advice::Yield;
        }
        Advice::Spin
    }

    fn is_contended(&mut self, now: Instant, usage: impl FnOnce() -> Usage) -> bool {
        let elapsed_ns = self.sampled.map(|(at, _)| now.since(at));
        if elapsed_ns.is_none_or(|elapsed| elapsed >= SAMPLE_NS) {
            let usage = usage();
            let before = self.sampled.replace((now, usage));
            if let (Some((_, before)), Some(elapsed_ns @ ..=SAMPLES_APART_MAX_NS)) =
                (before, elapsed_ns)
                && before.preemptions != usage.preemptions
                && before.sleeps == usage.sleeps
                // What the thread that forked was told says nothing about its copy in the child.
                && let Some(ran_ns) = usage.ran_ns.checked_sub(before.ran_ns)
            {
                let background_ns = usage.background_ns.saturating_sub(before.background_ns);
                let used_ns = ran_ns + background_ns;
                let lost_ns = elapsed_ns.saturating_sub(used_ns);
                if lost_ns >= LOST_MIN_NS {
                    self.contended_until =
                        now.after((lost_ns * CONTENDED_TIMES).min(CONTENDED_MAX_NS));
                }
            }
        }
        now < self.contended_until
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn used(preemptions: i64, ran_ms: u64) -> Usage {
        Usage {
            preemptions,
            sleeps: 0,
            ran_ns: ran_ms * 1_000_000,
            background_ns: 0,
        }
    }

    #[test]
    fn a_thread_that_is_left_alone_spins() {
        let mut poller = Poller::default();
        assert!((1..500).all(|ms| !poller.is_contended(at(ms), || used(7, ms))));
    }

    #[test]
    fn others_that_take_microseconds_are_not_waited_for() {
        let mut poller = Poller::default();
        let mine = |ms| Usage {
            ran_ns: ms * (1_000_000 - LOST_MIN_NS / 2),
            ..used(i64::try_from(ms).unwrap(), 0)
        };
        assert!((1..500).all(|ms| !poller.is_contended(at(ms), || mine(ms))));
    }

    #[test]
    fn the_background_thread_is_not_waited_for() {
        let mut poller = Poller::default();
        let shared = |ms| Usage {
            background_ns: ms * 600_000,
            ran_ns: ms * 400_000,
            ..used(i64::try_from(ms).unwrap(), 0)
        };
        assert!((1..500).all(|ms| !poller.is_contended(at(ms), || shared(ms))));
    }

    #[test]
    fn a_lost_time_slice_makes_it_wait_for_a_while() {
        let mut poller = Poller::default();
        assert!(!poller.is_contended(at(1), || used(7, 1)));
        assert!(poller.is_contended(at(5), || used(8, 2)));
        assert!(poller.is_contended(at(52), || used(8, 49)));
        assert!(
            !poller.is_contended(at(54), || used(8, 51)),
            "it finds out whether others still want the processor"
        );
    }

    #[test]
    fn a_thread_that_slept_of_its_own_will_lost_nothing() {
        let mut poller = Poller::default();
        assert!(!poller.is_contended(at(1), || used(7, 1)));
        assert!(
            !poller.is_contended(at(9), || used(7, 2)),
            "it was not made to leave"
        );
        assert!(
            !poller.is_contended(at(1_999), || used(9, 3)),
            "it was away for long"
        );
    }

    #[test]
    fn a_thread_that_polls_and_sleeps_in_turn_lost_nothing() {
        let mut poller = Poller::default();
        let in_turn = |ms| Usage {
            sleeps: i64::try_from(ms).unwrap(),
            ran_ns: ms * 300_000,
            ..used(i64::try_from(ms).unwrap(), 0)
        };
        assert!((1..500).all(|ms| !poller.is_contended(at(ms), || in_turn(ms))));
    }

    #[test]
    fn a_child_learns_nothing_from_what_its_parent_was_told() {
        let mut poller = Poller::default();
        assert!(!poller.is_contended(at(1), || used(7, 90)));
        assert!(!poller.is_contended(at(5), || used(1, 2)));
        assert!(poller.is_contended(at(9), || used(2, 3)));
    }

    fn wait(advice: Advice) -> Option<u64> {
        match advice {
            Advice::Wait(wait_ns) => Some(wait_ns),
            Advice::Spin | Advice::Yield => None,
        }
    }

    #[test]
    fn a_thread_that_sent_something_and_polls_in_vain_yields_once() {
        const POLL_NS: u64 = 100;
        let mut poller = Poller::default();
        let mut now_ns = 0;
        let mut yields = |polls: usize, packets_came: bool, work: u64| {
            (0..polls)
                .filter(|_| {
                    now_ns += POLL_NS;
                    let now = Instant::from_nanos(now_ns);
                    let advice = poller.poll(packets_came, work, || now, || used(0, 0));
                    advice == Advice::Yield
                })
                .count()
        };
        assert_eq!(yields(10_000, false, 0), 0, "it has sent nothing");
        for work in 1..4 {
            assert_eq!(yields(400, false, work), 0, "an answer may come soon");
            assert_eq!(yields(10_000, false, work), 1);
        }
        for work in 4..100 {
            assert_eq!(yields(300, false, work), 0);
            assert_eq!(yields(1, true, work), 0);
        }
    }

    #[test]
    fn waits_grow_until_packets_come() {
        let mut poller = Poller {
            contended_until: at(1_000_000),
            ..Poller::default()
        };
        let waits = |poller: &mut Poller, polls: u64| -> Vec<u64> {
            (0..polls)
                .filter_map(|_| wait(poller.poll(false, 0, || at(1), || used(0, 0))))
                .collect()
        };
        let first = waits(&mut poller, 200);
        assert_eq!(first[..5], [50_000, 100_000, 200_000, 400_000, 400_000]);
        assert_eq!(poller.poll(true, 0, || at(1), || used(0, 0)), Advice::Spin);
        assert!(waits(&mut poller, u64::from(POLLS_BEFORE_LOOK)).is_empty());
        assert_eq!(waits(&mut poller, 20)[0], WAIT_NS);
    }

    #[test]
    fn waits_stay_short_however_long_nothing_comes() {
        let mut poller = Poller {
            contended_until: at(1_000_000),
            ..Poller::default()
        };
        let mut now_ns = 0;
        let mut longest_ns = 0;
        for _ in 0..100_000 {
            let advice = poller.poll(false, 0, || Instant::from_nanos(now_ns), || used(0, 0));
            let wait_ns = wait(advice).unwrap_or(0);
            longest_ns = longest_ns.max(wait_ns);
            now_ns += wait_ns;
        }
        assert!(now_ns > 1_000_000_000, "{now_ns}");
        assert_eq!(longest_ns, WAIT_NS << DOUBLINGS);
        let polled = poller.poll(true, 0, || at(200), || used(0, 0));
        assert_eq!(polled, Advice::Spin);
        let next = (0..100).find_map(|_| wait(poller.poll(false, 0, || at(200), || used(0, 0))));
        assert_eq!(next, Some(WAIT_NS));
    }

    #[test]
    fn packets_reset_the_patience() {
        let mut poller = Poller::new();
        assert!(
            (0..10_000).all(
                |at| poller.poll(true, at, || unreachable!(), || unreachable!()) == Advice::Spin
            )
        );
    }
}
