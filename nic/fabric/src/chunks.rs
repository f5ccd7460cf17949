//! Lists of events in chunks that all of them share.
//!
//! The chunk that became free last is used first: so the memory of what waits is as small as its
//! number, and in a cache as far as that goes.

use alloc::vec::Vec;

/// With the number of the next chunk these fill 512 bytes, if an event has 8.
pub(crate) const CHUNK_EVENTS: usize = 31;
/// A place is a chunk and, in as many bits as this has, a slot of it.
const SLOTS: u32 = CHUNK_EVENTS as u32 + 1;
/// No chunk: that of the last place.
const NONE: u32 = u32::MAX / SLOTS;

/// A part of a list.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Chunk<T> {
    events: [(u64, T); CHUNK_EVENTS],
    next: u32,
}

/// A list: its first chunk, and the place for the next event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    /// Behind the last slot of its chunk, another chunk is needed, and so it is with no chunk.
    next_place: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        first: NONE,
        next_place: u32::MAX,
    };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Chunk<T>>,
    /// The first chunk that is free; each names the next.
    free: u32,
}

impl<T: Copy + Default> Chunks<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
        }
    }

    /// The most that ever were in use.
    #[cfg(test)]
    pub(crate) fn peak(&self) -> usize {
        self.chunks.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, event: (u64, T)) {
        let (chunk, slot) = (list.next_place / SLOTS, list.next_place % SLOTS);
        if let Some(chunk) = self.chunks.get_mut(chunk as usize)
            && let Some(place) = chunk.events.get_mut(slot as usize)
        {
            *place = event;
            list.next_place += 1;
        } else {
            self.push_into_new(list, event);
        }
    }

    #[inline(never)]
    fn push_into_new(&mut self, list: &mut List, event: (u64, T)) {
        let id = if let Some(chunk) = self.chunks.get_mut(self.free as usize) {
            let id = self.free;
            self.free = chunk.next;
            id
        } else {
            self.chunks.push(Chunk {
                events: [(0, T::default()); CHUNK_EVENTS],
                next: NONE,
            });
            (self.chunks.len() - 1) as u32
        };
        self.chunks[id as usize].events[0] = event;
        match self.chunks.get_mut((list.next_place / SLOTS) as usize) {
            Some(last) => last.next = id,
            None => list.first = id,
        }
        list.next_place = id * SLOTS + 1;
    }

    /// Loads every cache line of a list.
    #[inline]
    pub(crate) fn load(&self, list: List) -> u64 {
        let mut seen = 0;
        let mut id = list.first;
        while let Some(chunk) = self.chunks.get(id as usize) {
            for (at, _) in chunk.events.iter().step_by(4) {
                seen ^= at;
            }
            if id == list.next_place / SLOTS {
                break;
            }
            id = chunk.next;
        }
        seen
    }

    /// Moves what is in a list behind what is in `events`.
    #[inline]
    pub(crate) fn take(&mut self, list: List, events: &mut Vec<(u64, T)>) {
        let (last, slots) = (list.next_place / SLOTS, list.next_place % SLOTS);
        let mut id = list.first;
        while id != last {
            let chunk = &self.chunks[id as usize];
            events.extend_from_slice(&chunk.events);
            id = chunk.next;
        }
        if let Some(chunk) = self.chunks.get_mut(last as usize) {
            events.extend_from_slice(&chunk.events[..slots as usize]);
            chunk.next = self.free;
            self.free = list.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_share_chunks_and_keep_their_order() {
        assert_eq!(size_of::<Chunk<u64>>(), 512);
        let mut chunks = Chunks::new();
        for lengths in [[0, 1], [31, 32], [62, 63], [100, 0]] {
            let mut lists = [List::EMPTY; 2];
            for number in 0..100_u64 {
                for (list, length) in lists.iter_mut().zip(lengths) {
                    if number < length {
                        chunks.push(list, (number, length));
                    }
                }
            }
            for (list, length) in lists.into_iter().zip(lengths) {
                let mut taken = Vec::new();
                chunks.take(list, &mut taken);
                let expected: Vec<_> = (0..length).map(|number| (number, length)).collect();
                assert_eq!(taken, expected);
            }
        }
        assert_eq!(chunks.peak(), 5, "lists of 62 and 63 events fill 5 chunks");
    }
}
