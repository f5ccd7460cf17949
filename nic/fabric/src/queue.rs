//! What will happen, in the order of time and, at the same time, of scheduling.
//!
//! A wheel of short windows of time, as Brown's calendar queue ("Calendar queues", 1988), for what
//! comes soon: most events are put into the list of their window, and taken out of that when it
//! begins. What is in one window is sorted by comparing, once.
//!
//! Behind it is a hierarchy of wheels (Varghese and Lauck, "Hashed and hierarchical timing wheels",
//! 1987), whose slots are blocks of windows, and powers of 64 of them. Blocks are let into the
//! first wheel before anything is put there directly. So events of the same time are always in the
//! order in which they were scheduled.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::chunks::{Chunks, List};

/// Bits of the time that the wheel of windows spans, 2.1 us: more than most packets are on a cable
/// and in a switch.
const NEAR_BITS: u32 = 21;
/// Bits of the time of a block. The wheel holds four of them, at least three to come.
const BLOCK_BITS: u32 = NEAR_BITS - 2;
const NEAR_BLOCKS: u64 = 1 << (NEAR_BITS - BLOCK_BITS);
/// Bits of a digit of a block: a word tells which lists of a level are in use.
const DIGIT_BITS: u32 = 6;
const DIGITS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = (u64::BITS - BLOCK_BITS).div_ceil(DIGIT_BITS) as usize;

/// So many events are sorted without branches. With the bits of a window they fill a word.
const FEW: usize = 64;

/// After so many windows their length is fitted to what was in them.
const FITTED_WINDOWS: usize = 1_024;
/// Events of a window, on average, below and above which it becomes longer and shorter.
const FITTING_EVENTS: core::ops::Range<usize> = 12..64;
/// The least and the most bits of a window.
const WINDOW_BITS: (u32, u32) = (5, 12);

/// See the module.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// Bits of the time within a window.
    window_bits: u32,
    /// The time now, without these.
    window: u64,
    /// The first window that is not in the wheel.
    near_end: u64,
    /// By window, as far as that is in the wheel.
    near: Vec<List>,
    /// A bit for each of them that has something.
    near_used: Vec<u64>,
    /// By level, that is, the highest digit that differs from the first block that is not in the
    /// wheel, and by that digit.
    far: [[List; DIGITS]; LEVELS],
    /// By level, a bit for each list that has something.
    far_used: [u64; LEVELS],
    chunks: Chunks<T>,
    /// What was scheduled for this window before it began, in order.
    now: Vec<(u64, T)>,
    /// How many of these were taken.
    taken: usize,
    /// What was scheduled for it since then, with its number.
    late: BinaryHeap<Reverse<(u64, u64, T)>>,
    late_count: u64,
    /// What moves from one list to others; empty between two, and kept for its capacity.
    moving: Vec<(u64, T)>,
    len: usize,
    /// Windows since their length was fitted, and what was in them.
    windows_seen: usize,
    events_seen: usize,
}

impl<T: Copy + Default + Ord> EventQueue<T> {
    /// With windows of 2^`window_bits`, to begin with. Some 30 events in each are best.
    pub(crate) fn new(window_bits: u32) -> Self {
        let window_bits = window_bits.clamp(WINDOW_BITS.0, WINDOW_BITS.1);
        let windows = 1 << (NEAR_BITS - window_bits);
        Self {
            window_bits,
            window: 0,
            near_end: windows as u64,
            near: vec![List::EMPTY; windows],
            near_used: vec![0; windows.div_ceil(u64::BITS as usize)],
            far: [[List::EMPTY; DIGITS]; LEVELS],
            far_used: [0; LEVELS],
            chunks: Chunks::new(),
            now: Vec::new(),
            taken: 0,
            late: BinaryHeap::new(),
            late_count: 0,
            moving: Vec::new(),
            len: 0,
            windows_seen: 0,
            events_seen: 0,
        }
    }

