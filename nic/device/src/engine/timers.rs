//! When which queue pair wants to be woken: one entry each. A deadline that moves later costs
//! nothing, because the early entry stays, is looked at when it comes up, and put back.

use std::collections::BTreeSet;

use urxe_proto::Instant;

/// Deadlines of queue pairs, by their index in the table.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    entries: BTreeSet<(Instant, u16)>,
}

impl Timers {
    /// Gives a queue pair the deadline `at` in place of the one that it has.
    pub(crate) fn set(&mut self, index: u16, before: Option<Instant>, at: Instant) {
        self.clear(index, before);
        self.entries.insert((at, index));
    }

    /// Takes a queue pair's deadline away.
    pub(crate) fn clear(&mut self, index: u16, before: Option<Instant>) {
        if let Some(before) = before {
            self.entries.remove(&(before, index));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Takes an entry that has come up.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u16> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop_first().map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_has_one_entry_and_comes_up_at_its_time() {
        let at = Instant::from_nanos;
        let mut timers = Timers::default();
        timers.set(1, None, at(50));
        timers.set(2, None, at(30));
        timers.set(1, Some(at(50)), at(20));
        assert_eq!(timers.next(), Some(at(20)));
        assert_eq!(timers.pop(at(19)), None);
        assert_eq!(timers.pop(at(60)), Some(1));
        assert_eq!(timers.pop(at(60)), Some(2));
        assert_eq!(timers.pop(at(60)), None);
    }
}
