//! Queue pairs have their turns to send.

use urxe_proto::{AckMode, Egress, Instant, QpType, QueuePair};
use urxe_udp::Socket;
use urxe_wire::{Bth, Operation};

use super::Engine;
use super::port::Ports;
use super::table::Slot;
use super::transmit::payload::MemoryGone;
use super::transmit::turn::Turn;
use super::transmit::{Outgoing, batch_packets};
use super::unbuilt::Unbuilt;
use crate::memory::MemoryTable;

/// Packets of one queue pair before the others get their turn.
pub(crate) const PACKETS_PER_TURN: u32 = 128;

/// Of what a queue pair sends in a turn, with little in flight, so many packets are a message,
/// whatever its length, and those of the batch that this many end in: as frames, five or six of the
/// peer's 96 places for long ones. What is behind them is a stream.
const MESSAGE_PACKETS: u32 = 64;

/// The acknowledgements of fewer queue pairs with requests in flight find room till their turn
/// comes, one in each round. To take in many at a time makes rounds rare, and a slow link wants
/// packets in every round: at 1 Gbps it cost a tenth of the bandwidth.
const MANY_SENDERS: usize = 16;

/// Bytes in flight of one queue pair, at most. More gains little once a round trip is covered.
pub(super) const WINDOW_MAX_BYTES: usize = 1 << 20;

/// The same of all of them together: the rest of the peer's buffer is for other senders, and for
/// datagrams.
pub(super) const WINDOWS_MAX_BYTES: usize = 16 << 20;

/// Packets of RoCE v1 in flight to a peer, of all queue pairs together: a quarter of what waits for
/// a processor in the kernel, at most (`net.core.netdev_max_backlog` is 1000 by default).
const FRAMES_MAX: u32 = 256;

impl Engine {
    /// Whether they are so many that what their answers bring waits for the next round.
    pub(crate) const fn has_many_senders(&self) -> bool {
        self.senders >= MANY_SENDERS
    }

    /// Gives a queue pair its turn. Returns how many packets it has made.
    fn transmit_from(&mut self, index: u16, now: Instant, mode: AckMode) -> u32 {
        let Some(slot) = self.qps.get_mut(index) else {
            return 0;
        };
        slot.is_ready = false;
        let port = slot.path.as_ref().map(|path| path.port);
        if mode == AckMode::Hold && port.is_some() && slot.qp.is_at_rest(now) {
            self.end_turn(index, false);
            return 0;
        }
        let mtu_bytes = slot.qp.mtu_bytes();
        let egress = port.map(|port| self.egress(port, mtu_bytes));
        let ports = Ports::of(self.sockets.as_ref());
        let Some(slot) = self.qps.get_mut(index) else {
            return 0;
        };
        slot.qp.set_egress(egress.unwrap_or_default());
        let is_one_of_many = self.senders + self.ready.len() >= MANY_SENDERS;
        let mut turn = turn_of(slot, &mut self.outgoing, self.senders, is_one_of_many);
        let Some(path) = &slot.path else {
            return self.transmit_datagrams(index, now, mode, &turn);
        };
        let mut has_more = true;
        let (memory, stats) = (&mut self.memory, &mut self.stats);
        let mut left = PACKETS_PER_TURN;
        let mut is_long = false;
        while left > 0 {
            let mut is_last = false;
            if left < PACKETS_PER_TURN - MESSAGE_PACKETS {
                turn.is_stream = true;
            }
            // Only behind a full packet others can follow that are like it. The others are spared
            // the question.
            let pushed = if is_long {
                let run_max = Outgoing::run_max(&turn, mtu_bytes, &ports[path.port]);
                let polled = slot.qp.poll_run(now, mode, run_max.min(left), memory);
                let Some(run) = &polled else {
                    has_more = false;
                    break;
                };
                left -= (1 + run.more).min(left);
                self.outgoing
                    .push_run(run, &turn, path, memory, ports, stats)
            } else {
                let polled = slot.qp.poll_transmit(now, mode, memory);
                let Some(transmit) = &polled else {
                    has_more = false;
                    break;
                };
                left -= 1;
                is_long = transmit.payload.len() == mtu_bytes;
                is_last = transmit.header.bth.opcode.operation() == Some(Operation::Acknowledge);
                self.outgoing
                    .push(transmit, &turn, path, memory, ports, stats)
            };
            if let Err(MemoryGone(bth)) = pushed {
                note_memory_gone(&mut slot.qp, memory, &bth);
            }
            if self.outgoing.is_blocked() {
                break;
            }
            // Requests go first, then what else is owed, then this: unless they had their turn
            // before.
            if is_last && slot.qp.is_at_rest(now) {
                has_more = false;
                break;
            }
        }
        slot.deliver(&self.events);
        self.end_turn(index, has_more);
        PACKETS_PER_TURN - left
    }

