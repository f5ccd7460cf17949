//! Whether a program polls on once all that it sent is answered, or looks at its memory from then on for what a peer writes
//! there, as `ib_write_lat` does. The background thread lets a program alone that polls, and would find only by its next look, a
//! millisecond later or two, that it has stopped. So it has those that are likely to stop tell it when they have the last answer.

/// Who waited for packets so long has let the program poll, or not.
const WAIT_NS: u64 = 5_000;
/// As many times are remembered at most: a program that does otherwise from now on is soon believed.
const TIMES_MAX: u8 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    /// Times that it stopped, less those that it polled on.
    times: u8,
    is_unsure: bool,
}

impl Parting {
    /// Whether the program is likely to stop.
    pub(crate) const fn is_likely(&self) -> bool {
        self.times > 0
    }

    /// The program told that all is answered.
    pub(crate) const fn note_told(&mut self) {
        self.is_unsure = true;
    }

    /// Whether it has told so, and not shown yet what it does.
    pub(crate) const fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// It had stopped without a word.
    pub(crate) fn note_stopped(&mut self) {
        self.times = (self.times + 1).min(TIMES_MAX);
    }

    /// The thread waited so long until packets came, while the program polled or did not. Whether that shows that it has stopped.
    pub(crate) fn note_wait(&mut self, waited_ns: u64, has_polled: bool) -> bool {
        if waited_ns < WAIT_NS || !std::mem::take(&mut self.is_unsure) {
            return false;
        }
        if has_polled {
            self.times = self.times.saturating_sub(1);
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
    fn who_stops_is_expected_to_until_it_polls_on_as_often() {
        let mut parting = Parting::default();
        assert!(!parting.is_likely());
        parting.note_stopped();
        for _ in 0..20 {
            assert!(parting.is_likely());
            parting.note_told();
            assert!(parting.note_wait(WAIT_NS, false));
        }
        for _ in 0..TIMES_MAX {
            assert!(parting.is_likely());
            parting.note_told();
            assert!(!parting.note_wait(WAIT_NS, true));
        }
        assert!(!parting.is_likely());
    }

    #[test]
    fn a_short_wait_shows_nothing_and_neither_does_one_that_nobody_told_of() {
        let mut parting = Parting::default();
        assert!(!parting.note_wait(WAIT_NS, false));
        parting.note_told();
        assert!(!parting.note_wait(WAIT_NS - 1, false));
        assert!(parting.is_unsure() && !parting.is_likely());
        assert!(parting.note_wait(WAIT_NS, false));
        assert!(!parting.is_unsure());
    }
}
