//! Whole networks: ways, failures, circles of pauses, captures, and the same run twice.

mod support;

use std::net::SocketAddr;

use support::*;
use urxe_fabric::{
    Algorithm, CableConfig, CongestionConfig, End, HashFields, Incident, Operation, Outcome,
    Pattern, Place, Scenario, Tap, Topology, Traffic, Victim,
};
use urxe_wire::icrc::{Flow, Verdict};
use urxe_wire::{Packet, ROCE_UDP_PORT};

fn tree(hosts: u32) -> Topology {
    Topology::FatTree {
        hosts,
        radix: 4,
        hosts_per_edge: None,
    }
}

fn racks() -> Topology {
    Topology::LeafSpine {
        hosts: 8,
        hosts_per_rack: 4,
        leaves_per_rack: 2,
        spines: 2,
        uplinks: 1,
        uplink_gbps: 40.0,
    }
}

fn all_to_all(topology: Topology, size_bytes: u32, algorithm: Algorithm) -> Outcome {
    let traffic = Traffic::Alltoall {
        size_bytes,
        algorithm,
        iterations: 2,
        one_port: false,
    };
    complete(scenario(topology, traffic))
}

#[test]
fn all_to_all_through_a_fat_tree_completes() {
    let outcome = all_to_all(tree(16), 20_000, Algorithm::Linear);
    assert_eq!(outcome.dropped_packets, 0);
    let most = 16.0 * GBPS * 1_024.0 / f64::from(FULL_PACKET_BYTES);
    let throughput = outcome.throughput_gbps.expect("an exchange");
    assert!(
        (0.2 * most..most).contains(&throughput),
        "{throughput} of {most}"
    );
}

#[test]
fn all_to_all_through_dragonflies_rails_and_listed_cables_completes() {
    let dragonfly = Topology::Dragonfly {
        hosts: 18,
        hosts_per_switch: 2,
        switches_per_group: 3,
        global_cables: 1,
        global_gbps: GBPS,
    };
    let rails = Topology::Rails {
        hosts: 16,
        rails: 4,
        nodes_per_group: 2,
        spines: 2,
        uplinks: 1,
        uplink_gbps: GBPS,
    };
    let ends = (0..4).map(|host| [End::Host(host), End::Switch(host / 2)]);
    let between = [End::Switch(0), End::Switch(1)];
    let cables = ends.chain([between]).map(|ends| CableConfig {
        ends,
        gbps: (ends == between).then_some(GBPS / 2.0),
    });
    let listed = Topology::Listed {
        hosts: 4,
        switches: 2,
        cables: cables.collect(),
    };
    for topology in [dragonfly, rails, listed] {
        let outcome = all_to_all(topology, 20_000, Algorithm::Pairwise);
        assert_eq!(outcome.dropped_packets, 0);
    }
}

/// Four ways of a quarter of a host's rate each.
fn narrow_ways(hash: HashFields) -> Outcome {
    let ways = Topology::LeafSpine {
        hosts: 2,
        hosts_per_rack: 1,
        leaves_per_rack: 1,
        spines: 4,
        uplinks: 1,
        uplink_gbps: GBPS / 4.0,
    };
    let traffic = messages(Pattern::Pair, Operation::Write, 1_000_000, 20);
    let mut made = scenario(ways, traffic);
    made.switch.as_mut().expect("there is one").hash = hash;
    complete(made)
}

#[test]
fn packets_of_a_flow_that_are_sprayed_take_all_ways() {
    let goodput = GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES);
    let rate = |hash| narrow_ways(hash).throughput_gbps.expect("streams");
    assert_near(rate(HashFields::Ports), goodput / 4.0, 0.02);
    // Not all of it: what overtakes is told of as missing, and sent again.
    let sprayed = narrow_ways(HashFields::Packets);
    assert!(
        sprayed
            .throughput_gbps
            .is_some_and(|rate| rate > goodput / 2.0)
    );
    let cables = &sprayed.cables;
    let uplinks = cables.gbps.iter().zip(&cables.used_part);
    let used: Vec<f64> = uplinks
        .filter(|(gbps, used)| **gbps < GBPS && **used > 0.1)
        .map(|(_, used)| *used)
        .collect();
    assert_eq!(used.len(), 8, "up to four spines and down again: {used:?}");
}

#[test]
fn step_by_step_nobody_gets_from_two_and_nothing_waits() {
    let one = Topology::OneSwitch { hosts: 6 };
    let most = 6.0 * GBPS * 1_024.0 / f64::from(FULL_PACKET_BYTES);
    let pairwise = all_to_all(one, 1_000_000, Algorithm::Pairwise);
    assert_near(pairwise.throughput_gbps.expect("an exchange"), most, 0.01);
    // Data of one sender, and acknowledgements of what the receiver itself sends.
    assert!(
        pairwise.queue_max_bytes < 3 * u64::from(FULL_PACKET_BYTES),
        "{}",
        pairwise.queue_max_bytes
    );
}

#[test]
fn a_permutation_gives_everybody_one_sender() {
    let outcome = complete(scenario(tree(16), writes(Pattern::Permutation, 200, 1_000)));
    assert!(
        outcome.host_gbps.iter().all(|rate| *rate > 0.5),
        "{:?}",
        outcome.host_gbps
    );
}

