//! Flows: messages that start at their time, or once others have arrived, each over a queue pair
//! that nothing else uses meanwhile.
//!
//! Queue pairs are kept for each pair of hosts, and a flow takes one that is idle, or a new one.
//! Its congestion control begins anew, and its UDP source port is another: to the network it is as
//! if every flow made its own queue pair, as in HPCC's simulator. But there are never more of them
//! than flows of a pair that were under way together, and no packet of an earlier flow is taken for
//! one of a later.

use alloc::vec::Vec;

use crate::connection::control_anew;
use crate::event::Event;
use crate::flows::{Dependents, Flow, Flows, FlowsOutcome};
use crate::network::Network;
use crate::packet::FlowId;
use crate::process::Role;
use crate::scenario::ScenarioError;
use crate::topology::mix;
use crate::traffic::Operation;
use crate::traffic_setup::CONNECTIONS_MAX;
use crate::units::PS_PER_NS;

/// No flow.
const NONE: u32 = u32::MAX;

impl Network {
    pub(crate) fn set_up_flows(
        &mut self,
        operation: Operation,
        (list, dependents): (Vec<Flow>, Dependents),
    ) -> Result<(), ScenarioError> {
        if self.uses_sockets() {
            return Err(ScenarioError("flows are there for RDMA only".into()));
        }
        if list.is_empty() {
            return Err(ScenarioError("there is no message to send".into()));
        }
        for host in 0..self.hosts.len() as u32 {
            self.add_process(host, operation, 0, Role::Flows);
        }
        self.busy = list.len() as u32;
        self.flows = Flows {
            list,
            dependents,
            operation: Some(operation),
            ..Flows::default()
        };
        self.schedule_next_flow();
        Ok(())
    }

    fn schedule_next_flow(&mut self) {
        let flows = &mut self.flows;
        // Those that need others start when these have arrived.
        while let Some(flow) = flows.list.get(flows.next as usize) {
            if !flow.follows {
                let at = flow.at.max(self.now);
                self.schedule(at, Event::Flow);
                return;
            }
            flows.next += 1;
        }
    }

    pub(crate) fn next_flow(&mut self) {
        let index = self.flows.next;
        self.flows.next += 1;
        self.schedule_next_flow();
        self.start_flow(index);
    }

    /// A flow starts now.
    pub(crate) fn start_flow(&mut self, index: u32) {
        let now = self.now;
        self.flows.started += 1;
        if self.flows.started == self.flows.list.len() {
            self.note_sent();
        }
        let flow = &mut self.flows.list[index as usize];
        flow.at = now;
        let (from, to, bytes) = (flow.from, flow.to, flow.bytes);
        // Who READs is who gets the data.
        let ends = match self.flows.operation {
            Some(Operation::Read) => [to, from],
            _ => [from, to],
        };
        let Some(requester) = self.idle_queue_pair(ends) else {
            self.totals.refused += 1;
            return;
        };
        let config = self.scenario.host;
        for (at, id) in [requester, requester + 1].into_iter().enumerate() {
            let random = mix(self.scenario.seed ^ u64::from(2 * index + at as u32) << 20);
            let source = 0xc000 | (random & 0x3fff);
            let connection = &mut self.connections[id as usize];
            connection.message_bytes = bytes;
            connection.flow = FlowId::new(ends[at], ends[1 - at], source as u16);
            control_anew(&mut connection.qp, &config);
            self.flows.of_connection[id as usize] = index;
        }
        if self.flows.operation == Some(Operation::Send) {
            self.post_receive(requester + 1, bytes);
        }
        // Processes are hosts.
        self.send(ends[0], requester, now);
    }

    /// A queue pair of the first host to the second that no flow has.
    fn idle_queue_pair(&mut self, ends: [u32; 2]) -> Option<u32> {
        let pool = self.flows.idle.get_mut(&(ends[0], ends[1]));
        if let Some(requester) = pool.and_then(Vec::pop) {
            return Some(requester);
        }
        let made = self.connections.len() as u32;
        if u64::from(made) + 2 > CONNECTIONS_MAX {
            return None;
        }
        // Each further one by the next port of a bond.
        let [requester, _] = self.connect(ends, Some(made / 2)).ok()?;
        self.flows.of_connection.extend([NONE; 2]);
        Some(requester)
    }

    /// The sender of a flow has its completion: the queue pair is free.
    pub(crate) fn end_flow(&mut self, requester: u32, at: u64) {
        let index = self.flows.of_connection[requester as usize];
        let Some(flow) = self.flows.list.get_mut(index as usize) else {
            return;
        };
        flow.ended_at = at;
        let ends = match self.flows.operation {
            Some(Operation::Read) => (flow.to, flow.from),
            _ => (flow.from, flow.to),
        };
        self.flows.idle.entry(ends).or_default().push(requester);
        self.end_one();
    }

    /// The receiver of a flow knows that it has come: flows that waited for it may start.
    pub(crate) fn flow_arrived(&mut self, responder: u32, at: u64) {
        let index = self.flows.of_connection[responder as usize];
        for place in self.flows.dependents.places(index) {
            let dependent = self.flows.dependents.at(place);
            let flow = &mut self.flows.list[dependent as usize];
            flow.needs -= 1;
            if flow.needs == 0 {
                let starts_at = flow.at.max(at);
                self.schedule(starts_at, Event::Message { index: dependent });
            }
        }
    }

    /// What has come of the flows, if the run has any.
    pub(crate) fn flows_outcome(&self) -> Option<FlowsOutcome> {
        self.flows.operation?;
        let alone = &self.flows.alone_ps;
        let mut told = FlowsOutcome::default();
        let nanos = |time: u64| time as f64 / PS_PER_NS as f64;
        for (flow, alone_ps) in self.flows.list.iter().zip(alone) {
            told.from.push(flow.from);
            told.to.push(flow.to);
            told.size_bytes.push(flow.bytes);
            told.started_ns.push(nanos(flow.at));
            let has_ended = flow.ended_at > 0;
            told.took_ns
                .push(has_ended.then(|| nanos(flow.ended_at - flow.at)));
            told.alone_ns.push(alone_ps / PS_PER_NS as f64);
            told.is_of_incast.push(flow.is_of_incast);
            told.counts.push(flow.counts);
        }
        Some(told)
    }
}
