//! Whether the peer of a connection is there at all. A host without power or without its link sends
//! no word of it, and TCP finds out late.
//!
//! The kernel probes connections that are idle (`SO_KEEPALIVE`). It repeats data that is not
//! acknowledged for a quarter of an hour (`tcp_retries2`), so what it knows of that is looked at
//! here.
//!
//! `TCP_USER_TIMEOUT` would bound both, but ends the connection of a peer that is there, too: one
//! that takes nothing in for as long, such as a stopped program, though its kernel answers
//! (tcp(7)).

use urxe_proto::Instant;

use super::constants::{GONE_AFTER_NS, PEER_LOOK_NS, UNANSWERED_MIN};

/// What TCP knows of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// How long ago it acknowledged something last.
    pub(super) silent_ns: u64,
    /// Repetitions or probes since then.
    pub(super) unanswered: u8,
}

impl Heard {
    const fn is_gone(self) -> bool {
        self.silent_ns >= GONE_AFTER_NS && self.unanswered >= UNANSWERED_MIN
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Presence {
    has_sent: bool,
    looks_at: Option<Instant>,
}

impl Presence {
    pub(super) const fn new() -> Self {
        Self {
            has_sent: false,
            looks_at: None,
        }
    }

    /// Something was sent, which the peer is to acknowledge.
    pub(super) const fn note_sent(&mut self) {
        self.has_sent = true;
    }

    /// It is `now`.
    pub(super) fn see(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_sent) {
            self.looks_at.get_or_insert(now.after(PEER_LOOK_NS));
        }
    }

    /// When to look again.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.looks_at
    }

    /// Looks, if it is time to, at what was heard of a peer that owes something: is it gone?
    pub(super) fn is_lost(&mut self, owing: impl FnOnce() -> Option<Heard>, now: Instant) -> bool {
        if self.looks_at.is_none_or(|at| now < at) {
            return false;
        }
        let owing = owing();
        self.looks_at = owing.map(|_| now.after(PEER_LOOK_NS));
        owing.is_some_and(Heard::is_gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn is_gone(silent_ns: u64, unanswered: u8) -> bool {
        let heard = Heard {
            silent_ns,
            unanswered,
        };
        heard.is_gone()
    }

    #[test]
    fn a_peer_is_gone_that_answers_nothing_for_long() {
        assert!(is_gone(GONE_AFTER_NS, UNANSWERED_MIN));
        assert!(is_gone(HOUR_NS, u8::MAX));
    }

    #[test]
    fn a_peer_that_was_not_asked_often_may_be_there() {
        assert!(!is_gone(HOUR_NS, 0), "the connection was idle until now");
        // TCP probes one that takes nothing in less and less often.
        assert!(!is_gone(120_000_000_000, 1));
    }

    #[test]
    fn a_peer_that_answered_a_short_while_ago_is_there() {
        assert!(!is_gone(GONE_AFTER_NS - 1, u8::MAX));
    }
}
