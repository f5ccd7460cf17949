//! The background thread: takes over when the program neither polls nor blocks in a completion
//! channel, and sleeps otherwise.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use urxe_proto::{Habit, Instant};
use urxe_udp::{Event, Interest, Waiter, Wakeup, set_timer_slack_ns};

use crate::activity::{Activity, LOOK_AGAIN_NS};
use crate::chance::{CHANCE_NS, Chance};
use crate::clock::{self, now};
use crate::idle::Background;
use crate::nic::{Nic, Round};
use crate::parting::Parting;
use crate::signalled::EventFd;
use crate::spin::{Looked, Spin};
use crate::threads::{ask_for_prompt_scheduling, with_signals_blocked};

/// The token of news about the interface.
const LINK: u64 = u64::MAX - 1;
const LOOK_AGAIN_POLLED_MAX_NS: u64 = 2_000_000;
/// The same while the program blocks in a completion channel; doubles up to the maximum.
const LOOK_AGAIN_BLOCKED_MAX_NS: u64 = 64_000_000;
/// A round of the program's own that is older than this was its last for now: it computes, or looks at its memory.
const RECENT_NS: u64 = 1_000_000;
/// What has waited for company for so long was posted by a program that did not go on to poll.
const HELD_MAX_NS: u64 = 200_000;
/// A deadline of the engine that a program which polls has missed by so much: it has stopped.
const LATE_NS: u64 = 200_000;
/// When the thread finds packets that waited while it slept, the program had stopped polling without
/// saying so (it reads memory that a peer writes, or computes): the thread does not sleep for so long, at first, and if
/// it finds so again and again.
const VIGILANCE_NS: (u64, u64) = (2_000_000, 100_000_000);
/// How long the thread waits when the program is in the engine: at first, for it may leave to look at its memory and not
/// come back, and when it is there again and again, ...
const PAUSE_NS: (u64, u64) = (5_000, 50_000);
/// ... and how often in a row, before it queues up at the engine's lock.
const PAUSES_MAX: u32 = 20;
/// After so many the program is about something long, and the thread leaves it to itself until its requests are answered: a pause costs
/// the program's processor some 20 us, and 4 of them were half of the time of a WRITE of 256 KiB ...
const PAUSES_LONG: u32 = 1;
/// ... or for so long, at first, if it does not run the rounds that would show it the answers.
const SENDS_NS: u64 = 200_000;
/// When a thread wakes that does not sleep: before any time.
const AWAKE: u64 = 1;
/// Timers of the thread may be this late.
const TIMER_SLACK_NS: u32 = 1_000;

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
    /// Polls that needed no round, because completions were there. A program that has hundreds of queue pairs may never find
    /// its completion queue empty while the thread fills it.
    found: AtomicU64,
    /// Packets that came and went in these rounds, and posts.
    work: AtomicU64,
    /// Threads of the program that block in a completion channel and run the engine there.
    blocking: AtomicU64,
    /// When the last of them stopped.
    last_blocked_ns: AtomicU64,
    /// Events that completion queues raised.
    events: AtomicU64,
    /// When the thread, while it waits for packets, will wake by itself: nanoseconds; 0 while it sleeps, [`AWAKE`] while
    /// it looks for them.
    wakes_at_ns: AtomicU64,
    /// Packets that the program posted may wait in the engine for company.
    is_holding: AtomicBool,
    /// Somebody asked the thread to watch the sockets now.
    take_over: AtomicBool,
    /// The thread left the program to itself until all its requests are answered, which the program is to tell it.
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

    /// Starts the thread, with all signals blocked but those of faults: they are the program's.
    pub(crate) fn start(&self, nic: &Arc<Nic>) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let weak = Arc::downgrade(nic);
            let builder = std::thread::Builder::new().name("urxe".into());
            *thread = Some(with_signals_blocked(|| builder.spawn(move || run(&weak)))?);
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

    /// Whether the program has just run a round itself.
    fn has_run_recently(&self, now: Instant) -> bool {
        let ran_at = Instant::from_nanos(self.last_round_ns.load(Ordering::Relaxed));
        now.since(ran_at) < RECENT_NS
    }

    /// Whether a thread of the program runs the engine in a blocking call.
    pub(crate) fn is_blocked_in(&self) -> bool {
        self.blocking.load(Ordering::Relaxed) > 0
    }

    /// The program polled, and there was something. Of two threads that do so at a time one may not count.
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

    /// Whether the program makes progress itself, and has not just waited for an event. For who waits, what is left for later means
    /// to be woken once more.
    pub(crate) fn is_polled(&self, now: Instant) -> bool {
        let blocked_at = Instant::from_nanos(self.last_blocked_ns.load(Ordering::Relaxed));
        self.polls_for_itself() && now.since(blocked_at) >= RECENT_NS
    }

    fn polls_for_itself(&self) -> bool {
        self.wakes_at_ns.load(Ordering::Relaxed) == 0 && !self.is_blocked_in()
    }

    /// Whether what the program posts may wait for company: not unless it polls for itself. It counts as waiting
    /// from then on. To be called with the engine's lock, as [`Self::note_released`].
    pub(crate) fn hold(&self, now: Instant) -> bool {
        let may = self.polls_for_itself();
        if may && !self.is_holding() {
            self.held_since_ns.store(now.as_nanos(), Ordering::Relaxed);
            self.is_holding.store(true, Ordering::Relaxed);
        }
        may
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

    /// A poll of the program brought the last answer to its requests, and no reply is expected of it: who sends and then looks
    /// at its memory polls for the last time now. (Requests of which nobody asked to be told of are not waited for.)
    pub(crate) fn note_answered(&self) {
        self.is_to_tell.store(false, Ordering::Relaxed);
        self.has_told.store(true, Ordering::Relaxed);
        self.take_over();
    }

    /// The earliest deadline of the engine is now `at`: the thread must not wait beyond it.
    pub(crate) fn note_deadline(&self, at: Option<Instant>) {
        let wakes_at_ns = self.wakes_at_ns.load(Ordering::Relaxed);
        if at.is_some_and(|at| at.as_nanos() < wakes_at_ns) {
            self.wakeup.signal();
        }
    }
}

