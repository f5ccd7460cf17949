//! What a polling thread does when nothing comes.
//!
//! It spins as long as it has the processor to itself. Where others want it, spinning is the wrong thing:
//! the peer on the same processor, or the kernel thread that carries the packets, cannot run until the
//! spinner's time slice ends, milliseconds a message. (`sched_yield` is no way out: since Linux 6.15 it
//! costs the rest of the slice, so that among busy strangers who yields starves. But once a message that has no answer after
//! longer than a peer takes that polls, it is right: Linux puts a peer that slept on the processor of the one that woke it by sending, though
//! others are idle, for it takes that one to be about to sleep.) The kernel tells how long a thread
//! ran, how often it was made to leave its processor, and how often it left by itself. One that did not run for a good part of a
//! millisecond without having asked for it shares its processor; from then on, for a while, when it finds nothing for some microseconds, it
//! waits for a packet, briefly, in the kernel. The background threads of the process are nobody to wait for, however much they
//! take: on a processor of one's own, to sleep and to be woken costs more than all else.

use std::cell::Cell;

use urxe_proto::Instant;

use crate::across_fork::AcrossFork;
use crate::clock::now;

/// Idle polls in a row before the first look at the clock: some 10 us, longer than a round trip.
const POLLS_BEFORE_LOOK: u32 = 64;
/// From then on, one poll in so many looks.
const POLLS_PER_LOOK: u32 = 16;
/// The same after a wait in which nothing came.
const POLLS_BETWEEN_WAITS: u32 = 4;
/// How often the thread asks how long it ran.
const SAMPLE_NS: u64 = 1_000_000;
/// Between two samples so far apart the thread did other things than polling. Where a hundred programs share a processor,
/// each waits for it for a few hundred milliseconds.
const SAMPLES_APART_MAX_NS: u64 = 1_000_000_000;
/// Who lost less than this between two samples has its processor to itself.
const LOST_MIN_NS: u64 = 300_000;
/// Others want the processor for so many times as long as they had it. Afterwards the thread spins until they have it
/// again, at most a time slice (3 ms), to find out.
const CONTENDED_TIMES: u64 = 16;
/// But no longer than this.
const CONTENDED_MAX_NS: u64 = 1_000_000_000;
/// How long a thread polls in vain, after packets came or it sent some, before it yields its processor once.
const YIELD_NS: u64 = 50_000;
/// How long the first wait lasts at most: the program may have other things to poll.
const WAIT_NS: u64 = 50_000;
/// How often waits in which nothing came double. The last, 400 us, still is shorter than what a thread waits for a
/// processor that others want, too; and where dozens of ranks of an MPI program share a few processors, looking
/// more often would take most of their time.
const DOUBLINGS: u32 = 3;
/// From then on a wait lasts this part of the time since packets came, so that what else the program polls for is found
/// that much later at most. Where hundreds of programs poll for a packet now and then, looking would take all of
/// the processors' time.
const IDLE_PART: u64 = 16;
/// But no longer than this.
const WAIT_MAX_NS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    polls: u32,
    /// What the program had got done when it last looked.
    work: u64,
    /// Since when it has polled in vain with nothing done, as far as it looked; `None` once it has yielded.
    vain_since: Option<Instant>,
    /// Waits since packets came.
    waits: u32,
    /// When the first of them began.
    waiting_since: Instant,
    /// When it last asked, and what it was told; `None` after a wait.
    sampled: Option<(Instant, Usage)>,
    contended_until: Instant,
}

/// What a thread should do that polled in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Poll again.
    Spin,
    /// Let others have the processor that are ready to run, once.
    Yield,
    /// Wait for packets in the kernel, for so many nanoseconds at most.
    Wait(u64),
}

/// What the kernel counts for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    /// Times that it was made to leave its processor.
    preemptions: i64,
    /// Times that it left by itself, to sleep: then nobody knows for how long it was kept away.
    sleeps: i64,
    /// How long it ran.
    ran_ns: u64,
    /// How long the background threads of the process ran.
    background_ns: u64,
}

