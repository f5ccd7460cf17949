//! Flows that arrive at random, and lists of messages.

mod support;

use support::*;
use urxe_fabric::{
    CongestionConfig, FlowsConfig, FlowsOutcome, IncastConfig, Message, Operation, Outcome,
    Pattern, Scenario, Topology, Traffic,
};

/// Half of all flows are below 10 KB, and most bytes in those of a megabyte.
const HEAVY_TAIL: [(f64, f64); 4] = [
    (0.0, 0.0),
    (10_000.0, 0.5),
    (100_000.0, 0.9),
    (1_000_000.0, 1.0),
];
const TREE: Topology = Topology::FatTree {
    hosts: 16,
    radix: 4,
    hosts_per_edge: None,
};

fn config(load: f64, flows: u64) -> FlowsConfig {
    FlowsConfig {
        pattern: Pattern::Mesh,
        operation: Operation::Write,
        load,
        sizes: HEAVY_TAIL.to_vec(),
        flows,
        warmup_flows: 0,
        incast: None,
    }
}

fn flows_of(outcome: Outcome) -> FlowsOutcome {
    outcome.flows.expect("traffic of flows")
}

fn slowdowns(flows: &FlowsOutcome) -> Vec<f64> {
    let took = flows.took_ns.iter().zip(&flows.alone_ns);
    took.map(|(took, alone)| took.expect("all have ended") / alone)
        .collect()
}

#[test]
fn a_flow_that_is_alone_has_no_slowdown() {
    for operation in [Operation::Send, Operation::Write, Operation::Read] {
        let mut quiet = config(1e-5, 300);
        quiet.operation = operation;
        let mut made = scenario(TREE, Traffic::Flows(quiet));
        made.time_limit_ns *= 100;
        let outcome = complete(made);
        for slowdown in slowdowns(&flows_of(outcome)) {
            assert_near(slowdown, 1.0, 0.02);
        }
    }
}

#[test]
fn a_flow_alone_takes_what_the_stages_of_its_way_take() {
    // Store and forward at one switch: the first packet crosses two cables, the rest follow it.
    let mut one = config(1e-5, 1);
    one.sizes = vec![(102_400.0, 0.0), (102_400.0, 1.0)];
    let star = Topology::OneSwitch { hosts: 2 };
    let flows = flows_of(complete(scenario(star, Traffic::Flows(one))));
    let byte_ns = 8.0 / GBPS;
    // A hundred packets, the address of a WRITE in the first; and an acknowledgement of 12 + 4 + 4
    // bytes of transport, filled up to 84.
    let there = (101.0 * f64::from(FULL_PACKET_BYTES) + 16.0) * byte_ns;
    let back = 2.0 * (12.0 + 4.0 + 4.0 + 28.0 + 38.0) * byte_ns;
    let expected = there + back + 4.0 * PROPAGATION_NS as f64;
    assert_near(flows.alone_ns[0], expected, 0.001);
    assert_near(flows.took_ns[0].expect("it has ended"), expected, 0.001);
}

/// Flows of one packet, as a Poisson process, to a cable that all share: a queue M/D/1, whose mean
/// wait is rho / (2 (1 - rho)) services (Pollaczek and Khinchine).
#[test]
fn flows_of_one_size_to_one_receiver_wait_as_in_m_d_1() {
    for load in [0.3, 0.6, 0.8] {
        let mut fixed = config(load, 60_000);
        fixed.pattern = Pattern::Incast;
        fixed.sizes = vec![(f64::from(MTU), 0.0), (f64::from(MTU), 1.0)];
        let star = Topology::OneSwitch { hosts: 65 };
        let outcome = complete(scenario(star, Traffic::Flows(fixed)));
        let flows = flows_of(outcome);
        let waits = flows.took_ns.iter().zip(&flows.alone_ns);
        let waits = waits.map(|(took, alone)| took.expect("all have ended") - alone);
        let mean_ns = waits.sum::<f64>() / flows.alone_ns.len() as f64;
        let packet_bytes = f64::from(FULL_PACKET_BYTES + 16);
        let rho = load * packet_bytes / f64::from(MTU);
        let expected = rho / (2.0 * (1.0 - rho)) * packet_bytes * 8.0 / GBPS;
        assert_near(mean_ns, expected, 0.08);
    }
}

