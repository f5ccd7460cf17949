//! A background thread that is never without work gives the program a chance to poll.
//!
//! The thread takes over when the program does not poll. Where both share a processor the program
//! may be unable to: the thread, which takes precedence, makes it send what the peer answers, and
//! so goes on for ever.

use urxe_proto::Instant;

use crate::constants::{STEP_ASIDE_AFTER_MAX_NS, STEP_ASIDE_AFTER_MIN_NS, WAIT_SHOWN_NS};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    working_since: Instant,
    work_ns: u64,
}

impl Chance {
    pub(crate) const fn new() -> Self {
        Self {
            working_since: Instant::from_nanos(0),
            work_ns: STEP_ASIDE_AFTER_MIN_NS,
        }
    }

    /// The thread waited from `since` to `now`.
    pub(crate) const fn note_wait(&mut self, since: Instant, now: Instant) {
        if now.since(since) >= WAIT_SHOWN_NS {
            self.working_since = now;
        }
    }

    /// Whether the program is to have a chance.
    pub(crate) const fn is_due(&self, now: Instant) -> bool {
        now.since(self.working_since) >= self.work_ns
    }

    /// It had one until `now`, and polled or did not.
    pub(crate) fn note_given(&mut self, now: Instant, was_taken: bool) {
        self.working_since = now;
        self.work_ns = if was_taken {
            STEP_ASIDE_AFTER_MIN_NS
        } else {
            (2 * self.work_ns).min(STEP_ASIDE_AFTER_MAX_NS)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn a_thread_that_works_without_a_rest_steps_aside() {
        let mut chance = Chance::new();
        chance.note_wait(at(0), at(1_000));
        assert!(!chance.is_due(at(1_499)));
        assert!(chance.is_due(at(1_500)));
        chance.note_wait(at(1_400), at(1_404));
        assert!(chance.is_due(at(1_500)), "that was no rest");
        chance.note_wait(at(1_400), at(1_405));
        assert!(!chance.is_due(at(1_904)));
    }

    #[test]
    fn chances_are_rare_for_a_program_that_takes_none() {
        let mut chance = Chance::new();
        let mut given = |ms: u64, is_taken: bool| {
            let mut count = 0;
            for us in (0..ms * 1_000).step_by(10) {
                if chance.is_due(at(us)) {
                    chance.note_given(at(us), is_taken);
                    count += 1;
                }
            }
            chance.working_since = at(0);
            count
        };
        let first = given(1_000, false);
        assert!((20..40).contains(&first), "{first}");
        assert_eq!(given(1_000, false), 19);
        assert!(given(1_000, true) > 1_800);
    }
}