    /// What is left to do for a queue pair that has had its turn, and may have more to send.
    fn end_turn(&mut self, index: u16, has_more: bool) {
        let Some(slot) = self.qps.get_mut(index) else {
            return;
        };
        let is_sender = slot.qp.awaits_answer();
        self.senders += usize::from(is_sender);
        self.senders -= usize::from(std::mem::replace(&mut slot.is_sender, is_sender));
        if has_more || slot.qp.owes_response() {
            self.mark_ready(index);
        }
        self.arm(index);
    }

    /// Makes packets of what may be sent: no more queue pairs get their turn after `most` packets.
    /// Returns how many it made.
    pub(super) fn build(&mut self, now: Instant, mode: AckMode, most: u32) -> u32 {
        self.is_unfinished = false;
        self.unbuilt = Unbuilt::default();
        let mut built = 0;
        if self.outgoing.is_blocked() {
            self.flush();
        }
        for _ in 0..self.ready.len() {
            if self.outgoing.is_blocked() {
                return built;
            }
            if built >= most {
                self.is_unfinished = true;
                return built;
            }
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            built += self.transmit_from(index, now, mode);
        }
        built
    }

    /// How much one queue pair sends on at once. The peer's receive buffer is taken to be like ours
    /// (its address, and so its socket, serves all queue pairs of a process there), and shared by
    /// all that send; half of it, because the kernel counts its own bookkeeping, too.
    fn egress(&self, port: usize, mtu_bytes: u32) -> Egress {
        let port = &self.ports()[port];
        let buffer = port
            .socket
            .as_deref()
            .map_or(0, Socket::receive_buffer_bytes);
        let window_bytes = window_share_bytes(buffer, self.senders);
        let has_frames_only = |socket: &Socket| socket.has_frames_only();
        Egress {
            window_bytes: if port.socket.as_deref().is_some_and(has_frames_only) {
                window_bytes.min(frames_share_bytes(mtu_bytes, self.senders))
            } else {
                window_bytes
            },
            batch_packets: batch_packets(mtu_bytes, port),
        }
    }

    /// The queue pair at `index` may have something to send.
    pub(crate) fn mark_ready(&mut self, index: u16) {
        if let Some(slot) = self.qps.get_mut(index)
            && !slot.is_ready
        {
            slot.is_ready = true;
            self.ready.push_back(index);
        }
    }
}

/// See [`Engine::egress`].
pub(super) fn window_share_bytes(buffer_bytes: usize, senders: usize) -> u32 {
    let share = (buffer_bytes / 2).min(WINDOWS_MAX_BYTES) / senders.max(1);
    u32::try_from(share.min(WINDOW_MAX_BYTES)).unwrap_or(u32::MAX)
}

/// The same of RoCE v1, whose packets no kernel joins: so many wait for a processor, and others are
/// lost.
fn frames_share_bytes(mtu_bytes: u32, senders: usize) -> u32 {
    let senders = u32::try_from(senders.max(1)).unwrap_or(u32::MAX);
    (FRAMES_MAX / senders).max(1) * mtu_bytes
}

/// The memory of a packet's payload is gone. The packet is as good as lost; one that the program
/// protects is sent again when its handler has been told.
#[cold]
fn note_memory_gone(qp: &mut QueuePair, memory: &mut MemoryTable, bth: &Bth) {
    let is_reliable = !matches!(qp.config().qp_type, QpType::Uc | QpType::Ud);
    // Asked of all, so that no later failure of another kind is taken for this fault.
    let is_protected = memory.protected.note_fault(false);
    if !(is_reliable && is_protected) {
        qp.handle_memory_fault(bth);
    }
}

/// What a queue pair's packets are for, now that so many have requests in flight.
fn turn_of(slot: &Slot, outgoing: &mut Outgoing, senders: usize, is_one_of_many: bool) -> Turn {
    // Where there is no link, none is slow.
    let crosses_link = || slot.path.as_ref().is_some_and(|path| !path.is_local());
    let rate_bps = slot.qp.bulk_rate_bps().filter(|_| crosses_link());
    // Each has its share of the link.
    let all_bps = rate_bps.map(|bps| bps.saturating_mul(senders.max(1) as u64));
    Turn {
        pd: slot.qp.pd(),
        room_bytes: outgoing.room_bytes(all_bps),
        is_stream: is_one_of_many || slot.qp.is_streaming(),
    }
}