/// The thread. It holds the device only while it works, so that the device can end.
fn run(nic: &Weak<Nic>) {
    let _ = set_timer_slack_ns(TIMER_SLACK_NS);
    ask_for_prompt_scheduling();
    let _background = Background::new();
    let Some(mut thread) = nic.upgrade().and_then(|nic| Thread::new(&nic).ok()) else {
        return;
    };
    while let Some(nic) = nic.upgrade() {
        let progress = nic.progress();
        if progress.stop.load(Ordering::Relaxed) || thread.turn(&nic).is_err() {
            return;
        }
    }
}

struct Thread {
    /// The wakeup and, while the thread waits for packets, the sockets. Not while it sleeps: a socket that
    /// is in an epoll set costs every packet 200 ns, even if nobody waits (`urxe-udp`'s README).
    packets: Waiter,
    /// Set while the sockets are in it.
    watched: Option<Arc<EventFd>>,
    /// The wakeup alone.
    nothing: Waiter,
    rounds_seen: u64,
    activity: Activity,
    /// Why it slept last, and how long, unless it has waited for packets since.
    slept: Option<(Why, u64)>,
    has_slept: bool,
    /// How long it has waited until packets came, and whether the program polled meanwhile, if it has not seen yet what they are.
    waited: Option<(u64, bool)>,
    pauses: u32,
    vigilance: Habit,
    parting: Parting,
    spin: Spin,
    chance: Chance,
    events_seen: u64,
    writable: Option<usize>,
}

