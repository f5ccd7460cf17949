//! What happens to the background thread, and what it does.

use serde::{Deserialize, Serialize};

use crate::constants::{
    LOOK_AGAIN_BLOCKED_MAX_NS, LOOK_AGAIN_NS, LOOK_AGAIN_POLLED_MAX_NS, SENDS_NS,
};

/// What the thread sees when a turn begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When it is: nanoseconds, as all times here.
    pub now_ns: u64,
    /// Rounds that the program ran itself, so far.
    pub rounds: u64,
    /// Polls of the program so far: these rounds, and polls that found completions and needed no
    /// round.
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
    /// Look for packets before waiting for them: until the program makes progress itself, or has
    /// something to do, perhaps on this processor.
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
    /// Wait for the program that is in the engine. A thread that queues up at the lock makes its
    /// owner wake it by a system call, and would keep an owner on its own processor from leaving
    /// the lock: it takes precedence.
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
    /// It runs rounds until its requests are answered, and tells so: from then on it reads its
    /// memory, as it has before.
    Sends,
    /// It works off completions that are there, for which it needs no rounds. Its peers need one.
    HasEnough,
    /// Threads of it block in completion channels and run rounds there.
    Blocks,
}

impl Reason {
    /// How long the thread sleeps at most before it looks again.
    pub(crate) const fn sleep_max_ns(self) -> u64 {
        match self {
            Self::Polls | Self::Sends => LOOK_AGAIN_POLLED_MAX_NS,
            Self::HasEnough => LOOK_AGAIN_NS,
            Self::Blocks => LOOK_AGAIN_BLOCKED_MAX_NS,
        }
    }

    pub(crate) const fn first_sleep_ns(self) -> u64 {
        match self {
            Self::Sends => SENDS_NS,
            Self::Polls | Self::HasEnough | Self::Blocks => LOOK_AGAIN_NS,
        }
    }
}
