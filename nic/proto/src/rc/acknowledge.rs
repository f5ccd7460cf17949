//! What a responder owes its peer: acknowledgements, NAKs, READ responses and atomic responses, and
//! in which order and how soon they go out.
//!
//! Responses leave in PSN order: READ and atomic responses first, then one NAK or one ACK, which
//! stands for all requests before it. An ACK may wait a little, so that it can travel with the
//! program's own reply and so that a burst of messages needs only one. Between two urxe it travels
//! in the reply's header, else before the reply. One that a peer of our kind did not ask for waits
//! as long as an ACK may: a peer that plays ping-pong without completions of what it sends gets one
//! in several messages.

use alloc::collections::VecDeque;

use urxe_wire::{Aeth, AtomicAckEth, NakCode, Operation, Psn, Syndrome};

use crate::connection::Connection;
use crate::memory::{Memory, RemoteAccess};
use crate::rc::ack_patience::Patience;
use crate::rc::reply::{ReadJob, Reply};
use crate::run::Run;
use crate::time::Instant;
use crate::verbs::{Payload, Transmit};

/// An acknowledgement waits at most this long for company, in nanoseconds, if the host polls again
/// by then. Well below the time after which a requester sends again.
pub const ACK_HOLD_NS: u64 = 50_000;
/// One that no peer waits for goes along with what is sent once it is this old: else it would soon
/// go alone.
const QUIET_HOLD_NS: u64 = ACK_HOLD_NS / 2;
/// An answer of so many packets is no stream yet: one READ of 64 KiB.
const ANSWER_PACKETS: u32 = 16;
/// An ACK does not wait when so many messages asked for it at their ends, or so many packets of one
/// before its end.
const HOLD_MAX: u32 = 4;
/// Credits are not used: "unlimited" (the AETH encoding 0x1f).
const CREDITS_UNLIMITED: u8 = 0x1f;
const ACK: Syndrome = Syndrome::Ack {
    credits: CREDITS_UNLIMITED,
};

/// How eager to send acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// Only those that may not wait.
    Hold,
    /// The host looked for packets, and there was none: those that have waited for a reply of the
    /// program for as long as such waits have paid, since the first look in vain.
    Idle,
    /// All that the peer waits for, and those that it does not wait for once they are half as old
    /// as they may become.
    Flush,
    /// All that are owed: later there is nothing to send them.
    All,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledger {
    replies: VecDeque<Reply>,
    nak: Option<(Psn, Syndrome)>,
    /// Since when an ACK is owed.
    owed_since: Option<Instant>,
    /// Messages that asked for it at their ends.
    owed_messages: u32,
    /// Packets that asked for it before the end of a message, to which no reply can come yet.
    owed_on_the_way: u32,
    /// Whether the peer waits for it.
    is_awaited: bool,
    urgent: bool,
    /// The last request that the program here can have seen and whose own program may wait for its
    /// completion, or the packet that is missing: what the program posts from now on must not
    /// overtake what is owed for that.
    ordered: Option<Psn>,
    patience: Patience,
}

