//! What programs do when something happens to them.

use crate::connection::{post_message, post_receive};
use crate::event::Event;
use crate::network::Network;
use crate::process::Role;
use crate::traffic::{Algorithm, Operation};
use crate::units::{PS_PER_NS, Pace};

/// Receives that are posted ahead on every connection that gets messages.
const RECEIVES_AHEAD: u32 = 1_024;
/// The same where an answer comes only after what was sent.
const RECEIVES_OF_PING_PONG: u32 = 4;

impl Network {
    /// A program's processor works for so many nanoseconds from `at` on, or from when it is free:
    /// until when.
    fn spend(&mut self, process: u32, at: u64, nanos: u64) -> u64 {
        let process = &mut self.processes[process as usize];
        // Software has only the one that its adapter is on.
        let free_at = if self.scenario.host.software.is_some() {
            &mut self.hosts[process.host as usize].engine_free_at
        } else {
            &mut process.cpu_free_at
        };
        *free_at = (*free_at).max(at) + nanos * PS_PER_NS;
        *free_at
    }

    /// How long a doorbell is under way. Sockets ring none of their own.
    const fn doorbell_ps(&self) -> u64 {
        if self.is_sockets() {
            0
        } else {
            self.host_config().posted_ns * PS_PER_NS
        }
    }

    /// Length of a message on a channel of a program.
    fn message_bytes(&self, process: u32, channel: u32) -> u32 {
        if self.is_sockets() {
            self.processes[process as usize].message_bytes
        } else {
            self.connections[channel as usize].message_bytes
        }
    }

    /// What the copy of a message costs a program that sends eagerly over RDMA.
    fn copying_ns(&self, bytes: u32) -> u64 {
        let stack = &self.host_config().stack;
        match stack.eager_gbps {
            Some(gbps) if bytes <= stack.eager_bytes => {
                Pace::of_gbps(gbps).of_bytes(u64::from(bytes)) / PS_PER_NS
            }
            _ => 0,
        }
    }

    /// Posts receives for messages that will come on a connection.
    pub(crate) fn post_receives(
        &mut self,
        connection: u32,
        message_bytes: u32,
        is_ping_pong: bool,
    ) {
        let ahead = if is_ping_pong {
            RECEIVES_OF_PING_PONG
        } else {
            RECEIVES_AHEAD
        };
        for _ in 0..ahead {
            self.post_receive(connection, message_bytes);
        }
    }

    pub(crate) fn post_receive(&mut self, connection: u32, message_bytes: u32) {
        if !self.is_sockets() {
            let qp = &mut self.connections[connection as usize].qp;
            self.totals.refused += u64::from(!post_receive(qp, message_bytes));
        }
    }

    /// A program sends a message at `at`, or when its processor is free.
    pub(crate) fn send(&mut self, process: u32, channel: u32, at: u64) {
        let bytes = self.message_bytes(process, channel);
        let cost_ns = self.host_config().stack.send_ns + self.copying_ns(bytes);
        let at = self.spend(process, at, cost_ns) + self.doorbell_ps();
        self.schedule(at, Event::Post { channel });
    }

    /// The doorbell of a message rings.
    pub(crate) fn ring_doorbell(&mut self, channel: u32) {
        if self.is_sockets() {
            self.begin_to_write(channel);
            return;
        }
        let of_flow = self.posted_bytes(channel);
        let connection = &mut self.connections[channel as usize];
        let process = &self.processes[connection.process as usize];
        let bytes = of_flow.unwrap_or(connection.message_bytes);
        let is_taken = post_message(&mut connection.qp, process.operation, bytes);
        self.totals.refused += u64::from(!is_taken);
        self.collect(channel);
        self.make_ready(channel);
    }

    pub(crate) fn start(&mut self, id: u32) {
        let now = self.now;
        let channels = self.processes[id as usize].channels.len();
        let depth = match &mut self.processes[id as usize].role {
            Role::Ping(ping) => {
                ping.started_at = now;
                self.send_parts(id, now);
                return;
            }
            Role::Stream(stream) => stream.depth,
            Role::Exchange(exchange) => {
                exchange.has_begun = true;
                self.exchange(id, now);
                return;
            }
            Role::Pong { .. } | Role::Sink(_) | Role::Flows => return,
        };
        for _ in 0..depth {
            for at in 0..channels {
                self.send_if_left(id, at, now);
            }
        }
    }

