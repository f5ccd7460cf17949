//! What the program's threads and the background thread tell each other. What they make of it is
//! `urxe-duty`'s.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use urxe_duty::Seen;
use urxe_duty::constants::{HELD_MAX_NS, LOOK_AGAIN_BLOCKED_MAX_NS, LOOK_AGAIN_NS, RECENT_NS};
use urxe_proto::Instant;
use urxe_udp::Wakeup;

use crate::process::clock::now;
use crate::process::threads::with_signals_blocked;

/// When a thread wakes that does not sleep: before any time.
const AWAKE: u64 = 1;

/// What the program and the background thread tell each other.
#[derive(Debug)]
pub(crate) struct Progress {
    wakeup: Wakeup,
    /// Rounds that the program ran itself.
    rounds: AtomicU64,
    /// When the last of them was that looked at the clock, as do all that do something.
    last_round_ns: AtomicU64,
    /// Since when something that the program posted has waited for company, if it does.
    held_since_ns: AtomicU64,
    /// When the thread was last asked to look at what the program does.
    asked_to_look_ns: AtomicU64,
    /// Polls that needed no round, because completions were there. A program that has hundreds of
    /// queue pairs may never find its completion queue empty while the thread fills it.
    found: AtomicU64,
    /// Packets that came and went in these rounds, and posts.
    work: AtomicU64,
    /// Threads of the program that block in a completion channel and run the engine there.
    blocking: AtomicU64,
    /// When the last of them stopped.
    last_blocked_ns: AtomicU64,
    /// Events that completion queues raised.
    events: AtomicU64,
    /// When the thread, while it waits for packets, will wake by itself: nanoseconds; 0 while it
    /// sleeps, [`AWAKE`] while it looks for them.
    wakes_at_ns: AtomicU64,
    /// Packets that the program posted may wait in the engine for company.
    is_holding: AtomicBool,
    /// The program asked the thread to watch the sockets now.
    take_over: AtomicBool,
    /// The thread left the program to itself until all its requests are answered, which the program
    /// is to tell it.
    is_to_tell: AtomicBool,
    /// It has told it.
    has_told: AtomicBool,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// While it lives, a thread of the program runs the engine in a blocking call.
pub(crate) struct Blocking<'a>(&'a Progress);

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Progress {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            wakeup: Wakeup::new()?,
            rounds: AtomicU64::new(0),
            last_round_ns: AtomicU64::new(0),
            held_since_ns: AtomicU64::new(0),
            asked_to_look_ns: AtomicU64::new(0),
            found: AtomicU64::new(0),
            work: AtomicU64::new(0),
            blocking: AtomicU64::new(0),
            last_blocked_ns: AtomicU64::new(0),
            events: AtomicU64::new(0),
            wakes_at_ns: AtomicU64::new(0),
            is_holding: AtomicBool::new(false),
            take_over: AtomicBool::new(false),
            is_to_tell: AtomicBool::new(false),
            has_told: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    /// Starts the thread, once, with all signals blocked but those of faults: they are the
    /// program's.
    pub(crate) fn start(&self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let builder = std::thread::Builder::new().name("urxe".into());
            *thread = Some(with_signals_blocked(|| builder.spawn(run))?);
        }
        Ok(())
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wakeup.signal();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }

    /// Ends the thread, and lets another begin that a test runs.
    #[cfg(test)]
    pub(crate) fn restart(&self) {
        self.stop();
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Whether the thread was ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The program ran a round itself. To be called with the engine's lock, as [`Self::note_work`].
    pub(crate) fn note_round(&self) {
        add(&self.rounds, 1);
    }

    /// That round looked at the clock, which showed `now`.
    pub(crate) fn note_round_at(&self, now: Instant) {
        self.last_round_ns.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When the program last ran a round that looked at the clock, nanoseconds.
    pub(crate) fn ran_at_ns(&self) -> u64 {
        self.last_round_ns.load(Ordering::Relaxed)
    }

    /// Whether a thread of the program runs the engine in a blocking call.
    pub(crate) fn is_blocked_in(&self) -> bool {
        self.blocking.load(Ordering::Relaxed) > 0
    }

    /// The program polled, and there was something. Of two threads that do so at a time one may not
    /// count.
    #[inline]
    pub(crate) fn note_found(&self) {
        add(&self.found, 1);
    }

    /// How often the program polled so far.
    pub(crate) fn polls(&self) -> u64 {
        let rounds = self.rounds.load(Ordering::Relaxed);
        rounds.wrapping_add(self.found.load(Ordering::Relaxed))
    }

    /// What the program got done so far.
    #[inline]
    pub(crate) fn work(&self) -> u64 {
        self.work.load(Ordering::Relaxed)
    }

    /// The program posted, or packets came or went in a round of its own.
    pub(crate) fn note_work(&self, amount: u64) {
        add(&self.work, amount);
    }

    /// Whether the program makes progress itself, and has not just waited for an event. For a
    /// thread that waits, what is left for later means to be woken once more.
    pub(crate) fn is_polled(&self, now: Instant) -> bool {
        let blocked_at = Instant::from_nanos(self.last_blocked_ns.load(Ordering::Relaxed));
        self.polls_for_itself() && now.since(blocked_at) >= RECENT_NS
    }

    fn polls_for_itself(&self) -> bool {
        self.wakes_at_ns.load(Ordering::Relaxed) == 0 && !self.is_blocked_in()
    }

    /// Whether what the program posts may wait for company: not unless it polls for itself. It
    /// counts as waiting from then on. To be called with the engine's lock, as
    /// [`Self::note_released`].
    pub(crate) fn hold(&self, now: Instant) -> bool {
        let may = self.polls_for_itself();
        if may && !self.is_holding() {
            self.held_since_ns.store(now.as_nanos(), Ordering::Relaxed);
            self.is_holding.store(true, Ordering::Relaxed);
        }
        may
    }

    /// The same where no answer is on its way that would wake the background thread: nor while that
    /// may sleep as beside a program that blocks.
    pub(crate) fn hold_long(&self, now: Instant) -> bool {
        let blocked_at = Instant::from_nanos(self.last_blocked_ns.load(Ordering::Relaxed));
        let may = now.since(blocked_at) >= LOOK_AGAIN_BLOCKED_MAX_NS && !self.is_blocked_in();
        may && (self.hold(now) || self.ask_to_look(now))
    }

    /// Lets the thread, which watches the sockets, see what the program does now: while nothing
    /// comes, nothing else wakes it. Now and then, and always `false`.
    fn ask_to_look(&self, now: Instant) -> bool {
        let asked_at = Instant::from_nanos(self.asked_to_look_ns.load(Ordering::Relaxed));
        if now.since(asked_at) >= LOOK_AGAIN_NS {
            self.asked_to_look_ns
                .store(now.as_nanos(), Ordering::Relaxed);
            self.wakeup.signal();
        }
        false
    }

    #[inline]
    pub(crate) fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Relaxed)
    }

    /// Nothing waits for company any more.
    pub(crate) fn note_released(&self) {
        if self.is_holding() {
            self.is_holding.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn enter_blocking(&self) -> Blocking<'_> {
        self.enter();
        Blocking(self)
    }

    /// A thread of the program runs the engine in a blocking call, until [`Self::leave`].
    pub(crate) fn enter(&self) {
        self.blocking.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        let now_ns = now().as_nanos();
        self.last_blocked_ns.store(now_ns, Ordering::Relaxed);
        self.blocking.fetch_sub(1, Ordering::Relaxed);
    }

    /// Since when what the program posted has waited for company, if anything does.
    fn held_since(&self) -> Option<Instant> {
        let since_ns = self.held_since_ns.load(Ordering::Relaxed);
        self.is_holding().then(|| Instant::from_nanos(since_ns))
    }

    /// Whether something has waited for company so long that the program cannot have gone on to
    /// poll.
    pub(crate) fn has_held_too_long(&self, now: Instant) -> bool {
        self.held_since()
            .is_some_and(|since| now.since(since) >= HELD_MAX_NS)
    }

    /// A completion queue raised an event: some thread of the program has something to do.
    pub(crate) fn note_event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks the thread to watch the sockets from now on, even if the program has polled.
    pub(crate) fn take_over(&self) {
        self.take_over.store(true, Ordering::Relaxed);
        if self.wakes_at_ns.load(Ordering::Relaxed) == 0 {
            self.wakeup.signal();
        }
    }

    /// Whether the thread waits for [`Self::note_answered`].
    #[inline]
    pub(crate) fn is_to_tell(&self) -> bool {
        self.is_to_tell.load(Ordering::Relaxed)
    }

    /// A poll of the program brought the last answer to its requests, and no reply is expected of
    /// it: a program that sends and then reads its memory polls for the last time now. (Requests
    /// without completions are not waited for.)
    pub(crate) fn note_answered(&self) {
        self.is_to_tell.store(false, Ordering::Relaxed);
        self.has_told.store(true, Ordering::Relaxed);
        self.take_over();
    }

    /// What the background thread sees when a turn begins. What the program asked and told it is
    /// taken.
    pub(crate) fn see(&self, now: Instant) -> Seen {
        // Polls after rounds, so that a poll is never counted as a round without one.
        let rounds = self.rounds.load(Ordering::Relaxed);
        Seen {
            now_ns: now.as_nanos(),
            rounds,
            polls: self.polls(),
            work: self.work(),
            ran_at_ns: self.ran_at_ns(),
            is_asked: self.take_over.swap(false, Ordering::Relaxed),
            has_told: self.has_told.swap(false, Ordering::Relaxed),
            is_blocked_in: self.is_blocked_in(),
        }
    }

    /// Whether something is wanted of the thread that must not sleep then.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_stopped() || self.take_over.load(Ordering::Relaxed)
    }

    /// Becomes readable when the program wants something of the thread, between [`Self::arm`] and
    /// [`Self::disarm`].
    pub(crate) fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// The thread is about to wait for the program.
    pub(crate) fn arm(&self) {
        self.wakeup.arm();
    }

    /// It is back.
    pub(crate) fn disarm(&self) {
        self.wakeup.disarm();
    }

    /// The thread waits for packets, and will wake by itself at `at`, if at all.
    pub(crate) fn note_waiting(&self, at: Option<Instant>) {
        let at_ns = at.map_or(u64::MAX, Instant::as_nanos);
        self.wakes_at_ns.store(at_ns, Ordering::Relaxed);
    }

    /// The thread looks for packets.
    pub(crate) fn note_awake(&self) {
        self.wakes_at_ns.store(AWAKE, Ordering::Relaxed);
    }

    /// The thread does neither any more.
    pub(crate) fn note_back(&self) {
        self.wakes_at_ns.store(0, Ordering::Relaxed);
    }

    /// Events that completion queues have raised so far.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Rounds that the program ran itself so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Asks the program to tell the thread when its requests are answered, or does so no more.
    pub(crate) fn ask_to_tell(&self, is_asked: bool) {
        self.is_to_tell.store(is_asked, Ordering::Relaxed);
    }

    /// The earliest deadline of the engine is now `at`: the thread must not wait beyond it.
    pub(crate) fn note_deadline(&self, at: Option<Instant>) {
        let wakes_at_ns = self.wakes_at_ns.load(Ordering::Relaxed);
        if at.is_some_and(|at| at.as_nanos() < wakes_at_ns) {
            self.wakeup.signal();
        }
    }
}

/// Adds to a counter that one thread at a time changes, and others only read: cheaper than an
/// atomic addition.
fn add(counter: &AtomicU64, amount: u64) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(amount), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_just_waited_for_an_event_does_not_poll_yet() {
        let progress = Progress::new().unwrap();
        assert!(progress.is_polled(now()));
        let blocking = progress.enter_blocking();
        assert!(!progress.is_polled(now().after(RECENT_NS)));
        drop(blocking);
        assert!(!progress.is_polled(now()));
        assert!(progress.is_polled(now().after(RECENT_NS)));
    }

    #[test]
    fn asking_for_an_event_is_heard_by_a_thread_that_waits() {
        let progress = Progress::new().unwrap();
        assert!(!progress.is_wanted());
        let states: [fn(&Progress); 3] = [
            |progress| progress.note_waiting(None),
            Progress::note_awake,
            Progress::note_back,
        ];
        for enter in states {
            enter(&progress);
            progress.take_over();
            assert!(progress.see(now()).is_asked);
        }
    }
}