impl Thread {
    fn new(nic: &Arc<Nic>) -> io::Result<Self> {
        let (packets, nothing) = (Waiter::new()?, Waiter::new()?);
        packets.add(&nic.progress().wakeup.as_fd(), u64::MAX, Interest::READ)?;
        nothing.add(&nic.progress().wakeup.as_fd(), u64::MAX, Interest::READ)?;
        for waiter in [&packets, &nothing] {
            waiter.add(&nic.link_fd(), LINK, Interest::READ)?;
        }
        Ok(Self {
            packets,
            watched: None,
            nothing,
            rounds_seen: 0,
            activity: Activity::default(),
            slept: None,
            has_slept: false,
            waited: None,
            pauses: 0,
            vigilance: Habit::new(VIGILANCE_NS.0, VIGILANCE_NS.1),
            parting: Parting::default(),
            spin: Spin::default(),
            chance: Chance::new(),
            events_seen: 0,
            writable: None,
        })
    }

    /// Sleeps while the program makes progress itself, else makes it.
    fn turn(&mut self, nic: &Nic) -> io::Result<()> {
        let progress = nic.progress();
        let rounds = progress.rounds.load(Ordering::Relaxed);
        let has_run = std::mem::replace(&mut self.rounds_seen, rounds) != rounds;
        let all_polls = progress.polls();
        let work = progress.work();
        let now = now();
        let is_recent = progress.has_run_recently(now);
        let is_polled = self.activity.is_enough(now, all_polls, work) && (is_recent || !has_run);
        if progress.is_holding() {
            let since_ns = progress.held_since_ns.load(Ordering::Relaxed);
            if now.since(Instant::from_nanos(since_ns)) >= HELD_MAX_NS {
                nic.stop_gathering();
            } else {
                nic.release();
            }
        }
        let is_asked = progress.take_over.swap(false, Ordering::Relaxed);
        if progress.has_told.swap(false, Ordering::Relaxed) {
            self.parting.note_told(all_polls);
        } else if is_asked {
            self.parting.forget_told();
        }
        let is_vigilant = self.vigilance.lasts(now);
        let why = if is_asked {
            None
        } else if progress.is_blocked_in() {
            Some(Why::Blocks)
        } else if is_polled && !self.parting.is_unsure(all_polls) {
            self.why_it_may_poll_alone(nic, has_run, is_vigilant)
        } else {
            None
        };
        if let Some(why) = why {
            if why == Why::HasEnough {
                // Its peers need a round.
                nic.run_looking();
            }
            return self.sleep(nic, why);
        }
        progress.is_to_tell.store(false, Ordering::Relaxed);
        self.slept = None;
        if let Some(stale) = self.watched.take_if(|watched| nic.is_stale(watched)) {
            nic.unwatch(&self.packets, &stale)?;
            self.writable = None;
        }
        if self.watched.is_none() {
            self.watched = Some(nic.watch(&self.packets)?);
        }
        if !is_asked && self.chance.is_due(now) && self.step_aside(nic)? {
            if self.may_stop(is_vigilant) && asks_to_be_told(nic) {
                return self.sleep(nic, Why::Sends);
            }
            self.vigilance.forget();
            return self.sleep(nic, Why::Polls);
        }
        if nic.is_engine_taken() && self.pauses < PAUSES_MAX {
            self.waited = None;
            let may_leave =
                self.may_stop(is_vigilant) && !is_asked && !self.parting.is_unsure(all_polls);
            if may_leave && self.pauses >= PAUSES_LONG && asks_to_be_told(nic) {
                return self.sleep(nic, Why::Sends);
            }
            return self.pause(progress);
        }
        self.pauses = 0;
        let round = nic.run_waiting();
        // An answer alone, perhaps an acknowledgement that nobody waits for, says nothing of a program that computes.
        if let Some((waited_ns, has_polled)) = self.waited.take()
            && (has_polled || round.has_requests)
            && self.parting.note_wait(waited_ns, has_polled)
        {
            self.vigilance.note(now);
        }
        if std::mem::take(&mut self.has_slept) && round.received > 0 && !is_recent && !is_asked {
            self.note_stopped(now);
        }
        match self.look_for_packets(nic, round.wanted_at) {
            Looked::Done => Ok(()),
            Looked::InVain(deadline) => self.wait_for_packets(nic, deadline),
        }
    }

