//! Adapters that are programs: batches, what they cost the processor, and what is lost of them.

mod support;

use support::*;
use urxe_fabric::{
    Incident, Operation, Pattern, Place, Scenario, SoftwareConfig, Tap, Topology, Victim,
};

fn latency_ns(scenario: Scenario) -> f64 {
    complete(scenario).latencies_ns[2]
}

/// Half a microsecond for a system call, 30 ns for a packet out and 100 in, 40 Gbps out and 20 in,
/// on a cable that takes no time.
fn in_software(traffic: urxe_fabric::Traffic) -> Scenario {
    let mut made = scenario(Topology::BackToBack, traffic);
    made.host.rate_gbps = 1e6;
    made.propagation_ns = 0;
    made.host.packet_ps = 100_000;
    made.host.send_ns = 500;
    made.host.receive_ns = 500;
    made.host.stack.send_ns = 50;
    made.host.stack.receive_ns = 50;
    made.host.software = Some(SoftwareConfig {
        batch_bytes: 65_536,
        batch_packets: 64,
        send_packet_ns: 30,
        send_gbps: 40.0,
        receive_gbps: 20.0,
        latency_ns: 1_000,
    });
    made
}

#[test]
fn software_sends_and_receives_a_message_as_a_whole() {
    for bytes in [64, 1_024, 16_384] {
        // The acknowledgement of the message before travels with this one, ahead of it.
        let packets = 1.0 + f64::from(bytes.max(1_024)) / 1_024.0;
        let calls_ns = 2.0 * 500.0 + (30.0 + 100.0) * packets;
        let data_ns = f64::from(bytes) * 8.0 * (1.0 / 40.0 + 1.0 / 20.0);
        let expected = 100.0 + calls_ns + data_ns + 1_000.0;
        assert_near(latency_ns(in_software(ping_pong(bytes))), expected, 0.002);
    }
}

#[test]
fn the_slower_of_the_two_processors_is_the_rate_of_software() {
    let flow = messages(Pattern::Pair, Operation::Send, 65_536, 40);
    let outcome = complete(in_software(flow));
    // The receiver: 64 packets, a message, and the call for the acknowledgement and its packet.
    let batch_ns = 500.0 + 64.0 * 100.0 + 65_536.0 * 8.0 / 20.0 + 50.0 + 530.0;
    let expected = 65_536.0 * 8.0 / batch_ns;
    assert_near(outcome.throughput_gbps.expect("a stream"), expected, 0.03);
}

#[test]
fn what_came_of_a_batch_is_looked_at_when_its_last_packet_is_lost() {
    const MEASURED_US: u64 = 1_000;
    let mut broken = in_software(writes(Pattern::Pair, 0, MEASURED_US));
    broken.host.rate_gbps = GBPS;
    // Quick enough to sleep between two batches.
    broken.host.packet_ps = 1_000;
    if let Some(software) = &mut broken.host.software {
        software.receive_gbps = 1_000.0;
    }
    // In the middle of a batch, which takes 57 us of the cable.
    broken.incidents.push(Incident {
        victim: Victim::Cable(Place::Host(0, 0)),
        at_ns: 200_000,
        until_ns: None,
        notice_ns: 0,
    });
    broken.tap = Some(Tap {
        at: Place::Host(1, 0),
        packets: 10_000,
    });
    let mut network = network(broken);
    while network.run(1_000_000) {}
    let frames = network.take_frames();
    let came = frames.iter().filter(|it| it.bytes.len() > MTU as usize);
    let came_bytes = came.count() as f64 * f64::from(MTU);
    let taken_bytes = network.outcome().host_gbps[1] * MEASURED_US as f64 * 1_000.0 / 8.0;
    assert!(came_bytes > 100_000.0, "{came_bytes}");
    assert_near(taken_bytes, came_bytes, 1e-9);
}