#[test]
fn cables_are_used_as_much_as_is_asked_for() {
    let mut steady = config(0.5, 5_000);
    steady.pattern = Pattern::Listed {
        pairs: vec![(0, 1)],
    };
    steady.sizes = vec![(20_480.0, 0.0), (20_480.0, 1.0)];
    let star = Topology::OneSwitch { hosts: 3 };
    let outcome = complete(scenario(star, Traffic::Flows(steady)));
    let used_of = |from: &str, to: &str| {
        let cables = &outcome.cables;
        let mut all = cables.from.iter().zip(&cables.to);
        let at = all.position(|ends| ends == (&from.to_string(), &to.to_string()));
        cables.used_part[at.expect("there is such a cable")]
    };
    let wire = f64::from(20 * FULL_PACKET_BYTES + 16) / 20_480.0;
    assert_near(used_of("host 0", "switch 0"), 0.5 * wire, 0.05);
    assert_near(used_of("switch 0", "host 1"), 0.5 * wire, 0.05);
    assert!(used_of("host 1", "switch 0") < 0.05, "acknowledgements");
    assert_near(used_of("switch 0", "host 2"), 0.0, 0.0);
    assert!(outcome.fairness.is_some_and(|index| index < 1.0));
}

#[test]
fn as_much_arrives_as_the_load_says() {
    let outcome = complete(scenario(TREE, Traffic::Flows(config(0.4, 20_000))));
    let flows = flows_of(outcome);
    let bytes: u64 = flows.size_bytes.iter().map(|size| u64::from(*size)).sum();
    let last_ns = flows.started_ns.last().expect("there are flows");
    let gbps = 8.0 * bytes as f64 / last_ns;
    assert_near(gbps, 0.4 * 16.0 * GBPS, 0.05);
    assert!(flows.started_ns.is_sorted());
    let of_host = |host| flows.from.iter().filter(|from| **from == host).count();
    let to_host = |host| flows.to.iter().filter(|to| **to == host).count();
    for host in 0..16 {
        assert_near(of_host(host) as f64, 1_250.0, 0.1);
        assert_near(to_host(host) as f64, 1_250.0, 0.1);
    }
    assert!(
        flows
            .from
            .iter()
            .zip(&flows.to)
            .all(|(from, to)| from != to)
    );
}

fn with_dcqcn(mut scenario: Scenario) -> Scenario {
    scenario.host.congestion_control = Some(CongestionConfig::Dcqcn(DCQCN));
    scenario.switch.as_mut().expect("there is one").ecn = Some(ECN);
    scenario
}

#[test]
fn every_congestion_control_sees_the_same_flows() {
    let plain = || scenario(TREE, Traffic::Flows(config(0.6, 1_000)));
    let of = |scenario| flows_of(complete(scenario));
    let (without, with) = (of(plain()), of(with_dcqcn(plain())));
    assert_eq!(without.started_ns, with.started_ns);
    assert_eq!(without.size_bytes, with.size_bytes);
    assert_eq!((without.from, without.to), (with.from, with.to));
    assert_eq!(without.alone_ns, with.alone_ns);
    assert_ne!(without.took_ns, with.took_ns);
}

#[test]
fn more_load_brings_the_same_flows_sooner() {
    let of = |load| flows_of(complete(scenario(TREE, Traffic::Flows(config(load, 500)))));
    let (less, more) = (of(0.2), of(0.4));
    assert_eq!(less.size_bytes, more.size_bytes);
    for (late, early) in less.started_ns.iter().zip(&more.started_ns) {
        assert_near(*late, 2.0 * early, 1e-6);
    }
}

#[test]
fn the_same_seed_gives_the_same_flows_and_times() {
    let of = |seed| {
        let mut made = with_dcqcn(scenario(TREE, Traffic::Flows(config(0.7, 500))));
        made.seed = seed;
        format!("{:?}", complete(made))
    };
    assert_eq!(of(5), of(5));
    assert_ne!(of(5), of(6));
}

#[test]
fn queue_pairs_are_used_again() {
    let mut few = config(0.05, 2_000);
    few.pattern = Pattern::Listed {
        pairs: vec![(0, 15)],
    };
    let outcome = complete(scenario(TREE, Traffic::Flows(few)));
    assert!(outcome.queue_pairs <= 20, "{}", outcome.queue_pairs);
}

#[test]
fn incasts_come_among_other_flows() {
    let mut mixed = config(0.2, 2_000);
    mixed.incast = Some(IncastConfig {
        senders: 8,
        size_bytes: 20_000,
        load: 0.02,
    });
    let flows = flows_of(complete(scenario(TREE, Traffic::Flows(mixed))));
    let of_incast: Vec<usize> = (0..flows.from.len())
        .filter(|index| flows.is_of_incast[*index])
        .collect();
    let last_ns = flows.started_ns.last().expect("there are flows");
    let gbps = of_incast.len() as f64 * 20_000.0 * 8.0 / last_ns;
    assert_near(gbps, 0.02 * 16.0 * GBPS, 0.25);
    for together in of_incast.chunks(8) {
        let first = together[0];
        let mut senders: Vec<u32> = together.iter().map(|index| flows.from[*index]).collect();
        senders.sort_unstable();
        senders.dedup();
        assert_eq!(senders.len(), 8);
        assert!(
            together
                .iter()
                .all(|index| flows.to[*index] == flows.to[first])
        );
        assert!(
            together
                .iter()
                .all(|index| (flows.started_ns[*index] - flows.started_ns[first]).abs() < 1e-9)
        );
    }
}

