//! What will happen, in the order of time and, at the same time, of scheduling.
//!
//! A radix heap (Ahuja et al., "Faster algorithms for the shortest path problem", 1990) of digits
//! of time. Time never goes back, so an event only has to be sorted by the highest digit in which
//! its time differs from now, and by what it is there. When no event is left in the window of time
//! that is now, the next bucket above is sorted by the digits below. Events of the same time are
//! always in the same bucket, in the order in which they were scheduled.
//!
//! Buckets are made of chunks that all share, and the chunk that became free last is used first: so
//! the memory of what waits is as small as its number, and in a cache as far as that goes.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Bits of the time within a window. What is in one is sorted by comparing: with a thousand hosts
/// these are some 20 events, which also is how many may be fetched ahead of their time.
const WINDOW_BITS: u32 = 8;
/// Bits of a digit: a word tells which of its buckets are in use. An event moves down at most once
/// for each digit.
const DIGIT_BITS: u32 = 6;
const BUCKETS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = (u64::BITS - WINDOW_BITS).div_ceil(DIGIT_BITS) as usize;
/// With the rest of a chunk these fill 512 bytes, if an event has 8.
const CHUNK_EVENTS: usize = 31;
/// No chunk.
const NONE: u32 = u32::MAX;

/// A part of a bucket.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Chunk<T> {
    events: [(u64, T); CHUNK_EVENTS],
    len: u32,
    next: u32,
}

/// The first and the last of its chunks.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    last: u32,
}

const EMPTY: Bucket = Bucket {
    first: NONE,
    last: NONE,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// By level, that is, the highest digit that differs from `window`, and by that digit.
    buckets: [[Bucket; BUCKETS]; LEVELS],
    /// By level, a bit for each bucket that has something.
    used: [u64; LEVELS],
    chunks: Vec<Chunk<T>>,
    /// The first chunk that is free; each names the next.
    free: u32,
    /// The time now, without the bits within a window.
    window: u64,
    /// What was scheduled for this window before it began, in order.
    now: Vec<(u64, T)>,
    /// How many of these were taken.
    taken: usize,
    /// What was scheduled for it since then, with its number.
    late: BinaryHeap<Reverse<(u64, u64, T)>>,
    late_count: u64,
    len: usize,
}

impl<T: Copy + Default + Ord> EventQueue<T> {
    pub(crate) const fn new() -> Self {
        Self {
            buckets: [[EMPTY; BUCKETS]; LEVELS],
            used: [0; LEVELS],
            chunks: Vec::new(),
            free: NONE,
            window: 0,
            now: Vec::new(),
            taken: 0,
            late: BinaryHeap::new(),
            late_count: 0,
            len: 0,
        }
    }

    /// Events that wait.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// `at` is not before the time of the event that was taken last.
    #[inline(never)]
    pub(crate) fn schedule(&mut self, at: u64, event: T) {
        self.len += 1;
        let window = at >> WINDOW_BITS;
        debug_assert!(window >= self.window, "{at} is before this window");
        if window == self.window {
            self.late_count += 1;
            self.late.push(Reverse((at, self.late_count, event)));
        } else {
            self.put(at, event);
        }
    }

    /// Puts an event of a later window into its bucket.
    #[inline]
    fn put(&mut self, at: u64, event: T) {
        let window = at >> WINDOW_BITS;
        let level = (u64::BITS - 1 - (window ^ self.window).leading_zeros()) / DIGIT_BITS;
        let digit = (window >> (level * DIGIT_BITS)) as usize % BUCKETS;
        let level = level as usize % LEVELS;
        self.used[level] |= 1 << digit;
        let last = self.buckets[level][digit].last;
        if let Some(chunk) = self.chunks.get_mut(last as usize)
            && let Some(slot) = chunk.events.get_mut(chunk.len as usize)
        {
            *slot = (at, event);
            chunk.len += 1;
        } else {
            self.put_into_new_chunk(level, digit, (at, event));
        }
    }

