//! Tells how much cables were used, and how evenly.

use alloc::string::String;
use core::fmt::Write as _;

use crate::cables::{CablesOutcome, Sent, fairness};
use crate::network::Network;
use crate::port::{Owner, Port};
use crate::process::Role;
use crate::units::PS_PER_NS;

/// Ports that are told of one by one.
const PORTS_TOLD: usize = 8_192;

fn name(owner: Owner) -> String {
    let mut name = String::new();
    let (kind, number) = match owner {
        Owner::Host(host) => ("host", host),
        Owner::Switch(switch) => ("switch", switch),
    };
    // A string takes whatever is written to it.
    let _ = write!(name, "{kind} {number}");
    name
}

impl Network {
    /// Notes what has been sent up to now.
    pub(crate) fn note_sent(&mut self) {
        let bytes = self.ports.iter().map(|port| port.tx_bytes);
        self.sent = Some(Sent {
            at: self.now,
            bytes: bytes.collect(),
        });
    }

    pub(crate) fn cables_outcome(&self) -> CablesOutcome {
        let mut told = CablesOutcome::default();
        if self.ports.len() > PORTS_TOLD {
            return told;
        }
        for (index, (port, details)) in self.ports.iter().zip(&self.details).enumerate() {
            told.from.push(name(port.owner));
            told.to.push(name(self.ports[port.peer as usize].owner));
            told.gbps.push(details.rate_gbps);
            told.used_part.push(self.used_part(index, port));
            told.queue_max_bytes.push(port.queue_max_bytes.into());
            told.paused_ns
                .push(port.paused_total_ps(details, self.now) / PS_PER_NS);
            told.marked_packets.push(details.marked);
            told.dropped_packets.push(details.dropped);
        }
        told
    }

    fn used_part(&self, index: usize, port: &Port) -> f64 {
        let (bytes, time_ps) = match &self.sent {
            Some(sent) => (sent.bytes[index], sent.at),
            None => (port.tx_bytes, self.now),
        };
        port.pace.of_bytes(bytes) as f64 / time_ps.max(1) as f64
    }

    /// How evenly streams, or flows in proportion to what they have alone, shared the network.
    pub(crate) fn fairness(&self) -> Option<f64> {
        if self.flows.operation.is_some() {
            let flows = self.flows.list.iter().zip(&self.flows.alone_ps);
            let ended = flows.filter(|(flow, _)| flow.counts && flow.ended_at > flow.at);
            return fairness(ended.map(|(flow, alone)| alone / (flow.ended_at - flow.at) as f64));
        }
        let sinks = self.processes.iter().filter_map(|process| {
            matches!(process.role, Role::Sink(_)).then_some(process.received_bytes as f64)
        });
        fairness(sinks)
    }
}
