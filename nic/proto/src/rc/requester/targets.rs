//! Remote memory that earlier WRITEs were allowed to change.
//!
//! A responder looks at the whole target of a WRITE before it places a byte. It cannot, where each
//! packet of the WRITE is a message of its own; so only those go that way of which all is known to
//! be writable, and a WRITE that reaches too far places nothing, as always.
//!
//! What a key opens may become less without our knowledge: by `ibv_rereg_mr`, and where a memory
//! window is bound again under a key that it had before. What is outside is refused all the same,
//! but the packets before it are placed.

use alloc::vec::Vec;

/// Keys that are remembered; the one that was learnt first is forgotten first.
const TARGETS_MAX: usize = 8;

/// The memory of a key from the first to the last byte that was written: a key names one range.
#[derive(Clone, Copy, Debug)]
struct Target {
    rkey: u32,
    start: u64,
    end: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    known: Vec<Target>,
}

impl Targets {
    /// A WRITE that was one message of `length` bytes was carried out.
    pub(super) fn note(&mut self, rkey: u32, va: u64, length: u32) {
        let end = va.saturating_add(u64::from(length));
        if let Some(known) = self.known.iter_mut().find(|known| known.rkey == rkey) {
            known.start = known.start.min(va);
            known.end = known.end.max(end);
            return;
        }
        if self.known.len() == TARGETS_MAX {
            self.known.remove(0);
        }
        let start = va;
        self.known.push(Target { rkey, start, end });
    }

    /// The key was made invalid, and may open something else later.
    pub(super) fn forget(&mut self, rkey: u32) {
        self.known.retain(|known| known.rkey != rkey);
    }

    /// Whether all of it is known to be writable.
    pub(super) fn covers(&self, rkey: u32, va: u64, length: u32) -> bool {
        self.known.iter().any(|known| {
            let fits = |end| known.start <= va && end <= known.end;
            known.rkey == rkey && va.checked_add(u64::from(length)).is_some_and(fits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_writes_is_known_and_nothing_beyond() {
        let mut targets = Targets::default();
        assert!(!targets.covers(1, 100, 1));
        targets.note(1, 100, 10);
        assert!(targets.covers(1, 100, 10));
        assert!(targets.covers(1, 109, 1));
        for (rkey, va, length) in [(1, 99, 2), (1, 100, 11), (1, 110, 1), (2, 100, 10)] {
            assert!(!targets.covers(rkey, va, length), "{rkey} {va} {length}");
        }
        targets.note(1, 200, 10);
        assert!(targets.covers(1, 100, 110));
        targets.note(1, 50, 1);
        assert!(targets.covers(1, 50, 160));
        assert!(!targets.covers(1, u64::MAX, 10));
        targets.note(2, 100, 10);
        targets.forget(1);
        assert!(!targets.covers(1, 100, 1) && targets.covers(2, 100, 1));
    }

    #[test]
    fn of_many_keys_the_last_are_known() {
        let mut targets = Targets::default();
        let keys = 0..TARGETS_MAX as u32 + 2;
        keys.clone().for_each(|key| targets.note(key, 0, 10));
        // Known already, so that it displaces none.
        targets.note(2, 0, 10);
        let known: Vec<_> = keys.filter(|&key| targets.covers(key, 0, 10)).collect();
        assert_eq!(known, (2..TARGETS_MAX as u32 + 2).collect::<Vec<_>>());
    }
}
