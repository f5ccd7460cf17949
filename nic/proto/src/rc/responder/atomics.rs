//! Atomic operations, atomic writes and flushes, which are answered without data.

use super::super::reply::Reply;
use super::execute::{empty_job, later_msn};
use super::{Handled, Refusal, Responder};
use crate::connection::Connection;
use crate::memory::{AccessError, AtomicOp, Memory, Placement};
use urxe_wire::{Feth, Operation, Packet};

/// Results of atomics kept for repetition, at least. The specification asks for as many as
/// `max_dest_rd_atomic`.
const ATOMIC_LOG_MIN: usize = 16;

impl Responder {
    /// The right to write is what it takes, as for Linux rxe.
    pub(super) fn handle_atomic_write<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Handled {
        let reth = packet.header.reth.ok_or(Refusal::Invalid)?;
        let value = packet.payload.try_into().map_err(|_| Refusal::Invalid)?;
        let is_valid = reth.len == 8 && self.limits.allow_write;
        if !is_valid || !self.has_room_for_reply(connection) {
            return Err(Refusal::Invalid);
        }
        memory
            .write_atomic(connection.via(), reth.rkey, reth.va, value)
            .map_err(refusal_of_atomic)?;
        self.answer_without_data(connection);
        Ok(())
    }

    pub(super) fn handle_flush<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Handled {
        let (Some(reth), Some(feth)) = (packet.header.reth, packet.header.feth) else {
            return Err(Refusal::Invalid);
        };
        let placement = Placement::from_bits(feth.placement).ok_or(Refusal::Invalid)?;
        let range = match feth.selectivity {
            Feth::RANGE => Some((reth.va, reth.len)),
            Feth::REGION => None,
            _ => return Err(Refusal::Invalid),
        };
        // Which kinds are granted is the region's affair, as with Linux rxe: the queue pair grants
        // FLUSH or none.
        let is_valid = !placement.is_empty() && !self.limits.allow_flush.is_empty();
        if !is_valid || !self.has_room_for_reply(connection) {
            return Err(Refusal::Invalid);
        }
        memory
            .flush(connection.via(), reth.rkey, range, placement)
            .map_err(|_| Refusal::Access)?;
        self.answer_without_data(connection);
        Ok(())
    }

    /// A request of one packet was executed whose answer says just that: a READ response without
    /// data (as Linux rxe answers).
    pub(super) fn answer_without_data(&mut self, connection: &Connection) {
        self.msn = later_msn(self.msn, 1);
        let job = empty_job(self.expected, self.msn, connection, false);
        self.expected = self.expected.next();
        self.acknowledger.push_reply(Reply::Read(job));
    }

    pub(super) fn handle_atomic<M: Memory>(
        &mut self,
        connection: &Connection,
        operation: Operation,
        packet: &Packet<'_>,
        memory: &mut M,
    ) -> Handled {
        let request = packet.header.atomic.ok_or(Refusal::Invalid)?;
        if !self.limits.allow_atomic || !self.has_room_for_reply(connection) {
            return Err(Refusal::Invalid);
        }
        let op = if operation == Operation::CompareSwap {
            AtomicOp::CompareSwap {
                compare: request.compare,
                swap: request.swap_or_add,
            }
        } else {
            AtomicOp::FetchAdd {
                add: request.swap_or_add,
            }
        };
        let original = memory
            .atomic(connection.via(), request.rkey, request.va, op)
            .map_err(refusal_of_atomic)?;
        self.msn = later_msn(self.msn, 1);
        let psn = self.expected;
        self.expected = psn.next();
        let log_len = ATOMIC_LOG_MIN.max(usize::from(self.limits.max_dest_rd_atomic));
        if self.atomic_log.len() == log_len {
            self.atomic_log.pop_front();
        }
        self.atomic_log.push_back((psn, original));
        self.acknowledger.push_reply(Reply::Atomic {
            psn,
            original,
            msn: self.msn,
            repeated: false,
        });
        Ok(())
    }
}

/// An address that is not a multiple of 8 breaks a rule (IBTA 9.4).
fn refusal_of_atomic(error: AccessError) -> Refusal {
    if error == AccessError::Misaligned {
        Refusal::Invalid
    } else {
        Refusal::Access
    }
}
