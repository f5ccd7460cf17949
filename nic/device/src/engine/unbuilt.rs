//! Requests of a program that streams, of which no packets have been made yet: a turn for each
//! would cost some 470 instructions besides its packet, and they share one.

/// So many become packets together. Chosen: half of what is sent at once.
const POSTS_MAX: u32 = 16;
/// And no more than this of their bytes. Chosen: long messages fill batches alone.
const BYTES_MAX: u64 = 8 << 10;

/// See the module. The queue pairs of these requests are ready, and have no other reason to be.
#[derive(Debug, Default)]
pub(super) struct Unbuilt {
    posts: u32,
    bytes: u64,
    qps: usize,
}

impl Unbuilt {
    /// One more, of so many bytes; the first of its queue pair.
    pub(super) const fn add(&mut self, bytes: u64, is_first: bool) {
        self.posts += 1;
        self.bytes += bytes;
        self.qps += is_first as usize;
    }

    /// Whether packets are to be made now that so many queue pairs are ready: of many requests, and
    /// of any as soon as there is something else to send.
    pub(super) const fn is_due(&self, ready: usize) -> bool {
        self.posts >= POSTS_MAX || self.bytes >= BYTES_MAX || self.qps != ready
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.posts == 0
    }

    /// Whether of so many queue pairs that are ready, some have other things to send.
    pub(super) const fn are_others(&self, ready: usize) -> bool {
        ready > self.qps
    }
}
