//! How long an acknowledgement waits for company while nothing comes.
//!
//! To send it alone keeps its host busy for as long as it takes to look for packets ten times, often just when the next
//! message arrives; behind a reply it is nearly free. Whether a reply will come is not known, but it mostly comes if
//! the last ones did, as in the barriers and broadcasts of MPI. (TCP delays acknowledgements so, too, in what Linux
//! calls ping-pong mode.) So the wait doubles whenever it paid, and halves whenever the peer waited in vain.

/// Looks for packets in vain, at most: some 15 microseconds. Fewer than after which a poller sleeps.
const LOOKS_MAX: u8 = 32;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// Looks in vain that the next acknowledgement waits.
    looks: u8,
    /// How many it has waited.
    waited: u8,
    /// A request was sent since it is owed.
    has_company: bool,
}

impl Default for Patience {
    /// It goes at the first look in vain.
    fn default() -> Self {
        Self {
            looks: 1,
            waited: 0,
            has_company: false,
        }
    }
}

impl Patience {
    /// The host looked for packets, and there was none. Whether the acknowledgement has waited enough.
    pub(crate) fn look(&mut self) -> bool {
        self.waited = self.waited.saturating_add(1);
        self.waited >= self.looks
    }

    /// A request goes to the peer that waits for the acknowledgement.
    pub(crate) fn note_company(&mut self) {
        self.has_company = true;
    }

    /// The acknowledgement goes; of several packets, if `is_shared`, for which it would have waited anyway.
    pub(crate) fn note_sent(&mut self, is_shared: bool) {
        if self.has_company {
            self.looks = (2 * self.looks).min(LOOKS_MAX);
        } else if !is_shared {
            self.looks = (self.looks / 2).max(1);
        }
        self.waited = 0;
        self.has_company = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(patience: &mut Patience) -> usize {
        (1..).find(|_| patience.look()).unwrap()
    }

    #[test]
    fn it_waits_longer_as_long_as_replies_come() {
        let mut patience = Patience::default();
        for expected in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(looks(&mut patience.clone()), expected);
            patience.note_company();
            patience.note_sent(false);
        }
    }

    #[test]
    fn who_never_replies_acknowledges_at_once() {
        let mut patience = Patience {
            looks: LOOKS_MAX,
            ..Patience::default()
        };
        for expected in [32, 16, 8, 4, 2, 1, 1] {
            assert_eq!(looks(&mut patience), expected);
            patience.note_sent(false);
        }
    }

    #[test]
    fn an_acknowledgement_of_a_burst_tells_nothing() {
        let mut patience = Patience {
            looks: 8,
            ..Patience::default()
        };
        patience.note_sent(true);
        assert_eq!(looks(&mut patience), 8);
    }
}
