//! Makes a network of a scenario.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use oorandom::Rand64;
use urxe_wire::Mtu;

use crate::capture::Capture;
use crate::congestion::CongestionConfig;
use crate::event::{Ahead, Event};
use crate::flows::Flows;
use crate::framing::LinkKind;
use crate::host::Host;
use crate::network::{Network, Switch};
use crate::packet::{Fifo, Pool};
use crate::port::{Credits, Owner, PRIORITIES, Port, PortDetails};
use crate::queue::EventQueue;
use crate::scenario::{HashFields, Place, Scenario, ScenarioError, SwitchConfig, Topology};
use crate::series::Series;
use crate::switch::{Marking, SharedBuffer, headroom_bytes};
use crate::telemetry::Telemetry;
use crate::topology::{Cable, Plan, Routes, mix, plan};
use crate::totals::Totals;
use crate::traffic::Operation;
use crate::units::{PS_PER_NS, Pace};

/// Messages in flight to an InfiniBand host: its adapter has room for so much.
const HOST_BUFFER_BYTES: u64 = 131_072;
/// What counters of a port can hold, and a packet more.
const BUFFER_MAX_BYTES: u64 = u32::MAX as u64 - 65_536;
/// From so many ports on a network does not fit the caches next to a processor. 1,024 hosts in a
/// fat tree have 6,144, and gain by looking ahead. 16 hosts at a switch, which fit, lose a quarter.
const PORTS_BEYOND_CACHES: usize = 1_024;
/// How often the simulation looks for circles of pauses.
pub(crate) const WATCH_NS: u64 = 1_000_000;

impl Network {
    /// A network at time zero.
    ///
    /// # Errors
    /// What cannot be in the scenario, for a person.
    pub fn new(scenario: Scenario) -> Result<Self, ScenarioError> {
        let mut network = Self::made(scenario)?;
        network.note_times_alone();
        Ok(network)
    }

    /// The same, without the times that flows take alone.
    pub(crate) fn made(scenario: Scenario) -> Result<Self, ScenarioError> {
        check(&scenario)?;
        let config = scenario.host;
        let Plan {
            hosts,
            switches,
            cables,
        } = plan(&scenario.topology, config.ports, config.rate_gbps)?;
        let Made {
            ports,
            details,
            at_hosts,
            at_switches,
        } = make_ports(&scenario, hosts, switches, &cables);
        let switches = make_switches(&scenario, &at_switches, &details)?;
        let made = |own: &Vec<u32>| Host::new(own, &ports, &config);
        let hosts = at_hosts.iter().map(made).collect();
        let mut network = Self {
            mtu: mtu(&scenario)?,
            has_pfc: scenario.switch.is_some_and(|switch| switch.pfc),
            hash: scenario
                .switch
                .map_or(HashFields::Ports, |switch| switch.hash),
            now: 0,
            end: scenario.time_limit_ns * PS_PER_NS,
            events: EventQueue::new(window_bits(&details)),
            pool: Pool::default(),
            looks_ahead: ports.len() >= PORTS_BEYOND_CACHES,
            leaves: at_hosts
                .iter()
                .flat_map(|own| leaves(own, &ports))
                .collect(),
            routes: Routes::find(&at_hosts, &at_switches, &ports),
            hosts,
            ports,
            details,
            switches,
            connections: Vec::new(),
            streams: Vec::new(),
            processes: Vec::new(),
            flows: Flows::default(),
            busy: 0,
            is_over: false,
            fetched: Vec::new(),
            ahead: Ahead::default(),
            are_ways_known: false,
            random: Rand64::new(u128::from(scenario.seed)),
            totals: Totals::default(),
            series: Series::default(),
            capture: None,
            telemetry: config
                .congestion_control
                .and_then(|control| control.needs())
                .map(Telemetry::new),
            sent: None,
            counts_from: None,
            scenario,
        };
        let base_ns = network.base_round_trip_ns();
        let known = &mut network.scenario.host.base_round_trip_ns;
        known.get_or_insert(base_ns);
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
        let found = match place {
            Place::Host(host, port) => {
                let host = self.hosts.get(host as usize);
                host.and_then(|host| host.port_ids().nth(port as usize))
            }
            Place::Switch(switch, port) => {
                let switch = self.switches.get(switch as usize);
                switch.and_then(|switch| switch.ports.get(port as usize).copied())
            }
        };
        found
            .ok_or_else(|| {
                let (hosts, switches) = (self.hosts.len(), self.switches.len());
                ScenarioError(format!(
                    "there is no port {place:?}: there are {hosts} hosts and {switches} switches, numbered from 0"
                ))
            })
    }

