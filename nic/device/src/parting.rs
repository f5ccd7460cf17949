//! Whether a program polls on once all that it sent is answered, or looks at its memory from then on for what a peer writes
//! there, as `ib_write_lat` does. The background thread lets a program alone that polls, and would find only by its next look, a
//! millisecond later or two, that it has stopped. So it has those that are likely to stop tell it when they have the last answer.

/// Who waited for packets so long has let the program poll, or not.
const WAIT_NS: u64 = 5_000;
/// Who has polled so often since polls on, or has something new to send.
const POLLS_MAX: u64 = 16;
/// What a stop adds to the likelihood, of which each time that the program polls on takes one: it may send two or three messages
/// before it looks at its memory.
const STOP: u8 = 3;
/// A program that does otherwise from now on is believed after so many times.
const LIKELIHOOD_MAX: u8 = 12;

/// See the module.
#[derive(Debug, Default)]
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
        let polls_on = |told_at: &mut u64| polls.wrapping_sub(*told_at) >= POLLS_MAX;
        if self.told_at.take_if(polls_on).is_some() {
            self.note_polling();
        }
        self.told_at.is_some()
    }

    /// It had stopped without a word.
    pub(crate) fn note_stopped(&mut self) {
        self.likelihood = (self.likelihood + STOP).min(LIKELIHOOD_MAX);
    }

    fn note_polling(&mut self) {
        self.likelihood = self.likelihood.saturating_sub(1);
    }

    /// Nobody can say what it would have done: it wants something else of the thread.
    pub(crate) const fn forget_told(&mut self) {
        self.told_at = None;
    }

    /// The thread waited so long until packets came, while the program polled or did not. Whether that shows that it has stopped.
    pub(crate) fn note_wait(&mut self, waited_ns: u64, has_polled: bool) -> bool {
        if waited_ns < WAIT_NS || self.told_at.take().is_none() {
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
    fn who_stops_is_expected_to_until_it_has_polled_on_for_long() {
        let mut parting = Parting::default();
        assert!(!parting.is_likely());
        parting.note_stopped();
        for _ in 0..20 {
            assert!(parting.is_likely());
            parting.note_told(0);
            assert!(parting.note_wait(WAIT_NS, false));
        }
        for time in 0..LIKELIHOOD_MAX {
            assert!(parting.is_likely());
            parting.note_told(0);
            if time % 2 == 0 {
                assert!(!parting.note_wait(WAIT_NS, true));
            } else {
                assert!(!parting.is_unsure(POLLS_MAX), "it polls often");
            }
        }
        assert!(!parting.is_likely());
    }

    #[test]
    fn who_sends_three_messages_before_it_stops_is_expected_to() {
        let mut parting = Parting::default();
        for message in 0..100 {
            parting.note_told(0);
            parting.note_wait(WAIT_NS, message % 3 != 0);
        }
        assert!(parting.is_likely());
    }

    #[test]
    fn a_short_wait_shows_nothing_and_neither_does_one_that_nobody_told_of() {
        let mut parting = Parting::default();
        assert!(!parting.note_wait(WAIT_NS, false));
        parting.note_told(0);
        parting.forget_told();
        assert!(!parting.note_wait(WAIT_NS, false));
        parting.note_told(0);
        assert!(!parting.note_wait(WAIT_NS - 1, false));
        assert!(parting.is_unsure(POLLS_MAX - 1) && !parting.is_likely());
        assert!(parting.note_wait(WAIT_NS, false));
        assert!(!parting.is_unsure(0));
    }
}