    #[inline(never)]
    fn put_into_new_chunk(&mut self, level: usize, digit: usize, event: (u64, T)) {
        let id = self.free;
        let id = if let Some(chunk) = self.chunks.get_mut(id as usize) {
            self.free = chunk.next;
            chunk.events[0] = event;
            chunk.len = 1;
            chunk.next = NONE;
            id
        } else {
            let mut events = [(0, T::default()); CHUNK_EVENTS];
            events[0] = event;
            self.chunks.push(Chunk {
                events,
                len: 1,
                next: NONE,
            });
            (self.chunks.len() - 1) as u32
        };
        let bucket = &mut self.buckets[level][digit];
        match self.chunks.get_mut(bucket.last as usize) {
            Some(last) => last.next = id,
            None => bucket.first = id,
        }
        bucket.last = id;
    }

    /// Whether all events of the window that is now were taken.
    #[inline]
    pub(crate) fn is_at_end_of_window(&self) -> bool {
        self.taken == self.now.len() && self.late.is_empty()
    }

    /// What was scheduled for the window that is now before that began, in order.
    pub(crate) fn window(&self) -> &[(u64, T)] {
        &self.now
    }

    /// The next event of this window, or the first of the next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        if self.is_at_end_of_window() && !self.next_window() {
            return None;
        }
        self.len -= 1;
        if let Some(&next) = self.now.get(self.taken) {
            // What was scheduled later comes later, at the same time.
            let is_first = |late: &Reverse<(u64, u64, T)>| late.0.0 >= next.0;
            if self.late.peek().is_none_or(is_first) {
                self.taken += 1;
                return Some(next);
            }
        }
        self.late.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// Once all events of a window were taken, moves time to the window of the next event, and what
    /// is in its bucket to that and to lower buckets. False if no event is left.
    pub(crate) fn next_window(&mut self) -> bool {
        self.now.clear();
        self.taken = 0;
        self.late_count = 0;
        let Some(level) = self.used.iter().position(|used| *used != 0) else {
            return false;
        };
        let digit = self.used[level].trailing_zeros() as usize;
        self.used[level] &= !(1 << digit);
        let bucket = &mut self.buckets[level][digit];
        let Bucket { first, last } = core::mem::replace(bucket, EMPTY);
        self.window = if level == 0 {
            self.window & !(BUCKETS as u64 - 1) | digit as u64
        } else {
            self.first_time_from(first) >> WINDOW_BITS
        };
        let mut id = first;
        while id != NONE {
            if level == 0 {
                let chunk = &self.chunks[id as usize];
                let events = &chunk.events[..chunk.len as usize];
                self.now.extend_from_slice(events);
            } else {
                self.sort_down(id);
            }
            id = self.chunks[id as usize].next;
        }
        // No chunk is free for others before all are read.
        self.chunks[last as usize].next = self.free;
        self.free = first;
        if self.now.len() > 1 {
            self.now.sort_by_key(|(at, _)| *at);
        }
        true
    }

    /// Puts the events of a chunk into this window or into lower buckets.
    fn sort_down(&mut self, id: u32) {
        for index in 0..self.chunks[id as usize].len as usize {
            let (at, event) = self.chunks[id as usize].events[index];
            if at >> WINDOW_BITS == self.window {
                self.now.push((at, event));
            } else {
                self.put(at, event);
            }
        }
    }

    /// The least time in some chunks.
    fn first_time_from(&self, first: u32) -> u64 {
        let mut chunk = self.chunks.get(first as usize);
        let mut least = u64::MAX;
        while let Some(Chunk { events, len, next }) = chunk {
            for (at, _) in events.iter().take(*len as usize) {
                least = least.min(*at);
            }
            chunk = self.chunks.get(*next as usize);
        }
        least
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

    #[test]
    fn memory_is_that_of_the_events_that_wait() {
        assert_eq!(size_of::<Chunk<u64>>(), 512);
        let mut queue = EventQueue::new();
        // As wires of 1,000 ports have it: an event each, always 800 ns ahead.
        for port in 0..1_000_u64 {
            queue.schedule(port * 90, port);
        }
        for _ in 0..200_000 {
            let (at, port) = queue.pop().unwrap();
            queue.schedule(at + 800_000, port);
        }
        // No more than what is full, and two levels of buckets that are not.
        let most = 1_000 / CHUNK_EVENTS + 2 * BUCKETS + 32;
        let chunks = queue.chunks.len();
        assert!(chunks < most, "{chunks} chunks for 1,000 events");
    }
}
