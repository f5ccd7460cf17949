//! Makes a network of a scenario.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use oorandom::Rand64;
use urxe_wire::Mtu;

use crate::capture::Capture;
use crate::connection::{Connection, queue_pair};
use crate::framing::LinkKind;
use crate::network::{Event, Host, Network, Switch};
use crate::packet::{Fifo, FlowId, Pool};
use crate::pcie::Pcie;
use crate::port::{Credits, Owner, PRIORITIES, Port, PortStats};
use crate::process::{Counted, Exchange, Ping, Process, Role, Stream};
use crate::queue::EventQueue;
use crate::scenario::{
    Algorithm, HashFields, Operation, Pattern, Place, Scenario, ScenarioError, Topology, Traffic,
};
use crate::series::Series;
use crate::stream::ByteStream;
use crate::switch::{Marking, SharedBuffer};
use crate::topology::{Cable, Plan, Routes, mix, plan};
use crate::totals::Totals;
use crate::units::{PS_PER_NS, Pace};

/// Messages in flight to an InfiniBand host: its adapter has room for so much.
const HOST_BUFFER_BYTES: u64 = 131_072;
/// Programs of a pattern start within this time, at random.
const START_WITHIN_NS: u64 = 1_000;
/// How often somebody looks for circles of pauses.
pub(crate) const WATCH_NS: u64 = 1_000_000;
/// Connections at most: their numbers are those of queue pairs.
const CONNECTIONS_MAX: u64 = 1 << 23;

impl Network {
    /// A network at time zero.
    ///
    /// # Errors
    /// What cannot be in the scenario, for a person.
    pub fn new(scenario: Scenario) -> Result<Self, ScenarioError> {
        check(&scenario)?;
        let config = scenario.host;
        let Plan {
            hosts,
            switches,
            cables,
        } = plan(&scenario.topology, config.ports, config.rate_gbps)?;
        let (ports, at_hosts, at_switches) = make_ports(&scenario, hosts, switches, &cables);
        let switches = at_switches.iter().enumerate().map(|(index, own)| {
            let rates = own.iter().map(|port| ports[*port as usize].rate_gbps);
            let config = scenario.switch.ok_or_else(no_switch)?;
            Ok(Switch {
                ports: own.clone(),
                buffer: SharedBuffer::new(config, rates),
                salt: mix(scenario.seed ^ (index as u64) << 32),
            })
        });
        let switches: Vec<Switch> = switches.collect::<Result<_, ScenarioError>>()?;
        let hosts: Vec<Host> = at_hosts
            .iter()
            .map(|own| Host {
                ports: own.clone(),
                pcie: Pcie::new(config.pcie),
                engine_free_at: 0,
                is_engine_woken: false,
                intake_free_at: 0,
                ready: vec![VecDeque::new(); own.len()],
                backlog_bytes: vec![0; own.len()],
                inbox: VecDeque::new(),
                has_fetched: false,
                turn: 0,
                received_bytes: 0,
                received_before: 0,
            })
            .collect();
        let mut network = Self {
            mtu: mtu(&scenario)?,
            has_pfc: scenario.switch.is_some_and(|switch| switch.pfc),
            hashes_ports: scenario
                .switch
                .is_none_or(|switch| switch.hash == HashFields::Ports),
            now: 0,
            end: scenario.time_limit_ns * PS_PER_NS,
            events: EventQueue::new(),
            pool: Pool::default(),
            leaves: at_hosts
                .iter()
                .flat_map(|own| leaves(own, &ports))
                .collect(),
            routes: Routes::find(&at_hosts, &at_switches, &ports),
            hosts,
            ports,
            switches,
            connections: Vec::new(),
            streams: Vec::new(),
            processes: Vec::new(),
            busy: 0,
            is_over: false,
            fetched: Vec::new(),
            random: Rand64::new(u128::from(scenario.seed)),
            totals: Totals::default(),
            series: Series::default(),
            capture: None,
            counts_from: None,
            scenario,
        };
        network.set_up_tap()?;
        network.set_up_incidents()?;
        network.set_up_traffic()?;
        Ok(network)
    }

