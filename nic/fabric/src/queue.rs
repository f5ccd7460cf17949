//! What will happen, in the order of time and, at the same time, of scheduling.
//!
//! A radix heap (Ahuja et al., "Faster algorithms for the shortest path problem", 1990): time never goes back, so an event
//! only has to be sorted by the highest bit in which its time differs from now. Events of the same time are always
//! in the same bucket, in the order in which they were scheduled.

use alloc::vec::Vec;

const BUCKETS: usize = 65;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    buckets: [Vec<(u64, T)>; BUCKETS],
    /// Kept for its capacity.
    spare: Vec<(u64, T)>,
    last: u64,
    /// How many of the first bucket were taken.
    taken: usize,
    len: usize,
}

impl<T: Copy> EventQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            buckets: core::array::from_fn(|_| Vec::new()),
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
        self.buckets[bucket(at ^ self.last)].push((at, event));
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        if let Some(&item) = self.buckets[0].get(self.taken) {
            self.taken += 1;
            self.len -= 1;
            return Some(item);
        }
        self.refill()?;
        let item = self.buckets[0][0];
        self.taken = 1;
        self.len -= 1;
        Some(item)
    }

    /// Moves time to the next event, and what is in its bucket to lower ones.
    fn refill(&mut self) -> Option<()> {
        self.buckets[0].clear();
        self.taken = 0;
        let from = self.buckets.iter().position(|bucket| !bucket.is_empty())?;
        core::mem::swap(&mut self.spare, &mut self.buckets[from]);
        self.last = self.spare.iter().map(|(at, _)| *at).min()?;
        for index in 0..self.spare.len() {
            let (at, event) = self.spare[index];
            self.buckets[bucket(at ^ self.last)].push((at, event));
        }
        self.spare.clear();
        Some(())
    }
}

#[inline]
const fn bucket(difference: u64) -> usize {
    (u64::BITS - difference.leading_zeros()) as usize
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
                assert_eq!(queue.pop(), Some(next));
                now = next.0;
            }
        }
        expected.sort_unstable();
        assert_eq!(queue.len(), expected.len());
        for each in expected {
            assert_eq!(queue.pop(), Some(each));
        }
        assert_eq!(queue.pop(), None);
    }
}