#[test]
fn a_bond_carries_twice_what_one_port_does() {
    let mut both = scenario(racks(), writes(Pattern::Pair, 200, 1_000));
    both.host.ports = 2;
    if let Traffic::Streams { queue_pairs, .. } = &mut both.traffic {
        *queue_pairs = 2;
    }
    let mut first = both.clone();
    if let Traffic::Streams { one_port, .. } = &mut first.traffic {
        *one_port = true;
    }
    let rate = |scenario| complete(scenario).throughput_gbps.expect("streams");
    let (both, first) = (rate(both), rate(first));
    let goodput = GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES);
    assert_near(first, goodput, 0.02);
    assert_near(both, 2.0 * goodput, 0.02);
}

fn broken(victim: Victim) -> Scenario {
    let traffic = messages(Pattern::Mesh, Operation::Write, 100_000, 20);
    let mut made = scenario(racks(), traffic);
    made.host.ports = 2;
    made.incidents = vec![Incident {
        victim,
        at_ns: 200_000,
        until_ns: Some(3_000_000),
        notice_ns: 50_000,
    }];
    made
}

#[test]
fn what_a_broken_switch_or_cable_takes_along_is_sent_again() {
    // A spine; the uplink of a leaf, behind its four hosts.
    for victim in [Victim::Switch(4), Victim::Cable(Place::Switch(0, 4))] {
        let outcome = complete(broken(victim));
        assert!(outcome.lost_packets > 0, "{victim:?}");
    }
}

#[test]
fn a_storm_of_pauses_stops_who_sends_there_until_it_is_over() {
    let calm = complete(scenario(
        tree(4),
        messages(Pattern::Pair, Operation::Write, 100_000, 20),
    ));
    let mut storm = scenario(
        tree(4),
        messages(Pattern::Pair, Operation::Write, 100_000, 20),
    );
    storm.incidents = vec![Incident {
        victim: Victim::PauseStorm(Place::Host(1, 0)),
        at_ns: 100_000,
        until_ns: Some(1_100_000),
        notice_ns: 0,
    }];
    let outcome = complete(storm);
    assert_near((outcome.simulated_ns - calm.simulated_ns) as f64, 1e6, 0.01);
    assert!(outcome.paused_max_ns >= 1_000_000);
}

/// Each sends two further around a ring of five: every cable of it is asked for twice what it
/// carries.
fn ring(pfc: bool) -> Scenario {
    let pairs = (0..5).map(|at| (at, (at + 2) % 5)).collect();
    let traffic = writes(Pattern::Listed { pairs }, 0, 20_000);
    let mut made = scenario(Topology::Ring { hosts: 5 }, traffic);
    let switch = made.switch.as_mut().expect("there is one");
    switch.pfc = pfc;
    switch.buffer_bytes = 200_000;
    made
}

#[test]
fn a_circle_of_pauses_is_found() {
    let outcome = run(ring(true));
    assert_eq!(outcome.deadlocked_ports, 5, "{:?}", outcome.problem);
    assert!(
        outcome
            .problem
            .expect("a deadlock")
            .contains("circle of pauses")
    );
    assert_eq!(complete(ring(false)).deadlocked_ports, 0);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run_of = |seed| {
        let mut made = scenario(tree(16), writes(Pattern::Mesh, 50, 200));
        made.seed = seed;
        made.host.congestion_control = Some(CongestionConfig::Dcqcn(DCQCN));
        made.switch.as_mut().expect("there is one").ecn = Some(ECN);
        made.series_ns = Some(20_000);
        format!("{:?}", complete(made))
    };
    assert_eq!(run_of(1), run_of(1));
    assert_ne!(run_of(1), run_of(2));
}

#[test]
fn a_capture_holds_packets_that_are_right_to_the_last_bit() {
    let mut recorded = scenario(racks(), messages(Pattern::Pair, Operation::Send, 5_000, 3));
    recorded.tap = Some(Tap {
        at: Place::Host(0, 0),
        packets: 1_000,
    });
    let mut network = network(recorded);
    while network.run(1_000) {}
    let frames = network.take_frames();
    // Five packets of each message, and acknowledgements.
    assert!(frames.len() >= 16, "{}", frames.len());
    assert!(frames.is_sorted_by_key(|frame| frame.at_ns));
    for frame in frames {
        let octets = |at: usize| -> [u8; 4] { frame.bytes[at..at + 4].try_into().expect("four") };
        let udp_source = u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]);
        let flow = Flow::new(
            SocketAddr::from((octets(26), udp_source)),
            SocketAddr::from((octets(30), ROCE_UDP_PORT)),
        );
        let roce = &frame.bytes[42..];
        assert_eq!(flow.expect("IPv4").verify(roce, 0), Verdict::Exact);
        assert!(Packet::parse(roce).is_ok());
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let refused = |change: &dyn Fn(&mut Scenario)| {
        let mut wrong = scenario(racks(), ping_pong(64));
        change(&mut wrong);
        let error = urxe_fabric::Network::new(wrong).expect_err("it cannot be");
        error.to_string()
    };
    assert!(refused(&|wrong| wrong.switch = None).contains("does not say of what kind"));
    assert!(refused(&|wrong| wrong.host.mtu_bytes = 1_500).contains("1500"));
    assert!(refused(&|wrong| wrong.host.stack.copy_gbps = Some(10.0)).contains("without a switch"));
    let beyond = Incident {
        victim: Victim::Switch(77),
        at_ns: 0,
        until_ns: None,
        notice_ns: 0,
    };
    assert!(refused(&|wrong| wrong.incidents = vec![beyond]).contains("numbered from 0"));
}
