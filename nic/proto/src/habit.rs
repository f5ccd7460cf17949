//! What is done for a while after something was noticed, and for longer if that is noticed again
//! and again: a program that does it as a habit is soon treated so nearly always, one that was only
//! kept from its processor hardly ever.

use crate::time::Instant;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    until: Instant,
    for_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Habit {
    /// Lasts `min_ns` at first, and `max_ns` at most.
    #[must_use]
    pub const fn new(min_ns: u64, max_ns: u64) -> Self {
        Self {
            until: Instant::from_nanos(0),
            for_ns: 0,
            min_ns,
            max_ns,
        }
    }

    /// It was noticed. Twice as long as before, unless it had been over for at least as long as it
    /// lasted.
    pub fn note(&mut self, now: Instant) {
        let is_habit = self.for_ns > 0 && now < self.until.after(self.for_ns);
        self.for_ns = if is_habit {
            (2 * self.for_ns).min(self.max_ns)
        } else {
            self.min_ns
        };
        self.until = now.after(self.for_ns);
    }

    /// It was a mistake.
    pub const fn forget(&mut self) {
        self.until = Instant::from_nanos(0);
        self.for_ns = 0;
    }

    /// Whether it lasts.
    #[inline]
    #[must_use]
    pub fn lasts(&self, now: Instant) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noticed_again_and_again_lasts_ever_longer() {
        const MIN: u64 = 1_000;
        const MAX: u64 = 10_000;
        let mut habit = Habit::new(MIN, MAX);
        let mut now = Instant::from_nanos(5 * MAX);
        assert!(!habit.lasts(now));
        for for_ns in [MIN, 2 * MIN, 4 * MIN, 8 * MIN, MAX, MAX] {
            habit.note(now);
            assert!(habit.lasts(now.after(for_ns - 1)));
            now = now.after(for_ns);
            assert!(!habit.lasts(now));
        }
        now = now.after(MAX);
        habit.note(now);
        assert!(!habit.lasts(now.after(MIN)), "that was long ago");
    }
}
