//! What congestion control gets of the network, and what it does to all others: round trips, marks,
//! telemetry and its bytes, and scenarios that cannot be.

mod support;

use support::*;
use urxe_fabric::{
    CongestionConfig, DctcpParameters, EcnConfig, HpccParameters, LinkKind, Network, Operation,
    Pattern, Scenario, SoftwareConfig, SwiftParameters, TimelyParameters, Topology,
};

/// All packets that meet more than 30 KB at 10 Gbps.
const STEP: EcnConfig = EcnConfig {
    min_bytes_per_25g: 75_000,
    max_bytes_per_25g: 75_000,
    max_probability: 1.0,
};

fn algorithms() -> [CongestionConfig; 4] {
    [
        CongestionConfig::Hpcc(HpccParameters::default()),
        CongestionConfig::Timely(TimelyParameters::default()),
        CongestionConfig::Swift(SwiftParameters::default()),
        CongestionConfig::Dctcp(DctcpParameters::default()),
    ]
}

fn controlled(control: CongestionConfig, hosts: u32, pattern: Pattern) -> Scenario {
    // Rates that a sudden queue has cut to the least grow back by steps of a segment each.
    let warmup_us = if matches!(control, CongestionConfig::Timely(_)) {
        100_000
    } else {
        2_000
    };
    let traffic = writes(pattern, warmup_us, 3_000);
    let mut made = scenario(Topology::OneSwitch { hosts }, traffic);
    made.host.congestion_control = Some(control);
    // Seven packets fill the network: with fewer there is no window to control.
    made.propagation_ns = 1_000;
    if let Some(switch) = &mut made.switch {
        switch.ecn = Some(STEP);
    }
    made
}

#[test]
fn a_sender_alone_gets_what_its_congestion_control_leaves_of_the_line_rate() {
    let full = GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES);
    for control in algorithms() {
        let outcome = complete(controlled(control, 2, Pattern::Pair));
        let share = outcome.host_gbps[1] / full;
        let expected = match control {
            // Part of the rate, of packets that are 42 bytes longer; HPCC counts what the switch
            // sent, with all that surrounds a packet.
            CongestionConfig::Hpcc(_) => {
                let longer = f64::from(FULL_PACKET_BYTES) / f64::from(FULL_PACKET_BYTES + 42);
                0.95 * longer
            }
            _ => 1.0,
        };
        assert!(
            (expected - 0.02..=expected + 0.03).contains(&share),
            "{control:?}: {share}"
        );
    }
}

#[test]
fn all_of_them_share_a_port_without_loss_and_keep_most_of_it_busy() {
    let full = GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES);
    for control in algorithms() {
        let outcome = complete(controlled(control, 5, Pattern::Incast));
        assert_eq!(outcome.dropped_packets, 0, "{control:?}");
        assert!(
            outcome.host_gbps[0] > 0.85 * full,
            "{control:?}: {}",
            outcome.host_gbps[0]
        );
    }
}

#[test]
fn the_same_scenario_is_the_same_run() {
    for control in algorithms() {
        let outcome = || complete(controlled(control, 4, Pattern::Incast));
        let (once, again) = (outcome(), outcome());
        assert_eq!(once.events, again.events);
        assert_eq!(once.stream_gbps, again.stream_gbps);
    }
}

#[test]
fn a_loss_is_recovered_from_under_each() {
    for control in algorithms() {
        let traffic = messages(Pattern::Incast, Operation::Write, 200_000, 8);
        let mut lossy = scenario(Topology::OneSwitch { hosts: 9 }, traffic);
        lossy.host.congestion_control = Some(control);
        if let Some(switch) = &mut lossy.switch {
            switch.pfc = false;
            switch.lossy_bytes = Some(20_000);
            switch.ecn = Some(STEP);
        }
        let outcome = complete(lossy);
        assert!(outcome.dropped_packets > 0, "{control:?}");
    }
}

#[track_caller]
fn assert_refused(change: impl FnOnce(&mut Scenario), why: &str) {
    let control = CongestionConfig::Dctcp(DctcpParameters::default());
    let mut made = controlled(control, 3, Pattern::Incast);
    change(&mut made);
    let error = Network::new(made).err().map(|error| error.0);
    let said = error.unwrap_or_default();
    assert!(said.contains(why), "{said:?}");
}

#[test]
fn what_cannot_be_controlled_is_said() {
    assert_refused(
        |made| made.switch.as_mut().unwrap().ecn = None,
        "give them `ecn`",
    );
    assert_refused(
        |made| {
            made.traffic = messages(Pattern::Incast, Operation::Read, 1_000, 1);
        },
        "READ",
    );
    assert_refused(
        |made| {
            made.host.software = Some(SoftwareConfig {
                batch_bytes: 65_536,
                batch_packets: 64,
                send_packet_ns: 100,
                send_gbps: 100.0,
                receive_gbps: 100.0,
                latency_ns: 1_000,
            });
        },
        "hardware",
    );
    assert_refused(
        |made| {
            let wrong = DctcpParameters {
                gain: 2.0,
                ..DctcpParameters::default()
            };
            made.host.congestion_control = Some(CongestionConfig::Dctcp(wrong));
        },
        "gain is a part",
    );
}

#[test]
fn infiniband_carries_what_congestion_control_needs_as_well() {
    let control = CongestionConfig::Hpcc(HpccParameters::default());
    let mut made = controlled(control, 4, Pattern::Incast);
    made.host.link = LinkKind::Infiniband;
    let outcome = complete(made);
    assert_eq!((outcome.dropped_packets, outcome.pauses), (0, 0));
    assert!(outcome.host_gbps[0] > 8.0, "{}", outcome.host_gbps[0]);
}
