//! How a responder executes a request, each kind in its turn.

use urxe_wire::{Operation, Packet, Psn, Reth};

use super::super::early::kept_max;
use super::super::reply::{ReadJob, Reply};
use super::{Gap, Handled, Refusal, Responder};
use crate::connection::Connection;
use crate::memory::{Memory, RemoteAccess, RemoteRange, scatter};
use crate::peer::PeerAbilities;
use crate::qp::Outbox;
use crate::receive_queue::{Inbound, ReceiveQueue};
use crate::time::Instant;
use crate::verbs::{Completion, CompletionKind, WcStatus};

impl Responder {
    /// Executes the request that is expected next. Nothing is changed when it is refused, except
    /// that a SEND may have taken its receive request.
    #[inline]
    pub(crate) fn execute<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Handled {
        let operation = packet
            .header
            .bth
            .opcode
            .operation()
            .ok_or(Refusal::Invalid)?;
        self.check_sequence(operation)?;
        check_payload_length(
            operation,
            packet.payload.len(),
            connection.mtu_bytes as usize,
        )?;
        if operation.is_send() {
            self.handle_send(connection, operation, packet, receives, memory, out)
        } else if operation.is_write() {
            self.handle_write(connection, operation, packet, receives, memory, out)
        } else {
            match operation {
                Operation::ReadRequest => self.handle_read(connection, packet, memory),
                Operation::AtomicWrite => self.handle_atomic_write(connection, packet, memory),
                Operation::Flush => self.handle_flush(connection, packet, memory),
                _ => self.handle_atomic(connection, operation, packet, memory),
            }
        }
    }

    /// Executes packets that have come together, in the middle of a message or WRITEs one behind
    /// the other, of which `packet` is the first. Returns how many: as many as are expected next
    /// and are simple, or none.
    pub(crate) fn execute_run<M: Memory>(
        &mut self,
        now: Instant,
        connection: &Connection,
        packet: &Packet<'_>,
        payloads: &[&[u8]],
        memory: &mut M,
    ) -> usize {
        let operation = packet.header.bth.opcode.operation();
        let mtu_bytes = connection.mtu_bytes;
        if packet.header.bth.psn != self.expected || self.gap != Gap::None {
            return 0;
        }
        // How many packets fit, and leave something for the last one of the message.
        let fitting = |bytes: u64| usize::try_from(bytes / u64::from(mtu_bytes)).unwrap_or(0);
        let total = |count: usize| u32::try_from(count).map_or(u32::MAX, |count| count * mtu_bytes);
        let count = match (&mut self.inbound, operation) {
            (Inbound::Send { wqe, received }, Some(Operation::SendMiddle)) => {
                let room = wqe.capacity.saturating_sub(u64::from(*received));
                let count = payloads.len().min(fitting(room));
                let [sge] = &wqe.sges[..] else {
                    return 0;
                };
                let pieces = &payloads[..count];
                let placed = memory.write_local_pieces(wqe.pd, sge, *received, pieces);
                if placed.is_err() {
                    return 0;
                }
                *received += total(count);
                count
            }
            (Inbound::Write { rkey, va, left, .. }, Some(Operation::WriteMiddle)) => {
                let count = payloads
                    .len()
                    .min(fitting(u64::from(left.saturating_sub(1))));
                let range = RemoteRange {
                    rkey: *rkey,
                    va: *va,
                    len: total(count),
                };
                let pieces = &payloads[..count];
                let placed = memory.write_remote_pieces(connection.via(), range, pieces);
                if placed.is_err() {
                    return 0;
                }
                *va = va.wrapping_add(u64::from(range.len));
                *left -= range.len;
                count
            }
            (Inbound::Idle, Some(Operation::WriteOnly)) => {
                let (len, count) = (packet.payload.len(), payloads.len());
                let all = u32::try_from(len * count).unwrap_or(u32::MAX);
                let Some(reth) = packet.header.reth.filter(|reth| reth.len as usize == len) else {
                    return 0;
                };
                let range = RemoteRange {
                    len: all,
                    ..range_of(reth)
                };
                let via = connection.via();
                let may_write = self.limits.allow_write;
                if !may_write || memory.write_remote_pieces(via, range, payloads).is_err() {
                    return 0;
                }
                self.msn = later_msn(self.msn, u32::try_from(count).unwrap_or(0));
                self.owe_acknowledgement(now, connection, packet);
                count
            }
            _ => return 0,
        };
        self.expected = self.expected.add(u32::try_from(count).unwrap_or(0));
        count
    }

