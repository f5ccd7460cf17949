//! What came of a simulation.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use crate::cables::CablesOutcome;
use crate::flows::FlowsOutcome;
use crate::host::Host;
use crate::network::Network;
use crate::process::Role;
use crate::series::Point;
use crate::traffic::{Operation, Traffic};
use crate::units::{PS_PER_NS, gbps};

/// Streams whose own rates are told.
const STREAMS_TOLD: usize = 64;

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Whether everything that was to be done was done in the time that was given, without a
    /// failure.
    pub complete: bool,
    /// Why not, for a person.
    pub problem: Option<String>,
    /// Simulated time, nanoseconds.
    pub simulated_ns: u64,
    /// Half of each round trip of a ping-pong, nanoseconds.
    pub latencies_ns: Vec<f64>,
    /// Data of messages that ended over the time they took, all streams together, 10^9 bit/s. Of
    /// streams without an end, data that arrived.
    pub throughput_gbps: Option<f64>,
    /// New data that arrived at each host while it was counted, 10^9 bit/s.
    pub host_gbps: Vec<f64>,
    /// The same of each stream from its start to the end, if they are few.
    pub stream_gbps: Vec<f64>,
    /// Data that arrived again, or too early, in packets.
    pub repeated_packets: u64,
    /// Packets that switches dropped.
    pub dropped_packets: u64,
    /// Packets that were on a cable when it broke, or for which there was no way.
    pub lost_packets: u64,
    /// Packets marked "congestion experienced".
    pub marked_packets: u64,
    /// Congestion notifications that were obeyed.
    pub notifications: u64,
    /// Pauses sent.
    pub pauses: u64,
    /// The longest that any port was paused in total, nanoseconds.
    pub paused_max_ns: u64,
    /// The same of the ports of all hosts, together.
    pub paused_hosts_ns: u64,
    /// The longest queue of a port, bytes.
    pub queue_max_bytes: u64,
    /// The most that any switch held, bytes.
    pub buffer_max_bytes: u64,
    /// Ports that wait for each other in a circle when the circle was found.
    pub deadlocked_ports: u64,
    /// Packets that crossed a cable.
    pub packet_hops: u64,
    /// Events of the simulation.
    pub events: u64,
    /// The most packets under way.
    pub packets_peak: u64,
    /// Queue pairs that were made, of both ends.
    pub queue_pairs: u64,
    /// Queues and rates over time.
    pub series: Vec<Point>,
    /// Jain's index of the data that streams received, or of the rates of flows in proportion to
    /// those that they have alone.
    pub fairness: Option<f64>,
    /// Use of every cable.
    pub cables: CablesOutcome,
    /// Of traffic that is flows or messages of a list: each of them.
    pub flows: Option<FlowsOutcome>,
}