    /// Events that wait.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// `at` is not before the time of the event that was taken last.
    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, event: T) {
        self.len += 1;
        let window = at >> self.window_bits;
        debug_assert!(window >= self.window, "{at} is before this window");
        if window <= self.window {
            self.late_count += 1;
            self.late.push(Reverse((at, self.late_count, event)));
        } else if window < self.near_end {
            self.put_near(at, event);
        } else {
            self.put_far(at, event);
        }
    }

    #[inline]
    fn put_near(&mut self, at: u64, event: T) {
        let index = (at >> self.window_bits) as usize & (self.near.len() - 1);
        self.near_used[index / 64] |= 1 << (index % 64);
        self.chunks.push(&mut self.near[index], (at, event));
    }

    /// The first block that is not in the wheel.
    const fn far_block(&self) -> u64 {
        self.near_end >> (BLOCK_BITS - self.window_bits)
    }

    #[inline(never)]
    fn put_far(&mut self, at: u64, event: T) {
        let block = at >> BLOCK_BITS;
        let differs = block ^ self.far_block();
        let level = (differs | 1).ilog2() / DIGIT_BITS;
        let digit = (block >> (level * DIGIT_BITS)) as usize % DIGITS;
        let level = level as usize % LEVELS;
        self.far_used[level] |= 1 << digit;
        let list = &mut self.far[level][digit];
        self.chunks.push(list, (at, event));
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

    /// Loads the events of the window after this one, as far as they are scheduled.
    #[inline]
    pub(crate) fn load_next(&self) -> u64 {
        let index = (self.window + 1) as usize & (self.near.len() - 1);
        self.chunks.load(self.near[index])
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

    /// Once all events of a window were taken, moves time to the window of the next event. False if
    /// no event is left.
    pub(crate) fn next_window(&mut self) -> bool {
        self.windows_seen += 1;
        self.events_seen += self.now.len();
        self.now.clear();
        self.taken = 0;
        self.late_count = 0;
        if self.len == 0 {
            return false;
        }
        if self.windows_seen == FITTED_WINDOWS {
            self.fit_windows();
        }
        let index = match self.next_near() {
            Some(index) => index,
            None => match self.leap().then(|| self.next_near()).flatten() {
                Some(index) => index,
                None => return false,
            },
        };
        let mask = self.near.len() - 1;
        let ahead = index.wrapping_sub(self.window as usize) & mask;
        self.window += ahead as u64;
        self.near_used[index / 64] &= !(1 << (index % 64));
        let list = core::mem::replace(&mut self.near[index], List::EMPTY);
        self.chunks.take(list, &mut self.now);
        self.sort_now();
        let block = self.window >> (BLOCK_BITS - self.window_bits);
        self.let_in(block + NEAR_BLOCKS);
        true
    }

    /// Between two windows: makes them longer or shorter. A network may have many ports, few of
    /// which do anything.
    fn fit_windows(&mut self) {
        let mean = self.events_seen / FITTED_WINDOWS;
        (self.windows_seen, self.events_seen) = (0, 0);
        if mean < FITTING_EVENTS.start && self.window_bits < WINDOW_BITS.1 {
            self.set_window_bits(self.window_bits + 1);
        } else if mean >= FITTING_EVENTS.end && self.window_bits > WINDOW_BITS.0 {
            self.set_window_bits(self.window_bits - 1);
        }
    }

    #[inline(never)]
    fn set_window_bits(&mut self, bits: u32) {
        let next_at = (self.window + 1) << self.window_bits;
        let windows = 1 << (NEAR_BITS - bits);
        let near = core::mem::replace(&mut self.near, vec![List::EMPTY; windows]);
        self.near_used = vec![0; windows.div_ceil(u64::BITS as usize)];
        let mut moving = core::mem::take(&mut self.moving);
        let start = (self.window + 1) as usize & (near.len() - 1);
        for list in near[start..].iter().chain(&near[..start]) {
            self.chunks.take(*list, &mut moving);
        }
        self.near_end = self.near_end << self.window_bits >> bits;
        // The window that is over may be a part of a longer one, which is not.
        self.window = (next_at >> bits) - 1;
        self.window_bits = bits;
        for (at, event) in moving.drain(..) {
            self.put_near(at, event);
        }
        self.moving = moving;
    }

    /// Sorts the events of this window by time. Of few it counts how many come before each, for no
    /// processor could foresee how comparisons end.
    fn sort_now(&mut self) {
        let count = self.now.len();
        if count > FEW {
            self.now.sort_by_key(|(at, _)| *at);
        } else if count > 1 {
            let mask = (1 << self.window_bits) - 1;
            let mut keys = [u32::MAX; FEW];
            for (index, (key, (at, _))) in keys.iter_mut().zip(&self.now).enumerate() {
                *key = ((at & mask) as usize * FEW + index) as u32;
            }
            let keys = &keys[..count.next_multiple_of(8)];
            self.moving.resize(count, (0, T::default()));
            for (event, key) in self.now.iter().zip(keys) {
                let before: u32 = keys.iter().map(|other| u32::from(other < key)).sum();
                self.moving[before as usize] = *event;
            }
            core::mem::swap(&mut self.now, &mut self.moving);
            self.moving.clear();
        }
    }

    /// Where in the wheel the next window with events is. The place of the window that is now is
    /// that of the last one, if any.
    #[inline]
    fn next_near(&self) -> Option<usize> {
        let words = self.near_used.len();
        let start = (self.window + 1) as usize & (self.near.len() - 1);
        let rest = self.near_used[start / 64] >> (start % 64);
        if rest != 0 {
            return Some(start + rest.trailing_zeros() as usize);
        }
        (1..=words)
            .map(|step| (start / 64 + step) & (words - 1))
            .find(|word| self.near_used[*word] != 0)
            .map(|word| word * 64 + self.near_used[word].trailing_zeros() as usize)
    }

    /// Lets all blocks before `end` into the wheel.
    #[inline]
    fn let_in(&mut self, end: u64) {
        while self.far_block() < end {
            self.let_in_a_block();
        }
    }

    #[inline(never)]
    fn let_in_a_block(&mut self) {
        let block = self.far_block();
        self.near_end += 1 << (BLOCK_BITS - self.window_bits);
        let mut moving = core::mem::take(&mut self.moving);
        self.take_far(0, block as usize % DIGITS, &mut moving);
        for (at, event) in moving.drain(..) {
            self.put_near(at, event);
        }
        self.moving = moving;
        // A list of a level is for lower ones once its first block is the next.
        let next = block + 1;
        let whole_levels = (next.trailing_zeros() / DIGIT_BITS) as usize;
        for level in (1..=whole_levels.min(LEVELS - 1)).rev() {
            let digit = (next >> (level as u32 * DIGIT_BITS)) as usize % DIGITS;
            self.sort_down(level, digit);
        }
    }

    /// The wheel is empty: moves time to just before the first block with events. False if there
    /// is none.
    fn leap(&mut self) -> bool {
        let Some(level) = self.far_used.iter().position(|used| *used != 0) else {
            return false;
        };
        let digit = self.far_used[level].trailing_zeros() as usize;
        let mut moving = core::mem::take(&mut self.moving);
        self.take_far(level, digit, &mut moving);
        let first_at = moving.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX);
        let first_window = first_at >> BLOCK_BITS << (BLOCK_BITS - self.window_bits);
        self.window = first_window - 1;
        self.near_end = first_window;
        for (at, event) in moving.drain(..) {
            self.put_far(at, event);
        }
        self.moving = moving;
        self.let_in((first_at >> BLOCK_BITS) + NEAR_BLOCKS);
        true
    }

    fn take_far(&mut self, level: usize, digit: usize, events: &mut Vec<(u64, T)>) {
        self.far_used[level] &= !(1 << digit);
        let list = core::mem::replace(&mut self.far[level][digit], List::EMPTY);
        self.chunks.take(list, events);
    }

    /// Puts the events of a list into lists of lower levels.
    fn sort_down(&mut self, level: usize, digit: usize) {
        let mut moving = core::mem::take(&mut self.moving);
        self.take_far(level, digit, &mut moving);
        for (at, event) in moving.drain(..) {
            self.put_far(at, event);
        }
        self.moving = moving;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::CHUNK_EVENTS;

    #[test]
    fn events_come_in_the_order_of_time_and_of_scheduling() {
        for window_bits in [5, 8, 12] {
            let mut random = oorandom::Rand64::new(1);
            let mut queue = EventQueue::new(window_bits);
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

    #[test]
    fn any_number_of_events_of_a_window_is_sorted() {
        let mut random = oorandom::Rand64::new(2);
        let mut queue = EventQueue::new(8);
        for count in 0..=3 * FEW as u64 {
            // A window that is in the wheel, one that is not, and one that is far away.
            let beginning = 1 << (18 + count % 3 * 12);
            let start = queue.window << 8;
            let times = (0..count).map(|_| start + beginning + random.rand_range(0..50));
            let mut expected: Vec<_> = times.zip(0_u32..).collect();
            for (at, number) in &expected {
                queue.schedule(*at, *number);
            }
            expected.sort_unstable();
            for each in expected {
                assert_eq!(queue.pop(), Some(each));
            }
            assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn windows_fit_what_is_in_them() {
        for (apart, first_bits, bits) in [(10, 12, 9), (1_000, 5, 12), (30, 9, 9)] {
            let mut queue = EventQueue::new(first_bits);
            for number in 0..1_000_u32 {
                queue.schedule(u64::from(number) * apart, number);
            }
            for pops in 0..1_000_000_u32 {
                let (at, number) = queue.pop().unwrap();
                assert_eq!(number, pops % 1_000);
                queue.schedule(at + 1_000 * apart, number);
            }
            assert_eq!(queue.window_bits, bits, "events {apart} ps apart");
        }
    }

    #[test]
    fn memory_is_that_of_the_events_that_wait() {
        let mut queue = EventQueue::new(12);
        // As wires of 1,000 ports have it: an event each, always 800 ns ahead.
        for port in 0..1_000_u64 {
            queue.schedule(port * 90, port);
        }
        for _ in 0..200_000 {
            let (at, port) = queue.pop().unwrap();
            queue.schedule(at + 800_000, port);
        }
        // No more than what is full, and one for each window that these are in.
        let most = 1_000 / CHUNK_EVENTS + (90_000 >> 12) + 2;
        let chunks = queue.chunks.peak();
        assert!(chunks < most, "{chunks} chunks for 1,000 events");
    }
}
