//! The longest round trip of a network in which nothing waits.

use alloc::collections::VecDeque;
use alloc::vec;

use urxe_wire::{Bth, Header, Opcode, Operation, Psn, Qpn, Transport};

use crate::framing::rdma_bytes;
use crate::network::Network;
use crate::port::Owner;
use crate::units::PS_PER_NS;

impl Network {
    /// How long a full packet takes from the first host to the one that is the farthest from it,
    /// and its acknowledgement back, from the start of the packet in one adapter until that has
    /// taken the acknowledgement in.
    pub(crate) fn base_round_trip_ns(&self) -> u64 {
        let config = self.host_config();
        let full = self.one_way_ps(config.mtu_bytes, Operation::WriteMiddle);
        let short = self.one_way_ps(0, Operation::Acknowledge);
        let fetch_ps = config.fetch_ps() + 2 * config.buffer_ps(u64::from(config.mtu_bytes));
        (full + short + fetch_ps).div_ceil(PS_PER_NS)
    }

    fn one_way_ps(&self, payload_bytes: u32, operation: Operation) -> u64 {
        let config = self.host_config();
        let opcode = Opcode::new(Transport::Rc, operation);
        let header = Header::new(Bth::new(opcode, Qpn::new(0), Psn::new(0)));
        let delimiters = config.delimiter_bytes;
        let mut bytes = rdma_bytes(config.link, delimiters, &header, payload_bytes);
        if let Some(telemetry) = &self.telemetry {
            bytes += telemetry.bytes(&header, payload_bytes);
        }
        let switches = self.switches_on_longest_way();
        // The slowest port of all stands for each.
        let slowest = self
            .ports
            .iter()
            .map(|port| port.pace.of_bytes(bytes.into()));
        let whole_ps = slowest.max().unwrap_or(0);
        let cuts_through = self
            .scenario
            .switch
            .is_some_and(|switch| switch.cut_through);
        let at_switches_ps = if cuts_through { 0 } else { switches * whole_ps };
        let latency_ns = self.scenario.switch.map_or(0, |switch| switch.latency_ns);
        let ns = config.send_ns
            + config.receive_ns
            + (switches + 1) * self.scenario.propagation_ns
            + switches * latency_ns;
        whole_ps + at_switches_ps + ns * PS_PER_NS
    }

    /// Switches between the first host and the one that is the farthest from it.
    fn switches_on_longest_way(&self) -> u64 {
        let mut distances = vec![u64::MAX; self.switches.len()];
        let mut waiting = VecDeque::new();
        if let Some((leaf, _)) = self.leaves.first() {
            distances[*leaf as usize] = 1;
            waiting.push_back(*leaf);
        }
        let mut farthest = 0;
        while let Some(switch) = waiting.pop_front() {
            let here = distances[switch as usize];
            for port in &self.switches[switch as usize].ports {
                let peer = self.ports[*port as usize].peer;
                match self.ports[peer as usize].owner {
                    Owner::Host(_) => farthest = farthest.max(here),
                    Owner::Switch(next) if distances[next as usize] == u64::MAX => {
                        distances[next as usize] = here + 1;
                        waiting.push_back(next);
                    }
                    Owner::Switch(_) => {}
                }
            }
        }
        farthest
    }
}
