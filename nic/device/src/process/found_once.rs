//! What is found out once, without a lock: fork may copy one that another thread holds, and the
//! child would wait for ever for a thread that it does not have.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that stays the same once it is known, such as a size, a handle or an address.
#[derive(Debug, Default)]
pub struct FoundOnce(AtomicU64);

impl FoundOnce {
    /// What is not known yet.
    const UNKNOWN: u64 = 0;

    /// One that is not known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(Self::UNKNOWN))
    }

    /// The number, which `find` gives if it is not known yet. Threads that ask at once may each
    /// find one; all get that of the first. 0 is not kept: the next call looks again.
    pub fn or_find(&self, find: impl FnOnce() -> u64) -> u64 {
        self.or_make(find, |_| ())
    }

    /// The same for what `make` makes; one too many is given to `discard`.
    pub(crate) fn or_make(&self, make: impl FnOnce() -> u64, discard: impl FnOnce(u64)) -> u64 {
        let known = self.0.load(Ordering::Acquire);
        if known != Self::UNKNOWN {
            return known;
        }
        let made = make();
        let kept =
            self.0
                .compare_exchange(Self::UNKNOWN, made, Ordering::AcqRel, Ordering::Acquire);
        match kept {
            Ok(_) => made,
            Err(first) => {
                discard(made);
                first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_looked_for_again() {
        let found = FoundOnce::new();
        assert_eq!(found.or_find(|| 0), 0);
        assert_eq!(found.or_find(|| 7), 7);
        assert_eq!(found.or_find(|| panic!("it is known")), 7);
    }

    /// A lock would be held here, and keep the one that comes second waiting.
    #[test]
    fn of_those_that_look_at_once_the_first_to_find_is_right() {
        let found = FoundOnce::new();
        let mut discarded = None;
        let late = found.or_make(
            || {
                assert_eq!(found.or_find(|| 7), 7);
                8
            },
            |made| discarded = Some(made),
        );
        assert_eq!((late, discarded), (7, Some(8)));
    }
}
