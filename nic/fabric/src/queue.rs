//! What will happen, in the order of time and, at the same time, of scheduling.
//!
//! A radix heap (Ahuja et al., "Faster algorithms for the shortest path problem", 1990) of digits.
//! Time never goes back, so an event only has to be sorted by the highest digit in which its time
//! differs from now, and by what it is there. When no event is left that differs in the lowest
//! digit alone, the next bucket above is sorted by the digits below. Events of the same time are
//! always in the same bucket, in the order in which they were scheduled.

use alloc::vec::Vec;

/// Bits of a digit: a word tells which of its buckets are in use. An event moves down at most once
/// for each digit.
const DIGIT_BITS: u32 = 6;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// What is sorted out of this level happens within 64 x 64 picoseconds.
const SOON_LEVEL: usize = 2;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// By level, that is, the highest digit that differs from `last`, and by that digit.
    buckets: Vec<Vec<(u64, T)>>,
    /// By level, a bit for each bucket that has something.
    used: [u64; LEVELS],
    /// Kept for its capacity.
    spare: Vec<(u64, T)>,
    last: u64,
    /// How many of the bucket of `last` itself were taken.
    taken: usize,
    len: usize,
}

impl<T: Copy> EventQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..LEVELS * BUCKETS).map(|_| Vec::new()).collect(),
            used: [0; LEVELS],
            spare: Vec::new(),
            last: 0,
            taken: 0,
            len: 0,
        }
    }

    /// Events that wait.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// `at` is not before the time of the event that was taken last.
    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, event: T) {
        debug_assert!(at >= self.last, "{at} is before {}", self.last);
        self.put(at, event);
        self.len += 1;
    }

    #[inline]
    fn put(&mut self, at: u64, event: T) {
        let difference = at ^ self.last;
        let level = (u64::BITS - 1 - (difference | 1).leading_zeros()) / DIGIT_BITS;
        let digit = (at >> (level * DIGIT_BITS)) as usize % BUCKETS;
        self.used[level as usize] |= 1 << digit;
        self.buckets[level as usize * BUCKETS + digit].push((at, event));
    }

    /// The next event. `soon` is shown some that come next, so that it may fetch what they need.
    #[inline]
    pub(crate) fn pop(&mut self, soon: impl Fn(&[(u64, T)])) -> Option<(u64, T)> {
        loop {
            let now = self.last as usize % BUCKETS;
            if let Some(&item) = self.buckets[now].get(self.taken) {
                self.taken += 1;
                self.len -= 1;
                return Some(item);
            }
            self.buckets[now].clear();
            self.used[0] &= !(1 << now);
            self.taken = 0;
            if self.used[0] == 0 {
                self.refill(&soon)?;
            }
            // The next in time: all that differ in this digit alone are later.
            let next = u64::from(self.used[0].trailing_zeros());
            self.last = self.last & !(BUCKETS as u64 - 1) | next;
        }
    }

    /// Moves time to the next event, and what is in its bucket to lower ones.
    fn refill(&mut self, soon: &impl Fn(&[(u64, T)])) -> Option<()> {
        let level = self.used.iter().position(|used| *used != 0)?;
        let digit = self.used[level].trailing_zeros() as usize;
        self.used[level] &= !(1 << digit);
        core::mem::swap(&mut self.spare, &mut self.buckets[level * BUCKETS + digit]);
        self.last = self.spare.iter().map(|(at, _)| *at).min()?;
        if level == SOON_LEVEL {
            soon(&self.spare);
        }
        for index in 0..self.spare.len() {
            let (at, event) = self.spare[index];
            self.put(at, event);
        }
        self.spare.clear();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_of_scheduling() {
        let mut random = oorandom::Rand64::new(1);
        let mut queue = EventQueue::new();
        let mut expected = Vec::new();
        let mut now = 0;
        for number in 0..20_000_u32 {
            let within = 1 << random.rand_range(0..40);
            let at = now + random.rand_range(0..within);
            queue.schedule(at, number);
            expected.push((at, number));
            if random.rand_range(0..3) > 0 {
                let next = expected.iter().min_by_key(|(at, number)| (*at, *number));
                let next = *next.unwrap();
                expected.retain(|each| *each != next);
                assert_eq!(queue.pop(|_| ()), Some(next));
                now = next.0;
            }
        }
        expected.sort_unstable();
        assert_eq!(queue.len(), expected.len());
        for each in expected {
            assert_eq!(queue.pop(|_| ()), Some(each));
        }
        assert_eq!(queue.pop(|_| ()), None);
    }
}
