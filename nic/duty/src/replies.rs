//! Whether the completion of what a program sent waits for the reply of its peer.
//!
//! TCP takes a message at once, and with that it is complete. A program that looks at its memory
//! for the reply from then on, as `ib_write_lat` does, leaves the reply to the background thread,
//! which has to be woken for it. Over RoCE an acknowledgement completes the message, and comes in
//! the header of the reply: the program polls until both are there. So where replies have come
//! soon, the completion of the last message waits for the next one.

use urxe_proto::Instant;

use crate::constants::{REPLIES_MAX, REPLIES_MIN, REPLY_WAIT_NS};

/// See the module. Of one connection.
#[derive(Clone, Debug)]
pub struct Replies {
    /// When the last of all that was posted was sent, if nothing came or was posted since.
    sent_at: Option<Instant>,
    /// A completion may wait since then.
    is_waiting: bool,
    /// Replies that came soon since the last that did not.
    soon: u32,
    /// How many it takes.
    needed: u32,
}

impl Default for Replies {
    fn default() -> Self {
        Self::new()
    }
}

impl Replies {
    /// Of a connection over which nothing has come.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sent_at: None,
            is_waiting: false,
            soon: 0,
            needed: REPLIES_MIN,
        }
    }

    /// The program posted a request.
    #[inline]
    pub const fn note_post(&mut self) {
        self.sent_at = None;
        self.is_waiting = false;
    }

    /// All that it posted was sent. Its last completion waits while [`Self::waits`].
    #[inline]
    pub const fn note_sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
        self.is_waiting = self.soon >= self.needed;
    }

    /// A message of the peer has come in full.
    #[inline]
    pub fn note_message(&mut self, now: Instant) {
        let Some(sent_at) = self.sent_at.take() else {
            return;
        };
        if now.since(sent_at) < REPLY_WAIT_NS {
            self.soon = self.soon.saturating_add(1);
        } else {
            self.soon = 0;
        }
        if core::mem::take(&mut self.is_waiting) {
            self.needed = (self.needed / 2).max(REPLIES_MIN);
        }
    }

    /// Whether the last completion waits. If it has waited in vain, it takes more replies that come
    /// soon until one waits again.
    #[inline]
    pub fn waits(&mut self, now: Instant) -> bool {
        let is_over = |at: Instant| now.since(at) >= REPLY_WAIT_NS;
        if self.is_waiting && self.sent_at.is_none_or(is_over) {
            self.is_waiting = false;
            self.soon = 0;
            self.needed = (2 * self.needed).min(REPLIES_MAX);
        }
        self.is_waiting
    }

    /// The completion goes: something else has come for the program.
    #[inline]
    pub const fn stop_waiting(&mut self) {
        self.is_waiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    /// The program sends, and a reply comes after so long. Whether the completion waits until then,
    /// and how long it waits at most.
    fn send(replies: &mut Replies, reply_ns: u64) -> (bool, u64) {
        replies.note_post();
        replies.note_sent(START);
        let waited = (0..)
            .map(|us| us * 1_000)
            .find(|ns| *ns >= reply_ns || !replies.waits(START.after(*ns)))
            .unwrap();
        let waits = replies.waits(START.after(waited));
        replies.note_message(START.after(reply_ns));
        assert!(!replies.waits(START.after(reply_ns)));
        (waits, waited)
    }

    #[test]
    fn completions_wait_where_replies_come_soon() {
        let mut replies = Replies::new();
        for _ in 0..REPLIES_MIN {
            assert_eq!(send(&mut replies, 30_000), (false, 0));
        }
        for _ in 0..100 {
            assert_eq!(send(&mut replies, 30_000), (true, 30_000));
        }
    }

    #[test]
    fn a_program_without_replies_never_waits() {
        let mut replies = Replies::new();
        for _ in 0..100 {
            assert_eq!(send(&mut replies, REPLY_WAIT_NS), (false, 0));
            replies.note_post();
            replies.note_sent(START);
            assert!(!replies.waits(START));
        }
    }

    #[test]
    fn waits_in_vain_are_bounded_and_become_rare() {
        let mut replies = Replies::new();
        let mut waited_ns = 0;
        let mut vain = 0;
        for turn in 0..10_000 {
            // A reply never comes where it is waited for.
            let is_expected = replies.soon >= replies.needed;
            let reply_ns = if is_expected { 1_000_000 } else { 30_000 };
            let (_, waited) = send(&mut replies, reply_ns);
            waited_ns += waited;
            vain += u32::from(is_expected);
            assert!(waited <= REPLY_WAIT_NS, "turn {turn}");
        }
        assert!(vain <= 20, "{vain} waits, {waited_ns} ns");
        let expected = replies.needed;
        while replies.soon < expected {
            send(&mut replies, 30_000);
        }
        for _ in 0..20 {
            assert!(send(&mut replies, 30_000).0);
        }
        assert_eq!(replies.needed, REPLIES_MIN, "they pay again");
    }

    #[test]
    fn what_else_comes_ends_a_wait_and_is_not_held_against_it() {
        let mut replies = Replies::new();
        for _ in 0..REPLIES_MIN {
            send(&mut replies, 1_000);
        }
        for _ in 0..10 {
            replies.note_post();
            replies.note_sent(START);
            assert!(replies.waits(START));
            replies.stop_waiting();
            assert!(!replies.waits(START));
            replies.note_message(START.after(1_000));
        }
        replies.note_post();
        replies.note_sent(START);
        assert!(replies.waits(START));
        replies.note_post();
        assert!(!replies.waits(START), "it is not the last any more");
    }
}
