//! What one packet, or one flow, takes can be worked out by hand.

mod support;

use support::*;
use urxe_fabric::{LinkKind, Operation, Pattern, Scenario, Topology, Traffic};

/// A SEND of one packet: BTH 12, ICRC 4, IPv4 and UDP 28, Ethernet 38.
fn send_bytes(payload: u32) -> f64 {
    f64::from(payload + 12 + 4 + 28 + 38)
}

fn latency_ns(scenario: Scenario) -> f64 {
    complete(scenario).latencies_ns[2]
}

#[test]
fn a_small_message_takes_the_sum_of_its_stages() {
    let mut small = scenario(Topology::BackToBack, ping_pong(64));
    small.host.send_ns = 300;
    small.host.receive_ns = 200;
    small.host.stack.send_ns = 100;
    small.host.stack.receive_ns = 50;
    let wire_ns = send_bytes(64) * 8.0 / GBPS;
    let expected = 300.0 + 200.0 + 100.0 + 50.0 + wire_ns + PROPAGATION_NS as f64;
    assert_near(latency_ns(small), expected, 0.001);
}

#[test]
fn only_a_store_and_forward_switch_sends_a_packet_twice() {
    // Long enough for the acknowledgement of a message to leave before the reply.
    const REPLY_NS: u64 = 100;
    let wire_ns = send_bytes(1_024) * 8.0 / GBPS;
    let travel_ns = 2.0 * PROPAGATION_NS as f64;
    let mut storing = scenario(Topology::OneSwitch { hosts: 2 }, ping_pong(1_024));
    storing.host.stack.send_ns = REPLY_NS;
    let own_ns = (REPLY_NS + 500) as f64;
    let mut cutting = storing.clone();
    for (each, cut_through) in [(&mut storing, false), (&mut cutting, true)] {
        let switch = each.switch.as_mut().expect("there is one");
        switch.latency_ns = 500;
        switch.cut_through = cut_through;
    }
    assert_near(
        latency_ns(storing),
        2.0 * wire_ns + travel_ns + own_ns,
        0.001,
    );
    let head_ns = 64.0 * 8.0 / GBPS;
    assert_near(
        latency_ns(cutting),
        wire_ns + head_ns + travel_ns + own_ns,
        0.001,
    );
}

#[test]
fn a_flow_reaches_the_rate_less_its_headers() {
    for operation in [Operation::Send, Operation::Write, Operation::Read] {
        let flow = messages(Pattern::Pair, operation, 1 << 20, 40);
        let outcome = complete(scenario(Topology::BackToBack, flow));
        let expected = GBPS * f64::from(MTU) / f64::from(FULL_PACKET_BYTES);
        assert_near(outcome.throughput_gbps.expect("a stream"), expected, 0.005);
        assert_eq!(outcome.repeated_packets, 0);
    }
}

#[test]
fn a_slow_bus_limits_a_flow() {
    let flow = messages(Pattern::Pair, Operation::Write, 1 << 20, 20);
    let mut slow = scenario(Topology::BackToBack, flow);
    slow.host.pcie.rate_gbps = 8.0;
    slow.host.pcie.completion_bytes = 64;
    // 64 of 84 bytes are data, and 8 more go for every 512.
    let expected = 8.0 / (84.0 / 64.0 + 8.0 / 512.0);
    let outcome = complete(slow);
    assert_near(outcome.throughput_gbps.expect("a stream"), expected, 0.005);
}

#[test]
fn a_slow_adapter_limits_small_messages() {
    let flow = messages(Pattern::Pair, Operation::Write, 64, 4_000);
    let mut slow = scenario(Topology::BackToBack, flow);
    slow.host.packet_ps = 500_000;
    let outcome = complete(slow);
    // The sender's engine has no acknowledgements to send: two million messages a second.
    assert_near(
        outcome.throughput_gbps.expect("a stream"),
        64.0 * 8.0 * 2e6 / 1e9,
        0.02,
    );
}

#[test]
fn infiniband_has_its_own_headers_and_credits_that_last() {
    let flow = messages(Pattern::Pair, Operation::Write, 1 << 20, 20);
    let mut link = scenario(Topology::OneSwitch { hosts: 2 }, flow);
    link.host.link = LinkKind::Infiniband;
    link.host.delimiter_bytes = 2;
    let expected = GBPS * f64::from(MTU) / f64::from(MTU + 12 + 4 + 8 + 2 + 2);
    let outcome = complete(link);
    assert_near(outcome.throughput_gbps.expect("a stream"), expected, 0.005);
    assert_eq!((outcome.dropped_packets, outcome.pauses), (0, 0));
}

#[test]
fn too_few_credits_leave_a_part_of_the_rate() {
    let flow = messages(Pattern::Pair, Operation::Write, 1 << 20, 10);
    let mut long = scenario(Topology::OneSwitch { hosts: 2 }, flow);
    long.host.link = LinkKind::Infiniband;
    long.propagation_ns = 20_000;
    long.switch.as_mut().expect("there is one").buffer_bytes = 16_384;
    // A buffer in a round trip: 16 KiB in 40 us, and the packets' own time.
    let outcome = complete(long);
    let most = 16_384.0 * 8.0 / 40_000.0;
    let throughput = outcome.throughput_gbps.expect("a stream");
    assert!(
        (0.6 * most..most).contains(&throughput),
        "{throughput} of {most}"
    );
}