    /// Whether `operation` may come next: a message is not interleaved with another.
    fn check_sequence(&self, operation: Operation) -> Handled {
        let fits = match &self.inbound {
            Inbound::Idle => operation.is_request() && operation.starts_message(),
            Inbound::Send { .. } => operation.is_send() && !operation.starts_message(),
            Inbound::Write { .. } => operation.is_write() && !operation.starts_message(),
        };
        if fits { Ok(()) } else { Err(Refusal::Invalid) }
    }

    // ---- SEND --------------------------------------------------------------------------------

    fn handle_send<M: Memory>(
        &mut self,
        connection: &Connection,
        operation: Operation,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Handled {
        if operation.starts_message() {
            let wqe = receives.pop_front().ok_or(Refusal::NotReady)?;
            self.inbound = Inbound::Send { wqe, received: 0 };
        }
        let Inbound::Send { wqe, received } = &mut self.inbound else {
            return Err(Refusal::Invalid);
        };
        let end = u64::from(*received) + packet.payload.len() as u64;
        if end > wqe.capacity {
            return Err(Refusal::TooLong);
        }
        scatter(memory, wqe.pd, &wqe.sges, *received, packet.payload)
            .map_err(|_| Refusal::OwnMemory)?;
        *received = u32::try_from(end).map_err(|_| Refusal::TooLong)?;
        if let Some(ieth) = packet.header.ieth {
            memory
                .invalidate(connection.via(), ieth.rkey)
                .map_err(|_| Refusal::Invalidation)?;
        }
        self.expected = self.expected.next();
        if operation.ends_message() {
            self.finish_send(connection, packet, receives, memory, out);
        }
        Ok(())
    }

    fn finish_send<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Packet<'_>,
        receives: &ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
    ) {
        self.msn = later_msn(self.msn, 1);
        if let Inbound::Send { wqe, received } = core::mem::take(&mut self.inbound) {
            if let Some(next) = receives.front()
                && let Some(sge) = next.sges.first()
            {
                memory.expect_message(next.pd, sge, received);
            }
            out.completions.push_back(Completion {
                byte_len: received,
                immediate: packet.header.immediate,
                invalidated_rkey: packet.header.ieth.map(|ieth| ieth.rkey),
                solicited: packet.header.bth.solicited,
                ..wqe.completion(connection.qp, WcStatus::Success)
            });
        }
    }

    // ---- RDMA WRITE --------------------------------------------------------------------------

    fn handle_write<M: Memory>(
        &mut self,
        connection: &Connection,
        operation: Operation,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Handled {
        let (rkey, va, left, length) = match (packet.header.reth, &self.inbound) {
            (Some(reth), Inbound::Idle) => {
                if !self.limits.allow_write {
                    return Err(Refusal::Invalid);
                }
                check_reth(connection, reth, RemoteAccess::Write, memory)?;
                (reth.rkey, reth.va, reth.len, reth.len)
            }
            (
                None,
                Inbound::Write {
                    rkey,
                    va,
                    left,
                    length,
                },
            ) => (*rkey, *va, *left, *length),
            _ => return Err(Refusal::Invalid),
        };
        let len = u32::try_from(packet.payload.len()).map_err(|_| Refusal::Invalid)?;
        // The last packet brings exactly what is missing, the others leave something.
        if len > left || operation.ends_message() != (len == left) {
            return Err(Refusal::Invalid);
        }
        if operation.has_immediate() && receives.is_empty() {
            return Err(Refusal::NotReady);
        }
        if len > 0 {
            let range = RemoteRange { rkey, va, len };
            memory
                .write_remote(connection.via(), range, packet.payload)
                .map_err(|_| Refusal::Access)?;
        }
        self.expected = self.expected.next();
        if operation.ends_message() {
            self.inbound = Inbound::Idle;
            self.msn = later_msn(self.msn, 1);
            self.finish_write_imm(connection, packet, length, receives, out);
        } else {
            let va = va.wrapping_add(u64::from(len));
            self.inbound = Inbound::Write {
                rkey,
                va,
                left: left - len,
                length,
            };
        }
        Ok(())
    }

    fn finish_write_imm(
        &self,
        connection: &Connection,
        packet: &Packet<'_>,
        length: u32,
        receives: &mut ReceiveQueue,
        out: &mut Outbox,
    ) {
        let Some(immediate) = packet.header.immediate else {
            return;
        };
        if let Some(wqe) = receives.pop_front() {
            out.completions.push_back(Completion {
                kind: CompletionKind::RecvWriteImm,
                byte_len: length,
                immediate: Some(immediate),
                solicited: packet.header.bth.solicited,
                ..wqe.completion(connection.qp, WcStatus::Success)
            });
        }
    }

    // ---- RDMA READ ---------------------------------------------------------------------------

    fn handle_read<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Packet<'_>,
        memory: &M,
    ) -> Handled {
        let reth = packet.header.reth.ok_or(Refusal::Invalid)?;
        if !self.limits.allow_read || !self.has_room_for_reply(connection) {
            return Err(Refusal::Invalid);
        }
        check_reth(connection, reth, RemoteAccess::Read, memory)?;
        self.msn = later_msn(self.msn, 1);
        let job = read_job(reth, self.expected, self.msn, connection, false);
        self.expected = self.expected.add(job.packets);
        self.acknowledger.push_reply(Reply::Read(job));
        Ok(())
    }