    /// Why the thread may leave a program to itself that polls, if it may. One that has been found to stop is watched, unless it
    /// sends and tells when that is over.
    fn why_it_may_poll_alone(&self, nic: &Nic, has_run: bool, is_vigilant: bool) -> Option<Why> {
        let may_ask = !is_vigilant || self.slept_while_it_sends();
        if !has_run {
            (!is_vigilant).then_some(Why::HasEnough)
        } else if self.may_stop(is_vigilant) && may_ask && asks_to_be_told(nic) {
            Some(Why::Sends)
        } else {
            (!is_vigilant).then_some(Why::Polls)
        }
    }

    /// Whether the program may stop polling once its requests are answered.
    const fn may_stop(&self, is_vigilant: bool) -> bool {
        is_vigilant || self.parting.is_likely()
    }

    /// Packets waited while the thread slept: the program had stopped polling.
    fn note_stopped(&mut self, now: Instant) {
        self.vigilance.note(now);
        self.parting.note_stopped();
    }

    /// Whether the thread has slept for as long as the program had requests out.
    const fn slept_while_it_sends(&self) -> bool {
        matches!(self.slept, Some((Why::Sends, _)))
    }

    /// Lets the program have the processor. Whether it polled, or is in the engine.
    fn step_aside(&mut self, nic: &Nic) -> io::Result<bool> {
        let polls = nic.progress().polls();
        clock::wait(&mut self.nothing, Some(CHANCE_NS))?;
        let was_taken = nic.progress().polls() != polls || nic.is_engine_taken();
        self.chance.note_given(now(), was_taken);
        Ok(was_taken)
    }

    fn sleep(&mut self, nic: &Nic, why: Why) -> io::Result<()> {
        let progress = nic.progress();
        self.pauses = 0;
        self.waited = None;
        if why != Why::Sends {
            progress.is_to_tell.store(false, Ordering::Relaxed);
        }
        if let Some(watched) = self.watched.take() {
            nic.unwatch(&self.packets, &watched)?;
            self.writable = None;
        }
        let look_again_ns = match self.slept {
            Some((before, slept_ns)) if before == why => (2 * slept_ns).min(why.sleep_max_ns()),
            _ if why == Why::Sends => SENDS_NS,
            _ => LOOK_AGAIN_NS,
        };
        self.slept = Some((why, look_again_ns));
        self.has_slept = true;
        progress.wakeup.arm();
        let is_wanted =
            || progress.stop.load(Ordering::Relaxed) || progress.take_over.load(Ordering::Relaxed);
        let mut link_changed = false;
        let since = now();
        if !is_wanted() {
            link_changed = is_of_link(clock::wait(&mut self.nothing, Some(look_again_ns))?);
        }
        self.chance.note_wait(since, now());
        progress.wakeup.disarm();
        nic.run_idle_sockets();
        // A thread that blocks knows the timers that there were when it began to. Another may have posted since, and if its
        // packet was lost, nothing ever wakes the first. And a program that polled may have stopped, while its peer waits.
        let is_late = match why {
            Why::Blocks => nic.earliest_deadline().is_some_and(|at| at <= now()),
            // What waits for company says more of the program, and is seen to first: see `turn`.
            Why::Polls | Why::Sends | Why::HasEnough => {
                !progress.is_holding() && nic.is_late(LATE_NS)
            }
        };
        if is_late {
            let Round { received, .. } = nic.run_waiting();
            let now = now();
            if received > 0 && why != Why::Blocks && !progress.has_run_recently(now) {
                self.note_stopped(now);
                self.has_slept = false;
            }
        }
        if link_changed {
            nic.follow_link();
        }
        Ok(())
    }

