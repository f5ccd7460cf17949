//! Whether a thread that waits for packets looks for them for a while before it sleeps.
//!
//! To sleep and to be woken costs both ends: the sleeper tens of microseconds, the sender's
//! processor the interrupt that wakes it. A thread that looks for at most as long as that costs
//! spends at most twice what the better choice would. So a thread looks where that pays: once
//! enough of its sleeps were short, until it has looked in vain. A vain look is mostly a sign that
//! the next packet has to wait for a thread that wants this very processor, so after each it takes
//! more short sleeps to look again.

use urxe_proto::Instant;

use crate::constants::{
    LOOK_AROUND_NS, LOOK_NS, SHORT_SLEEP_NS, SHORT_SLEEPS_MAX, SHORT_SLEEPS_MIN,
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Looker {
    /// Short sleeps since the last vain look; half of them, since a long one.
    short: u32,
    /// How many it takes.
    needed: u32,
    /// Times that threads of the process had been made to leave their processor; `None` if that is
    /// no matter.
    preemptions: Option<i64>,
}

/// A look under way.
#[derive(Clone, Debug)]
pub struct Look {
    until: Instant,
    look_around_at: Instant,
    is_vain: bool,
}

/// What a thread that looks does after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It runs another.
    LookOn,
    /// It sleeps.
    Sleep,
}

impl Default for Looker {
    fn default() -> Self {
        Self {
            short: 0,
            needed: SHORT_SLEEPS_MIN,
            preemptions: Some(0),
        }
    }
}

impl Looker {
    /// For a thread that takes precedence over no other, and that the background thread makes leave
    /// its processor whenever it has slept: it learns from vain looks alone.
    #[must_use]
    pub fn heedless() -> Self {
        Self {
            preemptions: None,
            ..Self::default()
        }
    }

    /// The thread slept, and packets came after so long.
    pub fn note_sleep(&mut self, slept_ns: u64) {
        self.short = if slept_ns <= SHORT_SLEEP_NS {
            self.short.saturating_add(1)
        } else {
            self.short / 2
        };
    }

    /// Whether enough sleeps were short.
    #[must_use]
    pub const fn may_pay(&self) -> bool {
        self.short >= self.needed
    }

    /// Begins a look, if it pays and no thread of the process had to leave its processor since the
    /// last one: the background thread takes precedence over the program, which would only wait for
    /// it. `preemptions` counts how often threads had to.
    pub fn begin(
        &mut self,
        now: impl FnOnce() -> Instant,
        preemptions: impl FnOnce() -> i64,
    ) -> Option<Look> {
        if !self.is_worth_it(preemptions) {
            return None;
        }
        let now = now();
        Some(Look {
            until: now.after(LOOK_NS),
            look_around_at: now.after(LOOK_AROUND_NS),
            is_vain: true,
        })
    }

    /// A round at `now` brought so many packets.
    pub fn after_round(
        &mut self,
        look: &mut Look,
        now: Instant,
        received: usize,
        preemptions: impl FnOnce() -> i64,
    ) -> Next {
        if received > 0 {
            look.is_vain = false;
            look.until = now.after(LOOK_NS);
            self.needed = (self.needed / 2).max(SHORT_SLEEPS_MIN);
        } else if now >= look.until {
            if look.is_vain {
                self.note_vain();
            }
            return Next::Sleep;
        }
        if now >= look.look_around_at {
            look.look_around_at = now.after(LOOK_AROUND_NS);
            if !self.is_worth_it(preemptions) {
                return Next::Sleep;
            }
        }
        Next::LookOn
    }

    fn is_worth_it(&mut self, preemptions: impl FnOnce() -> i64) -> bool {
        if !self.may_pay() {
            return false;
        }
        if let Some(before) = &mut self.preemptions {
            let preemptions = preemptions();
            if core::mem::replace(before, preemptions) != preemptions {
                self.note_vain();
                return false;
            }
        }
        true
    }

    fn note_vain(&mut self) {
        self.short = 0;
        self.needed = (2 * self.needed).min(SHORT_SLEEPS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn sleep(looker: &mut Looker, times: u32, slept_ns: u64) {
        (0..times).for_each(|_| looker.note_sleep(slept_ns));
    }

    fn begins(looker: &mut Looker, preemptions: i64) -> Option<Look> {
        looker.begin(|| START, || preemptions)
    }

    fn look_in_vain(looker: &mut Looker, mut look: Look) {
        assert_eq!(
            looker.after_round(&mut look, START.after(LOOK_NS - 1), 0, || 0),
            Next::LookOn
        );
        assert_eq!(
            looker.after_round(&mut look, START.after(LOOK_NS), 0, || 0),
            Next::Sleep
        );
    }

    #[test]
    fn it_looks_after_short_sleeps_alone() {
        let mut looker = Looker::default();
        assert!(begins(&mut looker, 0).is_none());
        sleep(&mut looker, 4, SHORT_SLEEP_NS);
        assert!(begins(&mut looker, 0).is_some());
        sleep(&mut looker, 1, SHORT_SLEEP_NS + 1);
        assert!(begins(&mut looker, 0).is_none());
        sleep(&mut looker, 2, SHORT_SLEEP_NS);
        assert!(begins(&mut looker, 0).is_some());
        sleep(&mut looker, 3, SHORT_SLEEP_NS + 1);
        sleep(&mut looker, 3, SHORT_SLEEP_NS);
        assert!(begins(&mut looker, 0).is_none());
    }

    #[test]
    fn looks_in_vain_make_looks_rarer_and_packets_undo_that() {
        let mut looker = Looker::default();
        for needed in [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            sleep(&mut looker, needed - 1, 0);
            assert!(begins(&mut looker, 0).is_none(), "{needed}");
            sleep(&mut looker, 1, 0);
            let look = begins(&mut looker, 0).expect("enough short sleeps");
            look_in_vain(&mut looker, look);
        }
        sleep(&mut looker, 1024, 0);
        let mut look = begins(&mut looker, 0).unwrap();
        for _ in 0..10 {
            assert_eq!(looker.after_round(&mut look, START, 1, || 0), Next::LookOn);
        }
        assert_eq!(
            looker.after_round(&mut look, START.after(LOOK_NS), 0, || 0),
            Next::Sleep
        );
        sleep(&mut looker, 4, 0);
        assert!(begins(&mut looker, 0).is_some(), "it did not end in vain");
    }

    #[test]
    fn it_does_not_look_where_others_want_the_processor() {
        let mut looker = Looker::default();
        sleep(&mut looker, 100, 0);
        assert!(begins(&mut looker, 1).is_none());
        sleep(&mut looker, 8, 0);
        let mut look = begins(&mut looker, 1).unwrap();
        for (later_ns, preemptions, next) in [
            (LOOK_AROUND_NS - 1, 2, Next::LookOn),
            (LOOK_AROUND_NS, 1, Next::LookOn),
            (2 * LOOK_AROUND_NS, 2, Next::Sleep),
        ] {
            assert_eq!(
                looker.after_round(&mut look, START.after(later_ns), 1, || preemptions),
                next
            );
        }
    }

    #[test]
    fn a_heedless_one_learns_from_vain_looks_alone() {
        let mut looker = Looker::heedless();
        sleep(&mut looker, 4, 0);
        assert!((0..10).all(|preemptions| begins(&mut looker, preemptions).is_some()));
        let look = begins(&mut looker, 0).unwrap();
        look_in_vain(&mut looker, look);
        assert!(begins(&mut looker, 0).is_none());
    }
}
