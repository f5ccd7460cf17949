//! Whether a program waits for events inside the completion channel, or for its descriptor by
//! itself.

use crate::constants::READY_WAITS;

/// Calls in a row in which an event was there already. A program that always finds one has waited
/// for the descriptor in a `poll` of its own, and there the background thread has to watch the
/// sockets.
#[derive(Clone, Copy, Debug)]
pub struct EventWaits(u32);

impl EventWaits {
    /// Of a channel in which no thread has waited.
    #[must_use]
    pub const fn new() -> Self {
        Self(READY_WAITS)
    }

    /// The same as a number that fits an atomic.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The reverse of [`Self::to_bits`].
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The program asked for an event, and had to wait for it, or not.
    #[must_use]
    pub const fn after(self, has_waited: bool) -> Self {
        if has_waited {
            Self(0)
        } else if self.0 < READY_WAITS {
            Self(self.0 + 1)
        } else {
            self
        }
    }

    /// Whether the program waits in the channel, so that the background thread need not watch the
    /// sockets.
    #[must_use]
    pub const fn are_in_channel(self) -> bool {
        self.0 < READY_WAITS
    }
}

impl Default for EventWaits {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_always_finds_an_event_waits_by_itself() {
        let mut waits = EventWaits::new();
        assert!(!waits.are_in_channel(), "nothing is known of it");
        waits = waits.after(true);
        for _ in 0..READY_WAITS {
            assert!(waits.are_in_channel());
            waits = EventWaits::from_bits(waits.to_bits()).after(false);
        }
        assert!(!waits.are_in_channel());
        assert!(!waits.after(false).are_in_channel());
        assert!(waits.after(true).are_in_channel());
    }
}
