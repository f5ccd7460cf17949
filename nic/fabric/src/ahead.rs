//! Loads what the events of a window of time need, before the first of them happens.
//!
//! A large network fits no cache next to a processor, and most of a hop would be waiting for
//! memory. What one event needs is often only known from something that it needs as well: its
//! packet names the host, the host a way, the way a port, and the port the packet behind which it
//! will wait. So there are several passes over the events. In each, no load waits for another, and
//! a processor waits for all of them at the same time. As it sees only some hundred instructions
//! ahead, what depends on a load is noted without a branch, and the passes that follow are over
//! lists of ports, packets and connections alone.
//!
//! What happens stays the same: the only thing that comes of it, besides values that were loaded,
//! is that packets know their ways.

use core::hint::black_box;

use urxe_proto::Instant;

use crate::connection::connection_of;
use crate::event::{ARRIVE, Ahead, ENGINE, ENTER, FREE, RECEIVE};
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
        let mut ahead = core::mem::take(&mut self.ahead);
        for (_, event) in self.events.window() {
            ahead.push(*event);
        }
        let mut seen = self.events.load_next() ^ self.load_first(&ahead);
        self.note_further(&mut ahead);
        self.are_ways_known = true;
        // Of ports that become free: where the packet that leaves came in.
        let leaving = ahead.packets.len();
        let queues = ahead.ports.iter().map(|id| &self.ports[*id as usize]);
        let lasts = queues.map(|port| port.queues[usize::from(DATA)].ends().1);
        ahead.packets.extend(lasts);
        ahead.ports.clear();
        let ingresses = ahead.packets[..leaving].iter();
        ahead
            .ports
            .extend(ingresses.map(|id| self.pool.ingress(*id)));
        for id in &ahead.packets[leaving..] {
            seen ^= self.pool.load(*id);
        }
        for id in &ahead.ports {
            let port = self.ports.get(*id as usize);
            seen ^= port.map_or(0, |port| u64::from(port.headroom_bytes));
        }
        for id in &ahead.connections {
            seen ^= self.load_connection(*id);
        }
        black_box(seen);
        ahead.clear();
        self.ahead = ahead;
    }

    /// Loads what events name.
    fn load_first(&self, ahead: &Ahead) -> u64 {
        let mut seen = 0;
        for (port, packet) in ahead.of(ARRIVE).iter().chain(ahead.of(ENTER)) {
            seen ^= self.ports[*port as usize].tx_bytes ^ self.pool.load(*packet);
        }
        for (port, _) in ahead.of(FREE) {
            let port = &self.ports[*port as usize];
            seen ^= port.free_at ^ port.tx_bytes;
        }
        for (host, packet) in ahead.of(RECEIVE) {
            self.pool.load_body(*packet);
            seen ^= self.hosts[*host as usize].received_bytes ^ self.pool.load(*packet);
        }
        for (host, _) in ahead.of(ENGINE) {
            let host = &self.hosts[*host as usize];
            seen ^= host.engine_free_at ^ host.pcie.read_free_at();
        }
        seen
    }

    /// Notes what that leads to.
    fn note_further(&mut self, ahead: &mut Ahead) {
        for index in 0..ahead.of(ARRIVE).len() {
            let (port, packet) = ahead.of(ARRIVE)[index];
            if let Owner::Switch(switch) = self.ports[port as usize].owner {
                ahead.ports.extend(self.way_ahead(switch, packet));
            }
        }
        for index in 0..ahead.of(FREE).len() {
            let (port, _) = ahead.of(FREE)[index];
            let queue = &self.ports[port as usize].queues[usize::from(DATA)];
            ahead.packets.push(queue.ends().0);
        }
        for index in 0..ahead.of(RECEIVE).len() {
            let number = self.pool.queue_pair(ahead.of(RECEIVE)[index].1);
            ahead.connections.extend(number.map(connection_of));
        }
        for index in 0..ahead.of(ENGINE).len() {
            let (host, _) = ahead.of(ENGINE)[index];
            let port = self.hosts[host as usize].ports.first();
            let next = port.and_then(|port| port.ready.front());
            ahead.connections.extend(next);
        }
    }

    /// Tells a packet the port by which it will leave a switch, as things are now.
    fn way_ahead(&mut self, switch: u32, packet: u32) -> Option<u32> {
        let egress = self.choose_way(switch, self.pool.get(packet).flow)?;
        // When ways are taken in turns, it is not known yet whose turn will be which.
        if self.hash != HashFields::Packets {
            self.pool.get_mut(packet).set_way(egress);
        }
        Some(egress)
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
