//! What the background thread does: it sleeps while the program makes progress itself, and makes progress when the program
//! computes, reads its memory, or waits in a `poll` of its own.
//!
//! The thread hands every [`Event`] to [`Background::next`], and does what the [`Act`] says; the outcome is the next event,
//! until [`Act::EndTurn`].

use serde::{Deserialize, Serialize};
use urxe_proto::{Habit, Instant};

use crate::activity::Activity;
use crate::chance::Chance;
use crate::constants::{
    LATE_NS, LOOK_AGAIN_BLOCKED_MAX_NS, LOOK_AGAIN_NS, LOOK_AGAIN_POLLED_MAX_NS, PAUSE_MAX_NS,
    PAUSE_MIN_NS, PAUSES_LONG, PAUSES_MAX, RECENT_NS, SENDS_NS, STEP_ASIDE_NS, VIGILANCE_MAX_NS,
    VIGILANCE_MIN_NS,
};
use crate::parting::Parting;

/// What the thread sees when a turn begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When it is: nanoseconds, as all times here.
    pub now_ns: u64,
    /// Rounds that the program ran itself, so far.
    pub rounds: u64,
    /// Polls of the program so far: these rounds, and polls that found completions and needed no round.
    pub polls: u64,
    /// Packets that came and went in these rounds, and posts, so far.
    pub work: u64,
    /// When the program last ran a round that looked at the clock, as all do that do something.
    pub ran_at_ns: u64,
    /// Whether the program has asked the thread to watch the sockets now.
    pub is_asked: bool,
    /// Whether the program has told that its requests are answered ([`Act::Ask`]).
    pub has_told: bool,
    /// Whether threads of the program run the engine in blocking calls.
    pub is_blocked_in: bool,
}

/// What a round of the thread came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// How many packets came.
    pub received: u64,
    /// Whether they were more than answers.
    pub has_requests: bool,
    /// When the next round is wanted.
    pub wanted_at_ns: Option<u64>,
    /// Events that completion queues have raised for the program, so far.
    pub events: u64,
    /// Whether to look for packets has paid ([`crate::Looker::may_pay`]).
    pub may_look: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A turn begins.
    Turn(Seen),
    /// After [`Act::Ask`]: whether the program has requests without an answer, or owes a reply.
    Asked {
        /// Whether it will tell.
        is_amid: bool,
    },
    /// After [`Act::Watch`].
    Watches,
    /// After [`Act::StepAside`].
    SteppedAside {
        /// When that was over.
        now_ns: u64,
        /// Whether the program polled meanwhile, or is in the engine.
        was_taken: bool,
    },
    /// After [`Act::Run`]: another thread is in the engine.
    Taken,
    /// After [`Act::Run`].
    Ran(Ran),
    /// After [`Act::Look`]: nothing came.
    LookedInVain {
        /// When the next round is wanted.
        wanted_at_ns: Option<u64>,
    },
    /// After [`Act::Look`]: the program has something to do, or makes progress itself.
    LookedAway,
    /// After [`Act::Wait`].
    Waited {
        /// When the wait began.
        since_ns: u64,
        /// When it ended.
        until_ns: u64,
        /// Whether packets ended it.
        has_packets: bool,
        /// Whether the program polled meanwhile.
        has_polled: bool,
    },
    /// After [`Act::Wait`], if a deadline had come up before it began.
    HadNoTimeToWait,
    /// After [`Act::Pause`].
    Paused,
    /// After [`Act::Sleep`].
    Slept {
        /// When the sleep began.
        since_ns: u64,
        /// When it ended.
        until_ns: u64,
    },
    /// After [`Act::RunIfLate`]: no deadline was missed.
    InTime,
    /// After [`Act::RunIfLate`], and a round.
    RanLate {
        /// When it is.
        now_ns: u64,
        /// As [`Seen::ran_at_ns`].
        ran_at_ns: u64,
        /// How many packets came.
        received: u64,
    },
}

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Ask the program to tell when its requests are answered.
    Ask,
    /// Watch the sockets, and ask for nothing any more.
    Watch,
    /// Let the program have the processor.
    StepAside {
        /// For so long.
        for_ns: u64,
    },
    /// Run a round.
    Run {
        /// Not if another thread is in the engine.
        unless_taken: bool,
    },
    /// Look for packets before waiting for them: until the program makes progress itself, or has something to do, perhaps on
    /// this processor.
    Look {
        /// When the next round is wanted.
        wanted_at_ns: Option<u64>,
        /// [`Seen::rounds`]: more of them end the look.
        rounds: u64,
        /// [`Ran::events`]: more of them end the look.
        events: u64,
    },
    /// Wait for packets in the kernel.
    Wait {
        /// Until then at most.
        until_ns: Option<u64>,
    },
    /// Wait for the program that is in the engine. A thread that queues up at the lock makes its owner wake it by a system
    /// call, and would keep an owner on its own processor from leaving the lock: it takes precedence.
    Pause {
        /// For so long.
        for_ns: u64,
    },
    /// Leave the program to itself, without watching the sockets.
    Sleep {
        /// Why.
        reason: Reason,
        /// For so long.
        for_ns: u64,
    },
    /// Run a round if the engine has missed a deadline.
    RunIfLate {
        /// By so much.
        by_ns: u64,
        /// Not if another thread is in the engine, which will see to it.
        unless_taken: bool,
    },
    /// The turn is over.
    EndTurn,
}