/// The processor-time clocks of the background threads.
pub(crate) static BACKGROUND: AcrossFork<Vec<libc::clockid_t>> = AcrossFork::new(Vec::new());

/// While it lives, the thread that made it counts as a background thread.
pub(crate) struct Background(Option<libc::clockid_t>);

impl Background {
    pub(crate) fn new() -> Self {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the calling thread, and room for its clock.
        let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        let clock = (status == 0).then_some(clock);
        BACKGROUND.lock().extend(clock);
        Self(clock)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The kernel gives the number of a thread that ended, and so its clock, to others.
        BACKGROUND.lock().retain(|clock| Some(*clock) != self.0);
    }
}

thread_local! {
    static IDLE: Cell<Idle> = const {
        Cell::new(Idle {
            polls: 0,
            work: 0,
            vain_since: None,
            waits: 0,
            waiting_since: Instant::from_nanos(0),
            sampled: None,
            contended_until: Instant::from_nanos(0),
        })
    };
}

/// The calling thread polled, and packets came or not. What it should do now. `work` is what its process has got done so far, posts among
/// it.
pub(crate) fn advise(packets_came: bool, work: u64) -> Advice {
    // A thread that ends has no such variable any more, and no time to wait.
    IDLE.try_with(|cell| {
        let mut idle = cell.get();
        let advice = idle.poll(packets_came, work, now, usage);
        cell.set(idle);
        advice
    })
    .unwrap_or(Advice::Spin)
}

impl Idle {
    fn poll(
        &mut self,
        packets_came: bool,
        work: u64,
        now: impl FnOnce() -> Instant,
        usage: impl FnOnce() -> Usage,
    ) -> Advice {
        if packets_came {
            self.polls = 0;
            self.waits = 0;
            return Advice::Spin;
        }
        self.polls = self.polls.wrapping_add(1);
        let pause = if self.waits == 0 {
            POLLS_PER_LOOK
        } else {
            POLLS_BETWEEN_WAITS
        };
        let looks = self.polls > POLLS_BEFORE_LOOK && self.polls.is_multiple_of(pause);
        if !looks {
            return Advice::Spin;
        }
        let now = now();
        if !self.is_contended(now, usage) {
            return self.yield_once(now, work);
        }
        if self.waits == 0 {
            self.waiting_since = now;
        }
        let idle_ns = now.since(self.waiting_since);
        let wait_ns = (WAIT_NS << self.waits.min(DOUBLINGS)).max(idle_ns / IDLE_PART);
        let wait_ns = wait_ns.min(WAIT_MAX_NS);
        self.waits = self.waits.saturating_add(1);
        self.sampled = None;
        Advice::Wait(wait_ns)
    }

    fn yield_once(&mut self, now: Instant, work: u64) -> Advice {
        if std::mem::replace(&mut self.work, work) != work {
            self.vain_since = Some(now);
        }
        if self
            .vain_since
            .is_some_and(|since| now.since(since) >= YIELD_NS)
        {
            self.vain_since = None;
            return Advice::Yield;
        }
        Advice::Spin
    }

    fn is_contended(&mut self, now: Instant, usage: impl FnOnce() -> Usage) -> bool {
        let elapsed_ns = self.sampled.map(|(at, _)| now.since(at));
        if elapsed_ns.is_none_or(|elapsed| elapsed >= SAMPLE_NS) {
            let usage = usage();
            let before = self.sampled.replace((now, usage));
            if let (Some((_, before)), Some(elapsed_ns @ ..=SAMPLES_APART_MAX_NS)) =
                (before, elapsed_ns)
                && before.preemptions != usage.preemptions
                && before.sleeps == usage.sleeps
                // What the thread that forked was told says nothing about its copy in the child.
                && let Some(ran_ns) = usage.ran_ns.checked_sub(before.ran_ns)
            {
                let background_ns = usage.background_ns.saturating_sub(before.background_ns);
                let used_ns = ran_ns + background_ns;
                let lost_ns = elapsed_ns.saturating_sub(used_ns);
                if lost_ns >= LOST_MIN_NS {
                    self.contended_until =
                        now.after((lost_ns * CONTENDED_TIMES).min(CONTENDED_MAX_NS));
                }
            }
        }
        now < self.contended_until
    }
}

