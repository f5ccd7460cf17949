//! Whether a program polls on once all that it sent is answered, or looks at its memory from then
//! on for what a peer writes there, as `ib_write_lat` does. The background thread lets a program
//! alone that polls, and would find only by its next look, a millisecond later or two, that it has
//! stopped. So it has those that are likely to stop tell it when they have the last answer.

use crate::constants::{POLLS_ON, STOP_WEIGHT, STOP_WEIGHT_MAX, WAIT_SHOWN_NS};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parting {
    likelihood: u8,
    /// How often it had polled when it told, if it has not shown yet what it does.
    told_at: Option<u64>,
}

impl Parting {
    /// Whether the program is likely to stop.
    pub(crate) const fn is_likely(&self) -> bool {
        self.likelihood > 0
    }

    /// The program, which has polled so often so far, told that all is answered.
    pub(crate) const fn note_told(&mut self, polls: u64) {
        self.told_at = Some(polls);
    }

    /// Whether it has told so, and not shown yet what it does. It has polled so often so far.
    pub(crate) fn is_unsure(&mut self, polls: u64) -> bool {
        let polls_on = |told_at: &mut u64| polls.wrapping_sub(*told_at) >= POLLS_ON;
        if self.told_at.take_if(polls_on).is_some() {
            self.note_polling();
        }
        self.told_at.is_some()
    }

    /// It had stopped without a word.
    pub(crate) fn note_stopped(&mut self) {
        self.likelihood = (self.likelihood + STOP_WEIGHT).min(STOP_WEIGHT_MAX);
    }

    fn note_polling(&mut self) {
        self.likelihood = self.likelihood.saturating_sub(1);
    }

    /// What it would have done stays unknown: it wants something else of the thread.
    pub(crate) const fn forget_told(&mut self) {
        self.told_at = None;
    }

    /// The thread waited so long until packets came, while the program polled or did not. Whether
    /// that shows that it has stopped.
    pub(crate) fn note_wait(&mut self, waited_ns: u64, has_polled: bool) -> bool {
        if waited_ns < WAIT_SHOWN_NS || self.told_at.take().is_none() {
            return false;
        }
        if has_polled {
            self.note_polling();
        } else {
            self.note_stopped();
        }
        !has_polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_stops_is_expected_to_until_it_polled_long() {
        let mut parting = Parting::default();
        assert!(!parting.is_likely());
        parting.note_stopped();
        for _ in 0..20 {
            assert!(parting.is_likely());
            parting.note_told(0);
            assert!(parting.note_wait(WAIT_SHOWN_NS, false));
        }
        for time in 0..STOP_WEIGHT_MAX {
            assert!(parting.is_likely());
            parting.note_told(0);
            if time % 2 == 0 {
                assert!(!parting.note_wait(WAIT_SHOWN_NS, true));
            } else {
                assert!(!parting.is_unsure(POLLS_ON), "it polls often");
            }
        }
        assert!(!parting.is_likely());
    }

    #[test]
    fn a_stop_after_three_messages_is_expected() {
        let mut parting = Parting::default();
        for message in 0..100 {
            parting.note_told(0);
            parting.note_wait(WAIT_SHOWN_NS, message % 3 != 0);
        }
        assert!(parting.is_likely());
    }

    #[test]
    fn a_short_wait_shows_nothing_nor_does_one_without_a_word() {
        let mut parting = Parting::default();
        assert!(!parting.note_wait(WAIT_SHOWN_NS, false));
        parting.note_told(0);
        parting.forget_told();
        assert!(!parting.note_wait(WAIT_SHOWN_NS, false));
        parting.note_told(0);
        assert!(!parting.note_wait(WAIT_SHOWN_NS - 1, false));
        assert!(parting.is_unsure(POLLS_ON - 1) && !parting.is_likely());
        assert!(parting.note_wait(WAIT_SHOWN_NS, false));
        assert!(!parting.is_unsure(0));
    }
}
