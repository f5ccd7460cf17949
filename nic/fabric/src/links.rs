//! Packets on wires and through switches: queues, pauses, credits, loss and marks.

use crate::event::Event;
use crate::network::Network;
use crate::packet::{FlowId, MARKABLE, MARKED};
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
    #[inline]
    pub(crate) fn enqueue(&mut self, port: u32, packet: u32) {
        let priority = usize::from(self.pool.get(packet).priority);
        let at = &mut self.ports[port as usize];
        at.queues[priority].push(&mut self.pool, packet);
        at.occupied |= 1 << priority;
        if at.is_woken && self.now < at.free_at {
            return;
        }
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
        if port.has_credits {
            let credits = &mut self.details[id as usize].credits;
            if credits.left < bytes {
                return;
            }
            credits.left -= bytes;
        }
        port.pop(priority, &self.pool);
        let serialisation_ps = port.pace.of_bytes(bytes);
        // A packet of which the end is still under way must not be overtaken by the wire.
        let start = now.max(packet.tail_at.saturating_sub(serialisation_ps));
        let ingress = packet.ingress;
        port.free_at = start + serialisation_ps;
        port.tx_bytes += bytes;
        self.totals.hops += 1;
        let tail_at = port.free_at + port.delay_ps;
        let arrives_at = if port.peer_cut_through {
            let head_ps = port.pace.of_bytes(bytes.min(CUT_THROUGH_BYTES));
            start + head_ps + port.delay_ps
        } else {
            tail_at
        };
        let (peer, owner) = (port.peer, port.owner);
        if let (Some(telemetry), Owner::Switch(_)) = (&mut self.telemetry, owner) {
            telemetry.pass(packet_id, port, self.details[id as usize].rate_gbps, start);
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

    /// A packet has passed the pipeline of its adapter.
    pub(crate) fn handle_entry(&mut self, port: u32, packet: u32) {
        self.note_sending(packet);
        self.enqueue(port, packet);
    }

    /// The wire of a port is free.
    pub(crate) fn handle_free(&mut self, port: u32) {
        self.ports[port as usize].is_woken = false;
        self.pump(port);
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
        let packet = self.pool.get_mut(id);
        let way = packet.take_way().filter(|_| self.are_ways_known);
        let flow = packet.flow;
        let Some(egress) = way.or_else(|| self.choose_way(switch, flow)) else {
            self.totals.without_way += 1;
            self.return_credit(ingress, u64::from(self.pool.get(id).wire_bytes));
            self.pool.remove(id);
            return;
        };
        let packet = self.pool.get_mut(id);
        packet.ingress = ingress;
        let (priority, wire_bytes) = (packet.priority, packet.wire_bytes);
        let (bytes, index) = (u64::from(wire_bytes), usize::from(priority));
        let out_port = &self.ports[egress as usize];
        let waiting = out_port.queues[index].bytes();
        let may_be_marked = waiting > u64::from(out_port.unmarked_bytes);
        let leaves_at_once = out_port.occupied == 0 && out_port.free_at <= self.now;
        let in_port = &mut self.ports[ingress as usize];
        let before = u64::from(in_port.ingress_bytes[index]);
        let is_lossless = priority == DATA && self.has_pfc && !in_port.has_credits;
        let mut verdict = Verdict::Shared;
        if !in_port.has_credits {
            let buffer = &mut self.switches[switch as usize].buffer;
            verdict = if is_lossless {
                let (used, most) = (in_port.headroom_bytes, in_port.headroom_max_bytes);
                buffer.judge_lossless(before, used.into(), bytes, most.into())
            } else if leaves_at_once {
                // What leaves at once needs no room in a queue.
                Verdict::Shared
            } else {
                buffer.judge_lossy(waiting, bytes)
            };
            if verdict == Verdict::Drop {
                self.details[egress as usize].dropped += 1;
                self.totals.dropped += 1;
                self.pool.remove(id);
                return;
            }
            buffer.take(verdict, before + bytes, bytes);
        }
        if verdict == Verdict::Headroom {
            in_port.headroom_bytes += wire_bytes;
        } else {
            in_port.ingress_bytes[index] += wire_bytes;
        }
        if may_be_marked {
            self.mark(egress, id, waiting);
        }
        self.enqueue(egress, id);
        let out_port = &mut self.ports[egress as usize];
        let waiting = out_port.queue_bytes() as u32;
        out_port.queue_max_bytes = out_port.queue_max_bytes.max(waiting);
        if is_lossless {
            self.pause_if_full(switch, ingress, priority);
        }
    }

    /// The port by which the next packet of a flow leaves a switch.
    pub(crate) fn choose_way(&self, switch: u32, flow: FlowId) -> Option<u32> {
        let is_up = |port: u32| self.ports[port as usize].is_up;
        let destination = flow.destination();
        let each = self.scenario.host.ports as usize;
        let first = destination as usize * each;
        let leaves = &self.leaves[first..first + each];
        let mut here = leaves
            .iter()
            .filter(|(leaf, port)| *leaf == switch && is_up(*port))
            .map(|(_, port)| *port);
        let count = here.clone().count() as u32;
        if count == 1 {
            return here.next();
        }
        let at = &self.switches[switch as usize];
        let hash = match self.hash {
            HashFields::Packets => at.turn,
            by => (mix(flow.number(by == HashFields::Ports) ^ at.salt) >> 32) as u32,
        };
        if count > 1 {
            return here.nth((hash % count) as usize);
        }
        let ways = self.routes.ways(switch, destination);
        let index = hash.checked_rem(ways.len() as u32)?;
        ways.get(index as usize).copied()
    }

    /// Marks a packet by the queue that it meets.
    #[inline(never)]
    fn mark(&mut self, egress: u32, id: u32, waiting: u64) {
        let details = &mut self.details[egress as usize];
        let Some(marking) = &details.marking else {
            return;
        };
        let below = marking.marks_below(waiting);
        if below == 0 || !self.pool.get(id).is(MARKABLE) {
            return;
        }
        if self.random.rand_u64() >> 32 < below {
            self.pool.get_mut(id).set(MARKED);
            details.marked += 1;
            self.totals.marked += 1;
        }
    }

    /// A packet has left a switch: its room is free.
    pub(crate) fn leave_buffer(&mut self, switch: u32, ingress: u32, priority: usize, bytes: u64) {
        let port = &mut self.ports[ingress as usize];
        if port.has_credits {
            port.ingress_bytes[priority] -= bytes as u32;
            self.return_credit(ingress, bytes);
            return;
        }
        let mut from_headroom = 0;
        if priority == usize::from(DATA) {
            from_headroom = u64::from(port.headroom_bytes).min(bytes);
            port.headroom_bytes -= from_headroom as u32;
        }
        let rest = bytes - from_headroom;
        let before = u64::from(port.ingress_bytes[priority]);
        port.ingress_bytes[priority] = (before - rest) as u32;
        let used = u64::from(port.headroom_bytes);
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
        let bytes = u64::from(port.ingress_bytes[usize::from(priority)]);
        let used = u64::from(port.headroom_bytes);
        if port.pausing & 1 << priority == 0 && buffer.wants_pause(bytes, used) {
            port.pausing |= 1 << priority;
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
        let propagation_ps = self.details[from as usize].propagation_ps;
        self.schedule(leaves_at + propagation_ps, event);
    }

    /// Room for so many bytes is free behind an InfiniBand port.
    pub(crate) fn return_credit(&mut self, ingress: u32, bytes: u64) {
        let port = &self.ports[ingress as usize];
        if !port.has_credits {
            return;
        }
        let details = &mut self.details[ingress as usize];
        let credits = &mut details.credits;
        credits.owed += bytes;
        if credits.owed < CREDIT_UPDATE_BYTES {
            return;
        }
        let bytes = core::mem::take(&mut credits.owed) as u32;
        let peer = port.peer;
        let at = self.now + details.propagation_ps + PS_PER_NS;
        self.schedule(at, Event::Credit { port: peer, bytes });
    }

    pub(crate) fn handle_credit(&mut self, port: u32, bytes: u32) {
        self.details[port as usize].credits.left += u64::from(bytes);
        self.pump(port);
    }
}
