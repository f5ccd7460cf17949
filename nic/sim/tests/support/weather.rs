//! How bad a simulated network is.

use urxe_sim::{Fault, Match, Random, Rule};
use urxe_wire::Operation;

/// How bad the link is, in parts per million and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    pub loss_ppm: u32,
    pub duplicate_ppm: u32,
    pub delay_ppm: u32,
    pub delay_max_ns: u64,
    pub corrupt_ppm: u32,
    pub forge_ppm: u32,
    /// Bursts of losses, up to [`BURST_NS`] long.
    pub burst_ppm: u32,
    /// Acknowledgements lost, besides.
    pub ack_loss_ppm: u32,
    /// Last packets of messages lost, besides.
    pub end_loss_ppm: u32,
    pub ecn_ppm: u32,
}

/// Longest burst of losses, nanoseconds.
const BURST_NS: u64 = 200_000;

impl Weather {
    /// Up to 5 % loss, 3 % duplicates, 5 % reordered, 2 % corrupted, 30 % of acknowledgements and 5
    /// % of messages' ends lost, 20 % marked, one burst in a hundred packets; a fifth of each is
    /// none.
    pub fn bad(random: &mut Random) -> Self {
        let mut up_to = |max: u64| random.between(0, max).saturating_sub(max / 5) as u32;
        Self {
            loss_ppm: up_to(62_500),
            duplicate_ppm: up_to(37_500),
            delay_ppm: up_to(62_500),
            corrupt_ppm: up_to(25_000),
            delay_max_ns: u64::from(up_to(250_000)),
            forge_ppm: 0,
            burst_ppm: up_to(12_500),
            ack_loss_ppm: up_to(375_000),
            end_loss_ppm: up_to(62_500),
            ecn_ppm: up_to(250_000),
        }
    }

    pub fn rules(&self) -> Vec<Rule> {
        let delay = Fault::Delay {
            max_ns: self.delay_max_ns,
        };
        let duplicate = Fault::Duplicate {
            max_ns: self.delay_max_ns,
        };
        let acks = Match::Operation(Operation::Acknowledge);
        let burst = Rule::chance(Match::All, Fault::Drop, self.burst_ppm).in_bursts(BURST_NS);
        let faults = [
            (Match::All, Fault::Drop, self.loss_ppm),
            (Match::All, duplicate, self.duplicate_ppm),
            (Match::All, delay, self.delay_ppm),
            (Match::All, Fault::Corrupt, self.corrupt_ppm),
            (Match::All, Fault::Forge, self.forge_ppm),
            (Match::All, Fault::MarkEcn, self.ecn_ppm),
            (acks, Fault::Drop, self.ack_loss_ppm),
            (Match::MessageEnds, Fault::Drop, self.end_loss_ppm),
        ];
        let rules = faults.into_iter().filter(|(.., ppm)| *ppm > 0);
        rules
            .map(|(matching, fault, ppm)| Rule::chance(matching, fault, ppm))
            .chain((self.burst_ppm > 0).then_some(burst))
            .collect()
    }
}
