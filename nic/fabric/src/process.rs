//! Programs on hosts: what they send when. Each has a processor of its own, and a message costs it
//! what the stack says.
//!
//! Completions of sends cost nothing: benchmarks ask for one in a hundred, or wait for many at
//! once. Only one message after the other is waited for by the completion of each, which costs what
//! it costs to take in a message.

use alloc::vec::Vec;

use crate::traffic::{Algorithm, Operation};

/// A program.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) host: u32,
    /// When its processor is free.
    pub(crate) cpu_free_at: u64,
    /// What it talks over: connections, or byte streams that it sends on.
    pub(crate) channels: Vec<u32>,
    pub(crate) operation: Operation,
    /// Length of a message on each channel.
    pub(crate) message_bytes: u32,
    pub(crate) role: Role,
    /// Payload that arrived for it and was new.
    pub(crate) received_bytes: u64,
}

/// What a program does.
#[derive(Debug)]
pub(crate) enum Role {
    /// Sends first, and measures.
    Ping(Ping),
    /// Answers.
    Pong { arrived: u32 },
    /// Keeps messages under way.
    Stream(Stream),
    /// Takes what comes.
    Sink(Counted),
    /// Takes part in an exchange of all with all.
    Exchange(Exchange),
    /// Sends flows of its host, and receives those of others.
    Flows,
}

/// See [`Role::Ping`].
#[derive(Debug, Default)]
pub(crate) struct Ping {
    pub(crate) warmup: u32,
    pub(crate) iterations: u32,
    pub(crate) done: u32,
    /// Parts of the answer that came.
    pub(crate) arrived: u32,
    pub(crate) started_at: u64,
    /// Half of each round trip that counts, picoseconds.
    pub(crate) times_ps: Vec<u64>,
}

/// See [`Role::Stream`].
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) depth: u32,
    /// By channel: messages that are not posted yet.
    pub(crate) left: Vec<u64>,
    pub(crate) counted: Counted,
}

/// Messages that ended, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) expected: u64,
    pub(crate) ended: u64,
    /// When the last of those ended that do not count.
    pub(crate) counts_from: u64,
    pub(crate) last_at: u64,
}

/// Messages at the beginning that do not count: one in so many.
const UNCOUNTED_PART: u64 = 4;

impl Counted {
    pub(crate) const fn of(expected: u64) -> Self {
        Self {
            expected,
            ended: 0,
            counts_from: 0,
            last_at: 0,
        }
    }

    const fn uncounted(&self) -> u64 {
        self.expected / UNCOUNTED_PART
    }

    pub(crate) fn note(&mut self, at: u64) {
        self.ended += 1;
        self.last_at = self.last_at.max(at);
        if self.ended == self.uncounted() {
            self.counts_from = at;
        }
    }

    /// Whether the message that was noted last is the last that was expected.
    pub(crate) const fn is_complete(&self) -> bool {
        self.expected > 0 && self.ended == self.expected
    }

    /// Messages that count, and the picoseconds they took.
    pub(crate) const fn counted(&self) -> (u64, u64) {
        (
            self.ended.saturating_sub(self.uncounted()),
            self.last_at - self.counts_from,
        )
    }
}

/// See [`Role::Exchange`]. An iteration goes in rounds: one for all others at once, or one for each
/// of them.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) algorithm: Algorithm,
    pub(crate) iterations: u32,
    pub(crate) has_begun: bool,
    /// Rounds that are over, of all iterations.
    pub(crate) rounds: u32,
    /// Whether the block of this round was sent off: pairwise, it may wait for the rank that
    /// receives it.
    pub(crate) is_under_way: bool,
    /// Blocks of this round that were sent.
    pub(crate) sent: u32,
    /// Blocks that came, of this round or, from a rank that is ahead, of the next.
    pub(crate) received: u32,
    pub(crate) ended_at: u64,
}

impl Exchange {
    /// The channels in the order in which blocks are sent: the list leaves out the own rank.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, others) = (self.rank as usize, self.ranks as usize - 1);
        (0..others).map(move |step| (rank + step) % others)
    }

    /// The ranks that it sends to and receives from in this round, if it does so step by step.
    pub(crate) const fn partners(&self) -> (u32, u32) {
        let distance = self.rounds % (self.ranks - 1) + 1;
        let to = (self.rank + distance) % self.ranks;
        let from = (self.rank + self.ranks - distance) % self.ranks;
        (to, from)
    }

    /// Where the list of channels has a rank.
    pub(crate) const fn index_of(&self, other: u32) -> usize {
        (other - (other > self.rank) as u32) as usize
    }

    pub(crate) const fn is_done(&self) -> bool {
        let rounds = match self.algorithm {
            Algorithm::Linear => 1,
            Algorithm::Pairwise => self.ranks - 1,
        };
        self.rounds == self.iterations * rounds
    }

    /// Takes the blocks of a round as done, if they are. Whether they were.
    pub(crate) const fn end_round(&mut self) -> bool {
        let blocks = match self.algorithm {
            Algorithm::Linear => self.ranks - 1,
            Algorithm::Pairwise => 1,
        };
        if self.is_done() || self.sent < blocks || self.received < blocks {
            return false;
        }
        self.sent -= blocks;
        self.received -= blocks;
        self.rounds += 1;
        self.is_under_way = false;
        true
    }
}