/// What the calling thread used.
fn usage() -> Usage {
    // SAFETY: getrusage writes the structure; all zeros is a valid one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
    Usage {
        preemptions: usage.ru_nivcsw,
        sleeps: usage.ru_nvcsw,
        ran_ns: (ns(usage.ru_utime) + ns(usage.ru_stime)).cast_unsigned(),
        background_ns: background_ns(),
    }
}

/// How long the background threads ran; nothing while one begins or ends.
fn background_ns() -> u64 {
    let Some(clocks) = BACKGROUND.try_lock() else {
        return 0;
    };
    clocks.iter().map(|&clock| clock_ns(clock)).sum()
}

/// What a clock shows; nothing after a fork, when its thread is not there.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for the time, which stays as it is if there is no such clock.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn used(preemptions: i64, ran_ms: u64) -> Usage {
        Usage {
            preemptions,
            sleeps: 0,
            ran_ns: ran_ms * 1_000_000,
            background_ns: 0,
        }
    }

    #[test]
    fn a_thread_that_is_left_alone_spins() {
        let mut idle = Idle::default();
        assert!((1..500).all(|ms| !idle.is_contended(at(ms), || used(7, ms))));
    }

    #[test]
    fn who_takes_microseconds_is_nobody_to_wait_for() {
        let mut idle = Idle::default();
        let mine = |ms| Usage {
            ran_ns: ms * (1_000_000 - LOST_MIN_NS / 2),
            ..used(i64::try_from(ms).unwrap(), 0)
        };
        assert!((1..500).all(|ms| !idle.is_contended(at(ms), || mine(ms))));
    }

    #[test]
    fn nor_is_the_background_thread_however_much_it_takes() {
        let mut idle = Idle::default();
        let shared = |ms| Usage {
            background_ns: ms * 600_000,
            ran_ns: ms * 400_000,
            ..used(i64::try_from(ms).unwrap(), 0)
        };
        assert!((1..500).all(|ms| !idle.is_contended(at(ms), || shared(ms))));
    }

    #[test]
    fn a_background_thread_is_counted_while_it_runs_and_not_afterwards() {
        let clocks = || BACKGROUND.lock().clone();
        let thread = std::thread::spawn(move || {
            let background = Background::new();
            let clock = background.0.unwrap();
            assert!(clocks().contains(&clock));
            let before = usage().ran_ns;
            while usage().ran_ns < before + 3_000_000 {}
            assert!(clock_ns(clock) >= before + 3_000_000);
            let is_counted = |_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                usage().background_ns >= before + 3_000_000
            };
            assert!(
                (0..1_000).any(is_counted),
                "others have the lock now and then"
            );
            clock
        });
        let clock = thread.join().unwrap();
        assert!(!clocks().contains(&clock));
    }

    #[test]
    fn a_lost_time_slice_makes_it_wait_for_a_while() {
        let mut idle = Idle::default();
        assert!(!idle.is_contended(at(1), || used(7, 1)));
        assert!(idle.is_contended(at(5), || used(8, 2)));
        assert!(idle.is_contended(at(52), || used(8, 49)));
        assert!(
            !idle.is_contended(at(54), || used(8, 51)),
            "it finds out whether others still want the processor"
        );
    }

    #[test]
    fn who_slept_of_its_own_will_lost_nothing() {
        let mut idle = Idle::default();
        assert!(!idle.is_contended(at(1), || used(7, 1)));
        assert!(
            !idle.is_contended(at(9), || used(7, 2)),
            "nobody made it leave"
        );
        assert!(
            !idle.is_contended(at(1_999), || used(9, 3)),
            "it was away for long"
        );
    }

    #[test]
    fn nor_who_polls_and_sleeps_in_turn_though_others_ran_now_and_then() {
        let mut idle = Idle::default();
        let in_turn = |ms| Usage {
            sleeps: i64::try_from(ms).unwrap(),
            ran_ns: ms * 300_000,
            ..used(i64::try_from(ms).unwrap(), 0)
        };
        assert!((1..500).all(|ms| !idle.is_contended(at(ms), || in_turn(ms))));
    }

    #[test]
    fn a_child_learns_nothing_from_what_its_parent_was_told() {
        let mut idle = Idle::default();
        assert!(!idle.is_contended(at(1), || used(7, 90)));
        assert!(!idle.is_contended(at(5), || used(1, 2)));
        assert!(idle.is_contended(at(9), || used(2, 3)));
    }

    fn wait(advice: Advice) -> Option<u64> {
        match advice {
            Advice::Wait(wait_ns) => Some(wait_ns),
            Advice::Spin | Advice::Yield => None,
        }
    }

    #[test]
    fn who_sent_something_and_polls_in_vain_yields_once() {
        const POLL_NS: u64 = 100;
        let mut idle = Idle::default();
        let mut now_ns = 0;
        let mut yields = |polls: usize, packets_came: bool, work: u64| {
            (0..polls)
                .filter(|_| {
                    now_ns += POLL_NS;
                    let now = Instant::from_nanos(now_ns);
                    let advice = idle.poll(packets_came, work, || now, || used(0, 0));
                    advice == Advice::Yield
                })
                .count()
        };
        assert_eq!(yields(10_000, false, 0), 0, "it has sent nothing");
        for work in 1..4 {
            assert_eq!(yields(400, false, work), 0, "an answer may come soon");
            assert_eq!(yields(10_000, false, work), 1);
        }
        for work in 4..100 {
            assert_eq!(yields(300, false, work), 0);
            assert_eq!(yields(1, true, work), 0);
        }
    }

    #[test]
    fn waits_grow_until_packets_come() {
        let mut idle = Idle {
            contended_until: at(1_000_000),
            ..Idle::default()
        };
        let waits = |idle: &mut Idle, polls: u64| -> Vec<u64> {
            (0..polls)
                .filter_map(|_| wait(idle.poll(false, 0, || at(1), || used(0, 0))))
                .collect()
        };
        let first = waits(&mut idle, 200);
        assert_eq!(first[..5], [50_000, 100_000, 200_000, 400_000, 400_000]);
        assert_eq!(idle.poll(true, 0, || at(1), || used(0, 0)), Advice::Spin);
        assert!(waits(&mut idle, u64::from(POLLS_BEFORE_LOOK)).is_empty());
        assert_eq!(waits(&mut idle, 20)[0], WAIT_NS);
    }

    #[test]
    fn who_waits_for_long_looks_rarely() {
        let mut idle = Idle {
            contended_until: at(1_000_000),
            ..Idle::default()
        };
        let mut now_ns = 0;
        let mut waits = 0;
        while now_ns < 100_000_000 {
            let advice = idle.poll(false, 0, || Instant::from_nanos(now_ns), || used(0, 0));
            if let Some(wait_ns) = wait(advice) {
                now_ns += wait_ns;
                waits += 1;
            }
        }
        assert!((40..80).contains(&waits), "{waits} waits in 100 ms");
        let polled = idle.poll(true, 0, || at(200), || used(0, 0));
        assert_eq!(polled, Advice::Spin);
        let next = (0..100).find_map(|_| wait(idle.poll(false, 0, || at(200), || used(0, 0))));
        assert_eq!(next, Some(WAIT_NS));
    }

    #[test]
    fn packets_reset_the_patience() {
        assert!((0..10_000).all(|at| advise(true, at) == Advice::Spin));
    }
}
