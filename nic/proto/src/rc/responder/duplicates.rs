//! Requests that came before.

use super::super::reply::Reply;
use super::Responder;
use super::execute::{check_reth, empty_job, read_job};
use crate::connection::Connection;
use crate::memory::{Memory, RemoteAccess};
use crate::peer::PeerAbilities;
use crate::time::Instant;
use urxe_wire::{Operation, Packet, Psn};

/// Repeated READs and atomics that wait to be answered, beyond `max_dest_rd_atomic`, at most.
const REPEATED_MAX: usize = 16;

impl Responder {
    /// A request that was executed before: SEND and WRITE are only acknowledged, READ is answered
    /// anew, an atomic from the log (IBTA 9.7.5), and of a FLUSH or an ATOMIC WRITE it is said
    /// again that it was done.
    pub(super) fn handle_duplicate<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        packet: &Packet<'_>,
        memory: &M,
    ) {
        let psn = packet.header.bth.psn;
        match packet.header.bth.opcode.operation() {
            Some(Operation::ReadRequest) => {
                let Some(reth) = packet.header.reth else {
                    return;
                };
                let job = read_job(reth, psn, self.msn, connection, true);
                let end = psn.add(job.packets);
                let is_old = !end.is_after(self.expected);
                if is_old && check_reth(connection, reth, RemoteAccess::Read, memory).is_ok() {
                    self.repeat(connection, psn, end, Reply::Read(job));
                }
            }
            Some(Operation::Flush | Operation::AtomicWrite) => {
                let job = empty_job(psn, self.msn, connection, true);
                self.repeat(connection, psn, psn.next(), Reply::Read(job));
            }
            Some(Operation::CompareSwap | Operation::FetchAdd) => {
                let logged = self
                    .atomic_log
                    .iter()
                    .find(|(logged, _)| *logged == psn)
                    .copied();
                if let Some((psn, original)) = logged {
                    let reply = Reply::Atomic {
                        psn,
                        original,
                        msn: self.msn,
                        repeated: true,
                    };
                    self.repeat(connection, psn, psn.next(), reply);
                }
            }
            _ => self.owe_urgently(now),
        }
    }

    /// Answers anew from `psn` on. A peer that asks for more at once than it may is not heard.
    pub(super) fn repeat(&mut self, connection: &Connection, psn: Psn, end: Psn, reply: Reply) {
        if connection.has(PeerAbilities::SELECTIVE_REPEAT) {
            self.acknowledger.forget_replies_between(psn, end);
        } else {
            self.acknowledger.forget_replies_from(psn);
        }
        let limit = REPEATED_MAX + usize::from(self.limits.max_dest_rd_atomic);
        if self.acknowledger.pending_replies() < limit {
            self.acknowledger.push_reply(reply);
        }
    }
}
