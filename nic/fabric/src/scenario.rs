//! What is simulated: hosts, how they are joined, what they do. Plain data, so that a file can hold
//! it.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;

use crate::congestion::CongestionConfig;
use crate::framing::LinkKind;
use crate::pcie::PcieConfig;
use crate::traffic::Traffic;

/// A whole simulation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Of all that is random: the same seed gives the same run.
    pub seed: u64,
    /// Every host.
    pub host: HostConfig,
    /// How hosts are joined.
    pub topology: Topology,
    /// Every switch; needed by all topologies but the one without switches.
    pub switch: Option<SwitchConfig>,
    /// Cables: time for a bit to travel one, nanoseconds.
    pub propagation_ns: u64,
    /// What the hosts do.
    pub traffic: Traffic,
    /// Links and switches that fail and return.
    #[serde(default)]
    pub incidents: Vec<Incident>,
    /// Whether and how often to note queues and rates, nanoseconds.
    #[serde(default)]
    pub series_ns: Option<u64>,
    /// A cable to record: all that leaves this port, as `host:port` or `switch:port`, numbered from
    /// 0.
    #[serde(default)]
    pub tap: Option<Tap>,
    /// No more than this is simulated, nanoseconds.
    pub time_limit_ns: u64,
}

/// A host: adapter and software.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Kind of its ports.
    pub link: LinkKind,
    /// What a port carries after encoding.
    pub rate_gbps: f64,
    /// InfiniBand: what marks the beginning and the end of a packet.
    #[serde(default)]
    pub delimiter_bytes: u64,
    /// Its ports.
    pub ports: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096. For sockets, payload of a segment.
    pub mtu_bytes: u32,
    /// Its bus. Software has none.
    pub pcie: PcieConfig,
    /// An adapter in software, on the processor of the programs; `None`: hardware.
    #[serde(default)]
    pub software: Option<SoftwareConfig>,
    /// Least time between two packets that it starts or takes in, picoseconds. Software: what a
    /// packet costs to take in.
    pub packet_ps: u64,
    /// From the doorbell to the wire, without the fetch of the payload. Software: what handing over
    /// a batch costs.
    pub send_ns: u64,
    /// From the wire to the completion, without the transfer of data. Software: what fetching a
    /// batch costs.
    pub receive_ns: u64,
    /// What an adapter takes longer over a negative acknowledgement.
    #[serde(default)]
    pub nak_ns: u64,
    /// From a write over the bus, as a doorbell or an entry of a completion queue, until the other
    /// end sees it.
    #[serde(default)]
    pub posted_ns: u64,
    /// Store and forward within the adapter, at each side: the rate of its packet memory, 10^9
    /// bit/s. `None`: packets pass it while they are fetched and sent.
    #[serde(default)]
    pub buffer_gbps: Option<f64>,
    /// Payload that the adapter asks memory for at once; a packet's, if that is more.
    pub gather_bytes: u32,
    /// Whether the adapter fetches a work request before it fetches the payload: the doorbell does
    /// not carry it.
    #[serde(default)]
    pub fetches_requests: bool,
    /// Payload of a request up to which it comes with the doorbell, and nothing is fetched.
    pub inline_bytes: u32,
    /// Data that a queue pair may have in flight.
    pub window_bytes: u32,
    /// Software.
    pub stack: StackConfig,
    /// Congestion control; `None`: none.
    #[serde(default)]
    pub congestion_control: Option<CongestionConfig>,
    /// What congestion control takes for the longest round trip while nothing waits; `None`: what
    /// the network has between its first host and the one that is the farthest from it.
    #[serde(default)]
    pub base_round_trip_ns: Option<u64>,
}

/// An adapter in software: one processor does one thing at a time, and packets pass to and from the
/// kernel in batches.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftwareConfig {
    /// Payload from which on a batch is full.
    pub batch_bytes: u32,
    /// Packets of a batch at most.
    pub batch_packets: u32,
    /// What a packet costs to send; [`HostConfig::packet_ps`] is what it costs to take in.
    pub send_packet_ns: u64,
    /// Rate at which the processor gets data out, 10^9 bit/s.
    pub send_gbps: f64,
    /// Rate at which it takes data in.
    pub receive_gbps: f64,
    /// From the kernel of one host until a program of the other sees a batch, if its processor has
    /// nothing else to do.
    pub latency_ns: u64,
}

/// What software costs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackConfig {
    /// Processor time to send a message.
    pub send_ns: u64,
    /// Processor time to take in a message.
    pub receive_ns: u64,
    /// From the adapter to a receiver that waits (sockets).
    pub latency_ns: u64,
    /// Rate of the copies at each side (sockets).
    pub copy_gbps: Option<f64>,
    /// Rate at which each side copies a message that is sent eagerly (RDMA).
    #[serde(default)]
    pub eager_gbps: Option<f64>,
    /// The longest such message.
    #[serde(default)]
    pub eager_bytes: u32,
    /// Data in flight (sockets).
    pub window_bytes: Option<u64>,
}

