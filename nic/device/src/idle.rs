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
/// The same after a wait in which nothing came.
const POLLS_BETWEEN_WAITS: u32 = 4;
/// How often the count of preemptions is read.
const SAMPLE_NS: u64 = 1_000_000;
/// How long a preemption tells that others want the processor. Afterwards the thread spins until the
/// next one, at most a time slice (3 ms), to find out.
const CONTENDED_NS: u64 = 100_000_000;
/// How long the first wait lasts at most: the program may have other things to poll.
const WAIT_NS: u64 = 50_000;
/// How often waits in which nothing came double. The last, 400 us, still is shorter than what a thread waits for a
/// processor that others want, too; and where dozens of ranks of an MPI program share a few processors, looking
/// more often would take most of their time.
const DOUBLINGS: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    polls: u32,
    /// Waits since packets came.
    waits: u32,
    sampled_at: Instant,
    preemptions: Option<i64>,
    contended_until: Instant,
}

thread_local! {
    static IDLE: Cell<Idle> = const {
        Cell::new(Idle {
            polls: 0,
            waits: 0,
            sampled_at: Instant::from_nanos(0),
            preemptions: None,
            contended_until: Instant::from_nanos(0),
        })
    };
}

/// The calling thread polled, and packets came or not. How long it should wait in the kernel now, if at all.
pub(crate) fn should_wait(packets_came: bool) -> Option<u64> {
    // A thread that ends has no such variable any more, and no time to wait.
    IDLE.try_with(|cell| {
        let mut idle = cell.get();
        let wait_ns = idle.poll(packets_came, now, preemptions);
        cell.set(idle);
        wait_ns
    })
    .unwrap_or(None)
}

impl Idle {
    fn poll(
        &mut self,
        packets_came: bool,
        now: impl FnOnce() -> Instant,
        preemptions: impl FnOnce() -> i64,
    ) -> Option<u64> {
        if packets_came {
            self.polls = 0;
            self.waits = 0;
            return None;
        }
        self.polls = self.polls.wrapping_add(1);
        let pause = if self.waits == 0 {
            POLLS_PER_LOOK
        } else {
            POLLS_BETWEEN_WAITS
        };
        let looks = self.polls > POLLS_BEFORE_LOOK && self.polls.is_multiple_of(pause);
        if !looks || !self.is_contended(now(), preemptions) {
            return None;
        }
        let wait_ns = WAIT_NS << self.waits.min(DOUBLINGS);
        self.waits = self.waits.saturating_add(1);
        Some(wait_ns)
    }

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
    fn waits_grow_until_packets_come() {
        let mut idle = Idle::default();
        let mut switches = 0_i64;
        let mut waits = |idle: &mut Idle, polls: u64| -> Vec<u64> {
            (0..polls)
                .filter_map(|_| {
                    switches += 1;
                    idle.poll(false, || at(10 * switches.unsigned_abs()), || switches)
                })
                .collect()
        };
        let first = waits(&mut idle, 200);
        assert_eq!(first[..5], [50_000, 100_000, 200_000, 400_000, 400_000]);
        assert_eq!(idle.poll(true, || at(1), || 0), None);
        assert!(waits(&mut idle, u64::from(POLLS_BEFORE_LOOK)).is_empty());
        assert_eq!(waits(&mut idle, 20)[0], WAIT_NS);
    }

    #[test]
    fn packets_reset_the_patience() {
        assert!((0..10_000).all(|_| should_wait(true).is_none()));
    }
}
