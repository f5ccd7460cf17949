//! Whether a program polls often enough, or gets enough done when it polls, to be left alone by the
//! background thread.

use urxe_proto::Instant;

use crate::constants::{BUSY_POLLS, BUSY_POLLS_MIN, BUSY_WORK, FULL_WORK, LOOK_AGAIN_NS};

/// What the program did since a moment that is [`LOOK_AGAIN_NS`] ago, or was the thread's last
/// turn: while the thread waits for packets, its turns are as frequent as they.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    since: Instant,
    polls: u64,
    work: u64,
}

impl Activity {
    /// Whether the program polls for itself, given all that it ever did.
    pub(crate) fn is_enough(&mut self, now: Instant, all_polls: u64, work: u64) -> bool {
        let polls = all_polls.wrapping_sub(self.polls);
        let done = work.wrapping_sub(self.work);
        let elapsed_ns = now.since(self.since);
        let times = (elapsed_ns / LOOK_AGAIN_NS).max(1);
        let is_enough = polls >= times * BUSY_POLLS
            || polls >= times * BUSY_POLLS_MIN && done >= times * BUSY_WORK
            || polls >= times && done >= times * FULL_WORK;
        if is_enough || elapsed_ns >= LOOK_AGAIN_NS {
            *self = Self {
                since: now,
                polls: all_polls,
                work,
            };
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the program is found to poll for itself within two milliseconds, looked at every
    /// `look_ns`, if it polls and gets work done so often a millisecond.
    fn polls_for_itself(look_ns: u64, polls_per_ms: u64, work_per_ms: u64) -> bool {
        let start_ns = 1_000_000_000;
        let mut activity = Activity::default();
        activity.is_enough(Instant::from_nanos(start_ns), 0, 0);
        (1..=(2 * LOOK_AGAIN_NS).div_ceil(look_ns)).any(|look| {
            let at_ns = look * look_ns;
            let [rounds, work] = [polls_per_ms, work_per_ms].map(|count| at_ns * count / 1_000_000);
            activity.is_enough(Instant::from_nanos(start_ns + at_ns), rounds, work)
        })
    }

    #[test]
    fn a_program_that_polls_often_is_found_to_at_any_rate_of_looks() {
        for look_ns in [2_000, 10_000, 100_000, LOOK_AGAIN_NS, 2 * LOOK_AGAIN_NS] {
            assert!(polls_for_itself(look_ns, 20, 0), "{look_ns}");
            assert!(!polls_for_itself(look_ns, 12, 0), "{look_ns}");
        }
    }

    #[test]
    fn few_polls_that_get_much_done_are_enough() {
        for look_ns in [LOOK_AGAIN_NS, 2 * LOOK_AGAIN_NS] {
            assert!(polls_for_itself(look_ns, 4, 1_000));
            assert!(!polls_for_itself(look_ns, 4, 20));
            assert!(
                polls_for_itself(look_ns, 1, 200),
                "packets of large messages"
            );
            assert!(!polls_for_itself(look_ns, 1, 100));
        }
        assert!(
            !polls_for_itself(LOOK_AGAIN_NS, 0, 1_000),
            "a program that only posts does not poll"
        );
    }
}
