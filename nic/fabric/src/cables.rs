//! How much cables were used and how evenly, as data.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

/// What went through the ports: columns of one table, a row for each direction of each cable.
/// Empty where there are more than 8,192.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CablesOutcome {
    /// What sends, as `host 3` or `switch 0`.
    pub from: Vec<String>,
    /// What receives.
    pub to: Vec<String>,
    /// Rates, 10^9 bit/s.
    pub gbps: Vec<f64>,
    /// Part of the time that it was busy: until the last flow started, if there are flows; else
    /// until the end.
    pub used_part: Vec<f64>,
    /// The most that waited, bytes.
    pub queue_max_bytes: Vec<u64>,
    /// How long it was paused, nanoseconds.
    pub paused_ns: Vec<u64>,
    /// Packets that were marked.
    pub marked_packets: Vec<u64>,
    /// Packets that found no room.
    pub dropped_packets: Vec<u64>,
}

/// What ports had sent at some time.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u64>,
}

/// Jain's index of fairness: 1 if all have the same, 1 / n if one has everything (Jain, Chiu and
/// Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984). `None` of nothing.
pub(crate) fn fairness(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_of_equals_and_a_share_of_one_that_has_all() {
        let of = |shares: &[f64]| fairness(shares.iter().copied());
        assert_eq!(of(&[3.0, 3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(of(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(of(&[]), None);
    }
}
