//! The traffic of a scenario: processes and connections.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use urxe_proto::PeerAbilities;

use crate::build::WATCH_NS;
use crate::connection::{Connection, queue_pair};
use crate::event::Event;
use crate::gathered::Gathered;
use crate::network::Network;
use crate::packet::FlowId;
use crate::process::{Counted, Exchange, Ping, Process, Role, Stream};
use crate::scenario::{HashFields, ScenarioError};
use crate::stream::ByteStream;
use crate::topology::mix;
use crate::traffic::{Algorithm, Operation, Pattern, Traffic};
use crate::units::PS_PER_NS;
use crate::workload::flows_of;

/// Programs of a pattern start within this time, at random.
const START_WITHIN_NS: u64 = 1_000;

/// Connections at most: their numbers are those of queue pairs.
pub(crate) const CONNECTIONS_MAX: u64 = 1 << 23;

impl Network {
    pub(crate) fn set_up_traffic(&mut self) -> Result<(), ScenarioError> {
        if let Some(series_ns) = self.scenario.series_ns {
            self.schedule(series_ns * PS_PER_NS, Event::Sample);
        }
        if self.has_pfc {
            self.schedule(WATCH_NS * PS_PER_NS, Event::Watch);
        }
        match self.scenario.traffic.clone() {
            Traffic::PingPong {
                size_bytes,
                iterations,
                warmup,
                rails,
            } => self.set_up_ping_pong(size_bytes, iterations, warmup, rails),
            Traffic::Streams { .. } => self.set_up_streams(),
            Traffic::Alltoall {
                size_bytes,
                algorithm,
                iterations,
                one_port,
            } => self.set_up_alltoall(size_bytes, algorithm, iterations, one_port),
            Traffic::Flows(config) => {
                let pattern = self.pattern_pairs(&config.pattern)?;
                let hosts = self.hosts.len() as u32;
                let flows = config.flows(&self.scenario, hosts, &pattern)?;
                self.set_up_flows(config.operation, flows)
            }
            Traffic::Collective(config) => {
                let flows = config.flows(self.hosts.len() as u32)?;
                self.set_up_flows(Operation::Send, flows)
            }
            Traffic::Messages {
                operation,
                messages,
            } => {
                let flows = flows_of(&messages, operation, self.hosts.len() as u32)?;
                self.set_up_flows(operation, flows)
            }
        }
    }

    pub(crate) fn add_process(
        &mut self,
        host: u32,
        operation: Operation,
        message_bytes: u32,
        role: Role,
    ) -> u32 {
        self.processes.push(Process {
            host,
            cpu_free_at: 0,
            channels: Vec::new(),
            operation,
            message_bytes,
            role,
            received_bytes: 0,
        });
        (self.processes.len() - 1) as u32
    }

    /// Joins two programs by a pair of connections. They take the ports of each host by turns, of
    /// which this is one, or all the same.
    pub(crate) fn connect(
        &mut self,
        ends: [u32; 2],
        turn: Option<u32>,
    ) -> Result<[u32; 2], ScenarioError> {
        let first = self.connections.len() as u32;
        let ids = [first, first + 1];
        for (at, process) in ends.into_iter().enumerate() {
            let (own, peer) = (ids[at], ids[1 - at]);
            let host = self.processes[process as usize].host;
            let config = self.scenario.host;
            let mut qp = queue_pair(own, peer, &config, self.mtu)
                .map_err(|error| ScenarioError(format!("a queue pair cannot be made: {error}")))?;
            if self.hash == HashFields::Packets {
                // What comes early is kept, and only what is missing sent again.
                qp.set_peer_abilities(PeerAbilities::SELECTIVE_REPEAT);
            }
            let port_index = turn.unwrap_or(host) % config.ports;
            let peer_host = self.processes[ends[1 - at] as usize].host;
            let source = 0xc000 | (mix(self.scenario.seed ^ u64::from(own) << 20) & 0x3fff);
            self.connections.push(Connection {
                qp,
                host,
                port: self.hosts[host as usize].ports[port_index as usize].id,
                port_index,
                flow: FlowId::new(host, peer_host, source as u16),
                process,
                message_bytes: self.processes[process as usize].message_bytes,
                gathered: Gathered::NOTHING,
                is_ready: false,
                timer_at: u64::MAX,
            });
            self.processes[process as usize].channels.push(own);
        }
        Ok(ids)
    }

    fn add_stream(&mut self, writer: u32, reader: u32) -> u32 {
        let from = self.processes[writer as usize].host;
        let to = self.processes[reader as usize].host;
        let bytes = u64::from(self.processes[writer as usize].message_bytes);
        let stream = ByteStream::new(from, to, writer, reader, bytes);
        self.streams.push(stream);
        let id = (self.streams.len() - 1) as u32;
        self.processes[writer as usize].channels.push(id);
        id
    }

    fn set_up_ping_pong(
        &mut self,
        size_bytes: u32,
        iterations: u32,
        warmup: u32,
        rails: u32,
    ) -> Result<(), ScenarioError> {
        let ping = Role::Ping(Ping {
            warmup,
            iterations,
            ..Ping::default()
        });
        let rails = if self.uses_sockets() { 1 } else { rails.max(1) };
        let part = size_bytes.div_ceil(rails);
        let first = self.add_process(0, Operation::Send, part, ping);
        let second = self.add_process(1, Operation::Send, part, Role::Pong { arrived: 0 });
        if self.uses_sockets() {
            self.add_stream(first, second);
            self.add_stream(second, first);
        } else {
            for rail in 0..rails {
                for end in self.connect([first, second], Some(rail))? {
                    self.post_receives(end, part, true);
                }
            }
        }
        self.busy = 1;
        self.schedule(0, Event::Start { process: first });
        Ok(())
    }

