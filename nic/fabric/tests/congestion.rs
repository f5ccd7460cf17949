//! Many send to one: what share each gets, what waits where, and what is lost.

mod support;

use support::*;
use urxe_fabric::{CongestionConfig, LinkKind, Operation, Outcome, Pattern, Scenario, Topology};

const RATE_GBPS: f64 = 25.0;

fn goodput_gbps() -> f64 {
    RATE_GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES)
}

fn incast(senders: u32, warmup_us: u64, measured_us: u64) -> Scenario {
    let hosts = senders + 1;
    let traffic = writes(Pattern::Incast, warmup_us, measured_us);
    let mut made = scenario(Topology::OneSwitch { hosts }, traffic);
    made.host.rate_gbps = RATE_GBPS;
    made
}

fn switch(scenario: &mut Scenario) -> &mut urxe_fabric::SwitchConfig {
    scenario.switch.as_mut().expect("there is one")
}

/// (sum x)^2 / (n sum x^2): 1 if all are the same (Jain et al., 1984).
fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn pauses_share_a_port_fairly_and_lose_nothing() {
    for senders in [2, 4, 8] {
        let outcome = complete(incast(senders, 500, 2_000));
        assert_eq!(outcome.dropped_packets, 0);
        assert!(outcome.pauses > 0);
        assert_near(outcome.host_gbps[0], goodput_gbps(), 0.01);
        assert!(
            fairness(&outcome.stream_gbps) > 0.99,
            "{:?}",
            outcome.stream_gbps
        );
    }
}

#[test]
fn headroom_holds_what_arrives_after_a_pause() {
    // 300 m of cable: 1.5 us each way, which three delays of 1.2 us, and a packet each way, have to
    // cover.
    let mut long = incast(8, 100, 1_000);
    long.propagation_ns = 1_500;
    switch(&mut long).headroom_delay_ns = 1_200;
    switch(&mut long).buffer_bytes = 400_000;
    assert_eq!(complete(long.clone()).dropped_packets, 0);
    switch(&mut long).headroom_delay_ns = 100;
    assert!(run(long).dropped_packets > 0, "too little headroom is loss");
}

#[test]
fn without_pauses_a_full_queue_loses_and_all_still_arrives() {
    let hosts = 4;
    let traffic = messages(Pattern::Incast, Operation::Write, 200_000, 10);
    let mut lossy = scenario(Topology::OneSwitch { hosts }, traffic);
    switch(&mut lossy).pfc = false;
    switch(&mut lossy).lossy_bytes = Some(50_000);
    let outcome = complete(lossy);
    assert!(outcome.dropped_packets > 0);
    assert!(
        outcome.queue_max_bytes <= 50_000,
        "{}",
        outcome.queue_max_bytes
    );
    assert_eq!(outcome.pauses, 0);
}

#[test]
fn flows_get_their_max_min_fair_share() {
    // 0 is shared by two; no host but 3 sends to 4.
    let pairs = vec![(1, 0), (2, 0), (3, 4)];
    let traffic = writes(Pattern::Listed { pairs }, 500, 4_000);
    let outcome = complete(scenario(Topology::OneSwitch { hosts: 5 }, traffic));
    let all = GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES);
    for (rate, share) in outcome.stream_gbps.iter().zip([0.5, 0.5, 1.0]) {
        assert_near(*rate, share * all, 0.02);
    }
}

#[test]
fn credits_lose_nothing_either() {
    let mut credits = incast(4, 500, 2_000);
    credits.host.link = LinkKind::Infiniband;
    switch(&mut credits).buffer_bytes = 65_536;
    let outcome = complete(credits);
    assert_eq!((outcome.dropped_packets, outcome.pauses), (0, 0));
    assert_near(outcome.host_gbps[0], RATE_GBPS * 1_024.0 / 1_050.0, 0.02);
    assert!(
        fairness(&outcome.stream_gbps) > 0.99,
        "{:?}",
        outcome.stream_gbps
    );
}

fn with_dcqcn(senders: u32) -> Outcome {
    let mut controlled = incast(senders, 20_000, 20_000);
    controlled.host.congestion_control = Some(CongestionConfig::Dcqcn(DCQCN));
    switch(&mut controlled).ecn = Some(ECN);
    switch(&mut controlled).buffer_bytes = 32 << 20;
    controlled.series_ns = Some(1_000_000);
    complete(controlled)
}

#[test]
fn dcqcn_converges_to_fair_shares_with_short_queues() {
    for senders in [2, 8, 16] {
        let outcome = with_dcqcn(senders);
        assert_eq!(outcome.dropped_packets, 0);
        assert!(outcome.notifications > 0);
        assert!(
            outcome.host_gbps[0] > 0.9 * goodput_gbps(),
            "{senders} to 1: {}",
            outcome.host_gbps[0]
        );
        // The second half of the time.
        let later = &outcome.series[outcome.series.len() / 2..];
        let share = |stream: usize| later.iter().map(|point| point.stream_gbps[stream]).sum();
        let shares: Vec<f64> = (0..senders as usize).map(share).collect();
        assert!(fairness(&shares) > 0.9, "{senders} to 1: {shares:?}");
        // Marking is certain from 400 KB on.
        let longest = later.iter().map(|point| point.queue_bytes).max();
        assert!(longest < Some(500_000), "{senders} to 1: {longest:?}");
    }
}