    /// The program is in the engine, and probably takes in itself what woke this thread. Whoever queues up at a lock makes
    /// its owner wake it with a system call; and this thread, which takes precedence, would keep an owner on its own
    /// processor from leaving the lock.
    fn pause(&mut self, progress: &Progress) -> io::Result<()> {
        let pause_ns = (PAUSE_NS.0 << self.pauses).min(PAUSE_NS.1);
        self.pauses += 1;
        let until_ns = now().after(pause_ns).as_nanos();
        progress.wakes_at_ns.store(until_ns, Ordering::Relaxed);
        clock::wait(&mut self.nothing, Some(pause_ns))?;
        progress.wakes_at_ns.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Looks for more packets before it sleeps, where that pays; not if the program has something to do, perhaps on this
    /// processor, or makes progress itself.
    fn look_for_packets(&mut self, nic: &Nic, deadline: Option<Instant>) -> Looked {
        let progress = nic.progress();
        let events = progress.events.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.events_seen, events) != events {
            return Looked::InVain(deadline);
        }
        let rounds = self.rounds_seen;
        progress.wakes_at_ns.store(AWAKE, Ordering::Relaxed);
        let looked = self.spin.look(nic, deadline, || {
            progress.rounds.load(Ordering::Relaxed) != rounds
                || progress.events.load(Ordering::Relaxed) != events
                || progress.stop.load(Ordering::Relaxed)
        });
        progress.wakes_at_ns.store(0, Ordering::Relaxed);
        looked
    }

    fn wait_for_packets(&mut self, nic: &Nic, deadline: Option<Instant>) -> io::Result<()> {
        let progress = nic.progress();
        let blocked = nic.watch_writable(&self.packets, self.writable)?;
        self.writable = blocked;
        progress.wakes_at_ns.store(
            deadline.map_or(u64::MAX, Instant::as_nanos),
            Ordering::Relaxed,
        );
        progress.wakeup.arm();
        // Between the round and here the program may have started a timer that nobody told us of.
        let is_stale = nic.earliest_deadline() < deadline.or(Some(Instant::from_nanos(u64::MAX)))
            && nic.earliest_deadline().is_some();
        let mut link_changed = false;
        if !is_stale && !progress.stop.load(Ordering::Relaxed) {
            let since = now();
            let timeout_ns = deadline.map(|at| at.since(since));
            let polls = progress.polls();
            let ready = clock::wait(&mut self.packets, timeout_ns)?;
            let until = now();
            self.chance.note_wait(since, until);
            if !ready.is_empty() {
                self.spin.note_sleep(until.since(since));
            }
            if ready.iter().any(|event| event.token() < LINK) {
                let has_polled = progress.polls() != polls;
                self.waited = Some((until.since(since), has_polled));
            }
            link_changed = is_of_link(ready);
            nic.forget_errors(ready);
        }
        progress.wakeup.disarm();
        progress.wakes_at_ns.store(0, Ordering::Relaxed);
        if link_changed {
            nic.follow_link();
        }
        Ok(())
    }
}

/// Asks the program to tell the thread when its requests are answered. Whether there is anything to tell.
fn asks_to_be_told(nic: &Nic) -> bool {
    let is_to_tell = &nic.progress().is_to_tell;
    // First this: the round with the last answer may be under way.
    is_to_tell.store(true, Ordering::Relaxed);
    let is_amid = nic.is_amid();
    if !is_amid {
        is_to_tell.store(false, Ordering::Relaxed);
    }
    is_amid
}

/// Why the thread may leave a program to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It runs rounds.
    Polls,
    /// It runs rounds until its requests are answered, and tells the thread so: from then on it looks at its memory, as it has before.
    Sends,
    /// It works off completions that are there, for which it needs no rounds.
    HasEnough,
    /// Threads of it block in completion channels and run rounds there.
    Blocks,
}

impl Why {
    /// How long the thread sleeps at most before it looks again.
    const fn sleep_max_ns(self) -> u64 {
        match self {
            Self::Polls | Self::Sends => LOOK_AGAIN_POLLED_MAX_NS,
            Self::HasEnough => LOOK_AGAIN_NS,
            Self::Blocks => LOOK_AGAIN_BLOCKED_MAX_NS,
        }
    }
}

/// Adds to a counter that one thread at a time changes, and others only read: cheaper than an atomic addition.
fn add(counter: &AtomicU64, amount: u64) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(amount), Ordering::Relaxed);
}

/// Whether the interface changed.
fn is_of_link(events: &[Event]) -> bool {
    events.iter().any(|event| event.token() == LINK)
}

#[cfg(test)]
mod tests;
