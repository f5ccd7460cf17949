//! When a poll that finds nothing lets other threads run.
//!
//! Where two ends of a connection share a processor, each waits for the other's time slice, milliseconds
//! a message, unless who finds nothing yields. But a yield forfeits the rest of the slice (since Linux
//! 6.15 in the scheduler's books, too): among busy strangers, one that yields at every turn starves.
//! So a yield that took long, because a stranger ran, is not repeated for a multiple of that time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::now;

/// Idle polls in a row before the first yield: some 10 us, longer than a round trip.
const POLLS_BEFORE_YIELD: u32 = 64;
/// From then on, one poll in so many yields.
const POLLS_PER_YIELD: u32 = 16;
/// A yield that took longer than this went to a stranger: a peer answers sooner, and yields in turn.
const LONG_YIELD_NS: u64 = 100_000;
/// After a long yield there is none for so many times its length.
const PAUSE_FACTOR: u64 = 64;

/// What a device knows of the polls that brought nothing. Not exact when threads poll together, and need
/// not be.
#[derive(Debug, Default)]
pub(crate) struct Idleness {
    polls: AtomicU32,
    no_yield_until_ns: AtomicU64,
}

impl Idleness {
    /// A poll brought packets, or not.
    pub(crate) fn note_poll(&self, brought_some: bool) {
        if brought_some {
            self.polls.store(0, Ordering::Relaxed);
            return;
        }
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        if polls > POLLS_BEFORE_YIELD && polls.is_multiple_of(POLLS_PER_YIELD) {
            self.yield_now();
        }
    }

    #[cold]
    fn yield_now(&self) {
        let before = now();
        if before.as_nanos() < self.no_yield_until_ns.load(Ordering::Relaxed) {
            return;
        }
        std::thread::yield_now();
        let after = now();
        let took_ns = after.since(before);
        if took_ns > LONG_YIELD_NS {
            let until = after.after(took_ns * PAUSE_FACTOR);
            self.no_yield_until_ns
                .store(until.as_nanos(), Ordering::Relaxed);
        }
    }
}