    fn set_up_tap(&mut self) -> Result<(), ScenarioError> {
        if let Some(tap) = self.scenario.tap {
            if self.host_config().link != LinkKind::Ethernet
                || self.host_config().stack.copy_gbps.is_some()
            {
                return Err(ScenarioError(
                    "only cables of Ethernet that carry RoCE can be recorded".to_string(),
                ));
            }
            let port = self.port_at(tap.at)?;
            self.capture = Some(Capture::new(port, tap.packets));
        }
        Ok(())
    }

    fn set_up_incidents(&mut self) -> Result<(), ScenarioError> {
        for index in 0..self.scenario.incidents.len() {
            let incident = self.scenario.incidents[index];
            self.victims(incident.victim)?;
            let index = index as u32;
            let begin = Event::Incident {
                index,
                begins: true,
            };
            self.schedule(incident.at_ns * PS_PER_NS, begin);
            if let Some(until_ns) = incident.until_ns {
                let end = Event::Incident {
                    index,
                    begins: false,
                };
                self.schedule(until_ns.max(incident.at_ns) * PS_PER_NS, end);
            }
        }
        Ok(())
    }

    /// The port that a person names.
    pub(crate) fn port_at(&self, place: Place) -> Result<u32, ScenarioError> {
        let (own, index) = match place {
            Place::Host(host, port) => {
                (self.hosts.get(host as usize).map(|host| &host.ports), port)
            }
            Place::Switch(switch, port) => {
                let found = self.switches.get(switch as usize);
                (found.map(|switch| &switch.ports), port)
            }
        };
        own.and_then(|own| own.get(index as usize).copied())
            .ok_or_else(|| {
                let (hosts, switches) = (self.hosts.len(), self.switches.len());
                ScenarioError(format!(
                    "there is no port {place:?}: there are {hosts} hosts and {switches} switches, numbered from 0"
                ))
            })
    }