/// Why the thread may leave a program to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// It runs rounds.
    Polls,
    /// It runs rounds until its requests are answered, and tells so: from then on it reads its memory, as it has before.
    Sends,
    /// It works off completions that are there, for which it needs no rounds. Its peers need one.
    HasEnough,
    /// Threads of it block in completion channels and run rounds there.
    Blocks,
}

impl Reason {
    /// How long the thread sleeps at most before it looks again.
    const fn sleep_max_ns(self) -> u64 {
        match self {
            Self::Polls | Self::Sends => LOOK_AGAIN_POLLED_MAX_NS,
            Self::HasEnough => LOOK_AGAIN_NS,
            Self::Blocks => LOOK_AGAIN_BLOCKED_MAX_NS,
        }
    }

    const fn first_sleep_ns(self) -> u64 {
        match self {
            Self::Sends => SENDS_NS,
            Self::Polls | Self::HasEnough | Self::Blocks => LOOK_AGAIN_NS,
        }
    }
}

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
    /// How long it has waited until packets came, and whether the program polled meanwhile, if it has not seen yet what they are.
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

    /// The program polls. One that has been found to stop is watched, unless it sends and tells when that is over.
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
        // An answer alone, perhaps an acknowledgement that nobody waits for, says nothing of a program that computes.
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
        // A thread that blocks knows the timers that there were when it began to. Another may have posted since, and if its
        // packet was lost, nothing ever wakes the first. And a program that polled may have stopped, while its peer waits.
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
mod tests {
    use super::*;

    const START_NS: u64 = 1_000_000_000;

    /// A turn at `now_ns` beside a program that has polled and run rounds so often so far.
    const fn turn(now_ns: u64, polls: u64) -> Event {
        Event::Turn(Seen {
            now_ns,
            rounds: polls,
            polls,
            work: 0,
            ran_at_ns: now_ns,
            is_asked: false,
            has_told: false,
            is_blocked_in: false,
        })
    }

    const fn ran(received: u64, has_requests: bool) -> Event {
        Event::Ran(Ran {
            received,
            has_requests,
            wanted_at_ns: None,
            events: 0,
            may_look: false,
        })
    }

    /// A thread that has just waited, so that it does not step aside, beside a program that has not polled yet.
    fn rested() -> Background {
        let mut thread = Background::new();
        thread
            .chance
            .note_wait(Instant::from_nanos(0), Instant::from_nanos(START_NS));
        thread.next(turn(START_NS - 1, 0));
        thread
    }

    #[test]
    fn a_program_that_polls_is_left_alone_and_looked_at_ever_less_often() {
        let mut thread = rested();
        for (at, for_ns) in [
            (1, LOOK_AGAIN_NS),
            (2, LOOK_AGAIN_POLLED_MAX_NS),
            (4, LOOK_AGAIN_POLLED_MAX_NS),
        ] {
            let now_ns = START_NS + at * LOOK_AGAIN_NS;
            let sleep = Act::Sleep {
                reason: Reason::Polls,
                for_ns,
            };
            assert_eq!(thread.next(turn(now_ns, at * 1_000)), sleep);
            let slept = Event::Slept {
                since_ns: now_ns,
                until_ns: now_ns + for_ns,
            };
            assert_eq!(
                thread.next(slept),
                Act::RunIfLate {
                    by_ns: LATE_NS,
                    unless_taken: true
                }
            );
            assert_eq!(thread.next(Event::InTime), Act::EndTurn);
        }
    }