    pub(super) fn uses_sockets(&self) -> bool {
        self.host_config().stack.copy_gbps.is_some()
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
    let too_large = |switch: &SwitchConfig| switch.buffer_bytes > BUFFER_MAX_BYTES;
    if let Some(switch) = scenario.switch.filter(too_large) {
        return Err(ScenarioError(format!(
            "a switch has a buffer of {} bytes; {BUFFER_MAX_BYTES} are the most",
            switch.buffer_bytes
        )));
    }
    check_congestion_control(scenario)
}

fn check_congestion_control(scenario: &Scenario) -> Result<(), ScenarioError> {
    let Some(control) = &scenario.host.congestion_control else {
        return Ok(());
    };
    let name = control.name();
    let no = |why: &str| Err(ScenarioError(format!("congestion control {name}: {why}")));
    if let Some(problem) = control.problem() {
        return no(problem);
    }
    if control.needs().is_none() {
        return Ok(());
    }
    let reads = scenario.traffic.operation() == Some(Operation::Read);
    if scenario.host.software.is_some() || scenario.host.stack.copy_gbps.is_some() {
        return no(
            "it needs an adapter for RDMA in hardware, which notes when packets leave and come; the only one for others is dcqcn",
        );
    }
    if reads {
        return no(
            "it acts on acknowledgements, which the data of a READ has none of: send or write, or use dcqcn",
        );
    }
    let never_marks = |switch: SwitchConfig| switch.ecn.is_none();
    if matches!(control, CongestionConfig::Dctcp(_)) && scenario.switch.is_some_and(never_marks) {
        return no("it acts on marks, and the switches set none: give them `ecn`");
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

fn make_switches(
    scenario: &Scenario,
    at_switches: &[Vec<u32>],
    details: &[PortDetails],
) -> Result<Vec<Switch>, ScenarioError> {
    let switches = at_switches.iter().enumerate().map(|(index, own)| {
        let rates = own.iter().map(|port| details[*port as usize].rate_gbps);
        let config = scenario.switch.ok_or_else(no_switch)?;
        Ok(Switch {
            ports: own.clone(),
            buffer: SharedBuffer::new(config, rates),
            salt: mix(scenario.seed ^ (index as u64) << 32),
            turn: 0,
        })
    });
    switches.collect()
}

/// Bits of the windows of time by which events are sorted: of some 30 events, if half of the cables
/// carry packets of 1 KiB.
fn window_bits(details: &[PortDetails]) -> u32 {
    /// Bits, for one port of 1 Gbps.
    const ONE_GBPS: u32 = 28;
    let gbps: f64 = details.iter().map(|port| port.rate_gbps).sum();
    ONE_GBPS.saturating_sub((gbps as u32).max(1).ilog2())
}

/// All ports, and which are whose.
struct Made {
    ports: Vec<Port>,
    details: Vec<PortDetails>,
    at_hosts: Vec<Vec<u32>>,
    at_switches: Vec<Vec<u32>>,
}

fn make_ports(scenario: &Scenario, hosts: u32, switches: u32, cables: &[Cable]) -> Made {
    let mut ports = Vec::with_capacity(2 * cables.len());
    let mut details = Vec::with_capacity(2 * cables.len());
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
            let far = cable.ends[1 - end];
            let rest = port_details(scenario, owner, far, cable.rate_gbps);
            ports.push(make_port(scenario, owner, far, peer, &rest));
            details.push(rest);
        }
    }
    Made {
        ports,
        details,
        at_hosts,
        at_switches,
    }
}

/// The switch that something belongs to, if it does.
fn switch_of(scenario: &Scenario, owner: Owner) -> Option<SwitchConfig> {
    match owner {
        Owner::Switch(_) => scenario.switch,
        Owner::Host(_) => None,
    }
}

fn port_details(scenario: &Scenario, owner: Owner, far: Owner, rate_gbps: f64) -> PortDetails {
    let far_buffer =
        switch_of(scenario, far).map_or(HOST_BUFFER_BYTES, |switch| switch.buffer_bytes);
    let ecn = switch_of(scenario, owner).and_then(|switch| switch.ecn);
    PortDetails {
        rate_gbps,
        propagation_ps: scenario.propagation_ns * PS_PER_NS,
        paused_since: 0,
        paused_ps: 0,
        credits: Credits {
            left: far_buffer,
            owed: 0,
        },
        marking: ecn.map(|ecn| Marking::new(&ecn, rate_gbps)),
        dropped: 0,
        marked: 0,
    }
}

fn make_port(
    scenario: &Scenario,
    owner: Owner,
    far: Owner,
    peer: u32,
    details: &PortDetails,
) -> Port {
    let own = switch_of(scenario, owner);
    let at_switch = switch_of(scenario, far);
    let latency_ns = at_switch.map_or(0, |switch| switch.latency_ns);
    let unmarked = details.marking.map_or(u64::MAX, |it| it.unmarked_bytes());
    let headroom = own.map_or(0, |switch| headroom_bytes(&switch, details.rate_gbps));
    let in_u32 = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Port {
        free_at: 0,
        pace: Pace::of_gbps(details.rate_gbps),
        delay_ps: details.propagation_ps + latency_ns * PS_PER_NS,
        queues: [Fifo::EMPTY; PRIORITIES],
        peer,
        tx_bytes: 0,
        owner,
        occupied: 0,
        paused: 0,
        pausing: 0,
        is_up: true,
        is_woken: false,
        peer_cut_through: at_switch.is_some_and(|switch| switch.cut_through),
        has_credits: scenario.host.link == LinkKind::Infiniband,
        queue_max_bytes: 0,
        unmarked_bytes: in_u32(unmarked),
        ingress_bytes: [0; PRIORITIES],
        headroom_bytes: 0,
        headroom_max_bytes: in_u32(headroom),
    }
}
