//! How long a flow takes when nothing else is on the network: what its slowdown is told against.
//!
//! The ways between hosts are a few different rows of cables. For each, the simulator sends flows
//! of some sizes, one after the other, through a network that is nothing but this row, without
//! congestion control. Between these sizes the time grows with the bytes on the wire: what else a
//! size changes (the first packet, what is fetched at once) is at the sizes themselves.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::flows::Flow;
use crate::network::Network;
use crate::port::Owner;
use crate::scenario::{CableConfig, End, Scenario, Topology};
use crate::traffic::Message;
use crate::traffic::{Operation, Traffic};

/// From here on the time grows by what the wire takes alone.
const LONG_BYTES: u32 = 1 << 20;
/// Between two flows, nanoseconds, besides what they take: long enough for all that follows one.
const GAP_NS: u64 = 1_000_000;
/// What surrounds a packet, about: between two sizes of flows, only proportions count.
const PACKET_BYTES: u32 = 82;

/// Times of some sizes, ascending.
struct Times {
    mtu_bytes: u32,
    /// Bytes on the wire, and picoseconds.
    points: Vec<(f64, f64)>,
}

fn wire_bytes(size_bytes: u32, mtu_bytes: u32) -> f64 {
    let packets = u64::from(size_bytes.div_ceil(mtu_bytes));
    (u64::from(size_bytes) + packets * u64::from(PACKET_BYTES)) as f64
}

impl Times {
    /// Of a size, picoseconds.
    fn of(&self, size_bytes: u32) -> f64 {
        let at = wire_bytes(size_bytes, self.mtu_bytes);
        let above = self.points.partition_point(|(bytes, _)| *bytes < at);
        let above = above.clamp(1, self.points.len() - 1);
        let ((low, from), (high, until)) = (self.points[above - 1], self.points[above]);
        from + (at - low) / (high - low) * (until - from)
    }
}

/// Sizes whose times are simulated.
fn sizes_bytes(scenario: &Scenario) -> Vec<u32> {
    let mtu = scenario.host.mtu_bytes;
    let unit = scenario.host.gather_bytes.max(mtu);
    let inline = scenario.host.inline_bytes;
    let mut sizes = [1, inline, inline + 1, mtu / 4, mtu / 2, mtu, mtu + 1]
        .into_iter()
        .chain((1..=4).map(|units| units * unit))
        .chain((1..=4).map(|units| units * unit + 1))
        .chain((1..=8).map(|packets| packets * mtu))
        .chain((14..=20).map(|bit| 1_u32 << bit))
        .chain([LONG_BYTES * 2])
        .filter(|size| *size > 0)
        .collect::<Vec<u32>>();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

impl Network {
    /// Notes of every flow how long it takes alone.
    pub(crate) fn note_times_alone(&mut self) {
        if let Some(operation) = self.flows.operation {
            self.flows.alone_ps = self.times_alone(operation);
        }
    }

    fn times_alone(&self, operation: Operation) -> Vec<f64> {
        let mut of_rows: BTreeMap<Vec<u64>, Times> = BTreeMap::new();
        let times = self.flows.list.iter().map(|flow| {
            let row = self.cables_between(flow);
            let key = row.iter().map(|rate| rate.to_bits()).collect();
            of_rows
                .entry(key)
                .or_insert_with(|| self.times_of_row(&row, operation))
                .of(flow.bytes)
        });
        times.collect()
    }

    /// The rates of the cables of a shortest way.
    fn cables_between(&self, flow: &Flow) -> Vec<f64> {
        let mut port = self.hosts[flow.from as usize].ports[0].id;
        let mut rates = Vec::new();
        loop {
            rates.push(self.details[port as usize].rate_gbps);
            let far = &self.ports[self.ports[port as usize].peer as usize];
            let Owner::Switch(switch) = far.owner else {
                return rates;
            };
            let own = self.hosts[flow.to as usize].port_ids();
            let mut here = own.map(|port| self.ports[port as usize].peer);
            let here = here.find(|port| self.ports[*port as usize].owner == far.owner);
            let way = here.or_else(|| self.routes.ways(switch, flow.to).first().copied());
            let Some(next) = way else {
                return rates;
            };
            port = next;
        }
    }

    /// What flows of some sizes take through a row of cables.
    fn times_of_row(&self, rates_gbps: &[f64], operation: Operation) -> Times {
        let mut scenario = self.scenario.clone();
        scenario.host.congestion_control = None;
        scenario.host.ports = 1;
        scenario.incidents = Vec::new();
        scenario.series_ns = None;
        scenario.tap = None;
        scenario.topology = row(rates_gbps);
        let sizes = sizes_bytes(&scenario);
        let slowest_gbps = rates_gbps.iter().copied().fold(f64::INFINITY, f64::min);
        let mut at_ns = 0;
        // The long ones first: what a queue pair learns of its way is for the others.
        let messages = sizes.iter().rev().map(|size| {
            let message = Message {
                from: 0,
                to: 1,
                size_bytes: *size,
                at_ns,
                after: Vec::new(),
                channel: None,
            };
            at_ns += GAP_NS + long_ns(*size, slowest_gbps);
            message
        });
        scenario.traffic = Traffic::Messages {
            operation,
            messages: messages.collect(),
        };
        scenario.time_limit_ns = 2 * (at_ns + GAP_NS);
        let mtu_bytes = scenario.host.mtu_bytes;
        let points = Self::made(scenario).map_or_else(
            |_| Vec::new(),
            |mut network| {
                while network.run(1 << 20) {}
                let flows = network.flows.list.iter().rev();
                flows
                    .map(|flow| {
                        let time_ps = flow.ended_at.saturating_sub(flow.at);
                        (wire_bytes(flow.bytes, mtu_bytes), time_ps as f64)
                    })
                    .collect()
            },
        );
        Times { mtu_bytes, points }
    }
}

/// Four times what so many bytes take.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few milliseconds"
)]
fn long_ns(bytes: u32, gbps: f64) -> u64 {
    (32.0 * f64::from(bytes) / gbps) as u64
}

/// Two hosts with switches in a row between them.
fn row(rates_gbps: &[f64]) -> Topology {
    let switches = rates_gbps.len() as u32 - 1;
    let ends = |at: u32| {
        let left = if at == 0 {
            End::Host(0)
        } else {
            End::Switch(at - 1)
        };
        let right = if at == switches {
            End::Host(1)
        } else {
            End::Switch(at)
        };
        [left, right]
    };
    let cables = (0..).zip(rates_gbps).map(|(at, rate)| CableConfig {
        ends: ends(at),
        gbps: Some(*rate),
    });
    Topology::Listed {
        hosts: 2,
        switches,
        cables: cables.collect(),
    }
}
