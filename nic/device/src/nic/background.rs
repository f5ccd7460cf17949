//! The background thread: does what [`urxe_duty::Background`] decides, with descriptors and the
//! engine.

use std::io;
use std::sync::{Arc, Weak};

use urxe_duty::{Act, Event, Looker, Ran, Reason};
use urxe_proto::Instant;
use urxe_udp::{Event as Ready, Interest, Waiter, set_timer_slack_ns};

use crate::nic::Nic;
use crate::nic::look::{Looked, look};
use crate::process::clock::{self, now};
use crate::process::signalled::EventFd;
use crate::process::threads::ask_for_prompt_scheduling;
use crate::process::usage::CountedInBackground;

/// The token of news about the interface.
const LINK: u64 = u64::MAX - 1;
/// Timers of the thread may be this late.
const TIMER_SLACK_NS: u32 = 1_000;

/// The thread. It holds the device only while it works, so that the device can end.
pub(crate) fn run(nic: &Weak<Nic>) {
    let _ = set_timer_slack_ns(TIMER_SLACK_NS);
    ask_for_prompt_scheduling();
    let _counted = CountedInBackground::new();
    let Some(mut thread) = nic.upgrade().and_then(|nic| Thread::new(&nic).ok()) else {
        return;
    };
    while let Some(nic) = nic.upgrade() {
        if nic.progress().is_stopped() || thread.turn(&nic).is_err() {
            return;
        }
    }
}

struct Thread {
    policy: urxe_duty::Background,
    looker: Looker,
    /// The wakeup and, while the thread waits for packets, the sockets. Not while it sleeps: a
    /// socket that is in an epoll set costs every packet 200 ns, even if no thread waits
    /// (`urxe-udp`'s README).
    packets: Waiter,
    /// Set while the sockets are in it.
    watched: Option<Arc<EventFd>>,
    /// The wakeup alone.
    nothing: Waiter,
    writable: Option<usize>,
}

impl Thread {
    fn new(nic: &Arc<Nic>) -> io::Result<Self> {
        let (packets, nothing) = (Waiter::new()?, Waiter::new()?);
        for waiter in [&packets, &nothing] {
            waiter.add(&nic.progress().wakeup_fd(), u64::MAX, Interest::READ)?;
            waiter.add(&nic.link_fd(), LINK, Interest::READ)?;
        }
        Ok(Self {
            policy: urxe_duty::Background::new(),
            looker: Looker::default(),
            packets,
            watched: None,
            nothing,
            writable: None,
        })
    }

    /// Sleeps while the program makes progress itself, else makes it.
    fn turn(&mut self, nic: &Nic) -> io::Result<()> {
        let now = now();
        if nic.progress().has_held_too_long(now) {
            nic.stop_gathering();
        } else {
            nic.release();
        }
        let mut event = Event::Turn(nic.progress().see(now));
        loop {
            let act = self.policy.next(event);
            if log::log_enabled!(target: "urxe::duty", log::Level::Trace) {
                log::trace!(target: "urxe::duty", "{}", serde_json::json!([event, act]));
            }
            if act == Act::EndTurn {
                return Ok(());
            }
            event = self.follow(nic, act)?;
        }
    }

    /// Does what the policy says. What came of it.
    fn follow(&mut self, nic: &Nic, act: Act) -> io::Result<Event> {
        Ok(match act {
            Act::Ask => Event::Asked {
                is_amid: asks_to_be_told(nic),
            },
            Act::Watch => {
                self.watch(nic)?;
                Event::Watches
            }
            Act::StepAside { for_ns } => self.step_aside(nic, for_ns)?,
            Act::Run { unless_taken } if unless_taken && nic.is_engine_taken() => Event::Taken,
            Act::Run { .. } => {
                let round = nic.run_waiting();
                Event::Ran(Ran {
                    received: round.received as u64,
                    has_requests: round.has_requests,
                    wanted_at_ns: round.wanted_at.map(Instant::as_nanos),
                    events: nic.progress().events(),
                    may_look: self.looker.may_pay(),
                })
            }
            Act::Look {
                wanted_at_ns,
                rounds,
                events,
            } => self.look(nic, wanted_at_ns.map(Instant::from_nanos), rounds, events),
            Act::Wait { until_ns } => self.wait(nic, until_ns.map(Instant::from_nanos))?,
            Act::Pause { for_ns } => {
                nic.progress().note_waiting(Some(now().after(for_ns)));
                clock::wait(&mut self.nothing, Some(for_ns))?;
                nic.progress().note_back();
                Event::Paused
            }
            Act::Sleep { reason, for_ns } => self.sleep(nic, reason, for_ns)?,
            Act::RunIfLate {
                by_ns,
                unless_taken,
            } => run_if_late(nic, by_ns, unless_taken),
            Act::EndTurn => Event::Paused,
        })
    }