/// What became of [`Acknowledger::poll`].
pub(crate) enum Polled {
    Nothing,
    Packet(Transmit<'static>),
    /// Of a READ's answer.
    Data(Run<'static>),
    /// A READ's range may no longer be read.
    ReadRefused(Psn),
}

impl Acknowledger {
    /// An ACK is owed for a packet that asked for one, which ends its message or not.
    pub(crate) fn owe(&mut self, now: Instant, ends: bool) {
        self.owe_quietly(now);
        self.is_awaited = true;
        if !ends {
            self.owed_on_the_way += 1;
            return;
        }
        if self.owed_messages == 0 {
            self.patience.restart();
        }
        self.owed_messages += 1;
    }

    /// An ACK is owed that no peer waits for.
    pub(crate) fn owe_quietly(&mut self, now: Instant) {
        self.owed_since.get_or_insert(now);
    }

    /// An ACK is owed at once: the peer is sending again.
    pub(crate) fn owe_urgently(&mut self, now: Instant) {
        self.owe(now, true);
        self.urgent = true;
    }

    /// What the program posts from now on comes behind what is owed for requests up to `psn`,
    /// whether the peer asked for that or not.
    #[inline]
    pub(crate) fn keep_order(&mut self, psn: Psn) {
        self.ordered = Some(psn);
    }

    /// Whether what the program posts comes behind what is owed.
    #[inline]
    pub(crate) const fn is_ordered(&self) -> bool {
        self.ordered.is_some()
    }

    /// Whether an ACK can travel in the header of a request: nothing has to go before it. What a
    /// response is missing for must not seem to be acknowledged.
    #[inline]
    pub(crate) fn may_ride_along(&self) -> bool {
        self.replies.is_empty() && self.nak.is_none()
    }

    /// The last packet of a request leaves, to a peer of our kind, `again` perhaps: whether an ACK
    /// travels in its header. It counts as sent then. What was sent before, and lost, may have had
    /// one.
    #[inline]
    pub(crate) fn ride_along(&mut self, again: bool) -> bool {
        if !(self.is_ordered() || again) || !self.may_ride_along() {
            return false;
        }
        self.note_sent();
        true
    }

    /// An acknowledgement leaves.
    fn note_sent(&mut self) {
        if core::mem::take(&mut self.is_awaited) && self.owed_messages > 0 {
            self.patience.note_sent(self.owed_messages >= HOLD_MAX);
        }
        self.owed_since = None;
        self.owed_messages = 0;
        self.owed_on_the_way = 0;
        self.urgent = false;
        self.ordered = None;
    }

    /// What the program posted behind what is owed is about to go: that has waited long enough.
    #[cold]
    pub(crate) fn go_ahead(&mut self, now: Instant) {
        if self.is_ordered() {
            self.owe_quietly(now);
            self.urgent = true;
            self.note_request();
        }
    }

    pub(crate) fn set_nak(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak = Some((psn, syndrome));
        self.keep_order(psn);
    }

    /// What was missing has come: the NAK that asks for it, if one waits, is not sent. Whether one
    /// waited.
    pub(crate) fn withdraw_sequence_error(&mut self) -> bool {
        let waited = self
            .nak
            .take_if(|(_, syndrome)| *syndrome == SEQUENCE_ERROR);
        waited.is_some()
    }

    /// A request goes to the peer.
    #[inline]
    pub(crate) fn note_request(&mut self) {
        if self.is_awaited {
            self.patience.note_company();
        }
    }

    /// Replies to requests that came for the first time: what the peer promised to limit.
    pub(crate) fn pending_first_replies(&self) -> usize {
        self.replies
            .iter()
            .filter(|reply| !reply.is_repeated())
            .count()
    }

    pub(crate) fn pending_replies(&self) -> usize {
        self.replies.len()
    }

    pub(crate) fn push_reply(&mut self, reply: Reply) {
        self.replies.push_back(reply);
    }

    /// Forgets those replies that lie between these PSNs as a whole: the peer asks for them anew,
    /// and for no others.
    pub(crate) fn forget_replies_between(&mut self, psn: Psn, end: Psn) {
        self.replies.retain(|reply| match reply {
            Reply::Read(job) => {
                let (from, until) = (job.first.add(job.sent), job.first.add(job.until));
                psn.is_after(from) || until.is_after(end)
            }
            Reply::Atomic { psn: other, .. } => *other != psn,
        });
    }

    /// Forgets replies from `psn` on: the peer asks for them anew.
    pub(crate) fn forget_replies_from(&mut self, psn: Psn) {
        self.replies.retain_mut(|reply| reply.cut(psn));
    }

    /// Forgets everything but a NAK.
    pub(crate) fn clear_all_but_nak(&mut self) {
        let nak = self.nak.take();
        *self = Self {
            nak,
            ..Self::default()
        };
    }

    /// The queue pair ends before `expected`. What is owed for requests before that leaves all the
    /// same, and no more.
    pub(crate) fn end_with_acknowledgement(&mut self, expected: Psn) {
        if self.owed_since.is_some() && self.nak.is_none() {
            let last = expected.sub(1);
            self.set_nak(last, ACK);
        }
        self.clear_all_but_nak();
    }

    /// Whether the next response is data of a READ.
    pub(crate) fn is_about_to_send_data(&self) -> bool {
        matches!(self.replies.front(), Some(Reply::Read(_)))
    }

    /// Whether what is owed is a long answer, or many. How much of those before is on its way is
    /// not known here; the peer limits how many it asks for at once.
    #[inline]
    pub(crate) fn is_streaming(&self) -> bool {
        let mut packets = 0;
        self.replies.iter().any(|reply| {
            packets += reply.packets();
            packets > ANSWER_PACKETS
        })
    }

    /// Whether a NAK waits to be sent.
    pub(crate) const fn has_nak(&self) -> bool {
        self.nak.is_some()
    }

    /// Whether anything is owed that the peer waits for.
    pub(crate) fn owes(&self) -> bool {
        !self.replies.is_empty() || self.nak.is_some() || self.is_awaited
    }

    /// When a held ACK must go. One behind other responses goes after them.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let since = self.owed_since.filter(|_| self.replies.is_empty())?;
        Some(since.after(ACK_HOLD_NS))
    }

    /// The same, of one that no peer waits for.
    pub(crate) fn quiet_deadline(&self) -> Option<Instant> {
        self.deadline().filter(|_| !self.is_awaited)
    }

    /// Whether all that is owed may wait: nothing goes in mode [`AckMode::Hold`].
    #[inline]
    pub(crate) fn may_wait(&self, now: Instant) -> bool {
        self.replies.is_empty() && self.nak.is_none() && !self.is_ack_pressing(now)
    }

    /// Whether an ACK is owed that may not wait.
    fn is_ack_pressing(&self, now: Instant) -> bool {
        self.owed_since.is_some_and(|since| {
            since.after(ACK_HOLD_NS) <= now
                || self.urgent
                || self.owed_messages.max(self.owed_on_the_way) >= HOLD_MAX
        })
    }

    fn ack_may_go(&mut self, now: Instant, mode: AckMode) -> bool {
        let Some(since) = self.owed_since else {
            return false;
        };
        self.is_ack_pressing(now)
            || match mode {
                AckMode::Hold => false,
                AckMode::Idle => self.is_awaited && self.patience.look(now),
                AckMode::Flush => self.is_awaited || since.after(QUIET_HOLD_NS) <= now,
                AckMode::All => true,
            }
    }

    /// The next packet owed, with those like it, at most `most` together. `expected` and `msn` are
    /// the responder's.
    #[expect(
        clippy::too_many_arguments,
        reason = "the pieces of a queue pair, borrowed apart"
    )]
    pub(crate) fn poll<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        most: u32,
        connection: &Connection,
        expected: Psn,
        msn: u32,
        memory: &M,
    ) -> Polled {
        if let Some(reply) = self.replies.front_mut() {
            return match reply {
                Reply::Read(job) => {
                    if memory
                        .check_remote(job.via, job.range, RemoteAccess::Read)
                        .is_err()
                        && job.range.len != 0
                    {
                        return Polled::ReadRefused(job.first.add(job.sent));
                    }
                    let run = read_responses(job, connection, most);
                    if job.sent == job.until {
                        let last = job.first.add(job.until).sub(1);
                        self.ordered = self.ordered.filter(|ordered| *ordered != last);
                        self.replies.pop_front();
                    }
                    Polled::Data(run)
                }
                Reply::Atomic {
                    psn, original, msn, ..
                } => {
                    let mut header = connection.header(Operation::AtomicAcknowledge, *psn);
                    header.aeth = Some(aeth_ack(*msn));
                    header.atomic_ack = Some(AtomicAckEth {
                        original: *original,
                    });
                    let of = *psn;
                    self.replies.pop_front();
                    self.ordered = self.ordered.filter(|ordered| *ordered != of);
                    Polled::Packet(Transmit::connected(header, Payload::Empty))
                }
            };
        }
        let (psn, syndrome) = match self.nak.take() {
            Some(nak) => nak,
            None if self.ack_may_go(now, mode) => (expected.sub(1), ACK),
            None => return Polled::Nothing,
        };
        self.note_sent();
        let mut header = connection.header(Operation::Acknowledge, psn);
        header.aeth = Some(Aeth { syndrome, msn });
        Polled::Packet(Transmit::connected(header, Payload::Empty))
    }
}

