//! Adapters, links and switches in virtual time, with the NIC's protocol code in the adapters.
//!
//! A [`Scenario`] says which hosts there are, how they are joined and what they do; a [`Network`]
//! lets it happen. Every RDMA packet is made and taken in by [`urxe_proto::QueuePair`], which also
//! has the congestion control: the same code that runs over sockets. What is modelled is around it:
//! buses, pipelines, wires, buffers, pauses, credits, marks. There is no data in the packets, only
//! their length.
//!
//! Nothing here reads a clock or does IO, and all randomness comes from the seed of the scenario,
//! so the same scenario is the same run. Time is in picoseconds: a byte at 100 Gbps takes 80 of
//! them.
//!
//! `docs/simulator.md` describes the model and its limits.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adapter;
mod ahead;
mod alone;
mod body;
mod build;
mod cables;
mod capture;
mod chunks;
mod collectives;
mod congestion;
mod connection;
mod event;
mod feedback;
mod flow_runs;
mod flows;
mod framing;
mod gather;
mod gathered;
mod groups;
mod host;
mod incidents;
mod links;
mod network;
mod outcome;
mod packet;
mod pcie;
mod port;
mod process;
mod programs;
mod queue;
mod round_trip;
mod sampling;
mod scenario;
mod series;
mod sockets;
mod software;
mod stream;
mod switch;
mod telemetry;
mod topology;
mod totals;
mod traffic;
mod traffic_setup;
mod trees;
mod units;
mod usage;
mod workload;

pub use cables::CablesOutcome;
pub use capture::Frame;
pub use congestion::{CongestionConfig, Dcqcn};
pub use flows::FlowsOutcome;
pub use framing::LinkKind;
pub use network::Network;
pub use outcome::Outcome;
pub use pcie::PcieConfig;
pub use scenario::{
    CableConfig, EcnConfig, End, HashFields, HostConfig, Incident, Place, Scenario, ScenarioError,
    SoftwareConfig, StackConfig, SwitchConfig, Tap, Topology, Victim,
};
pub use series::Point;
pub use traffic::{
    Algorithm, Collective, CollectiveConfig, FlowsConfig, IncastConfig, Message, Operation,
    Pattern, Traffic,
};
pub use urxe_congestion::{DctcpParameters, HpccParameters, SwiftParameters, TimelyParameters};
