//! Collective operations take what their steps take.

mod support;

use support::*;
use urxe_fabric::{Collective, CollectiveConfig, Outcome, Topology, Traffic};

const RANKS: u32 = 8;
const SIZE_BYTES: u32 = RANKS * 100 * MTU;

fn config(algorithm: Collective) -> CollectiveConfig {
    CollectiveConfig {
        algorithm,
        size_bytes: SIZE_BYTES,
        ranks: None,
        stride: 1,
        chunk_bytes: None,
    }
}

fn double_tree(ranks: u32, size_bytes: u32, chunk_bytes: Option<u32>) -> f64 {
    let mut trees = config(Collective::DoubleTreeAllReduce);
    trees.size_bytes = size_bytes;
    trees.chunk_bytes = chunk_bytes;
    time_ns(&collective(ranks, trees))
}

fn collective(hosts: u32, config: CollectiveConfig) -> Outcome {
    complete(scenario(
        Topology::OneSwitch { hosts },
        Traffic::Collective(config),
    ))
}

/// From the start of the first message until the last sender has its acknowledgement, nanoseconds.
fn time_ns(outcome: &Outcome) -> f64 {
    let flows = outcome.flows.as_ref().expect("messages");
    let ends = flows.started_ns.iter().zip(&flows.took_ns);
    ends.map(|(start, took)| start + took.expect("all have ended"))
        .fold(0.0, f64::max)
}

/// Through one switch: all packets over one cable, the last over another.
fn step_ns(bytes: u32) -> f64 {
    let packets = bytes / MTU;
    f64::from((packets + 1) * FULL_PACKET_BYTES) * 8.0 / GBPS + 2.0 * PROPAGATION_NS as f64
}

/// An acknowledgement back through the switch.
const ACKNOWLEDGEMENT_NS: f64 = 2.0 * 86.0 * 8.0 / GBPS + 2.0 * PROPAGATION_NS as f64;

#[test]
fn a_ring_takes_as_many_steps_as_it_has() {
    for (algorithm, steps) in [
        (Collective::RingAllReduce, 2 * (RANKS - 1)),
        (Collective::RingAllGather, RANKS - 1),
    ] {
        let outcome = collective(RANKS, config(algorithm));
        let expected = f64::from(steps) * step_ns(SIZE_BYTES / RANKS) + ACKNOWLEDGEMENT_NS;
        // Acknowledgements of the step before share the cable.
        assert_near(time_ns(&outcome), expected, 0.01);
    }
}

#[test]
fn halving_and_doubling_moves_ever_less_and_ever_more() {
    let outcome = collective(RANKS, config(Collective::HalvingDoublingAllReduce));
    let steps = [2, 4, 8, 8, 4, 2].map(|part| step_ns(SIZE_BYTES / part));
    let expected = steps.iter().sum::<f64>() + ACKNOWLEDGEMENT_NS;
    assert_near(time_ns(&outcome), expected, 0.01);
}

#[test]
fn trees_of_two_are_a_ring_of_two() {
    let mut ring = config(Collective::RingAllReduce);
    ring.size_bytes = SIZE_BYTES;
    let ring_ns = time_ns(&collective(2, ring));
    assert_near(double_tree(2, SIZE_BYTES, None), ring_ns, 1e-9);
}

#[test]
fn whole_halves_go_up_and_down_both_trees_one_edge_after_the_other() {
    // Of three, both trees are chains, and in no step does a cable carry parts of both.
    let expected = 4.0 * step_ns(SIZE_BYTES / 2) + ACKNOWLEDGEMENT_NS;
    assert_near(double_tree(3, SIZE_BYTES, None), expected, 0.01);
}

#[test]
fn a_little_data_takes_the_depth_of_a_tree_and_not_the_length_of_a_ring() {
    for ranks in [8_u32, 16, 32] {
        let steps = f64::from(2 * ranks.ilog2());
        let expected = steps * step_ns(MTU) + ACKNOWLEDGEMENT_NS;
        let found = double_tree(ranks, 2 * MTU, None);
        // Two children share a port of their parent, and so do its messages to them; and the other
        // tree is there, too. So a step takes a packet more, or two.
        let packet_ns = step_ns(MTU) - step_ns(0);
        assert!(found > expected, "{found} {expected}");
        assert!(
            found < expected + 2.0 * steps * packet_ns,
            "{found} {expected}"
        );
    }
}

#[test]
fn chunks_fill_the_cables_that_whole_halves_leave_idle() {
    // A rank that is within one tree and a leaf of the other sends its data twice.
    for ranks in [8, 16] {
        let fullest_ns = step_ns(2 * SIZE_BYTES);
        let whole = double_tree(ranks, SIZE_BYTES, None);
        let chunks = double_tree(ranks, SIZE_BYTES, Some(16 * MTU));
        assert!(whole > 2.0 * fullest_ns, "{whole} {fullest_ns}");
        assert!(chunks > 0.99 * fullest_ns, "{chunks} {fullest_ns}");
        assert!(chunks < 1.3 * fullest_ns, "{chunks} {fullest_ns}");
    }
}

#[test]
fn experts_send_to_all_at_once_and_fill_their_cables() {
    let outcome = collective(RANKS, config(Collective::AllToAll));
    let expected = step_ns((RANKS - 1) * (SIZE_BYTES / RANKS));
    assert_near(time_ns(&outcome), expected, 0.1);
}

#[test]
fn groups_of_ranks_do_not_hinder_each_other() {
    let all = time_ns(&collective(RANKS, config(Collective::RingAllReduce)));
    for stride in [1, 2] {
        let mut grouped = config(Collective::RingAllReduce);
        grouped.ranks = Some(RANKS);
        grouped.stride = stride;
        let outcome = collective(2 * RANKS, grouped);
        assert_near(time_ns(&outcome), all, 1e-6);
        let flows = outcome.flows.expect("messages");
        let gap = flows.to[0].abs_diff(flows.from[0]);
        assert_eq!(gap, stride);
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let refused = |hosts, change: &dyn Fn(&mut CollectiveConfig)| {
        let mut wrong = config(Collective::HalvingDoublingAllReduce);
        change(&mut wrong);
        let made = scenario(Topology::OneSwitch { hosts }, Traffic::Collective(wrong));
        let error = urxe_fabric::Network::new(made).expect_err("it cannot be");
        error.to_string()
    };
    assert!(refused(6, &|_| {}).contains("a power of two of ranks, not 6"));
    assert!(refused(8, &|wrong| wrong.ranks = Some(3)).contains("groups of 3 ranks"));
    assert!(refused(8, &|wrong| wrong.size_bytes = 7).contains("a byte at least"));
    assert!(refused(8, &|wrong| wrong.chunk_bytes = Some(0)).contains("a chunk has a byte"));
    let tiny = |wrong: &mut CollectiveConfig| {
        wrong.algorithm = Collective::DoubleTreeAllReduce;
        wrong.size_bytes = 1 << 30;
        wrong.chunk_bytes = Some(1);
    };
    assert!(refused(8, &tiny).contains("more than 33554432 messages"));
}