    fn set_up_traffic(&mut self) -> Result<(), ScenarioError> {
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
        }
    }

    fn uses_sockets(&self) -> bool {
        self.host_config().stack.copy_gbps.is_some()
    }

    fn add_process(
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

    /// Joins two programs by a pair of connections. They take the ports of each host by turns, of which this is one, or all
    /// the same.
    fn connect(&mut self, ends: [u32; 2], turn: Option<u32>) -> Result<[u32; 2], ScenarioError> {
        let first = self.connections.len() as u32;
        let ids = [first, first + 1];
        for (at, process) in ends.into_iter().enumerate() {
            let (own, peer) = (ids[at], ids[1 - at]);
            let host = self.processes[process as usize].host;
            let config = self.scenario.host;
            let qp = queue_pair(own, peer, &config, self.mtu)
                .map_err(|error| ScenarioError(format!("a queue pair cannot be made: {error}")))?;
            let port_index = turn.unwrap_or(host) % config.ports;
            let peer_host = self.processes[ends[1 - at] as usize].host;
            let source = 0xc000 | (mix(self.scenario.seed ^ u64::from(own) << 20) & 0x3fff);
            self.connections.push(Connection {
                qp,
                host,
                port: self.hosts[host as usize].ports[port_index as usize],
                port_index,
                flow: FlowId::new(host, peer_host, source as u16),
                process,
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
                // A random cycle: nobody is left to itself.
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

fn no_switch() -> ScenarioError {
    ScenarioError(
        "this topology has switches, and the scenario does not say of what kind".to_string(),
    )
}

fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    let host = &scenario.host;
    let is_lossless = matches!(scenario.topology, Topology::BackToBack);
    if host.stack.copy_gbps.is_some() && !is_lossless {
        return Err(ScenarioError(
            "byte streams are there between two hosts without a switch only: nothing here would send again what a switch drops"
                .to_string(),
        ));
    }
    if host.link == LinkKind::Infiniband && host.ports != 1 {
        return Err(ScenarioError(
            "an InfiniBand host has one port here".to_string(),
        ));
    }
    if host.ports == 0 || host.rate_gbps <= 0.0 || host.pcie.rate_gbps <= 0.0 {
        return Err(ScenarioError(
            "ports and rates are more than zero".to_string(),
        ));
    }
    Ok(())
}

fn mtu(scenario: &Scenario) -> Result<Mtu, ScenarioError> {
    let bytes = scenario.host.mtu_bytes;
    if scenario.host.stack.copy_gbps.is_some() {
        return Ok(Mtu::B1024);
    }
    [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096]
        .into_iter()
        .find(|mtu| mtu.bytes() == bytes as usize)
        .ok_or_else(|| {
            ScenarioError(format!(
                "an RDMA MTU is 256, 512, 1024, 2048 or 4096, not {bytes}"
            ))
        })
}

/// The switches at the ports of a host, and the ports there.
fn leaves(own: &[u32], ports: &[Port]) -> Vec<(u32, u32)> {
    let far = |port: &u32| {
        let peer = ports[*port as usize].peer;
        match ports[peer as usize].owner {
            Owner::Switch(switch) => Some((switch, peer)),
            Owner::Host(_) => None,
        }
    };
    own.iter().filter_map(far).collect()
}

type Made = (Vec<Port>, Vec<Vec<u32>>, Vec<Vec<u32>>);

/// All ports, and which are whose.
fn make_ports(scenario: &Scenario, hosts: u32, switches: u32, cables: &[Cable]) -> Made {
    let mut ports = Vec::with_capacity(2 * cables.len());
    let mut at_hosts = vec![Vec::new(); hosts as usize];
    let mut at_switches = vec![Vec::new(); switches as usize];
    for cable in cables {
        let first = ports.len() as u32;
        for (end, owner) in cable.ends.into_iter().enumerate() {
            let id = first + end as u32;
            match owner {
                Owner::Host(host) => at_hosts[host as usize].push(id),
                Owner::Switch(switch) => at_switches[switch as usize].push(id),
            }
            let peer = first + 1 - end as u32;
            ports.push(make_port(
                scenario,
                owner,
                cable.ends[1 - end],
                peer,
                cable.rate_gbps,
            ));
        }
    }
    (ports, at_hosts, at_switches)
}

fn make_port(scenario: &Scenario, owner: Owner, far: Owner, peer: u32, rate_gbps: f64) -> Port {
    let at_switch = match far {
        Owner::Switch(_) => scenario.switch,
        Owner::Host(_) => None,
    };
    let far_buffer = at_switch.map_or(HOST_BUFFER_BYTES, |switch| switch.buffer_bytes);
    let is_infiniband = scenario.host.link == LinkKind::Infiniband;
    let own = scenario
        .switch
        .filter(|_| matches!(owner, Owner::Switch(_)));
    Port {
        marking: own
            .and_then(|switch| switch.ecn)
            .map(|ecn| Marking::new(&ecn, rate_gbps)),
        owner,
        peer,
        pace: Pace::of_gbps(rate_gbps),
        rate_gbps,
        propagation_ps: scenario.propagation_ns * PS_PER_NS,
        peer_cut_through: at_switch.is_some_and(|switch| switch.cut_through),
        peer_latency_ps: at_switch.map_or(0, |switch| switch.latency_ns * PS_PER_NS),
        is_up: true,
        free_at: 0,
        is_woken: false,
        queues: [Fifo::EMPTY; PRIORITIES],
        occupied: 0,
        paused: 0,
        paused_since: 0,
        paused_ps: 0,
        ingress_bytes: [0; PRIORITIES],
        headroom_bytes: 0,
        pausing: 0,
        credits: is_infiniband.then_some(Credits {
            left: far_buffer,
            owed: 0,
        }),
        stats: PortStats::default(),
    }
}
