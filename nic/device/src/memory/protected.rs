//! Memory that the program has protected, and has a handler of faults for: to learn what is
//! accessed (dirty tracking), or to be able to move it. To hardware, which reaches memory by its
//! physical address, protection is no obstacle, and no handler is told. Here what a peer sends is
//! placed in spite of the protection, too, so that no packet has to wait for a handler that may
//! take long or not come back. The handler is called as soon as the engine's lock is free
//! ([`crate::process::guard::offer`]). A page whose handler does not make it accessible is then
//! taken at its word: further accesses are access errors.

use std::fs::File;
use std::os::unix::fs::FileExt;

use urxe_proto::AccessError;

use crate::process::guard::{self, Fault};
use crate::process::odp;

/// Pages that handlers are to be called for, at most: the others are told of when they are accessed
/// again.
const OFFERS_MAX: usize = 64;
/// Pages known not to be made accessible, at most; the oldest is forgotten.
const REFUSED_MAX: usize = 64;

/// An access that the program's handler is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The address.
    pub(crate) at: u64,
    pub(crate) writes: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Protected {
    offers: Vec<Offer>,
    /// Their first addresses.
    refused: Vec<u64>,
}

impl Protected {
    #[inline]
    pub(crate) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// What the handler is to be told of next.
    pub(crate) fn take_offer(&mut self) -> Option<Offer> {
        self.offers.pop()
    }

    /// The handler has not made the page accessible.
    pub(crate) fn note_refused(&mut self, at: u64) {
        if self.refused.len() >= REFUSED_MAX {
            self.refused.remove(0);
        }
        self.refused.push(page_of(at));
    }

    /// Memory is registered: what was refused before says nothing of it.
    pub(crate) fn forget_refused(&mut self) {
        self.refused.clear();
    }

    /// The thread's last access failed. Whether the handler is going to be told of it, and it may
    /// be made in spite of that.
    pub(crate) fn note_fault(&mut self, writes: bool) -> bool {
        let Some(Fault {
            at,
            is_protected: true,
        }) = guard::take_fault()
        else {
            return false;
        };
        if self.refused.contains(&page_of(at)) || !guard::has_programs_handler() {
            return false;
        }
        let is_known = |offer: &Offer| page_of(offer.at) == page_of(at) && offer.writes == writes;
        if self.offers.len() < OFFERS_MAX && !self.offers.iter().any(is_known) {
            self.offers.push(Offer { at, writes });
        }
        true
    }

    /// Places `pieces` at the process's address `to`, after the access has failed.
    ///
    /// # Errors
    /// [`AccessError::Fault`] if that is not what a handler is for.
    #[cold]
    pub(crate) fn place(&mut self, to: u64, pieces: &[&[u8]]) -> Result<(), AccessError> {
        if !self.note_fault(true) {
            return Err(AccessError::Fault);
        }
        let memory = File::options().write(true).open(MEMORY);
        let mut at = to;
        let placed = memory.and_then(|memory| {
            pieces.iter().try_for_each(|piece| {
                memory.write_all_at(piece, at)?;
                at += piece.len() as u64;
                Ok(())
            })
        });
        placed.map_err(|_| AccessError::Fault)
    }

    /// Replaces the eight bytes at `at` by what `change` makes of them; returns what was there.
    /// After the access has failed.
    ///
    /// # Errors
    /// As [`Self::place`].
    #[cold]
    pub(crate) fn replace(
        &mut self,
        at: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, AccessError> {
        if !self.note_fault(true) {
            return Err(AccessError::Fault);
        }
        let replaced = File::options().read(true).write(true).open(MEMORY);
        let replaced = replaced.and_then(|memory| {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, at)?;
            let before = u64::from_ne_bytes(bytes);
            memory.write_all_at(&change(before).to_ne_bytes(), at)?;
            Ok(before)
        });
        replaced.map_err(|_| AccessError::Fault)
    }
}

/// The process's memory, which is reached there whatever its protection (proc(5)). Opened each
/// time: a forked process has another.
const MEMORY: &str = "/proc/self/mem";

fn page_of(at: u64) -> u64 {
    at - at % odp::page_bytes()
}