impl Network {
    /// What has come of it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let problem = self.problem();
        let totals = &self.totals;
        let paused = |port: u32| self.paused_total_ps(port) / PS_PER_NS;
        let paused_hosts_ns = self.hosts.iter().flat_map(Host::port_ids);
        Outcome {
            complete: problem.is_none(),
            problem,
            simulated_ns: self.now_ns(),
            latencies_ns: self.latencies_ns(),
            throughput_gbps: self.throughput_gbps(),
            host_gbps: self.host_gbps(),
            stream_gbps: self.stream_gbps(),
            repeated_packets: totals.repeated,
            dropped_packets: totals.dropped,
            lost_packets: totals.lost_on_the_way + totals.without_way,
            marked_packets: totals.marked,
            notifications: totals.notifications,
            pauses: totals.pauses,
            paused_max_ns: (0..self.ports.len() as u32).map(paused).max().unwrap_or(0),
            paused_hosts_ns: paused_hosts_ns.map(paused).sum(),
            queue_max_bytes: self
                .ports
                .iter()
                .map(|port| u64::from(port.queue_max_bytes))
                .max()
                .unwrap_or(0),
            buffer_max_bytes: self
                .switches
                .iter()
                .map(|switch| switch.buffer.used_max)
                .max()
                .unwrap_or(0),
            deadlocked_ports: totals.deadlocks,
            packet_hops: totals.hops,
            events: totals.events,
            packets_peak: self.pool.peak() as u64,
            queue_pairs: self.connections.len() as u64,
            series: self.series.points.clone(),
            fairness: self.fairness(),
            cables: self.cables_outcome(),
            flows: self.flows_outcome(),
        }
    }

    fn problem(&self) -> Option<String> {
        let totals = &self.totals;
        if let Some(status) = totals.failure {
            return Some(format!("a message failed: {status:?}"));
        }
        if totals.refused > 0 {
            return Some(format!(
                "{} requests found their queue full",
                totals.refused
            ));
        }
        if totals.deadlocks > 0 {
            let ports = totals.deadlocks;
            return Some(format!(
                "deadlock: {ports} ports wait for each other in a circle of pauses"
            ));
        }
        if self.busy == 0 {
            return None;
        }
        let now_ns = self.now_ns();
        let what = if self.events.len() == 0 {
            "nothing was left to happen"
        } else {
            "the time was over"
        };
        let of_what = if self.flows.operation.is_some() {
            "flows"
        } else {
            "programs"
        };
        Some(format!(
            "{} {of_what} had not ended when {what}, at {now_ns} ns",
            self.busy
        ))
    }

    fn latencies_ns(&self) -> Vec<f64> {
        let pings = self
            .processes
            .iter()
            .filter_map(|process| match &process.role {
                Role::Ping(ping) => Some(&ping.times_ps),
                _ => None,
            });
        pings
            .flatten()
            .map(|time| *time as f64 / PS_PER_NS as f64)
            .collect()
    }

    fn throughput_gbps(&self) -> Option<f64> {
        match &self.scenario.traffic {
            Traffic::PingPong { .. } => None,
            Traffic::Flows(_) | Traffic::Collective(_) | Traffic::Messages { .. } => {
                let bytes = self.flows.list.iter().filter(|flow| flow.ended_at > 0);
                let bytes = bytes.map(|flow| u64::from(flow.bytes)).sum();
                Some(gbps(bytes, self.now))
            }
            Traffic::Streams { messages: None, .. } => Some(self.host_gbps().iter().sum()),
            Traffic::Streams { operation, .. } => {
                let of_sinks = *operation == Operation::Send;
                let rates = self.processes.iter().filter_map(|process| {
                    let counted = match &process.role {
                        Role::Sink(counted) if of_sinks => counted,
                        Role::Stream(stream) if !of_sinks => &stream.counted,
                        _ => return None,
                    };
                    let (messages, time_ps) = counted.counted();
                    Some(gbps(messages * u64::from(process.message_bytes), time_ps))
                });
                Some(rates.sum())
            }
            Traffic::Alltoall {
                size_bytes,
                iterations,
                ..
            } => {
                let ranks = self.processes.len() as u64;
                let blocks = ranks * (ranks - 1) * u64::from(*iterations);
                let ends = self.processes.iter().map(|process| match &process.role {
                    Role::Exchange(exchange) => exchange.ended_at,
                    _ => 0,
                });
                Some(gbps(blocks * u64::from(*size_bytes), ends.max()?))
            }
        }
    }

    fn host_gbps(&self) -> Vec<f64> {
        let from = self.counts_from.unwrap_or(0);
        self.hosts
            .iter()
            .map(|host| gbps(host.received_bytes - host.received_before, self.now - from))
            .collect()
    }

    fn stream_gbps(&self) -> Vec<f64> {
        let sinks = || {
            self.processes
                .iter()
                .filter(|process| matches!(process.role, Role::Sink(_)))
        };
        if sinks().count() > STREAMS_TOLD {
            return Vec::new();
        }
        sinks()
            .map(|process| gbps(process.received_bytes, self.now))
            .collect()
    }
}
