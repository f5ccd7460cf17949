//! Whose turn it is to send: requests go first, but not for ever, and not if they may be replies.

use urxe_wire::{Bth, Operation, Psn};

use crate::send_queue::Position;

/// Packets of requests in a row, while something is owed that may not wait, and then of answers. An
/// end that always has requests to send, to a peer that acknowledges them before the window is
/// full, would else answer no READ: the peer would retry until it gives up. Less than a device
/// gives a queue pair at a time, so that each time what presses can leave: at 1 Gbps, both ways, as
/// many as that cost 3 to 7 %.
const TURN_PACKETS: u32 = 64;

/// See the module. Of a queue pair that congestion control has slowed down, requests and answers
/// take turns packet by packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// Packets since the turn began, of requests ...
    requests: u32,
    /// ... and, once those have had theirs, of what is owed.
    owed: u32,
}

impl Turns {
    /// Whether what is owed goes first now.
    #[inline]
    pub(super) const fn is_of_owed(self) -> bool {
        self.requests >= TURN_PACKETS
    }

    /// Whether a request was the last to go.
    pub(super) const fn was_of_requests(self) -> bool {
        self.requests > 0
    }

    #[inline]
    pub(super) const fn note_requests(&mut self, packets: u32) {
        self.requests = self.requests.saturating_add(packets);
    }

    /// How many packets of what is owed may go before the next request.
    pub(super) const fn owed_left(self) -> u32 {
        TURN_PACKETS.saturating_sub(self.owed)
    }

    /// These were sent while it [was their turn](Self::is_of_owed).
    pub(super) fn note_owed(&mut self, packets: u32) {
        self.owed += packets;
        if self.owed >= TURN_PACKETS {
            self.restart();
        }
    }

    /// No request may go, or nothing is owed.
    #[inline]
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Requests that the program posted while something was owed that it could know of: the peer's
/// program must not have them before it has the completions of what is acknowledged so. (The
/// specification promises no order between the two queues; hardware has it, as its acknowledgement
/// leaves long before a program can reply, and programs count on it.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// The first of them.
    pub(super) position: Position,
    /// One past the last request of the peer that the program could know of when it posted the last
    /// of them.
    pub(super) answers_to: Psn,
}

impl Reply {
    /// Whether they may go once the response with this header has: one that acknowledges what they
    /// may reply to.
    pub(super) fn may_follow(self, bth: &Bth) -> bool {
        let is_whole = !matches!(
            bth.opcode.operation(),
            Some(Operation::ReadResponseFirst | Operation::ReadResponseMiddle)
        );
        // A response acknowledges all requests before its own (IBTA 9.7.5).
        let acknowledged = if is_whole { bth.psn.next() } else { bth.psn };
        !acknowledged.is_before(self.answers_to)
    }
}
