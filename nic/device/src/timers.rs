//! When which queue pair wants to be woken. A deadline that moves later costs nothing: the heap keeps
//! the early entry, which is looked at and put back when it comes up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use urxe_proto::Instant;

/// Deadlines of queue pairs, by their index in the table.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u16)>>,
}

impl Timers {
    pub(crate) fn insert(&mut self, at: Instant, index: u16) {
        self.heap.push(Reverse((at, index)));
    }

    /// The earliest entry.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes an entry that has come up.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u16> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, index))| index)
    }
}
