//! How long an acknowledgement waits for company while nothing comes.
//!
//! To send it alone keeps its host busy for as long as it takes to look for packets ten times,
//! often just when the next message arrives; behind a reply it is nearly free. Whether a reply will
//! come is not known, but it mostly comes if the last ones did, as in the barriers and broadcasts
//! of MPI. (TCP delays acknowledgements so, too, in what Linux calls ping-pong mode.) So the wait
//! doubles whenever it paid, and halves whenever the peer waited in vain.

use crate::time::Instant;

/// The shortest wait: about as long as a look for packets takes.
const HOLD_MIN_NS: u64 = 500;
/// The longest: less than the time after which a thread that polls sleeps.
const HOLD_MAX_NS: u64 = 16_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    /// How long the next acknowledgement waits while the host looks for packets in vain; 0 at
    /// first, so that it goes at once.
    hold_ns: u64,
    /// When the host first looked in vain since it is owed.
    idle_since: Option<Instant>,
    /// A request was sent since it is owed.
    has_company: bool,
}

impl Patience {
    /// The host looked for packets, and there was none. Whether the acknowledgement has waited
    /// enough.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        let idle_since = *self.idle_since.get_or_insert(now);
        now.since(idle_since) >= self.hold_ns
    }

    /// The acknowledgement is owed from now on.
    pub(crate) fn restart(&mut self) {
        self.idle_since = None;
    }

    /// A request goes to the peer that waits for the acknowledgement.
    pub(crate) fn note_company(&mut self) {
        self.has_company = true;
    }

    /// The acknowledgement goes; of several packets, if `is_shared`, for which it would have waited
    /// anyway.
    pub(crate) fn note_sent(&mut self, is_shared: bool) {
        if self.has_company {
            self.hold_ns = (2 * self.hold_ns).clamp(HOLD_MIN_NS, HOLD_MAX_NS);
        } else if !is_shared {
            self.hold_ns = if self.hold_ns > HOLD_MIN_NS {
                self.hold_ns / 2
            } else {
                0
            };
        }
        self.idle_since = None;
        self.has_company = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000);

    fn holding(hold_ns: u64) -> Patience {
        Patience {
            hold_ns,
            ..Patience::default()
        }
    }

    /// How long the next acknowledgement waits, by whole microseconds of looks in vain.
    fn wait_ns(patience: &mut Patience) -> u64 {
        let looks = (0..).map(|look| look * 500);
        looks
            .clone()
            .find(|after| patience.look(START.after(*after)))
            .unwrap()
    }

    #[test]
    fn it_waits_longer_as_long_as_replies_come() {
        let mut patience = Patience::default();
        for expected in [0, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
            assert_eq!(wait_ns(&mut patience.clone()), expected);
            patience.note_company();
            patience.note_sent(false);
        }
    }

    #[test]
    fn a_host_that_never_replies_acknowledges_at_once() {
        let mut patience = holding(HOLD_MAX_NS);
        for expected in [16_000, 8_000, 4_000, 2_000, 1_000, 500, 0, 0] {
            assert_eq!(wait_ns(&mut patience), expected);
            patience.note_sent(false);
        }
    }

    #[test]
    fn an_acknowledgement_of_a_burst_tells_nothing() {
        let mut patience = holding(4_000);
        patience.note_sent(true);
        assert_eq!(wait_ns(&mut patience), 4_000);
    }

    #[test]
    fn time_in_which_packets_came_is_no_wait() {
        let mut patience = holding(4_000);
        // The first look in vain comes late.
        assert!(!patience.look(START.after(1_000_000)));
        assert!(!patience.look(START.after(1_003_999)));
        assert!(patience.look(START.after(1_004_000)));
    }
}
