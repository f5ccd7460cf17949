//! Loads what the events of a window of time need, before the first of them happens.
//!
//! A large network fits no cache next to a processor, and most of a hop would be waiting for
//! memory. What one event needs is often only known from something that it needs as well: its
//! packet names the host, the host a way, the way a port, and the port the packet behind which it
//! will wait. So there are three passes over the events. In each, no load waits for another, and a
//! processor waits for all of them at the same time.
//!
//! What happens stays the same: the only thing that comes of it, besides values that were loaded,
//! is that packets know their ways.

use core::hint::black_box;

use urxe_proto::Instant;

use crate::connection::connection_of;
use crate::event::{Event, Further};
use crate::network::Network;
use crate::port::{DATA, Owner};
use crate::scenario::HashFields;

impl Network {
    /// Whether it loads ahead of time what events need. [`Self::new`] chooses what is faster for
    /// the size of the network; what comes of it is the same.
    pub const fn set_looks_ahead(&mut self, looks_ahead: bool) {
        self.looks_ahead = looks_ahead;
    }

    /// See the module.
    pub(crate) fn look_ahead(&mut self) {
        let events = self.events.window();
        let mut seen = 0;
        for (_, event) in events {
            seen ^= self.first_needs(event.event());
        }
        black_box(seen);
        self.ahead.clear();
        for index in 0..self.events.window().len() {
            let event = self.events.window()[index].1.event();
            let further = self.second_needs(event);
            self.ahead.push(further);
        }
        self.are_ways_known = true;
        let mut seen = 0;
        for further in &self.ahead {
            seen ^= match *further {
                Further::Nothing(seen) => seen,
                Further::Packet(id) => self.pool.get(id).tail_at,
                Further::Port(id) => u64::from(self.ports[id as usize].headroom_bytes),
            };
        }
        black_box(seen);
    }

    /// Loads what an event names.
    #[inline]
    fn first_needs(&self, event: Event) -> u64 {
        match event {
            Event::Arrive { port, packet } | Event::Enter { port, packet } => {
                let at = &self.ports[port as usize];
                self.pool.get(packet).tail_at ^ at.tx_bytes
            }
            Event::Free { port } => {
                let at = &self.ports[port as usize];
                at.free_at ^ at.tx_bytes
            }
            Event::Receive { host, packet } => {
                let number = self.pool.queue_pair(packet).map_or(0, |it| it.get());
                self.hosts[host as usize].received_bytes
                    ^ self.pool.get(packet).tail_at
                    ^ u64::from(number)
            }
            Event::Engine { host } => {
                let host = &self.hosts[host as usize];
                host.engine_free_at ^ host.pcie.read_free_at()
            }
            _ => 0,
        }
    }

    /// Loads what that names in turn, and tells what it leads to.
    #[inline]
    fn second_needs(&mut self, event: Event) -> Further {
        match event {
            Event::Arrive { port, packet } => match self.ports[port as usize].owner {
                Owner::Switch(switch) => self.way_ahead(switch, packet),
                Owner::Host(host) => Further::Nothing(self.hosts[host as usize].intake_free_at),
            },
            Event::Free { port } => {
                match self.ports[port as usize].queues[usize::from(DATA)].front() {
                    Some(packet) => Further::Port(self.pool.get(packet).ingress),
                    None => Further::Nothing(0),
                }
            }
            Event::Receive { packet, .. } => {
                let connection = self.pool.queue_pair(packet).map(connection_of);
                Further::Nothing(connection.map_or(0, |id| self.load_connection(id)))
            }
            Event::Engine { host } => {
                let port = self.hosts[host as usize].ports.first();
                let next = port.and_then(|port| port.ready.front());
                Further::Nothing(next.map_or(0, |id| self.load_connection(*id)))
            }
            _ => Further::Nothing(0),
        }
    }

    /// Tells a packet the port by which it will leave a switch, as things are now.
    fn way_ahead(&mut self, switch: u32, packet: u32) -> Further {
        let Some(egress) = self.choose_way(switch, self.pool.get(packet).flow) else {
            return Further::Nothing(0);
        };
        // When ways are taken in turns, it is not known yet whose turn will be which.
        if self.hash != HashFields::Packets {
            self.pool.get_mut(packet).set_way(egress);
        }
        let at = &self.ports[egress as usize];
        match at.queues[usize::from(DATA)].back() {
            Some(last) => Further::Packet(last),
            None => Further::Nothing(at.tx_bytes),
        }
    }

    /// Loads some of what a packet needs of its connection.
    fn load_connection(&self, id: u32) -> u64 {
        let Some(connection) = self.connections.get(id as usize) else {
            return 0;
        };
        let now = Instant::from_nanos(self.now_ns());
        let qp = &connection.qp;
        let is_either = qp.poll_retry_timeout().is_some() ^ qp.is_at_rest(now);
        connection.timer_at ^ qp.stats().duplicate_request ^ u64::from(is_either)
    }
}
