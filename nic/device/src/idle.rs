//! What a polling thread does when nothing comes.
//!
//! It spins as long as it has the processor to itself. Where others want it, spinning is the wrong thing:
//! the peer on the same processor, or the kernel thread that carries the packets, cannot run until the
//! spinner's time slice ends, milliseconds a message. (`sched_yield` is no way out: since Linux 6.15 it
//! costs the rest of the slice, so that among busy strangers who yields starves.) The kernel counts the
//! times that a thread was made to leave its processor; while that count grows, a thread that found
//! nothing for some microseconds waits for a packet, briefly, in the kernel.

use std::cell::Cell;

use urxe_proto::Instant;

use crate::clock::now;

/// Idle polls in a row before the first look at the clock: some 10 us, longer than a round trip.
const POLLS_BEFORE_LOOK: u32 = 64;
/// From then on, one poll in so many looks.
const POLLS_PER_LOOK: u32 = 16;
/// How often the count of preemptions is read.
const SAMPLE_NS: u64 = 1_000_000;
/// How long a preemption tells that others want the processor. Afterwards the thread spins until the
/// next one, at most a time slice (3 ms), to find out.
const CONTENDED_NS: u64 = 100_000_000;
/// How long one wait lasts at most: the program may have other things to poll.
pub(crate) const WAIT_NS: u64 = 50_000;

#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    polls: u32,
    sampled_at: Instant,
    preemptions: Option<i64>,
    contended_until: Instant,
}

thread_local! {
    static IDLE: Cell<Idle> = const {
        Cell::new(Idle {
            polls: 0,
            sampled_at: Instant::from_nanos(0),
            preemptions: None,
            contended_until: Instant::from_nanos(0),
        })
    };
}

/// The calling thread polled, and packets came or not. Whether it should wait in the kernel now.
pub(crate) fn should_wait(packets_came: bool) -> bool {
    // A thread that ends has no such variable any more, and no time to wait.
    IDLE.try_with(|cell| {
        let mut idle = cell.get();
        idle.polls = if packets_came {
            0
        } else {
            idle.polls.wrapping_add(1)
        };
        let looks = idle.polls > POLLS_BEFORE_LOOK && idle.polls.is_multiple_of(POLLS_PER_LOOK);
        let waits = looks && idle.is_contended(now(), preemptions);
        cell.set(idle);
        waits
    })
    .unwrap_or(false)
}

impl Idle {
    fn is_contended(&mut self, now: Instant, preemptions: impl FnOnce() -> i64) -> bool {
        if now.since(self.sampled_at) >= SAMPLE_NS {
            let count = preemptions();
            if self
                .preemptions
                .replace(count)
                .is_some_and(|before| before != count)
            {
                self.contended_until = now.after(CONTENDED_NS);
            }
            self.sampled_at = now;
        }
        now < self.contended_until
    }
}

/// How often the calling thread was made to leave its processor.
fn preemptions() -> i64 {
    // SAFETY: getrusage writes the structure; all zeros is a valid one.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_thread_that_is_left_alone_spins() {
        let mut idle = Idle::default();
        assert!((1..500).all(|ms| !idle.is_contended(at(ms), || 7)));
    }

    #[test]
    fn a_preemption_makes_it_wait_for_a_while() {
        let mut idle = Idle::default();
        assert!(!idle.is_contended(at(1), || 7));
        assert!(idle.is_contended(at(2), || 8));
        assert!(idle.is_contended(at(100), || 8));
        assert!(
            !idle.is_contended(at(103), || 8),
            "it finds out whether others still want the processor"
        );
    }

    #[test]
    fn packets_reset_the_patience() {
        assert!((0..10_000).all(|_| !should_wait(true)));
    }
}
