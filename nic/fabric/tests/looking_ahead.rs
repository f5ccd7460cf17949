//! Large networks load ahead of time what events need; what happens is the same.

mod support;

use support::*;
use urxe_fabric::{
    HashFields, Incident, Network, Pattern, Place, Scenario, SwitchConfig, Topology, Victim,
};

fn told(scenario: &Scenario, looks_ahead: bool) -> (String, u64) {
    let mut network = Network::new(scenario.clone()).unwrap();
    network.set_looks_ahead(looks_ahead);
    while network.run(1_000_000) {}
    let outcome = network.outcome();
    (format!("{outcome:?}"), outcome.lost_packets)
}

#[test]
fn a_run_is_the_same_with_and_without() {
    for hash in [HashFields::Ports, HashFields::Packets] {
        let tree = Topology::FatTree {
            hosts: 16,
            radix: 4,
            hosts_per_edge: None,
        };
        let mut made = scenario(tree, writes(Pattern::Permutation, 1, 30));
        made.switch = Some(SwitchConfig { hash, ..SWITCH });
        // Every two nanoseconds a cable between switches fails and returns. Ways change at once,
        // sometimes just after a packet was looked at that comes next.
        made.incidents = (0..10_000)
            .map(|time| Incident {
                victim: Victim::Cable(Place::Switch(time as u32 % 8, 2)),
                at_ns: 5_000 + 2 * time,
                until_ns: Some(5_001 + 2 * time),
                notice_ns: 0,
            })
            .collect();
        let (with, lost) = told(&made, true);
        assert_eq!(with, told(&made, false).0);
        assert!(lost > 0, "cables fail while packets are on them");
    }
}