/// How hosts are joined.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Topology {
    /// Two hosts, a cable for each port.
    BackToBack,
    /// One switch; all ports of all hosts are at it.
    OneSwitch {
        /// Hosts.
        hosts: u32,
    },
    /// Racks of hosts under leaves, and spines above all leaves. The ports of a host are at
    /// different leaves of its rack.
    LeafSpine {
        /// Hosts.
        hosts: u32,
        /// Hosts of a rack; the last may have fewer.
        hosts_per_rack: u32,
        /// Leaves of a rack: as many as a host has ports, or one.
        leaves_per_rack: u32,
        /// Spines.
        spines: u32,
        /// Cables between each leaf and each spine.
        uplinks: u32,
        /// Rate of each of them.
        uplink_gbps: f64,
    },
    /// A switch for each host, joined in a ring: what never to build with priority flow control.
    Ring {
        /// Hosts, three at least.
        hosts: u32,
    },
    /// A fat tree of switches with `radix` ports (Al-Fares et al., SIGCOMM 2008).
    FatTree {
        /// Hosts: at most radix^3 / 4.
        hosts: u32,
        /// Ports of a switch, even.
        radix: u32,
        /// Hosts below each edge switch; as many as it has uplinks, radix / 2, if this is not
        /// there. More of them over-subscribe the tree.
        #[serde(default)]
        hosts_per_edge: Option<u32>,
    },
    /// A dragonfly (Kim et al., ISCA 2008): groups of switches, each joined with all others of its
    /// group, and each group with each other. Packets take shortest ways.
    Dragonfly {
        /// Hosts; the last group may have fewer.
        hosts: u32,
        /// Hosts of a switch.
        hosts_per_switch: u32,
        /// Switches of a group.
        switches_per_group: u32,
        /// Cables of each switch to other groups.
        global_cables: u32,
        /// Rate of each of them.
        global_gbps: f64,
    },
    /// Rails, as for training: a node has an adapter, which is a host here, for each rail; those of
    /// one rail of a group of nodes are at one leaf, and spines are above all leaves.
    Rails {
        /// Hosts, that is, adapters.
        hosts: u32,
        /// Rails: hosts of a node, one after the other.
        rails: u32,
        /// Nodes of a group.
        nodes_per_group: u32,
        /// Spines.
        spines: u32,
        /// Cables between each leaf and each spine.
        uplinks: u32,
        /// Rate of each of them.
        uplink_gbps: f64,
    },
    /// As listed.
    Listed {
        /// Hosts.
        hosts: u32,
        /// Switches.
        switches: u32,
        /// Every cable. The ports of a host, and of a switch, are numbered in this order.
        cables: Vec<CableConfig>,
    },
}

impl Topology {
    /// Hosts in it.
    #[must_use]
    pub const fn hosts(&self) -> u32 {
        match *self {
            Self::BackToBack => 2,
            Self::OneSwitch { hosts }
            | Self::LeafSpine { hosts, .. }
            | Self::Ring { hosts }
            | Self::FatTree { hosts, .. }
            | Self::Dragonfly { hosts, .. }
            | Self::Rails { hosts, .. }
            | Self::Listed { hosts, .. } => hosts,
        }
    }
}

/// What a cable is plugged in at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// A host.
    Host(u32),
    /// A switch.
    Switch(u32),
}

/// A cable of a list.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CableConfig {
    /// What it joins.
    pub ends: [End; 2],
    /// Its rate; that of the adapters if there is none.
    #[serde(default)]
    pub gbps: Option<f64>,
}

/// What a switch chooses one of several ways by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashFields {
    /// Addresses and the UDP source port.
    Ports,
    /// Addresses alone.
    Addresses,
    /// Nothing: packets take the ways in turns. Adapters keep what comes early.
    Packets,
}

/// A switch.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfig {
    /// Whether a packet leaves before all of it is there.
    pub cut_through: bool,
    /// From the first bit in (cut-through), or the last, to the first bit out.
    pub latency_ns: u64,
    /// Shared by the ports; of InfiniBand, of a port.
    pub buffer_bytes: u64,
    /// What every port has for itself of each priority in use.
    pub port_reserve_bytes: u64,
    /// A queue may take 1 / 2^this of what is free.
    pub shared_shift: u32,
    /// What a queue without flow control holds at most.
    pub lossy_bytes: Option<u64>,
    /// Priority flow control for RDMA's data.
    pub pfc: bool,
    /// Three times this at line rate is reserved for what is under way when a pause is sent.
    pub headroom_delay_ns: u64,
    /// Marking.
    pub ecn: Option<EcnConfig>,
    /// What ways are chosen by.
    pub hash: HashFields,
}

/// When a switch marks packets (RED, on the length of the queue that a packet meets).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcnConfig {
    /// None below this, for every 25 Gbps of the port.
    pub min_bytes_per_25g: u64,
    /// All from this on, likewise.
    pub max_bytes_per_25g: u64,
    /// Probability just below.
    pub max_probability: f64,
}

/// A cable: a port of a host or of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Host and port.
    Host(u32, u32),
    /// Switch and port, in the order in which the topology makes them.
    Switch(u32, u32),
}

/// Where to record packets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tap {
    /// What leaves this port, and what arrives there.
    pub at: Place,
    /// No more than so many packets.
    pub packets: usize,
}

/// Something that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// The cable at a port.
    Cable(Place),
    /// All cables of a switch.
    Switch(u32),
    /// An adapter that goes mad, and tells its switch to pause all the time.
    PauseStorm(Place),
}

/// When something breaks, and how long.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// What.
    pub victim: Victim,
    /// From when on.
    pub at_ns: u64,
    /// Until when; `None`: for ever.
    pub until_ns: Option<u64>,
    /// How long routing takes to notice either.
    #[serde(default)]
    pub notice_ns: u64,
}

/// A scenario that cannot be simulated; says why, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub String);

impl core::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ScenarioError {}
