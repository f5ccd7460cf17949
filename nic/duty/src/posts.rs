//! Whether what a program posts waits for company, and when a program that only posts runs a round
//! in between.

use urxe_proto::{Habit, Instant};

use crate::constants::{
    BURST_MIN, DISTRUST_MAX_NS, DISTRUST_MIN_NS, IDLE_ROUNDS_PER_CLOCK, PIECES_DISTRUST_MAX_NS,
    PIECES_DISTRUST_MIN_NS, ROUND_NS, STREAM_MIN,
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Posts {
    /// When the program last ran a round that looked at the clock, or claimed one.
    ran_at: Instant,
    /// Posts since the program last ran a round.
    burst: u32,
    /// Posts between the two rounds before.
    last_burst: u32,
    /// What of polls and messages there was when the program last posted over a connection.
    turns: u64,
    /// Rounds with nothing to do.
    idle_rounds: u32,
    /// Nothing waits for company while it lasts: the program was found to post and then not to
    /// poll.
    distrust: Habit,
    /// The same for the pieces of a message.
    pieces_distrust: Habit,
}

impl Default for Posts {
    fn default() -> Self {
        Self::new()
    }
}

impl Posts {
    /// Of a program that has posted nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ran_at: Instant::from_nanos(0),
            burst: 0,
            last_burst: 0,
            turns: 0,
            idle_rounds: 0,
            distrust: Habit::new(DISTRUST_MIN_NS, DISTRUST_MAX_NS),
            pieces_distrust: Habit::new(PIECES_DISTRUST_MIN_NS, PIECES_DISTRUST_MAX_NS),
        }
    }

    /// The program posted; `has_senders` if answers to requests of its are on their way. Whether it
    /// does so often before it polls, and will poll for the answers: then what it posted need not
    /// leave at once.
    #[inline]
    pub fn note_post(&mut self, now: Instant, has_senders: bool) -> bool {
        self.burst = self.burst.saturating_add(1);
        let burst = self.largest_burst();
        let distrust = if burst < STREAM_MIN {
            &self.pieces_distrust
        } else {
            &self.distrust
        };
        has_senders && burst >= BURST_MIN && !distrust.lasts(now)
    }

    /// The program posted over a connection of an iWARP device, after so many `turns`: its polls,
    /// and rounds that brought messages, for which it may look elsewhere. `is_outstanding` if it
    /// has yet to poll for what it posted there before. Whether it streams, so that what it posted
    /// need not leave at once.
    ///
    /// A stream alone waits, not the pieces of a message: TCP takes both at once, and where
    /// nothing is answered, nothing says that the program polls soon but that it did so after many
    /// posts before. Polls count that found completions, too: a program may need no rounds.
    #[inline]
    pub fn note_stream_post(&mut self, now: Instant, turns: u64, is_outstanding: bool) -> bool {
        if core::mem::replace(&mut self.turns, turns) != turns {
            self.note_round();
        }
        self.burst = self.burst.saturating_add(1);
        is_outstanding && self.is_streaming() && !self.distrust.lasts(now)
    }

    /// The program runs a round.
    #[inline]
    pub fn note_round(&mut self) {
        if self.burst > 0 {
            self.last_burst = core::mem::take(&mut self.burst);
        }
    }

    /// The round has nothing to do. Whether it looks at the clock all the same.
    #[inline]
    pub const fn looks_at_clock(&mut self) -> bool {
        self.idle_rounds = self.idle_rounds.wrapping_add(1);
        self.idle_rounds.is_multiple_of(IDLE_ROUNDS_PER_CLOCK)
    }

    /// The round looked at the clock.
    #[inline]
    pub const fn note_round_at(&mut self, now: Instant) {
        self.ran_at = now;
    }

    /// Whether a program that streams should run a round before it goes on to post. It is taken to
    /// do so then.
    #[inline]
    pub fn claim_round(&mut self, now: Instant) -> bool {
        let is_due = self.is_streaming() && now.since(self.ran_at) >= ROUND_NS;
        if is_due {
            self.ran_at = now;
        }
        is_due
    }

    /// The program posted and then did not poll: nothing waits for company for a while, longer if
    /// that was so before.
    pub fn note_unpolled(&mut self, now: Instant) {
        self.distrust.note(now);
        self.pieces_distrust.note(now);
    }

    /// Whether the program streams: it posts many requests between two rounds.
    #[inline]
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.largest_burst() >= STREAM_MIN
    }

    fn largest_burst(&self) -> u32 {
        self.burst.max(self.last_burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_for_company_of_a_program_found_not_to_poll() {
        let mut posts = Posts::new();
        let start = Instant::from_nanos(PIECES_DISTRUST_MAX_NS);
        let last_of = |posts: &mut Posts, burst, now, has_senders| {
            posts.burst = 0;
            (0..burst).fold(false, |_, _| posts.note_post(now, has_senders))
        };
        assert!(
            !last_of(&mut posts, STREAM_MIN, start, false),
            "no answers are on their way"
        );
        let streams = |posts: &mut Posts, now| last_of(posts, STREAM_MIN, now, true);
        let sends_pieces = |posts: &mut Posts, now| last_of(posts, BURST_MIN, now, true);
        assert!(streams(&mut posts, start) && sends_pieces(&mut posts, start));
        assert!(!last_of(&mut posts, BURST_MIN - 1, start, true));
        posts.note_unpolled(start);
        assert!(!streams(&mut posts, start.after(DISTRUST_MIN_NS - 1)));
        assert!(streams(&mut posts, start.after(DISTRUST_MIN_NS)));
        assert!(!sends_pieces(
            &mut posts,
            start.after(PIECES_DISTRUST_MIN_NS - 1)
        ));
        assert!(sends_pieces(
            &mut posts,
            start.after(PIECES_DISTRUST_MIN_NS)
        ));
    }

    #[test]
    fn posts_over_a_connection_wait_in_a_stream_that_is_not_idle() {
        let mut posts = Posts::new();
        let start = Instant::from_nanos(DISTRUST_MAX_NS);
        let mut burst = |count: u32, turns, now, is_outstanding| {
            (0..count).fold(false, |_, _| {
                posts.note_stream_post(now, turns, is_outstanding)
            })
        };
        assert!(!burst(STREAM_MIN - 1, 1, start, true), "pieces");
        assert!(burst(1, 1, start, true), "a stream");
        assert!(!burst(1, 1, start, false), "it is idle");
        assert!(burst(1, 2, start, true), "it streamed before it polled");
        assert!(!burst(1, 3, start, true), "it does not any more");
        assert!(burst(STREAM_MIN, 3, start, true));
        posts.note_unpolled(start);
        let mut stream = |now| posts.note_stream_post(now, 3, true);
        assert!(!stream(start.after(DISTRUST_MIN_NS - 1)));
        assert!(stream(start.after(DISTRUST_MIN_NS)));
    }

    /// A program that posts and never polls: what waits in vain is the less, the longer it does.
    #[test]
    fn a_program_that_never_polls_seldom_has_something_waiting() {
        let mut posts = Posts::new();
        let (start, mut waits) = (Instant::from_nanos(DISTRUST_MAX_NS), 0);
        for ms in 0..60_000 {
            let now = start.after(ms * 1_000_000);
            if (0..STREAM_MIN).fold(false, |_, _| posts.note_stream_post(now, 1, true)) {
                waits += 1;
                posts.note_unpolled(now);
            }
        }
        assert!((30..=90).contains(&waits), "{waits} of 60,000");
    }

    #[test]
    fn a_program_that_streams_claims_each_round_that_is_due() {
        let mut posts = Posts::new();
        let start = Instant::from_nanos(1_000_000_000);
        posts.note_round_at(start);
        (0..STREAM_MIN - 1).for_each(|_| _ = posts.note_post(start, true));
        assert!(
            !posts.claim_round(start.after(ROUND_NS)),
            "pieces are no stream"
        );
        posts.note_post(start, true);
        assert!(!posts.claim_round(start.after(ROUND_NS - 1)));
        assert!(posts.claim_round(start.after(ROUND_NS)));
        assert!(!posts.claim_round(start.after(2 * ROUND_NS - 1)));
        posts.note_round();
        assert!(
            posts.claim_round(start.after(2 * ROUND_NS)),
            "its last burst counts, too"
        );
        posts.note_post(start, true);
        posts.note_round();
        assert!(!posts.claim_round(start.after(9 * ROUND_NS)));
    }
}
