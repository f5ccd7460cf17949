//! What breaks, which parts notice, and circles of pauses.

use alloc::vec;
use alloc::vec::Vec;

use crate::build::WATCH_NS;
use crate::event::Event;
use crate::network::Network;
use crate::port::{DATA, Owner, PRIORITIES};
use crate::scenario::{ScenarioError, Victim};
use crate::topology::Routes;
use crate::units::PS_PER_NS;

impl Network {
    /// The ports that a victim stands for.
    pub(crate) fn victims(&self, victim: Victim) -> Result<Vec<u32>, ScenarioError> {
        match victim {
            Victim::Cable(place) | Victim::PauseStorm(place) => Ok(vec![self.port_at(place)?]),
            Victim::Switch(switch) => {
                self.port_at(crate::scenario::Place::Switch(switch, 0))?;
                Ok(self.switches[switch as usize].ports.clone())
            }
        }
    }

    pub(crate) fn handle_incident(&mut self, index: u32, begins: bool) {
        let Some(incident) = self.incident(index) else {
            return;
        };
        let Ok(victims) = self.victims(incident.victim) else {
            return;
        };
        if let Victim::PauseStorm(_) = incident.victim {
            for port in victims {
                let peer = self.ports[port as usize].peer;
                let event = Event::Pause {
                    port: peer,
                    priority: DATA,
                    on: begins,
                };
                self.schedule(self.now, event);
            }
            return;
        }
        for port in victims {
            let peer = self.ports[port as usize].peer;
            for end in [port, peer] {
                self.set_up(end, !begins);
            }
        }
        let at = self.now + incident.notice_ns * PS_PER_NS;
        self.schedule(at, Event::Reroute);
    }

    /// A port goes up or down. What waits at one that goes down is lost.
    fn set_up(&mut self, id: u32, is_up: bool) {
        let now = self.now;
        self.are_ways_known = false;
        let port = &mut self.ports[id as usize];
        port.is_up = is_up;
        if is_up {
            self.pump(id);
            return;
        }
        // No packet holds the other end back any more, and it does not hold us back.
        let details = &mut self.details[id as usize];
        for priority in 0..PRIORITIES as u8 {
            port.set_paused(details, now, priority, false);
        }
        port.pausing = 0;
        let owner = port.owner;
        while let Some(priority) = self.ports[id as usize].next_priority() {
            let port = &mut self.ports[id as usize];
            let Some(packet) = port.pop(priority, &self.pool) else {
                break;
            };
            let packet = self.pool.remove(packet);
            self.totals.lost_on_the_way += 1;
            let bytes = u64::from(packet.wire_bytes);
            match owner {
                Owner::Switch(switch) => {
                    self.leave_buffer(switch, packet.ingress, priority, bytes);
                }
                Owner::Host(host) => self.leave_adapter(host, id, bytes),
            }
        }
    }

    /// Routing takes note of what is up.
    pub(crate) fn reroute(&mut self) {
        let hosts: Vec<Vec<u32>> = self
            .hosts
            .iter()
            .map(|host| host.port_ids().collect())
            .collect();
        let switches: Vec<Vec<u32>> = self
            .switches
            .iter()
            .map(|switch| switch.ports.clone())
            .collect();
        self.are_ways_known = false;
        self.routes = Routes::find(&hosts, &switches, &self.ports);
    }

    /// Looks for a circle of ports each of which is paused because of packets that wait for the
    /// next.
    pub(crate) fn watch(&mut self) {
        let circle = self.paused_circle();
        if circle > 0 {
            self.totals.deadlocks = circle;
            self.is_over = true;
            return;
        }
        let at = self.now + WATCH_NS * PS_PER_NS;
        self.schedule(at, Event::Watch);
    }

    /// How many ports are in such circles, or wait for one: those that remain when all are taken
    /// away whose way is free.
    fn paused_circle(&self) -> u64 {
        let is_stuck = |id: u32| {
            let port = &self.ports[id as usize];
            port.paused & port.occupied & 1 << DATA != 0
                && matches!(port.owner, Owner::Switch(_))
                && self.now - self.details[id as usize].paused_since >= WATCH_NS * PS_PER_NS
        };
        let mut stuck: Vec<u32> = (0..self.ports.len() as u32)
            .filter(|id| is_stuck(*id))
            .collect();
        loop {
            let before = stuck.len();
            let waits = |id: u32, stuck: &[u32]| {
                let peer = self.ports[id as usize].peer;
                match self.ports[peer as usize].owner {
                    Owner::Host(_) => false,
                    Owner::Switch(switch) => self.holds_for(switch, peer, stuck),
                }
            };
            let remaining: Vec<u32> = stuck
                .iter()
                .copied()
                .filter(|id| waits(*id, &stuck))
                .collect();
            if remaining.len() == before {
                return before as u64;
            }
            stuck = remaining;
        }
    }

    /// Whether packets that came in at `ingress` wait at one of the `stuck` ports of a switch, and
    /// at no port that is free.
    fn holds_for(&self, switch: u32, ingress: u32, stuck: &[u32]) -> bool {
        let mut is_held = false;
        for port in &self.switches[switch as usize].ports {
            let queue = &self.ports[*port as usize].queues[usize::from(DATA)];
            if queue
                .iter(&self.pool)
                .any(|packet| packet.ingress == ingress)
            {
                if !stuck.contains(port) {
                    return false;
                }
                is_held = true;
            }
        }
        is_held
    }
}