    #[test]
    fn a_thread_that_was_asked_watches_although_the_program_polls() {
        let mut thread = rested();
        let Event::Turn(seen) = turn(START_NS, 1_000) else {
            unreachable!()
        };
        let asked = Event::Turn(Seen {
            is_asked: true,
            ..seen
        });
        assert_eq!(thread.next(asked), Act::Watch);
        assert_eq!(thread.next(Event::Watches), Act::Run { unless_taken: true });
        assert_eq!(thread.next(ran(0, false)), Act::Wait { until_ns: None });
    }

    /// A pause every 50 us would be half of the time of a long message.
    #[test]
    fn a_program_that_is_busy_for_long_and_may_stop_is_left_alone_after_one_pause_and_is_to_tell() {
        for may_stop in [false, true] {
            let mut thread = rested();
            if may_stop {
                thread.note_stopped(Instant::from_nanos(START_NS));
            }
            for pauses in 0..=PAUSES_LONG {
                assert_eq!(thread.next(turn(START_NS, 0)), Act::Watch);
                assert_eq!(thread.next(Event::Watches), Act::Run { unless_taken: true });
                let act = thread.next(Event::Taken);
                if may_stop && pauses == PAUSES_LONG {
                    assert_eq!(act, Act::Ask);
                    let sleep = Act::Sleep {
                        reason: Reason::Sends,
                        for_ns: SENDS_NS,
                    };
                    assert_eq!(thread.clone().next(Event::Asked { is_amid: true }), sleep);
                    assert!(matches!(
                        thread.next(Event::Asked { is_amid: false }),
                        Act::Pause { .. }
                    ));
                } else {
                    assert!(matches!(act, Act::Pause { .. }), "{act:?}");
                }
                assert_eq!(thread.next(Event::Paused), Act::EndTurn);
            }
        }
    }

    #[test]
    fn after_many_pauses_the_thread_queues_up_at_the_lock() {
        let mut thread = rested();
        for _ in 0..PAUSES_MAX {
            thread.next(turn(START_NS, 0));
            assert_eq!(thread.next(Event::Watches), Act::Run { unless_taken: true });
            assert!(matches!(
                thread.next(Event::Taken),
                Act::Pause {
                    for_ns: ..=PAUSE_MAX_NS
                }
            ));
        }
        thread.next(turn(START_NS, 0));
        assert_eq!(
            thread.next(Event::Watches),
            Act::Run {
                unless_taken: false
            }
        );
    }

    /// A program that computes between its messages, and whose peer acknowledges late, was taken for one that reads its memory:
    /// MPI messages of 8 KiB took two to three times as long on two processors.
    #[test]
    fn a_program_that_told_has_stopped_if_a_message_comes_while_it_does_not_poll_but_not_if_an_answer_does()
     {
        for has_requests in [false, true] {
            let mut thread = rested();
            let Event::Turn(seen) = turn(START_NS, 0) else {
                unreachable!()
            };
            assert_eq!(
                thread.next(Event::Turn(Seen {
                    has_told: true,
                    is_asked: true,
                    ..seen
                })),
                Act::Watch
            );
            thread.next(Event::Watches);
            thread.next(ran(0, false));
            let waited = Event::Waited {
                since_ns: START_NS,
                until_ns: START_NS + 1_000_000,
                has_packets: true,
                has_polled: false,
            };
            assert_eq!(thread.next(waited), Act::EndTurn);
            thread.next(turn(START_NS + 1_000_000, 0));
            thread.next(Event::Watches);
            thread.next(ran(1, has_requests));
            assert_eq!(thread.waited, None);
            assert_eq!(thread.parting.is_likely(), has_requests);
        }
    }

    #[test]
    fn a_program_beside_which_packets_waited_is_watched_for_a_while() {
        let mut thread = rested();
        let sleep = thread.next(turn(START_NS, 1_000));
        assert!(matches!(sleep, Act::Sleep { .. }));
        let woken_ns = START_NS + LOOK_AGAIN_NS;
        thread.next(Event::Slept {
            since_ns: START_NS,
            until_ns: woken_ns,
        });
        let late = Event::RanLate {
            now_ns: woken_ns,
            ran_at_ns: START_NS - RECENT_NS,
            received: 1,
        };
        thread.next(late);
        let soon_ns = woken_ns + VIGILANCE_MIN_NS - 1;
        assert_eq!(
            thread.next(turn(soon_ns, 10_000)),
            Act::Watch,
            "it sleeps no more, however often the program polls"
        );
        let sleeps = thread.next(turn(soon_ns + 1, 20_000));
        assert_eq!(sleeps, Act::Ask, "then it asks to be told");
        let asked = thread.next(Event::Asked { is_amid: false });
        assert!(matches!(
            asked,
            Act::Sleep {
                reason: Reason::Polls,
                ..
            }
        ));
    }
}