#[test]
fn byte_streams_cost_the_processors_and_the_wire() {
    let mut sockets = scenario(Topology::BackToBack, ping_pong(1_000));
    sockets.host.mtu_bytes = 1_448;
    sockets.host.stack.copy_gbps = Some(8.0);
    sockets.host.stack.window_bytes = Some(1 << 18);
    sockets.host.stack.send_ns = 1_000;
    sockets.host.stack.receive_ns = 500;
    sockets.host.stack.latency_ns = 2_000;
    let wire_ns = f64::from(1_000 + 52 + 38) * 8.0 / GBPS;
    let expected = 1_000.0 + 1_000.0 + wire_ns + PROPAGATION_NS as f64 + 2_000.0 + 1_000.0 + 500.0;
    assert_near(latency_ns(sockets.clone()), expected, 0.001);
    sockets.traffic = messages(Pattern::Pair, Operation::Send, 65_536, 100);
    sockets.host.stack.copy_gbps = Some(100.0);
    let outcome = complete(sockets);
    let expected = GBPS * 1_448.0 / 1_538.0;
    assert_near(outcome.throughput_gbps.expect("a stream"), expected, 0.01);
}

/// A ping-pong whose replies take long enough for the acknowledgement to leave before them.
fn replying(bytes: u32) -> Scenario {
    let mut made = scenario(Topology::BackToBack, ping_pong(bytes));
    made.host.stack.send_ns = 100;
    made
}

/// A bus whose answers begin after a microsecond.
fn fetching(bytes: u32) -> Scenario {
    let mut made = replying(bytes);
    made.host.pcie.read_latency_ns = 1_000;
    made.host.inline_bytes = 128;
    made
}

/// What the mechanism adds to a ping-pong that has none of it.
fn added_ns(with: &Scenario, bytes: u32) -> f64 {
    latency_ns(with.clone()) - latency_ns(replying(bytes))
}

#[test]
fn data_is_fetched_past_the_inline_limit_and_the_request_before_it() {
    assert!(added_ns(&fetching(128), 128).abs() < 0.01);
    assert_near(added_ns(&fetching(129), 129), 1_000.0, 0.001);
    let mut both = fetching(129);
    both.host.fetches_requests = true;
    assert_near(added_ns(&both, 129), 2_000.0, 0.001);
}

/// How long one READ takes after the other.
fn read_ns(scenario: &Scenario, bytes: u32) -> f64 {
    let mut reading = scenario.clone();
    reading.traffic = messages(Pattern::Pair, Operation::Read, bytes, 16);
    let Traffic::Streams { depth, .. } = &mut reading.traffic else {
        unreachable!("messages are streams")
    };
    *depth = 1;
    f64::from(bytes) * 8.0 / complete(reading).throughput_gbps.expect("a stream")
}

#[test]
fn a_read_comes_with_its_doorbell_and_its_data_is_fetched_without_a_request() {
    let alone = read_ns(&replying(64), 64);
    let mut made = fetching(64);
    assert_near(read_ns(&made, 64), alone + 1_000.0, 0.001);
    made.host.fetches_requests = true;
    assert_near(read_ns(&made, 64), alone + 1_000.0, 0.001);
}

#[test]
fn a_program_that_reads_one_after_the_other_takes_each_completion() {
    let mut made = replying(64);
    let free = read_ns(&made, 64);
    made.host.stack.receive_ns = 300;
    assert_near(read_ns(&made, 64), free + 300.0, 0.001);
}

#[test]
fn a_long_message_waits_for_its_first_unit_alone() {
    // 8 Gbit/s: a byte in a nanosecond, less what surrounds 256 bytes and 512.
    let byte_ns = 1.0 + 20.0 / 256.0 + 8.0 / 512.0;
    for unit in [0, 4_096] {
        let mut made = replying(8_192);
        made.host.stack.send_ns = 500;
        made.host.gather_bytes = unit;
        made.host.rate_gbps = 4.0;
        let mut quick = made.clone();
        made.host.pcie.rate_gbps = 8.0;
        quick.host.pcie.rate_gbps = 1e6;
        let waited = latency_ns(made) - latency_ns(quick);
        // The last packet, and the entry of the completion queue, are written over the same bus.
        let written_ns = f64::from(MTU + 64) + 5.0 * 24.0;
        let gathered_ns = f64::from(unit.max(MTU)) * byte_ns;
        assert_near(waited, gathered_ns + written_ns, 0.03);
    }
}

#[test]
fn a_doorbell_and_a_completion_take_their_time_over_the_bus() {
    let mut made = replying(64);
    made.host.posted_ns = 300;
    assert_near(added_ns(&made, 64), 600.0, 0.001);
}

#[test]
fn an_eager_message_is_copied_at_both_sides_and_a_longer_one_is_not() {
    let mut made = replying(1_000);
    made.host.stack.eager_gbps = Some(8.0);
    made.host.stack.eager_bytes = 1_000;
    assert_near(added_ns(&made, 1_000), 2_000.0, 0.001);
    made.host.stack.eager_bytes = 999;
    assert_near(added_ns(&made, 1_000), 0.0, 0.001);
}

/// Long and short packets follow each other, and each mechanism that delays them keeps their order.
#[test]
fn packets_keep_their_order_through_the_adapter() {
    let flow = messages(Pattern::Pair, Operation::Send, 1_500, 200);
    let mut made = scenario(Topology::BackToBack, flow);
    made.host.posted_ns = 400;
    made.host.buffer_gbps = Some(10.0);
    made.host.pcie.read_latency_ns = 500;
    made.host.inline_bytes = 512;
    made.host.fetches_requests = true;
    let outcome = complete(made);
    assert_eq!((outcome.repeated_packets, outcome.dropped_packets), (0, 0));
}
