//! A host's adapter, as far as it is the same for all that it sends and takes in.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::pcie::Pcie;
use crate::port::Port;
use crate::scenario::HostConfig;
use crate::units::PS_PER_NS;

/// What may be in the adapter's pipeline besides what fills its latency, in units of gathering.
const PIPELINE_UNITS: u64 = 4;

/// See the module. The bus is a cache line, and what else a packet needs is the next.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Host {
    pub(crate) pcie: Pcie,
    /// When the next packet may be started.
    pub(crate) engine_free_at: u64,
    /// When the next packet may be taken in.
    pub(crate) intake_free_at: u64,
    /// When the last of them has passed the adapter's memory.
    pub(crate) taken_in_at: u64,
    pub(crate) ports: Vec<HostPort>,
    /// New payload that came.
    pub(crate) received_bytes: u64,
    /// The port whose turn it is.
    turn: u32,
    pub(crate) is_engine_woken: bool,
    /// Software: whether what it did last was to fetch.
    pub(crate) has_fetched: bool,
    /// Software: packets at the socket.
    pub(crate) inbox: VecDeque<u32>,
    /// Software: when the last packet came there.
    pub(crate) came_at: u64,
    /// Software: whether an event will look if more has come since.
    pub(crate) is_looked_for: bool,
    /// What had come when counting began.
    pub(crate) received_before: u64,
}

/// What an adapter has of a port.
#[derive(Debug)]
pub(crate) struct HostPort {
    /// The port, of all ports.
    pub(crate) id: u32,
    /// Bytes that were started and are not on the wire.
    pub(crate) backlog_bytes: u64,
    /// How many these may be: what the latency holds, and some packets.
    backlog_max_bytes: u64,
    /// The connections that have something to send, in the order of turns.
    pub(crate) ready: VecDeque<u32>,
}

impl Host {
    pub(crate) fn new(own: &[u32], ports: &[Port], config: &HostConfig) -> Self {
        let latency_ps = config.send_ns * PS_PER_NS + config.fetch_ps();
        let port = |id: &u32| HostPort {
            id: *id,
            backlog_bytes: 0,
            backlog_max_bytes: ports[*id as usize].pace.bytes_in(latency_ps)
                + PIPELINE_UNITS * config.unit_bytes(),
            ready: VecDeque::new(),
        };
        Self {
            pcie: Pcie::new(config.pcie),
            engine_free_at: 0,
            intake_free_at: 0,
            taken_in_at: 0,
            ports: own.iter().map(port).collect(),
            received_bytes: 0,
            turn: 0,
            is_engine_woken: false,
            has_fetched: false,
            inbox: VecDeque::new(),
            came_at: 0,
            is_looked_for: false,
            received_before: 0,
        }
    }

    /// Its ports, of all ports.
    pub(crate) fn port_ids(&self) -> impl Iterator<Item = u32> {
        self.ports.iter().map(|port| port.id)
    }

    /// The next port that has something to send, and room in its pipeline.
    pub(crate) fn next_port(&self) -> Option<usize> {
        let from_turn = self.ports.iter().enumerate().skip(self.turn as usize);
        from_turn
            .chain(self.ports.iter().enumerate().take(self.turn as usize))
            .find(|(_, port)| !port.ready.is_empty() && port.backlog_bytes < port.backlog_max_bytes)
            .map(|(index, _)| index)
    }

    /// A port had its turn.
    pub(crate) const fn end_turn(&mut self, index: usize) {
        let next = index + 1;
        self.turn = if next == self.ports.len() {
            0
        } else {
            next as u32
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_packet_needs_of_a_host_is_two_cache_lines() {
        assert_eq!(core::mem::offset_of!(Host, engine_free_at), 64);
        assert_eq!(core::mem::offset_of!(Host, inbox), 128);
        assert!(size_of::<HostPort>() <= 64);
    }
}
