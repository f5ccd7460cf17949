//! What one queue pair does before the others get their turn.

use super::{Side, connected, run, with_slot};
use crate::stream::constants::{OUTPUT_BYTES, SCRATCH_BYTES, TURN_BYTES};
use crate::support::{fill, post};

/// An FPDU has no more.
const FPDU_MAX: usize = 1 << 16;
/// Longer than several turns.
const LEN: usize = 8 * TURN_BYTES;

fn counters(side: &Side) -> (u64, u64) {
    let stats = with_slot(&side.end, &side.qp, |slot| *slot.qp.stats());
    (stats.fpdus_sent, stats.bytes_placed + stats.bytes_copied)
}

#[test]
fn a_turn_is_bounded_both_ways() {
    let (_clock, [mut from, to]) = connected(LEN);
    fill(&mut from.end.buffer);
    let (mut sent, _) = counters(&from);
    let (_, mut came) = counters(&to);
    let all = came + LEN as u64;
    post(&from.qp, 1, to.end.write_op(0), &[from.end.sge(0, LEN)]);
    let (mut turns, mut is_complete) = (0, false);
    while !is_complete || came < all {
        let (sent_now, _) = counters(&from);
        // An FPDU is more than half as long as the longest, and one may be ready behind the turn.
        let frames_max = (TURN_BYTES + OUTPUT_BYTES) / (FPDU_MAX / 2) + 1;
        assert!(sent_now - sent <= frames_max as u64, "{}", sent_now - sent);
        sent = sent_now;
        if came < all {
            run(&to.end);
        }
        let (_, came_now) = counters(&to);
        let turn_max = TURN_BYTES + FPDU_MAX + SCRATCH_BYTES;
        assert!(came_now - came <= turn_max as u64, "{}", came_now - came);
        came = came_now;
        turns += 1;
        is_complete |= from.poll() > 0;
    }
    assert!(
        turns >= LEN / (TURN_BYTES + FPDU_MAX + SCRATCH_BYTES),
        "{turns}"
    );
    assert_eq!(from.end.buffer, to.end.buffer);
}
