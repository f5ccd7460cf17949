//! Packets on wires and through switches: queues, pauses, credits, loss and marks.

use crate::network::{Event, Network};
use crate::packet::{MARKABLE, MARKED};
use crate::port::{DATA, Owner};
use crate::scenario::HashFields;
use crate::switch::Verdict;
use crate::topology::mix;
use crate::units::PS_PER_NS;

/// What a switch has to see of a packet to send it on, when it cuts through.
const CUT_THROUGH_BYTES: u64 = 64;
/// A pause frame with preamble and gap (IEEE 802.1Qbb).
const PAUSE_BYTES: u64 = 84;
/// InfiniBand tells of credits for so many bytes at a time.
const CREDIT_UPDATE_BYTES: u64 = 4_096;

impl Network {
    /// Puts a packet into the queue of a port.
    pub(crate) fn enqueue(&mut self, port: u32, packet: u32) {
        let priority = usize::from(self.pool.get(packet).priority);
        let at = &mut self.ports[port as usize];
        at.queues[priority].push(&mut self.pool, packet);
        at.occupied |= 1 << priority;
        self.pump(port);
    }

    /// Sends the next packet of a port, if one may go now.
    pub(crate) fn pump(&mut self, id: u32) {
        let now = self.now;
        let port = &mut self.ports[id as usize];
        if port.occupied == 0 || !port.is_up {
            return;
        }
        if now < port.free_at {
            if !port.is_woken {
                port.is_woken = true;
                let at = port.free_at;
                self.schedule(at, Event::Free { port: id });
            }
            return;
        }
        let Some(priority) = port.next_priority() else {
            return;
        };
        let Some(packet_id) = port.queues[priority].front() else {
            return;
        };
        let packet = self.pool.get(packet_id);
        let bytes = u64::from(packet.wire_bytes);
        if let Some(credits) = &mut port.credits {
            if credits.left < bytes {
                return;
            }
            credits.left -= bytes;
        }
        port.queues[priority].pop(&self.pool);
        if port.queues[priority].front().is_none() {
            port.occupied &= !(1 << priority);
        }
        let serialisation_ps = port.pace.of_bytes(bytes);
        // A packet of which the end is still under way must not be overtaken by the wire.
        let start = now.max(packet.tail_at.saturating_sub(serialisation_ps));
        let ingress = packet.ingress;
        port.free_at = start + serialisation_ps;
        port.stats.tx_packets += 1;
        port.stats.tx_bytes += bytes;
        self.totals.hops += 1;
        let tail_at = port.free_at + port.propagation_ps + port.peer_latency_ps;
        let arrives_at = if port.peer_cut_through {
            let head_ps = port.pace.of_bytes(bytes.min(CUT_THROUGH_BYTES));
            start + head_ps + port.propagation_ps + port.peer_latency_ps
        } else {
            tail_at
        };
        let (peer, owner) = (port.peer, port.owner);
        if let (Some(telemetry), Owner::Switch(_)) = (&mut self.telemetry, owner) {
            telemetry.pass(packet_id, port, start);
        }
        if port.occupied != 0 && !port.is_woken {
            port.is_woken = true;
            let at = port.free_at;
            self.schedule(at, Event::Free { port: id });
        }
        self.pool.get_mut(packet_id).tail_at = tail_at;
        let arrival = Event::Arrive {
            port: peer,
            packet: packet_id,
        };
        self.schedule(arrives_at, arrival);
        if self.capture.is_some() {
            self.record(id, packet_id, start);
        }
        match owner {
            Owner::Switch(switch) => self.leave_buffer(switch, ingress, priority, bytes),
            Owner::Host(host) => self.leave_adapter(host, id, bytes),
        }
    }

    /// A packet came in at a port.
    pub(crate) fn handle_arrival(&mut self, port: u32, packet: u32) {
        let at = &self.ports[port as usize];
        if !at.is_up {
            self.pool.remove(packet);
            self.totals.lost_on_the_way += 1;
            return;
        }
        if self.capture.is_some() {
            self.record(port, packet, self.now);
        }
        match self.ports[port as usize].owner {
            Owner::Host(host) => {
                self.note_arrival(packet);
                self.take_in(host, packet);
            }
            Owner::Switch(switch) => self.forward(switch, port, packet),
        }
    }

    fn forward(&mut self, switch: u32, ingress: u32, id: u32) {
        let turn = &mut self.switches[switch as usize].turn;
        *turn = turn.wrapping_add(1);
        let Some(egress) = self.choose_way(switch, id) else {
            self.totals.without_way += 1;
            self.return_credit(ingress, u64::from(self.pool.get(id).wire_bytes));
            self.pool.remove(id);
            return;
        };
        let packet = self.pool.get(id);
        let priority = packet.priority;
        let bytes = u64::from(packet.wire_bytes);
        let in_port = &self.ports[ingress as usize];
        let out_port = &self.ports[egress as usize];
        let waiting = out_port.queues[usize::from(priority)].bytes;
        let before = in_port.ingress_bytes[usize::from(priority)];
        let has_credits = in_port.credits.is_some();
        let is_lossless = priority == DATA && self.has_pfc && !has_credits;
        let mut verdict = Verdict::Shared;
        if !has_credits {
            let buffer = &self.switches[switch as usize].buffer;
            verdict = if is_lossless {
                let (used, rate) = (in_port.headroom_bytes, in_port.rate_gbps);
                buffer.judge_lossless(before, used, bytes, rate)
            } else if out_port.occupied == 0 && out_port.free_at <= self.now {
                // What leaves at once needs no room in a queue.
                Verdict::Shared
            } else {
                buffer.judge_lossy(waiting, bytes)
            };
            if verdict == Verdict::Drop {
                self.ports[egress as usize].stats.dropped += 1;
                self.totals.dropped += 1;
                self.pool.remove(id);
                return;
            }
            let buffer = &mut self.switches[switch as usize].buffer;
            buffer.take(verdict, before + bytes, bytes);
        }
        self.mark(egress, id, waiting);
        self.pool.get_mut(id).ingress = ingress;
        let in_port = &mut self.ports[ingress as usize];
        if verdict == Verdict::Headroom {
            in_port.headroom_bytes += bytes;
        } else {
            in_port.ingress_bytes[usize::from(priority)] += bytes;
        }
        self.enqueue(egress, id);
        let out_port = &mut self.ports[egress as usize];
        let waiting = out_port.queue_bytes();
        out_port.stats.queue_max_bytes = out_port.stats.queue_max_bytes.max(waiting);
        if is_lossless {
            self.pause_if_full(switch, ingress, priority);
        }
    }