    /// The peer promised not to have more READs and atomics outstanding than `max_dest_rd_atomic`.
    /// What it asked for again does not count: it may have got the first answer since. What was
    /// kept is executed all at once, and may hold requests that the peer has cut into other pieces
    /// since: between two urxe there is room for all of them.
    pub(super) fn has_room_for_reply(&self, connection: &Connection) -> bool {
        let may_be_kept = connection.has(PeerAbilities::SELECTIVE_REPEAT) || self.has_kept;
        let kept = if may_be_kept {
            kept_max(connection.mtu_bytes)
        } else {
            0
        };
        let limit = u32::from(self.limits.max_dest_rd_atomic) + kept;
        self.acknowledger.pending_first_replies() < limit as usize
    }

    // ---- ATOMIC WRITE and FLUSH --------------------------------------------------------------

    // ---- atomics -----------------------------------------------------------------------------
}

/// The answer to a request that fetches nothing.
pub(super) fn empty_job(first: Psn, msn: u32, connection: &Connection, repeated: bool) -> ReadJob {
    let nothing = Reth {
        va: 0,
        rkey: 0,
        len: 0,
    };
    read_job(nothing, first, msn, connection, repeated)
}

/// Whether the peer may do this with the memory it names; no length is of no memory.
pub(super) fn check_reth<M: Memory>(
    connection: &Connection,
    reth: Reth,
    access: RemoteAccess,
    memory: &M,
) -> Handled {
    if reth.len == 0 {
        return Ok(());
    }
    memory
        .check_remote(connection.via(), range_of(reth), access)
        .map_err(|_| Refusal::Access)
}

fn range_of(reth: Reth) -> RemoteRange {
    RemoteRange {
        rkey: reth.rkey,
        va: reth.va,
        len: reth.len,
    }
}

pub(super) fn read_job(
    reth: Reth,
    first: Psn,
    msn: u32,
    connection: &Connection,
    repeated: bool,
) -> ReadJob {
    let packets = reth.len.div_ceil(connection.mtu_bytes).max(1);
    ReadJob {
        first,
        via: connection.via(),
        range: range_of(reth),
        packets,
        until: packets,
        sent: 0,
        msn,
        repeated,
    }
}

/// After `count` messages. The message sequence number has 24 bits.
pub(super) const fn later_msn(msn: u32, count: u32) -> u32 {
    (msn + count) & 0x00ff_ffff
}

/// First and middle packets are full; last ones carry something; only ones at most one MTU (IBTA
/// 9.7).
fn check_payload_length(operation: Operation, len: usize, mtu: usize) -> Handled {
    let fits = if !operation.carries_payload() {
        len == 0
    } else if operation.is_only() {
        len <= mtu
    } else if operation.is_last() {
        (1..=mtu).contains(&len)
    } else {
        len == mtu
    };
    if fits { Ok(()) } else { Err(Refusal::Invalid) }
}