    fn set_up_streams(&mut self) -> Result<(), ScenarioError> {
        let Traffic::Streams {
            pattern,
            operation,
            size_bytes,
            queue_pairs,
            depth,
            messages,
            warmup_ns,
            measured_ns,
            stagger_ns,
            one_port,
        } = self.scenario.traffic.clone()
        else {
            return Ok(());
        };
        let pairs = self.pairs(&pattern)?;
        let queue_pairs = queue_pairs.max(1);
        // A program that writes to a socket does one thing at a time.
        let depth = if self.uses_sockets() { 1 } else { depth };
        let wanted = 2 * pairs.len() as u64 * u64::from(queue_pairs);
        if wanted > CONNECTIONS_MAX {
            return Err(ScenarioError(format!(
                "{wanted} queue pairs are too many; {CONNECTIONS_MAX} are the most"
            )));
        }
        let expected = messages.unwrap_or(0) * u64::from(queue_pairs);
        for (index, (from, to)) in pairs.iter().enumerate() {
            let role = Role::Stream(Stream {
                depth,
                left: vec![messages.unwrap_or(u64::MAX); queue_pairs as usize],
                counted: Counted::of(expected),
            });
            let sender = self.add_process(*from, operation, size_bytes, role);
            let sink = Role::Sink(Counted::of(expected));
            let receiver = self.add_process(*to, operation, size_bytes, sink);
            if self.uses_sockets() {
                self.add_stream(sender, receiver);
            } else {
                for at in 0..queue_pairs {
                    // Streams of one queue pair take turns, too.
                    let turn = (!one_port).then_some(at + from + to);
                    let [_, far] = self.connect([sender, receiver], turn)?;
                    if operation == Operation::Send {
                        self.post_receives(far, size_bytes, false);
                    }
                }
            }
            let jitter_ns = if pairs.len() > 2 {
                self.random.rand_range(0..START_WITHIN_NS)
            } else {
                0
            };
            let at = (index as u64 * stagger_ns + jitter_ns) * PS_PER_NS;
            self.schedule(at, Event::Start { process: sender });
        }
        if messages.is_some() {
            self.busy = pairs.len() as u32;
        } else {
            self.end = self.end.min((warmup_ns + measured_ns) * PS_PER_NS);
            self.schedule(warmup_ns * PS_PER_NS, Event::Count);
        }
        Ok(())
    }

    /// The same for flows, which take all pairs as they come: there are too many to list.
    fn pattern_pairs(&mut self, pattern: &Pattern) -> Result<Vec<(u32, u32)>, ScenarioError> {
        match pattern {
            Pattern::Mesh => Ok(Vec::new()),
            _ => self.pairs(pattern),
        }
    }

    /// Senders and receivers of a pattern.
    fn pairs(&mut self, pattern: &Pattern) -> Result<Vec<(u32, u32)>, ScenarioError> {
        let hosts = self.hosts.len() as u32;
        Ok(match pattern {
            Pattern::Pair => vec![(0, 1)],
            Pattern::BothWays => vec![(0, 1), (1, 0)],
            Pattern::Mesh => (1..hosts)
                .flat_map(|distance| (0..hosts).map(move |from| (from, (from + distance) % hosts)))
                .collect(),
            Pattern::Incast => (1..hosts).map(|from| (from, 0)).collect(),
            Pattern::Permutation => {
                // A random cycle: no host is left to itself.
                let mut order: Vec<u32> = (0..hosts).collect();
                for at in (1..order.len()).rev() {
                    let other = self.random.rand_range(0..at as u64 + 1) as usize;
                    order.swap(at, other);
                }
                (0..order.len())
                    .map(|at| (order[at], order[(at + 1) % order.len()]))
                    .collect()
            }
            Pattern::Listed { pairs } => {
                let wrong = pairs
                    .iter()
                    .find(|(from, to)| from == to || *from >= hosts || *to >= hosts);
                if let Some((from, to)) = wrong {
                    return Err(ScenarioError(format!(
                        "{from} to {to}: hosts are numbered from 0 to {}, and nobody sends to itself",
                        hosts - 1
                    )));
                }
                pairs.clone()
            }
        })
    }

    fn set_up_alltoall(
        &mut self,
        size_bytes: u32,
        algorithm: Algorithm,
        iterations: u32,
        one_port: bool,
    ) -> Result<(), ScenarioError> {
        if self.uses_sockets() {
            return Err(ScenarioError(
                "an exchange of all with all is there for RDMA only".to_string(),
            ));
        }
        let ranks = self.hosts.len() as u32;
        for rank in 0..ranks {
            let role = Role::Exchange(Exchange {
                rank,
                ranks,
                algorithm,
                iterations,
                has_begun: false,
                rounds: 0,
                is_under_way: false,
                sent: 0,
                received: 0,
                ended_at: 0,
            });
            self.add_process(rank, Operation::Send, size_bytes, role);
        }
        // In the order in which the lists of channels name the ranks.
        for second in 0..ranks {
            for first in 0..second {
                let turn = (!one_port).then_some(first + second);
                for end in self.connect([first, second], turn)? {
                    self.post_receives(end, size_bytes, true);
                }
            }
        }
        for process in 0..ranks {
            self.schedule(0, Event::Start { process });
        }
        self.busy = ranks;
        Ok(())
    }
}
