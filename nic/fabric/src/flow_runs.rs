//! Flows: messages that start at their time, or once others have arrived, each over a queue pair
//! that nothing else uses meanwhile.
//!
//! Queue pairs are kept for each pair of hosts, and a flow takes one that is idle, or a new one.
//! Its congestion control begins anew, and its UDP source port is another: to the network it is as
//! if every flow made its own queue pair, as in HPCC's simulator. But there are never more of them
//! than flows of a pair that were under way together, and no packet of an earlier flow is taken for
//! one of a later. Flows of a channel share a queue pair instead, which nothing makes anew.

use alloc::vec::Vec;

use urxe_wire::Psn;

use crate::connection::control_anew;
use crate::event::Event;
use crate::flows::{Dependents, Flow, Flows, FlowsOutcome, UnderWay};
use crate::network::Network;
use crate::packet::FlowId;
use crate::process::Role;
use crate::scenario::ScenarioError;
use crate::topology::mix;
use crate::traffic::Operation;
use crate::traffic_setup::CONNECTIONS_MAX;
use crate::units::PS_PER_NS;

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
        let (from, to, bytes, channel) = (flow.from, flow.to, flow.bytes, flow.channel);
        // Who READs is who gets the data.
        let ends = match self.flows.operation {
            Some(Operation::Read) => [to, from],
            _ => [from, to],
        };
        let found = match channel {
            Some(channel) => self.queue_pair_of_channel(ends, channel),
            None => self
                .idle_queue_pair(ends)
                .map(|requester| (requester, true)),
        };
        let Some((requester, begins_anew)) = found else {
            self.totals.refused += 1;
            return;
        };
        if begins_anew {
            self.begin_anew(requester, ends, index);
        }
        for id in [requester, requester + 1] {
            self.connections[id as usize].message_bytes = bytes;
        }
        self.flows.of_connection[requester as usize].add(index);
        if self.flows.operation == Some(Operation::Send) {
            // Nothing tells a responder that a WRITE or READ has ended.
            self.flows.of_connection[requester as usize + 1].add(index);
            self.post_receive(requester + 1, bytes);
        }
        // Processes are hosts.
        self.send(ends[0], requester, now);
    }

    /// Has both ends of a queue pair go on as if a flow had made them.
    fn begin_anew(&mut self, requester: u32, ends: [u32; 2], index: u32) {
        let config = self.scenario.host;
        for (at, id) in [requester, requester + 1].into_iter().enumerate() {
            let random = mix(self.scenario.seed ^ u64::from(2 * index + at as u32) << 20);
            let source = 0xc000 | (random & 0x3fff);
            let connection = &mut self.connections[id as usize];
            connection.flow = FlowId::new(ends[at], ends[1 - at], source as u16);
            control_anew(&mut connection.qp, &config);
        }
    }

    /// The queue pair of a channel of the first host to the second, and whether it is new.
    fn queue_pair_of_channel(&mut self, ends: [u32; 2], channel: u32) -> Option<(u32, bool)> {
        let key = (ends[0], ends[1], channel);
        if let Some(requester) = self.flows.channels.get(&key) {
            return Some((*requester, false));
        }
        let requester = self.new_queue_pair(ends)?;
        self.flows.channels.insert(key, requester);
        Some((requester, true))
    }

    /// A queue pair of the first host to the second that no flow has.
    fn idle_queue_pair(&mut self, ends: [u32; 2]) -> Option<u32> {
        let pool = self.flows.idle.get_mut(&(ends[0], ends[1]));
        if let Some(requester) = pool.and_then(Vec::pop) {
            return Some(requester);
        }
        self.new_queue_pair(ends)
    }

    /// The requester of a queue pair of the first host to the second that is made for flows.
    fn new_queue_pair(&mut self, ends: [u32; 2]) -> Option<u32> {
        let made = self.connections.len() as u32;
        if u64::from(made) + 2 > CONNECTIONS_MAX {
            return None;
        }
        // Each further one by the next port of a bond.
        let [requester, _] = self.connect(ends, Some(made / 2)).ok()?;
        self.flows
            .of_connection
            .extend([UnderWay::default(), UnderWay::default()]);
        Some(requester)
    }

    /// Length of the message that a program posts now on a queue pair of flows.
    pub(crate) fn posted_bytes(&mut self, requester: u32) -> Option<u32> {
        let under_way = self.flows.of_connection.get_mut(requester as usize)?;
        let index = under_way.post()?;
        Some(self.flows.list[index as usize].bytes)
    }

    /// Length of the message that a packet of a queue pair of flows belongs to.
    pub(crate) fn sent_bytes(&self, requester: u32, psn: Psn) -> Option<u32> {
        let under_way = self.flows.of_connection.get(requester as usize)?;
        let index = under_way.of_packet(psn, |flow| self.packets_of(flow))?;
        Some(self.flows.list[index as usize].bytes)
    }

    /// Length of the message that comes next on a queue pair of flows.
    pub(crate) fn coming_bytes(&self, responder: u32) -> Option<u32> {
        let index = self.flows.of_connection.get(responder as usize)?.first()?;
        Some(self.flows.list[index as usize].bytes)
    }

    fn packets_of(&self, flow: u32) -> u32 {
        let bytes = self.flows.list[flow as usize].bytes;
        bytes.div_ceil(self.scenario.host.mtu_bytes).max(1)
    }

    /// The first flow of a connection has ended, or arrived: which it was.
    fn take_flow(&mut self, connection: u32) -> Option<u32> {
        let mut under_way = core::mem::take(self.flows.of_connection.get_mut(connection as usize)?);
        let index = under_way.end(|flow| self.packets_of(flow));
        self.flows.of_connection[connection as usize] = under_way;
        index
    }

    /// The sender of a flow has its completion: the queue pair is free.
    pub(crate) fn end_flow(&mut self, requester: u32, at: u64) {
        let Some(index) = self.take_flow(requester) else {
            return;
        };
        let flow = &mut self.flows.list[index as usize];
        flow.ended_at = at;
        let has_channel = flow.channel.is_some();
        let ends = match self.flows.operation {
            Some(Operation::Read) => (flow.to, flow.from),
            _ => (flow.from, flow.to),
        };
        if !has_channel {
            self.flows.idle.entry(ends).or_default().push(requester);
        }
        self.end_one();
    }

    /// The receiver of a flow knows that it has come: flows that waited for it may start.
    pub(crate) fn flow_arrived(&mut self, responder: u32, at: u64) {
        let Some(index) = self.take_flow(responder) else {
            return;
        };
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
