//! What the background thread does: it sleeps while the program makes progress itself, and makes
//! progress when the program computes, reads its memory, or waits in a `poll` of its own.
//!
//! The thread hands every [`Event`] to [`Background::next`], and does what the [`Act`] says; the
//! outcome is the next event, until [`Act::EndTurn`].

use urxe_proto::{Habit, Instant};

use crate::act::{Act, Event, Ran, Reason, Seen};
use crate::activity::Activity;
use crate::chance::Chance;
use crate::constants::{
    LATE_NS, PAUSE_MAX_NS, PAUSE_MIN_NS, PAUSES_LONG, PAUSES_MAX, RECENT_NS, STEP_ASIDE_NS,
    VIGILANCE_MAX_NS, VIGILANCE_MIN_NS,
};
use crate::parting::Parting;

/// What the thread does if the program has nothing to tell.
#[derive(Clone, Copy, Debug)]
enum Otherwise {
    TakeOver,
    Sleep,
    SleepUnworried,
    Pause,
}

/// The turn under way.
#[derive(Clone, Copy, Debug)]
struct Turn {
    now: Instant,
    polls: u64,
    /// The program has just run a round itself.
    is_recent: bool,
    is_vigilant: bool,
    is_asked: bool,
    otherwise: Otherwise,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Background {
    turn: Turn,
    rounds_seen: u64,
    events_seen: u64,
    activity: Activity,
    /// Why the thread slept last, and how long, unless it has waited for packets since.
    slept: Option<(Reason, u64)>,
    has_slept: bool,
    /// How long it has waited until packets came, and whether the program polled meanwhile, if it
    /// has not seen yet what they are.
    waited: Option<(u64, bool)>,
    pauses: u32,
    /// The program has stopped polling without a word: the thread does not sleep.
    vigilance: Habit,
    parting: Parting,
    chance: Chance,
}

impl Default for Background {
    fn default() -> Self {
        Self::new()
    }
}

impl Background {
    /// The thread begins.
    #[must_use]
    pub fn new() -> Self {
        Self {
            turn: Turn {
                now: Instant::from_nanos(0),
                polls: 0,
                is_recent: false,
                is_vigilant: false,
                is_asked: false,
                otherwise: Otherwise::TakeOver,
            },
            rounds_seen: 0,
            events_seen: 0,
            activity: Activity::default(),
            slept: None,
            has_slept: false,
            waited: None,
            pauses: 0,
            vigilance: Habit::new(VIGILANCE_MIN_NS, VIGILANCE_MAX_NS),
            parting: Parting::default(),
            chance: Chance::new(),
        }
    }

    /// What to do after `event`.
    pub fn next(&mut self, event: Event) -> Act {
        match event {
            Event::Turn(seen) => self.begin(&seen),
            Event::Asked { is_amid: true } => self.sleep(Reason::Sends),
            Event::Asked { is_amid: false } => self.go_on(),
            Event::Watches => self.watch(),
            Event::SteppedAside { now_ns, was_taken } => {
                self.come_back(Instant::from_nanos(now_ns), was_taken)
            }
            Event::Taken => self.give_way(),
            Event::Ran(ran) => self.after_round(&ran),
            Event::LookedInVain { wanted_at_ns } => Act::Wait {
                until_ns: wanted_at_ns,
            },
            Event::Waited {
                since_ns,
                until_ns,
                has_packets,
                has_polled,
            } => {
                let (since, until) = (Instant::from_nanos(since_ns), Instant::from_nanos(until_ns));
                self.chance.note_wait(since, until);
                if has_packets {
                    self.waited = Some((until.since(since), has_polled));
                }
                Act::EndTurn
            }
            Event::Slept { since_ns, until_ns } => self.wake(since_ns, until_ns),
            Event::RanLate {
                now_ns,
                ran_at_ns,
                received,
            } => {
                let now = Instant::from_nanos(now_ns);
                if received > 0 && !self.leaves_to_blocking_calls() && !is_recent(now, ran_at_ns) {
                    self.note_stopped(now);
                    self.has_slept = false;
                }
                Act::EndTurn
            }
            Event::LookedAway | Event::HadNoTimeToWait | Event::Paused | Event::InTime => {
                Act::EndTurn
            }
        }
    }

    fn begin(&mut self, seen: &Seen) -> Act {
        let now = Instant::from_nanos(seen.now_ns);
        let has_run = core::mem::replace(&mut self.rounds_seen, seen.rounds) != seen.rounds;
        let is_recent = is_recent(now, seen.ran_at_ns);
        let is_polled =
            self.activity.is_enough(now, seen.polls, seen.work) && (is_recent || !has_run);
        if seen.has_told {
            self.parting.note_told(seen.polls);
        } else if seen.is_asked {
            self.parting.forget_told();
        }
        self.turn = Turn {
            now,
            polls: seen.polls,
            is_recent,
            is_vigilant: self.vigilance.lasts(now),
            is_asked: seen.is_asked,
            otherwise: Otherwise::TakeOver,
        };
        if seen.is_asked {
            self.take_over()
        } else if seen.is_blocked_in {
            self.sleep(Reason::Blocks)
        } else if is_polled && !self.parting.is_unsure(seen.polls) {
            self.leave_alone(has_run)
        } else {
            self.take_over()
        }
    }