fn message(from: u32, to: u32, at_ns: u64, after: &[u32]) -> Message {
    Message {
        from,
        to,
        size_bytes: 10_000,
        at_ns,
        after: after.to_vec(),
        channel: None,
    }
}

#[test]
fn a_message_waits_for_those_that_it_needs() {
    let messages = vec![
        message(0, 1, 0, &[]),
        message(2, 1, 50_000, &[]),
        message(1, 3, 0, &[0]),
        message(1, 3, 0, &[0, 1]),
        message(3, 0, 200_000, &[2]),
    ];
    let traffic = Traffic::Messages {
        operation: Operation::Send,
        messages,
    };
    let flows = flows_of(complete(scenario(
        Topology::OneSwitch { hosts: 4 },
        traffic,
    )));
    let arrives = |index: usize| flows.started_ns[index] + flows.took_ns[index].expect("it ended");
    // The receiver has it before the acknowledgement is back.
    let is_soon_after = |start: f64, end: f64| start < end && start > end - 1_000.0;
    assert!(is_soon_after(flows.started_ns[2], arrives(0)));
    assert!(is_soon_after(flows.started_ns[3], arrives(1)));
    assert_near(flows.started_ns[4], 200_000.0, 1e-9);
}

/// Messages of so many packets from host 0 to host 1: when each had ended, in times of a packet.
fn ends_of(packets: &[u32], channel: Option<u32>) -> Vec<f64> {
    let each = packets.iter().map(|count| Message {
        size_bytes: count * MTU,
        channel,
        ..message(0, 1, 0, &[])
    });
    let traffic = Traffic::Messages {
        operation: Operation::Send,
        messages: each.collect(),
    };
    let flows = flows_of(complete(scenario(
        Topology::OneSwitch { hosts: 2 },
        traffic,
    )));
    let packet_ns = f64::from(FULL_PACKET_BYTES) * 8.0 / GBPS;
    let ends = flows.started_ns.iter().zip(&flows.took_ns);
    ends.map(|(start, took)| (start + took.expect("it ended")) / packet_ns)
        .collect()
}

#[test]
fn messages_of_a_channel_go_one_after_the_other_and_leave_no_gap() {
    let packets = [100, 1, 300, 20, 200];
    let ends = ends_of(&packets, Some(7));
    let mut sent = 0.0;
    for (count, end) in packets.iter().zip(&ends) {
        sent += f64::from(*count);
        // The last packet through the switch, and its acknowledgement.
        assert!((sent..sent + 3.0).contains(end), "{sent} {ends:?}");
    }
    let apart = ends_of(&packets, None);
    assert!(apart[0] > 300.0, "they share the cable: {apart:?}");
}

#[test]
fn channels_do_not_wait_for_each_other() {
    let mut messages: Vec<Message> = (0..2)
        .map(|channel| Message {
            size_bytes: 100 * MTU,
            channel: Some(channel),
            ..message(0, 1, 0, &[])
        })
        .collect();
    messages.push(Message {
        channel: Some(0),
        ..message(1, 0, 0, &[0])
    });
    let flows = flows_of(complete(scenario(
        Topology::OneSwitch { hosts: 2 },
        Traffic::Messages {
            operation: Operation::Send,
            messages,
        },
    )));
    let took = |index: usize| flows.took_ns[index].expect("it ended");
    // They take turns of a few packets; one that waited for the other would take twice as long.
    assert!(took(0) > 0.9 * took(1), "{} {}", took(0), took(1));
    assert!(flows.started_ns[2] > 0.9 * took(0), "after what it needs");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let refused = |traffic| {
        let made = scenario(Topology::OneSwitch { hosts: 4 }, traffic);
        urxe_fabric::Network::new(made)
            .expect_err("it cannot be")
            .to_string()
    };
    let list = |operation, messages| {
        refused(Traffic::Messages {
            operation,
            messages,
        })
    };
    assert!(list(Operation::Send, vec![message(0, 4, 0, &[])]).contains("message 0"));
    assert!(list(Operation::Send, vec![message(0, 1, 0, &[0])]).contains("before it"));
    let two = vec![message(0, 1, 0, &[]), message(1, 0, 0, &[0])];
    assert!(list(Operation::Write, two).contains("only SEND"));
    let of_channel = Message {
        channel: Some(0),
        ..message(0, 1, 0, &[])
    };
    assert!(list(Operation::Write, vec![of_channel]).contains("only SEND has"));
    assert!(list(Operation::Send, vec![]).contains("no message"));
    assert!(refused(Traffic::Flows(config(0.0, 5))).contains("a load is more than zero"));
    let mut many = config(0.5, 5);
    many.incast = Some(IncastConfig {
        senders: 4,
        size_bytes: 1,
        load: 0.1,
    });
    assert!(refused(Traffic::Flows(many)).contains("from 1 to 3 senders"));
}
