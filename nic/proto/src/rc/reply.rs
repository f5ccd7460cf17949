//! Responses that have to be sent in order: to READs and to atomics.

use urxe_wire::Psn;

use crate::memory::{RemoteRange, Via};

/// A READ being answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadJob {
    pub(crate) first: Psn,
    /// Whose rights to the range count: an XRC target has those of one shared receive queue or
    /// another.
    pub(crate) via: Via,
    pub(crate) range: RemoteRange,
    pub(crate) packets: u32,
    /// Where to stop: before `packets` when the peer asked for the rest anew.
    pub(crate) until: u32,
    pub(crate) sent: u32,
    pub(crate) msn: u32,
    /// Whether the peer asked for it before.
    pub(crate) repeated: bool,
}

/// A response that has to be sent in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Read(ReadJob),
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
        repeated: bool,
    },
}

impl Reply {
    pub(crate) const fn is_repeated(&self) -> bool {
        match self {
            Self::Read(job) => job.repeated,
            Self::Atomic { repeated, .. } => *repeated,
        }
    }

    /// Gives up what lies from `psn` on. Whether anything is left to send.
    pub(crate) fn cut(&mut self, psn: Psn) -> bool {
        let before = u32::try_from(psn.distance_from(self.first())).unwrap_or(0);
        match self {
            Self::Read(job) => {
                job.until = job.until.min(before);
                job.sent < job.until
            }
            Self::Atomic { .. } => before > 0,
        }
    }

    /// Packets, sent ones included.
    pub(crate) const fn packets(&self) -> u32 {
        match self {
            Self::Read(job) => job.until,
            Self::Atomic { .. } => 1,
        }
    }

    pub(crate) const fn first(&self) -> Psn {
        match self {
            Self::Read(job) => job.first,
            Self::Atomic { psn, .. } => *psn,
        }
    }
}