/// The next packets of a READ's answer, at most `most`.
fn read_responses(job: &mut ReadJob, connection: &Connection, most: u32) -> Run<'static> {
    let is_first = job.sent == 0;
    let is_last = job.sent + 1 == job.packets;
    let operation = match (is_first, is_last) {
        (true, true) => Operation::ReadResponseOnly,
        (true, false) => Operation::ReadResponseFirst,
        (false, true) => Operation::ReadResponseLast,
        (false, false) => Operation::ReadResponseMiddle,
    };
    let mut header = connection.header(operation, job.first.add(job.sent));
    if operation != Operation::ReadResponseMiddle {
        header.aeth = Some(aeth_ack(job.msn));
    }
    let offset = job.sent * connection.mtu_bytes;
    let len = (job.range.len - offset).min(connection.mtu_bytes);
    job.sent += 1;
    let payload = if len == 0 {
        Payload::Empty
    } else {
        Payload::Remote {
            via: job.via,
            rkey: job.range.rkey,
            va: job.range.va + u64::from(offset),
            len,
        }
    };
    let is_middle = operation == Operation::ReadResponseMiddle;
    let middles = job.until.min(job.packets - 1).saturating_sub(job.sent);
    let more = if is_middle {
        middles.min(most.saturating_sub(1))
    } else {
        0
    };
    job.sent += more;
    let first = Transmit::connected(header, payload);
    Run { first, more }
}

const fn aeth_ack(msn: u32) -> Aeth {
    Aeth { syndrome: ACK, msn }
}

/// The NAK for a packet that arrived too early.
pub(crate) const SEQUENCE_ERROR: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

#[cfg(test)]
mod tests;
