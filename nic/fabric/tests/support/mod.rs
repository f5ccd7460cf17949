//! Scenarios of round numbers: 10 Gbps, adapters and software that take no time, a bus that is
//! never in the way.
#![allow(dead_code, reason = "every test uses some of it")]

use urxe_fabric::{
    Dcqcn, EcnConfig, HashFields, HostConfig, LinkKind, Network, Operation, Outcome, Pattern,
    PcieConfig, Scenario, StackConfig, SwitchConfig, Topology, Traffic,
};

pub(crate) const GBPS: f64 = 10.0;
pub(crate) const MTU: u32 = 1_024;
/// What a full packet of a WRITE that is neither first nor last takes of an Ethernet link.
pub(crate) const FULL_PACKET_BYTES: u32 = MTU + 12 + 4 + 28 + 38;
pub(crate) const PROPAGATION_NS: u64 = 100;

pub(crate) const HOST: HostConfig = HostConfig {
    link: LinkKind::Ethernet,
    rate_gbps: GBPS,
    delimiter_bytes: 0,
    ports: 1,
    mtu_bytes: MTU,
    pcie: PcieConfig {
        rate_gbps: 1e6,
        payload_bytes: 256,
        completion_bytes: 256,
        read_request_bytes: 512,
        read_latency_ns: 0,
    },
    software: None,
    packet_ps: 1,
    send_ns: 0,
    receive_ns: 0,
    nak_ns: 0,
    posted_ns: 0,
    buffer_gbps: None,
    gather_bytes: 0,
    fetches_requests: false,
    inline_bytes: 0,
    window_bytes: 1 << 20,
    stack: StackConfig {
        send_ns: 0,
        receive_ns: 0,
        latency_ns: 0,
        copy_gbps: None,
        eager_gbps: None,
        eager_bytes: 0,
        window_bytes: None,
    },
    congestion_control: None,
    base_round_trip_ns: None,
};

pub(crate) const SWITCH: SwitchConfig = SwitchConfig {
    cut_through: false,
    latency_ns: 0,
    buffer_bytes: 4 << 20,
    port_reserve_bytes: 8_192,
    shared_shift: 3,
    lossy_bytes: None,
    pfc: true,
    headroom_delay_ns: 1_000,
    ecn: None,
    hash: HashFields::Ports,
};

/// Between the values of HPCC's simulator and quick enough for a test: raises every 55 us.
pub(crate) const DCQCN: Dcqcn = Dcqcn {
    raise_interval_ns: 55_000,
    raise_bytes: 10_000_000,
    additive_step_mbps: 40,
    hyper_step_mbps: 200,
    min_rate_mbps: 100,
    cnp_interval_ns: 50_000,
    cut_interval_ns: 4_000,
    alpha_interval_ns: 55_000,
    gain_divisor: 256,
    fast_recovery_raises: 5,
};

pub(crate) const ECN: EcnConfig = EcnConfig {
    min_bytes_per_25g: 100_000,
    max_bytes_per_25g: 400_000,
    max_probability: 0.2,
};

pub(crate) fn ping_pong(size_bytes: u32) -> Traffic {
    Traffic::PingPong {
        size_bytes,
        iterations: 3,
        warmup: 0,
        rails: 1,
    }
}

/// Writes without an end, counted for `measured_us` after `warmup_us`.
pub(crate) fn writes(pattern: Pattern, warmup_us: u64, measured_us: u64) -> Traffic {
    Traffic::Streams {
        pattern,
        operation: Operation::Write,
        size_bytes: 65_536,
        queue_pairs: 1,
        depth: 32,
        messages: None,
        warmup_ns: warmup_us * 1_000,
        measured_ns: measured_us * 1_000,
        stagger_ns: 0,
        one_port: false,
    }
}

/// So many messages of each stream.
pub(crate) fn messages(
    pattern: Pattern,
    operation: Operation,
    size_bytes: u32,
    count: u64,
) -> Traffic {
    Traffic::Streams {
        pattern,
        operation,
        size_bytes,
        queue_pairs: 1,
        depth: 4,
        messages: Some(count),
        warmup_ns: 0,
        measured_ns: 0,
        stagger_ns: 0,
        one_port: false,
    }
}

pub(crate) fn scenario(topology: Topology, traffic: Traffic) -> Scenario {
    Scenario {
        seed: 1,
        host: HOST,
        topology,
        switch: Some(SWITCH),
        propagation_ns: PROPAGATION_NS,
        traffic,
        incidents: Vec::new(),
        series_ns: None,
        tap: None,
        time_limit_ns: 10_000_000_000,
    }
}

pub(crate) fn network(scenario: Scenario) -> Network {
    Network::new(scenario).expect("a scenario that can be simulated")
}

pub(crate) fn run(scenario: Scenario) -> Outcome {
    let mut network = network(scenario);
    while network.run(1_000_000) {}
    network.outcome()
}

/// Runs what has to end well.
pub(crate) fn complete(scenario: Scenario) -> Outcome {
    let outcome = run(scenario);
    assert_eq!(outcome.problem, None);
    outcome
}

#[track_caller]
pub(crate) fn assert_near(value: f64, expected: f64, relative: f64) {
    let difference = (value - expected).abs();
    assert!(
        difference <= relative * expected.abs(),
        "{value} is not within {relative} of {expected}"
    );
}
