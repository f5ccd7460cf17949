//! Whether a thread that waits for packets looks for them for a while before it sleeps.
//!
//! To sleep and to be woken costs both ends: the sleeper tens of microseconds, the sender's processor the interrupt that
//! wakes it. Whoever looks for at most as long as that costs spends at most twice what the better choice would. So a thread
//! looks where that pays: once enough of its sleeps were short, until it has looked in vain. A vain look is mostly a sign that
//! the next packet has to wait for somebody who wants this very processor, so after each it takes more short sleeps to
//! look again.

use urxe_proto::Instant;

use crate::clock::now;
use crate::nic::Nic;

/// How long a thread looks after the last packet: while the peer sleeps, too, and is woken.
const SPIN_NS: u64 = 100_000;
/// A sleep that ended so soon was short: there were two wake-ups in it, the peer's and one's own.
const SHORT_SLEEP_NS: u64 = 150_000;
/// Short sleeps before a thread looks: at first, and after many vain looks.
const SHORT_SLEEPS: (u32, u32) = (4, 1024);
/// How often it makes sure meanwhile that nobody else wants the processor.
const LOOK_AROUND_NS: u64 = 1_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Spin {
    /// Short sleeps since the last vain look; half of them, since a long one.
    short: u32,
    /// How many it takes.
    needed: u32,
    /// Times that threads of the process had been made to leave their processor; `None` if that is no matter.
    preemptions: Option<i64>,
}

impl Default for Spin {
    fn default() -> Self {
        Self {
            short: 0,
            needed: SHORT_SLEEPS.0,
            preemptions: Some(0),
        }
    }
}

/// How [`Spin::look`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Nothing comes, or it does not pay to look: time to sleep, until the next round is wanted.
    InVain(Option<Instant>),
    /// There is something else to do.
    Done,
}

impl Spin {
    /// For a thread that takes precedence over nobody, and that the background thread makes leave its processor whenever it has
    /// slept: it learns from vain looks alone.
    pub(crate) fn heedless() -> Self {
        Self {
            preemptions: None,
            ..Self::default()
        }
    }

    /// Runs rounds until `is_done`, or another thread is in the engine, or nothing has come for a while; none if it does
    /// not pay. The round before wanted the next at `deadline`.
    pub(crate) fn look(
        &mut self,
        nic: &Nic,
        mut deadline: Option<Instant>,
        is_done: impl Fn() -> bool,
    ) -> Looked {
        if !self.should_begin(preemptions) {
            return Looked::InVain(deadline);
        }
        let mut until = now().after(SPIN_NS);
        let mut look_around_at = now().after(LOOK_AROUND_NS);
        let mut is_vain = true;
        while !is_done() {
            let Some(round) = nic.run_looking() else {
                return Looked::Done;
            };
            deadline = round.wanted_at;
            if round.received > 0 {
                is_vain = false;
                until = round.at.after(SPIN_NS);
                self.note_paid();
            } else if round.at >= until {
                if is_vain {
                    self.note_vain();
                }
                return Looked::InVain(deadline);
            }
            if round.at >= look_around_at {
                look_around_at = round.at.after(LOOK_AROUND_NS);
                if !self.should_begin(preemptions) {
                    return Looked::InVain(deadline);
                }
            }
            std::hint::spin_loop();
        }
        Looked::Done
    }

    /// The thread slept, and packets came after so long.
    pub(crate) fn note_sleep(&mut self, slept_ns: u64) {
        self.short = if slept_ns <= SHORT_SLEEP_NS {
            self.short.saturating_add(1)
        } else {
            self.short / 2
        };
    }

    /// Whether enough sleeps were short.
    pub(crate) const fn may_pay(&self) -> bool {
        self.short >= self.needed
    }

    /// Whether it pays to look, and nobody wants the processor: no thread of the process had to leave its own since the
    /// last look. The background thread takes precedence over the program, which would only wait for it.
    fn should_begin(&mut self, preemptions: impl FnOnce() -> i64) -> bool {
        if !self.may_pay() {
            return false;
        }
        if let Some(before) = &mut self.preemptions {
            let preemptions = preemptions();
            if std::mem::replace(before, preemptions) != preemptions {
                self.note_vain();
                return false;
            }
        }
        true
    }

    fn note_paid(&mut self) {
        self.needed = (self.needed / 2).max(SHORT_SLEEPS.0);
    }

    fn note_vain(&mut self) {
        self.short = 0;
        self.needed = (2 * self.needed).min(SHORT_SLEEPS.1);
    }
}

/// Times that threads of the process were made to leave their processor.
fn preemptions() -> i64 {
    // SAFETY: getrusage writes the structure; all zeros is a valid one.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nivcsw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(spin: &mut Spin, times: u32, slept_ns: u64) {
        (0..times).for_each(|_| spin.note_sleep(slept_ns));
    }

    #[test]
    fn it_looks_after_short_sleeps_alone() {
        let mut spin = Spin::default();
        assert!(!spin.should_begin(|| 0));
        sleep(&mut spin, 4, SHORT_SLEEP_NS);
        assert!(spin.should_begin(|| 0));
        sleep(&mut spin, 1, SHORT_SLEEP_NS + 1);
        assert!(!spin.should_begin(|| 0));
        sleep(&mut spin, 2, SHORT_SLEEP_NS);
        assert!(spin.should_begin(|| 0));
        sleep(&mut spin, 3, SHORT_SLEEP_NS + 1);
        sleep(&mut spin, 3, SHORT_SLEEP_NS);
        assert!(!spin.should_begin(|| 0));
    }

    #[test]
    fn who_looks_in_vain_looks_less_often() {
        let mut spin = Spin::default();
        for needed in [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            sleep(&mut spin, needed - 1, 0);
            assert!(!spin.should_begin(|| 0), "{needed}");
            sleep(&mut spin, 1, 0);
            assert!(spin.should_begin(|| 0), "{needed}");
            spin.note_vain();
        }
        (0..10).for_each(|_| spin.note_paid());
        sleep(&mut spin, 4, 0);
        assert!(spin.should_begin(|| 0));
    }

    #[test]
    fn it_does_not_look_where_others_want_the_processor() {
        let mut spin = Spin::default();
        sleep(&mut spin, 100, 0);
        assert!(!spin.should_begin(|| 1));
        sleep(&mut spin, 8, 0);
        assert!(spin.should_begin(|| 1));
        assert!(!spin.should_begin(|| 2));
    }

    #[test]
    fn who_takes_precedence_over_nobody_learns_from_vain_looks_alone() {
        let mut spin = Spin::heedless();
        sleep(&mut spin, 4, 0);
        assert!((0..10).all(|preemptions| spin.should_begin(|| preemptions)));
        spin.note_vain();
        assert!(!spin.should_begin(|| 0));
    }
}