    /// The program polls. One that has been found to stop is watched, unless it sends and tells
    /// when that is over.
    fn leave_alone(&mut self, has_run: bool) -> Act {
        let is_vigilant = self.turn.is_vigilant;
        let may_ask = !is_vigilant || self.slept_while_it_sends();
        if has_run && self.may_stop() && may_ask {
            let otherwise = if is_vigilant {
                Otherwise::TakeOver
            } else {
                Otherwise::Sleep
            };
            self.ask(otherwise)
        } else if is_vigilant {
            self.take_over()
        } else if has_run {
            self.sleep(Reason::Polls)
        } else {
            self.sleep(Reason::HasEnough)
        }
    }

    const fn ask(&mut self, otherwise: Otherwise) -> Act {
        self.turn.otherwise = otherwise;
        Act::Ask
    }

    /// The program has nothing to tell.
    fn go_on(&mut self) -> Act {
        match self.turn.otherwise {
            Otherwise::TakeOver => self.take_over(),
            Otherwise::Sleep => self.sleep(Reason::Polls),
            Otherwise::SleepUnworried => {
                self.vigilance.forget();
                self.sleep(Reason::Polls)
            }
            Otherwise::Pause => self.pause(),
        }
    }

    const fn take_over(&mut self) -> Act {
        self.slept = None;
        Act::Watch
    }

    fn watch(&self) -> Act {
        if !self.turn.is_asked && self.chance.is_due(self.turn.now) {
            Act::StepAside {
                for_ns: STEP_ASIDE_NS,
            }
        } else {
            self.run()
        }
    }

    fn come_back(&mut self, now: Instant, was_taken: bool) -> Act {
        self.chance.note_given(now, was_taken);
        if !was_taken {
            self.run()
        } else if self.may_stop() {
            self.ask(Otherwise::SleepUnworried)
        } else {
            self.vigilance.forget();
            self.sleep(Reason::Polls)
        }
    }

    const fn run(&self) -> Act {
        Act::Run {
            unless_taken: self.pauses < PAUSES_MAX,
        }
    }

    /// The program is in the engine, and probably takes in itself what woke this thread.
    fn give_way(&mut self) -> Act {
        self.waited = None;
        let may_leave =
            self.may_stop() && !self.turn.is_asked && !self.parting.is_unsure(self.turn.polls);
        if may_leave && self.pauses >= PAUSES_LONG {
            self.ask(Otherwise::Pause)
        } else {
            self.pause()
        }
    }

    fn pause(&mut self) -> Act {
        let for_ns = (PAUSE_MIN_NS << self.pauses).min(PAUSE_MAX_NS);
        self.pauses += 1;
        Act::Pause { for_ns }
    }

    fn after_round(&mut self, ran: &Ran) -> Act {
        self.pauses = 0;
        let Turn {
            now,
            is_recent,
            is_asked,
            ..
        } = self.turn;
        // An answer alone, perhaps an acknowledgement that completes nothing, says nothing of a
        // program that computes.
        if let Some((waited_ns, has_polled)) = self.waited.take()
            && (has_polled || ran.has_requests)
            && self.parting.note_wait(waited_ns, has_polled)
        {
            self.vigilance.note(now);
        }
        if core::mem::take(&mut self.has_slept) && ran.received > 0 && !is_recent && !is_asked {
            self.note_stopped(now);
        }
        let has_event = core::mem::replace(&mut self.events_seen, ran.events) != ran.events;
        let wanted_at_ns = ran.wanted_at_ns;
        if ran.may_look && !has_event {
            Act::Look {
                wanted_at_ns,
                rounds: self.rounds_seen,
                events: ran.events,
            }
        } else {
            Act::Wait {
                until_ns: wanted_at_ns,
            }
        }
    }

    fn sleep(&mut self, reason: Reason) -> Act {
        self.pauses = 0;
        self.waited = None;
        let for_ns = match self.slept {
            Some((before, slept_ns)) if before == reason => {
                (2 * slept_ns).min(reason.sleep_max_ns())
            }
            _ => reason.first_sleep_ns(),
        };
        self.slept = Some((reason, for_ns));
        self.has_slept = true;
        Act::Sleep { reason, for_ns }
    }

    fn wake(&mut self, since_ns: u64, until_ns: u64) -> Act {
        self.chance
            .note_wait(Instant::from_nanos(since_ns), Instant::from_nanos(until_ns));
        // A thread that blocks knows the timers that there were when it began to. Another may have
        // posted since, and if its packet was lost, nothing ever wakes the first. And a program
        // that polled may have stopped, while its peer waits.
        let unless_taken = !self.leaves_to_blocking_calls();
        let by_ns = if unless_taken { LATE_NS } else { 0 };
        Act::RunIfLate {
            by_ns,
            unless_taken,
        }
    }

    /// Packets waited while the thread slept: the program had stopped polling.
    fn note_stopped(&mut self, now: Instant) {
        self.vigilance.note(now);
        self.parting.note_stopped();
    }

    /// Whether the program may stop polling once its requests are answered.
    const fn may_stop(&self) -> bool {
        self.turn.is_vigilant || self.parting.is_likely()
    }

    const fn slept_while_it_sends(&self) -> bool {
        matches!(self.slept, Some((Reason::Sends, _)))
    }

    const fn leaves_to_blocking_calls(&self) -> bool {
        matches!(self.slept, Some((Reason::Blocks, _)))
    }
}

/// Whether the program, which last ran a round at `ran_at_ns`, may be about to run another.
fn is_recent(now: Instant, ran_at_ns: u64) -> bool {
    now.since(Instant::from_nanos(ran_at_ns)) < RECENT_NS
}

#[cfg(test)]
mod tests;
