//! What an unreliable connection receives (IBTA 9.8.2): what the responder of a reliable one
//! executes, without answers. A message of which anything is missing or wrong is dropped in
//! silence; the next one that begins is taken again, whatever its PSN (IBTA 9.8.2.2).
//!
//! The specification would also have a copy of a message executed, or one that others overtook.
//! [`Recent`] tells these from the messages of a sender that a forged packet made this end lose.

use urxe_wire::{Packet, Psn};

use crate::connection::Connection;
use crate::memory::Memory;
use crate::qp::{Failure, Outbox, QpEvent, QpStats};
use crate::rc::responder::{Refusal, Responder};
use crate::receive_queue::{Inbound, ReceiveQueue};
use crate::verbs::WcStatus;

/// PSNs before the expected one that count as recent, at most: what a network may still bring
/// again. As many packets may be missing in a row while what came before them stays recent. So a
/// forged packet makes at most so many genuine ones look like copies, and none if it is further
/// ahead.
const RECENT_MAX: u32 = 1024;

/// Which PSNs before the expected one belong to what the peer sends now: copies of those are not
/// executed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    /// How many, right before the expected one.
    packets: u32,
}

impl Recent {
    /// Whether the packet `psn` is a copy, or one that others overtook.
    fn contains(self, psn: Psn, expected: Psn) -> bool {
        let behind = expected.distance_from(psn);
        u32::try_from(behind).is_ok_and(|behind| (1..=self.packets).contains(&behind))
    }

    /// The packet `psn` is taken in place of the expected one, which may be itself.
    fn note(&mut self, psn: Psn, expected: Psn) {
        let missing = u32::try_from(psn.distance_from(expected)).ok();
        self.packets = match missing.filter(|missing| *missing < RECENT_MAX) {
            Some(missing) => (self.packets + missing + 1).min(RECENT_MAX),
            None => 1,
        };
    }
}

impl Responder {
    /// A packet of the peer.
    pub(crate) fn handle_unreliable<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
        stats: &mut QpStats,
    ) {
        let psn = packet.header.bth.psn;
        // Executing it would change what is newer.
        if self.recent.contains(psn, self.expected) {
            stats.duplicate_request += 1;
            return;
        }
        let operation = packet.header.bth.opcode.operation();
        let starts = operation.is_some_and(urxe_wire::Operation::starts_message);
        if psn != self.expected {
            stats.out_of_sequence += 1;
            // What is under way has lost packets, unless this one is forged: nothing but the next
            // packet goes on with it.
            if !starts {
                stats.dropped += 1;
                return;
            }
        }
        self.recent.note(psn, self.expected);
        if starts {
            // Whatever was under way has lost its end.
            self.drop_message(receives);
        } else if matches!(self.inbound, Inbound::Idle) {
            stats.dropped += 1;
            self.expected = psn.next();
            return;
        }
        self.expected = psn;
        if !self.established {
            self.established = true;
            out.events.push_back(QpEvent::CommunicationEstablished);
        }
        match self.execute(connection, packet, receives, memory, out) {
            Ok(()) => {}
            Err(Refusal::OwnMemory) => {
                self.fail_receive(connection, WcStatus::LocalProtection, receives, out);
                out.failure = Failure::QueuePair;
            }
            Err(refusal) => {
                stats.out_of_buffer += u64::from(refusal == Refusal::NotReady);
                stats.dropped += u64::from(refusal != Refusal::NotReady);
                self.drop_message(receives);
                self.expected = psn.next();
            }
        }
    }

    /// Forgets the message that is arriving; the next one gets its receive request.
    fn drop_message(&mut self, receives: &mut ReceiveQueue) {
        if let Inbound::Send { wqe, .. } = core::mem::take(&mut self.inbound) {
            receives.give_back(wqe);
        }
    }
}