    fn choose_way(&self, switch: u32, id: u32) -> Option<u32> {
        let packet = self.pool.get(id);
        let is_up = |port: u32| self.ports[port as usize].is_up;
        let destination = packet.flow.destination();
        let each = self.leaves.len() / self.hosts.len();
        let first = destination as usize * each;
        let leaves = &self.leaves[first..first + each];
        let mut here = leaves
            .iter()
            .filter(|(leaf, port)| *leaf == switch && is_up(*port))
            .map(|(_, port)| *port);
        let count = here.clone().count();
        if count == 1 {
            return here.next();
        }
        let at = &self.switches[switch as usize];
        let hash = match self.hash {
            HashFields::Packets => at.turn as usize,
            by => {
                let flow = packet.flow.number(by == HashFields::Ports);
                (mix(flow ^ at.salt) >> 32) as usize
            }
        };
        if count > 1 {
            return here.nth(hash % count);
        }
        let ways = self.routes.ways(switch, destination);
        let index = hash.checked_rem(ways.len())?;
        ways.get(index).copied()
    }

    /// Marks a packet by the queue that it meets.
    fn mark(&mut self, egress: u32, id: u32, waiting: u64) {
        let Some(marking) = &self.ports[egress as usize].marking else {
            return;
        };
        let below = marking.marks_below(waiting);
        if below == 0 || !self.pool.get(id).is(MARKABLE) {
            return;
        }
        if self.random.rand_u64() >> 32 < below {
            self.pool.get_mut(id).set(MARKED);
            self.ports[egress as usize].stats.marked += 1;
            self.totals.marked += 1;
        }
    }

    /// A packet has left a switch: its room is free.
    pub(crate) fn leave_buffer(&mut self, switch: u32, ingress: u32, priority: usize, bytes: u64) {
        let port = &mut self.ports[ingress as usize];
        if port.credits.is_some() {
            port.ingress_bytes[priority] -= bytes;
            self.return_credit(ingress, bytes);
            return;
        }
        let mut from_headroom = 0;
        if priority == usize::from(DATA) {
            from_headroom = port.headroom_bytes.min(bytes);
            port.headroom_bytes -= from_headroom;
        }
        let rest = bytes - from_headroom;
        let before = port.ingress_bytes[priority];
        port.ingress_bytes[priority] = before - rest;
        let used = port.headroom_bytes;
        let buffer = &mut self.switches[switch as usize].buffer;
        buffer.release(before, rest, from_headroom);
        let is_pausing = port.pausing & 1 << priority != 0;
        if is_pausing && buffer.allows_resume(before - rest, used) {
            port.pausing &= !(1 << priority);
            self.send_pause(ingress, priority as u8, false);
        }
    }

    fn pause_if_full(&mut self, switch: u32, ingress: u32, priority: u8) {
        let buffer = &self.switches[switch as usize].buffer;
        let port = &mut self.ports[ingress as usize];
        let bytes = port.ingress_bytes[usize::from(priority)];
        if port.pausing & 1 << priority == 0 && buffer.wants_pause(bytes, port.headroom_bytes) {
            port.pausing |= 1 << priority;
            port.stats.pauses += 1;
            self.totals.pauses += 1;
            self.send_pause(ingress, priority, true);
        }
    }

    /// A pause, or its end, leaves after the packet that is on the wire, before all others.
    fn send_pause(&mut self, from: u32, priority: u8, on: bool) {
        let port = &self.ports[from as usize];
        let leaves_at = self.now.max(port.free_at) + port.pace.of_bytes(PAUSE_BYTES);
        let event = Event::Pause {
            port: port.peer,
            priority,
            on,
        };
        self.schedule(leaves_at + port.propagation_ps, event);
    }

    /// Room for so many bytes is free behind an InfiniBand port.
    pub(crate) fn return_credit(&mut self, ingress: u32, bytes: u64) {
        let port = &mut self.ports[ingress as usize];
        let Some(credits) = &mut port.credits else {
            return;
        };
        credits.owed += bytes;
        if credits.owed < CREDIT_UPDATE_BYTES {
            return;
        }
        let bytes = core::mem::take(&mut credits.owed) as u32;
        let peer = port.peer;
        let at = self.now + port.propagation_ps + PS_PER_NS;
        self.schedule(at, Event::Credit { port: peer, bytes });
    }

    pub(crate) fn handle_credit(&mut self, port: u32, bytes: u32) {
        if let Some(credits) = &mut self.ports[port as usize].credits {
            credits.left += u64::from(bytes);
        }
        self.pump(port);
    }
}
