//! What an unreliable connection receives (IBTA 9.8.2): what the responder of a reliable one executes,
//! without answers. A message of which anything is missing or wrong is dropped in silence; the next
//! one that begins is taken again.

use urxe_wire::Packet;

use crate::connection::Connection;
use crate::memory::Memory;
use crate::qp::{Failure, Outbox, QpEvent, QpStats};
use crate::rc::responder::{Refusal, Responder};
use crate::receive_queue::{Inbound, ReceiveQueue};
use crate::verbs::WcStatus;

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
        // A copy, or one that others overtook: executing it would change what is newer.
        if psn.is_before(self.expected) {
            stats.duplicate_request += 1;
            return;
        }
        let operation = packet.header.bth.opcode.operation();
        let starts = operation.is_some_and(urxe_wire::Operation::starts_message);
        if psn != self.expected {
            stats.out_of_sequence += 1;
        }
        if starts {
            // Whatever was under way has lost its end.
            self.drop_message(receives);
        } else if psn != self.expected || matches!(self.inbound, Inbound::Idle) {
            self.drop_message(receives);
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
