//! Packets on their way out: gathered into batches that the kernel cuts apart, or that stay whole.
//!
//! Consecutive packets of the same length to the same peer leave in one system call (GSO); a
//! shorter one may end the batch, so an acknowledgement rides with the reply it follows. Small
//! payloads are copied behind their header, large ones are taken from the program's memory by the
//! kernel.

mod batch;
mod length;
pub(crate) mod payload;
pub(crate) mod turn;

use urxe_proto::{Run, Transmit};
use urxe_udp::MAX_TRANSMIT_BYTES;
use urxe_wire::{Bth, ICRC_LEN, Reth, XrcEth, pad_len};

use self::batch::{Batch, packets_max};
use crate::engine::path::Path;
use crate::engine::port::Port;
use crate::engine::stats::DeviceStats;
use crate::engine::transmit::length::BatchLength;
use crate::memory::MemoryTable;
use payload::MemoryGone;
use turn::Turn;

/// How many packets of full length may leave in one batch.
pub(crate) fn batch_packets(mtu_bytes: u32, port: &Port) -> u32 {
    packets_in(MAX_TRANSMIT_BYTES, mtu_bytes, port)
}

fn packets_in(room_bytes: usize, mtu_bytes: u32, port: &Port) -> u32 {
    let length = Bth::LEN + XrcEth::LEN + Reth::LEN + mtu_bytes as usize + ICRC_LEN;
    let packets = (room_bytes / length).clamp(1, packets_max(port));
    u32::try_from(packets).unwrap_or(1)
}

/// The batch under construction, and one that the socket did not take.
#[derive(Debug)]
pub(crate) struct Outgoing {
    building: Batch,
    waiting: Batch,
    length: BatchLength,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self {
            building: Batch::new(),
            waiting: Batch::new(),
            length: BatchLength::default(),
        }
    }

    /// How long a batch may be whose packets leave at such a rate, if that is known.
    pub(crate) fn room_bytes(&mut self, rate_bps: Option<u64>) -> usize {
        self.length.at_rate(rate_bps)
    }

    /// Whether packets wait for a socket to become writable. No more may be pushed then.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.waiting.is_blocked || self.building.is_blocked
    }

    /// How many packets of full length a run may have, so that one that does not fit the batch
    /// under construction fits the next.
    pub(crate) fn run_max(turn: &Turn, mtu_bytes: u32, port: &Port) -> u32 {
        packets_in(turn.room_bytes, mtu_bytes, port)
    }

    /// Adds packets, sending what stands in their way first.
    pub(crate) fn push_run(
        &mut self,
        run: &Run<'_>,
        turn: &Turn,
        path: &Path,
        memory: &MemoryTable,
        ports: &[Port],
        stats: &mut DeviceStats,
    ) -> Result<(), MemoryGone> {
        // The first finds out whether the batch takes it, and those behind it with it.
        self.push(&run.first, turn, path, memory, ports, stats)?;
        let mut done = 1;
        while done <= run.more {
            let (next, rest) = (run.packet(done), run.more + 1 - done);
            let added = self
                .building
                .add_run(&next, rest, turn, path, memory, ports);
            if added == 0 {
                self.push(&next, turn, path, memory, ports, stats)?;
            }
            done += added.max(1);
        }
        Ok(())
    }

    /// Adds a packet, sending what stands in its way first.
    pub(crate) fn push(
        &mut self,
        transmit: &Transmit<'_>,
        turn: &Turn,
        path: &Path,
        memory: &MemoryTable,
        ports: &[Port],
        stats: &mut DeviceStats,
    ) -> Result<(), MemoryGone> {
        let header_len = transmit.header.wire_len();
        let payload_len = transmit.payload.len() as usize;
        let length = header_len + payload_len + pad_len(payload_len) + ICRC_LEN;
        let room = turn.room_bytes;
        if !self.building.takes(length, room, transmit, path, ports) {
            self.make_room(ports, stats);
        }
        self.building
            .add(transmit, turn.pd, path, memory, length, header_len)?;
        self.building.is_stream |= turn.is_stream;
        Ok(())
    }

    /// Sends the batch under construction, or lets it wait.
    fn make_room(&mut self, ports: &[Port], stats: &mut DeviceStats) {
        if self.waiting.count > 0 {
            // One waits already, and this one is of the same run, which is sent again: see
            // `run_max`, which seldom lets it come to that.
            stats.tx_dropped += self.building.count as u64;
            self.building.discard();
            return;
        }
        self.building.flush(ports, stats);
        if self.building.is_blocked {
            std::mem::swap(&mut self.building, &mut self.waiting);
        }
    }

    /// Sends everything, as far as the sockets take it.
    pub(crate) fn flush(&mut self, ports: &[Port], stats: &mut DeviceStats) {
        self.waiting.flush(ports, stats);
        if !self.waiting.is_blocked {
            self.building.flush(ports, stats);
        }
    }

    /// Whether no packet waits, neither for company nor for the socket.
    pub(crate) const fn is_empty(&self) -> bool {
        self.building.count == 0 && self.waiting.count == 0
    }

    /// Packets of the batch under construction.
    pub(crate) const fn gathered(&self) -> usize {
        self.building.count
    }

    /// Drops what waits and points to the program's memory, which is going away. The packets count
    /// as lost, and are of transports that send them again: those of the others are copies.
    pub(crate) fn forget_memory(&mut self) {
        for batch in [&mut self.waiting, &mut self.building] {
            if batch.refers {
                batch.discard();
            }
        }
    }

    /// The socket to wait for when blocked.
    pub(crate) fn blocked_port(&self) -> Option<usize> {
        let batch = if self.waiting.is_blocked {
            &self.waiting
        } else {
            &self.building
        };
        batch
            .target
            .as_ref()
            .filter(|_| batch.is_blocked)
            .map(|target| target.port)
    }
}

#[cfg(test)]
mod tests;