    /// Sends another message on a channel, if the program has one for it.
    fn send_if_left(&mut self, id: u32, index: usize, at: u64) {
        let process = &mut self.processes[id as usize];
        let channel = process.channels[index];
        if let Role::Stream(stream) = &mut process.role {
            let left = &mut stream.left[index];
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        self.send(id, channel, at);
    }

    /// Whether a program polls for the completion of what it sends before it sends again.
    fn waits_for_each(&self, id: u32) -> bool {
        let role = &self.processes[id as usize].role;
        !self.is_sockets() && matches!(role, Role::Stream(stream) if stream.depth == 1)
    }

    /// A message that a program sent is done with, as far as the sender knows.
    pub(crate) fn handle_sent(&mut self, id: u32, channel: u32, at: u64) {
        let at = if self.waits_for_each(id) {
            let receive_ns = self.host_config().stack.receive_ns;
            self.spend(id, at, receive_ns)
        } else {
            at
        };
        let process = &mut self.processes[id as usize];
        let counts = process.operation != Operation::Send;
        match &mut process.role {
            Role::Stream(stream) => {
                stream.counted.note(at);
                let is_complete = counts && stream.counted.is_complete();
                let index = process.channels.iter().position(|own| *own == channel);
                if let Some(index) = index {
                    self.send_if_left(id, index, at);
                }
                if is_complete {
                    self.end_one();
                }
            }
            Role::Exchange(exchange) => {
                exchange.sent += 1;
                self.exchange_on(id, at);
            }
            Role::Flows => self.end_flow(channel, at),
            Role::Ping(_) | Role::Pong { .. } | Role::Sink(_) => {}
        }
    }

    /// A message came for a program at `at`.
    pub(crate) fn handle_message(&mut self, id: u32, channel: u32, at: u64) {
        let of_flow = self.coming_bytes(channel);
        let bytes = of_flow.unwrap_or_else(|| self.message_bytes(id, channel));
        let receive_ns = self.host_config().stack.receive_ns + self.copying_ns(bytes);
        let cost_ns = if self.is_last_part(id) { receive_ns } else { 0 };
        let at = self.spend(id, at, cost_ns);
        if matches!(self.processes[id as usize].role, Role::Flows) {
            self.flow_arrived(channel, at);
            return;
        }
        self.post_receive(channel, bytes);
        let process = &mut self.processes[id as usize];
        let parts = process.channels.len() as u32;
        match &mut process.role {
            Role::Ping(ping) => {
                ping.arrived += 1;
                if ping.arrived < parts {
                    return;
                }
                ping.arrived = 0;
                ping.done += 1;
                if ping.done > ping.warmup {
                    ping.times_ps.push((at - ping.started_at) / 2);
                }
                ping.started_at = at;
                if ping.done == ping.warmup + ping.iterations {
                    self.end_one();
                    return;
                }
                self.send_parts(id, at);
            }
            Role::Pong { arrived } => {
                *arrived += 1;
                if *arrived < parts {
                    return;
                }
                *arrived = 0;
                self.send_parts(id, at);
            }
            Role::Sink(counted) => {
                counted.note(at);
                if counted.is_complete() {
                    self.end_one();
                }
            }
            Role::Stream(_) | Role::Flows => {}
            Role::Exchange(exchange) => {
                exchange.received += 1;
                self.exchange_on(id, at);
            }
        }
    }

    /// Sends the parts of a message, which cost the processor as much as a whole one.
    fn send_parts(&mut self, id: u32, at: u64) {
        let bytes = self.processes[id as usize].message_bytes;
        let cost_ns = self.host_config().stack.send_ns + self.copying_ns(bytes);
        let at = self.spend(id, at, cost_ns) + self.doorbell_ps();
        for index in 0..self.processes[id as usize].channels.len() {
            let channel = self.processes[id as usize].channels[index];
            self.schedule(at, Event::Post { channel });
        }
    }

    /// Whether the part of a message that came is the last.
    fn is_last_part(&self, id: u32) -> bool {
        let process = &self.processes[id as usize];
        let parts = process.channels.len() as u32;
        match &process.role {
            Role::Ping(ping) => ping.arrived + 1 == parts,
            Role::Pong { arrived } => arrived + 1 == parts,
            _ => true,
        }
    }

    /// One of the programs that the run waits for has ended.
    pub(crate) fn end_one(&mut self) {
        self.busy -= 1;
        self.is_over |= self.busy == 0;
    }

    /// Begins a round of an exchange.
    fn exchange(&mut self, id: u32, at: u64) {
        let process = &self.processes[id as usize];
        let Role::Exchange(exchange) = &process.role else {
            return;
        };
        match exchange.algorithm {
            Algorithm::Linear => {
                for index in exchange.order() {
                    let channel = self.processes[id as usize].channels[index];
                    self.send(id, channel, at);
                }
            }
            Algorithm::Pairwise => {
                let (_, from) = exchange.partners();
                self.exchange_block(id, at);
                // The rank that sends to this one may have waited for it.
                self.exchange_block(from, at);
            }
        }
    }

    /// Sends the block of a rank's round if the rank that it is for has come to the same round.
    /// Processes are ranks.
    fn exchange_block(&mut self, id: u32, at: u64) {
        let Role::Exchange(exchange) = &self.processes[id as usize].role else {
            return;
        };
        let (to, _) = exchange.partners();
        let (rounds, index) = (exchange.rounds, exchange.index_of(to));
        let is_free = !exchange.is_under_way && !exchange.is_done();
        let is_awaited = matches!(&self.processes[to as usize].role,
            Role::Exchange(other) if other.has_begun && other.rounds == rounds);
        let own = &mut self.processes[id as usize];
        let channel = own.channels[index];
        if let Role::Exchange(exchange) = &mut own.role
            && is_free
            && is_awaited
            && exchange.has_begun
        {
            exchange.is_under_way = true;
            self.send(id, channel, at);
        }
    }

    /// Goes on to the next round if this one is done.
    fn exchange_on(&mut self, id: u32, at: u64) {
        let Role::Exchange(exchange) = &mut self.processes[id as usize].role else {
            return;
        };
        if !exchange.end_round() {
            return;
        }
        if exchange.is_done() {
            exchange.ended_at = at;
            self.end_one();
        } else {
            self.exchange(id, at);
        }
    }
}