    fn watch(&mut self, nic: &Nic) -> io::Result<()> {
        nic.progress().ask_to_tell(false);
        if let Some(stale) = self.watched.take_if(|watched| nic.is_stale(watched)) {
            self.unwatch(nic, &stale)?;
        }
        if self.watched.is_none() {
            self.watched = Some(nic.watch(&self.packets)?);
        }
        Ok(())
    }

    fn unwatch(&mut self, nic: &Nic, watched: &EventFd) -> io::Result<()> {
        self.writable = None;
        nic.unwatch(&self.packets, watched)
    }

    fn step_aside(&mut self, nic: &Nic, for_ns: u64) -> io::Result<Event> {
        let polls = nic.progress().polls();
        clock::wait(&mut self.nothing, Some(for_ns))?;
        Ok(Event::SteppedAside {
            was_taken: nic.progress().polls() != polls || nic.is_engine_taken(),
            now_ns: now().as_nanos(),
        })
    }

    fn sleep(&mut self, nic: &Nic, reason: Reason, for_ns: u64) -> io::Result<Event> {
        let progress = nic.progress();
        if reason == Reason::HasEnough {
            // Its peers need a round.
            nic.run_looking();
        }
        if reason != Reason::Sends {
            progress.ask_to_tell(false);
        }
        if let Some(watched) = self.watched.take() {
            self.unwatch(nic, &watched)?;
        }
        progress.arm();
        let mut link_changed = false;
        let since = now();
        if !progress.is_wanted() {
            link_changed = is_of_link(clock::wait(&mut self.nothing, Some(for_ns))?);
        }
        let until = now();
        progress.disarm();
        nic.run_idle_sockets();
        if link_changed {
            nic.follow_link();
        }
        Ok(Event::Slept {
            since_ns: since.as_nanos(),
            until_ns: until.as_nanos(),
        })
    }

    fn look(&mut self, nic: &Nic, deadline: Option<Instant>, rounds: u64, events: u64) -> Event {
        let progress = nic.progress();
        progress.note_awake();
        let looked = look(&mut self.looker, nic, deadline, || {
            progress.rounds() != rounds || progress.events() != events || progress.is_stopped()
        });
        progress.note_back();
        match looked {
            Looked::Done => Event::LookedAway,
            Looked::InVain(wanted_at) => Event::LookedInVain {
                wanted_at_ns: wanted_at.map(Instant::as_nanos),
            },
        }
    }

    fn wait(&mut self, nic: &Nic, deadline: Option<Instant>) -> io::Result<Event> {
        let progress = nic.progress();
        self.writable = nic.watch_writable(&self.packets, self.writable)?;
        progress.note_waiting(deadline);
        progress.arm();
        // Between the round and here the program may have started a timer that this thread was not
        // told of.
        let is_stale = nic
            .earliest_deadline()
            .is_some_and(|at| deadline.is_none_or(|deadline| at < deadline));
        let mut event = Event::HadNoTimeToWait;
        let mut link_changed = false;
        if !is_stale && !progress.is_stopped() {
            let since = now();
            let polls = progress.polls();
            let ready = clock::wait(&mut self.packets, deadline.map(|at| at.since(since)))?;
            let until = now();
            if !ready.is_empty() {
                self.looker.note_sleep(until.since(since));
            }
            event = Event::Waited {
                since_ns: since.as_nanos(),
                until_ns: until.as_nanos(),
                has_packets: ready.iter().any(|each| each.token() < LINK),
                has_polled: progress.polls() != polls,
            };
            link_changed = is_of_link(ready);
            nic.forget_errors(ready);
        }
        progress.disarm();
        progress.note_back();
        if link_changed {
            nic.follow_link();
        }
        Ok(event)
    }
}

/// Runs a round if the engine should have run `by_ns` ago; not, if `unless_taken`, when another
/// thread is in the engine or something waits for company: that says more of the program, and is
/// seen to when the next turn begins.
fn run_if_late(nic: &Nic, by_ns: u64, unless_taken: bool) -> Event {
    let progress = nic.progress();
    let is_late = if unless_taken {
        !progress.is_holding() && nic.is_late(by_ns)
    } else {
        nic.earliest_deadline()
            .is_some_and(|at| now().since(at) >= by_ns && at <= now())
    };
    if !is_late {
        return Event::InTime;
    }
    let received = nic.run_waiting().received as u64;
    Event::RanLate {
        now_ns: now().as_nanos(),
        ran_at_ns: progress.ran_at_ns(),
        received,
    }
}

/// Asks the program to tell the thread when its requests are answered. Whether there is anything to
/// tell.
fn asks_to_be_told(nic: &Nic) -> bool {
    // First this: the round with the last answer may be under way.
    nic.progress().ask_to_tell(true);
    let is_amid = nic.is_amid();
    if !is_amid {
        nic.progress().ask_to_tell(false);
    }
    is_amid
}

/// Whether the interface changed.
fn is_of_link(ready: &[Ready]) -> bool {
    ready.iter().any(|each| each.token() == LINK)
}

#[cfg(test)]
mod tests;
