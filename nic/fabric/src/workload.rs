//! Flows that arrive at random: when, between whom and how long. All of it comes from the seed
//! alone, so that every congestion control meets the same flows.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use oorandom::Rand64;

use crate::flows::{Dependents, Flow};
use crate::scenario::{Scenario, ScenarioError};
use crate::topology::mix;
use crate::traffic::{FlowsConfig, IncastConfig, Message, Operation};
use crate::units::PS_PER_NS;

/// Flows at most: as many as fit the memory of a workstation.
const FLOWS_MAX: u64 = 1 << 25;
/// The longest message of RDMA (IBTA volume 1, 9.7.2), bytes.
const MESSAGE_MAX_BYTES: f64 = (1_u64 << 31) as f64;
/// Probabilities that ought to be the same, and come from decimals of a file.
const ROUNDING: f64 = 1e-6;

/// How long flows are.
struct Sizes<'a>(&'a [(f64, f64)]);

impl Sizes<'_> {
    fn check(&self) -> Result<(), ScenarioError> {
        let points = self.0;
        let (first, last) = (points.first(), points.last());
        let ends = first.is_some_and(|(_, part)| part.abs() < ROUNDING)
            && last.is_some_and(|(_, part)| (part - 1.0).abs() < ROUNDING);
        let ascends = points
            .windows(2)
            .all(|two| two[0].0 <= two[1].0 && two[0].1 <= two[1].1);
        let fits = points
            .iter()
            .all(|(bytes, _)| (0.0..=MESSAGE_MAX_BYTES).contains(bytes));
        if ends && ascends && fits && self.mean_bytes() > 0.0 {
            Ok(())
        } else {
            Err(ScenarioError(
                "sizes of flows are points (bytes, part of the flows that are not longer), both ascending, the parts from 0 to 1, and no size above 2^31"
                    .to_string(),
            ))
        }
    }

    fn mean_bytes(&self) -> f64 {
        let spans = self.0.windows(2);
        spans
            .map(|two| (two[1].1 - two[0].1) * f64::midpoint(two[0].0, two[1].0))
            .sum()
    }

    /// The size that a part of all flows do not exceed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be between 0 and 2^31"
    )]
    fn quantile_bytes(&self, part: f64) -> u32 {
        let above = self.0.partition_point(|(_, until)| *until <= part);
        let above = above.clamp(1, self.0.len() - 1);
        let ((low, from), (high, until)) = (self.0[above - 1], self.0[above]);
        let share = if until > from {
            (part - from) / (until - from)
        } else {
            1.0
        };
        ((low + share * (high - low)) as u32).max(1)
    }
}

/// An exponentially distributed number of mean 1, from uniform ones and without a logarithm (von
/// Neumann, "Various techniques used in connection with random digits", 1951).
fn exponential(random: &mut Rand64) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = random.rand_float();
        let (mut last, mut falls) = (first, 1_u32);
        loop {
            let next = random.rand_float();
            if next >= last {
                break;
            }
            last = next;
            falls += 1;
        }
        if !falls.is_multiple_of(2) {
            return whole + first;
        }
        whole += 1.0;
    }
}

/// Gaps of a Poisson process, as points in time.
struct Arrivals {
    random: Rand64,
    mean_gap_ps: f64,
    at_ps: f64,
}

impl Arrivals {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a simulation are far below 2^53 ps"
    )]
    fn next(&mut self) -> u64 {
        self.at_ps += exponential(&mut self.random) * self.mean_gap_ps;
        self.at_ps as u64
    }
}

/// One of several sources of numbers of a seed, each with its own sequence.
fn source(seed: u64, number: u64) -> Rand64 {
    Rand64::new(u128::from(mix(mix(seed) ^ number)))
}

fn below(random: &mut Rand64, end: u32) -> u32 {
    random.rand_range(0..u64::from(end)) as u32
}

/// One host, and another.
fn any_pair(random: &mut Rand64, hosts: u32) -> (u32, u32) {
    let from = below(random, hosts);
    let to = (from + 1 + below(random, hosts - 1)) % hosts;
    (from, to)
}

impl FlowsConfig {
    /// Every flow, in the order of time. `pairs` are those of the pattern; none: any two hosts.
    pub(crate) fn flows(
        &self,
        scenario: &Scenario,
        hosts: u32,
        pairs: &[(u32, u32)],
    ) -> Result<(Vec<Flow>, Dependents), ScenarioError> {
        let sizes = Sizes(&self.sizes);
        sizes.check()?;
        if !(self.load > 0.0 && self.flows > 0 && self.flows <= FLOWS_MAX) {
            return Err(ScenarioError(format!(
                "a load is more than zero, and flows are from 1 to {FLOWS_MAX}"
            )));
        }
        let host_gbps = scenario.host.rate_gbps * f64::from(scenario.host.ports);
        // Bits over 10^9 bit/s are nanoseconds.
        let gap_ps = |bytes: f64, gbps: f64| 8_000.0 * bytes / gbps;
        let gbps = self.load * host_gbps * busiest_share(hosts, pairs);
        let mut arrivals = Arrivals {
            random: source(scenario.seed, 1),
            mean_gap_ps: gap_ps(sizes.mean_bytes(), gbps),
            at_ps: 0.0,
        };
        let (mut lengths, mut ends) = (source(scenario.seed, 2), source(scenario.seed, 3));
        let mut flows = Vec::with_capacity(self.flows as usize);
        for number in 0..self.flows {
            let (from, to) = if pairs.is_empty() {
                any_pair(&mut ends, hosts)
            } else {
                pairs[below(&mut ends, pairs.len() as u32) as usize]
            };
            let bytes = sizes.quantile_bytes(lengths.rand_float());
            let mut flow = Flow::new(arrivals.next(), from, to, bytes);
            flow.counts = number >= self.warmup_flows;
            flows.push(flow);
        }
        if let Some(incast) = &self.incast {
            self.add_incasts(incast, scenario, hosts, &mut flows)?;
        }
        Ok((flows, Dependents::default()))
    }

    fn add_incasts(
        &self,
        incast: &IncastConfig,
        scenario: &Scenario,
        hosts: u32,
        flows: &mut Vec<Flow>,
    ) -> Result<(), ScenarioError> {
        let IncastConfig {
            senders,
            size_bytes,
            load,
        } = *incast;
        if !(1..hosts).contains(&senders) || load <= 0.0 || size_bytes == 0 {
            return Err(ScenarioError(format!(
                "an incast has from 1 to {} senders, a size and a load",
                hosts - 1
            )));
        }
        let all_gbps = scenario.host.rate_gbps * f64::from(scenario.host.ports * hosts);
        let bytes = f64::from(size_bytes) * f64::from(senders);
        let mut arrivals = Arrivals {
            random: source(scenario.seed, 4),
            mean_gap_ps: 8_000.0 * bytes / (load * all_gbps),
            at_ps: 0.0,
        };
        let mut ends = source(scenario.seed, 5);
        let last_at = flows.last().map_or(0, |flow| flow.at);
        let counts_from = flows
            .iter()
            .find(|flow| flow.counts)
            .map_or(0, |flow| flow.at);
        let mut order: Vec<u32> = (0..hosts).collect();
        loop {
            let at = arrivals.next();
            if at > last_at {
                break;
            }
            if flows.len() as u64 > FLOWS_MAX {
                return Err(ScenarioError(format!("more than {FLOWS_MAX} flows")));
            }
            // The first of a random order receives from those after it.
            for place in 0..=senders {
                let other = place + below(&mut ends, hosts - place);
                order.swap(place as usize, other as usize);
            }
            for sender in 1..=senders as usize {
                let mut flow = Flow::new(at, order[sender], order[0], size_bytes);
                flow.is_of_incast = true;
                flow.counts = at >= counts_from;
                flows.push(flow);
            }
        }
        flows.sort_by_key(|flow| flow.at);
        Ok(())
    }
}

/// How much all hosts together send while the busiest one sends, or receives, as much as its ports
/// carry: in ports of one host.
fn busiest_share(hosts: u32, pairs: &[(u32, u32)]) -> f64 {
    if pairs.is_empty() {
        return f64::from(hosts);
    }
    let (mut sent, mut received) = (vec![0_u32; hosts as usize], vec![0_u32; hosts as usize]);
    for (from, to) in pairs {
        sent[*from as usize] += 1;
        received[*to as usize] += 1;
    }
    let most = sent.iter().chain(&received).max().copied().unwrap_or(1);
    pairs.len() as f64 / f64::from(most.max(1))
}

/// The flows of a list of messages.
pub(crate) fn flows_of(
    messages: &[Message],
    operation: Operation,
    hosts: u32,
) -> Result<(Vec<Flow>, Dependents), ScenarioError> {
    let refuse = |index: usize, what: &str| {
        Err(ScenarioError(format!(
            "message {index} of the list {what}; hosts are numbered from 0 to {}",
            hosts - 1
        )))
    };
    let mut flows = Vec::with_capacity(messages.len());
    let mut links = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        if message.from >= hosts || message.to >= hosts || message.from == message.to {
            return refuse(
                index,
                "goes from a host to the same, or to one that is not there",
            );
        }
        if message.size_bytes == 0 || f64::from(message.size_bytes) > MESSAGE_MAX_BYTES {
            return refuse(index, "has a size that is not from 1 to 2^31 bytes");
        }
        if message.after.iter().any(|other| *other as usize >= index) {
            return refuse(index, "needs one that does not stand before it");
        }
        if !message.after.is_empty() && operation != Operation::Send {
            return refuse(
                index,
                "needs another to have arrived, which only SEND tells",
            );
        }
        if message.channel.is_some() && operation != Operation::Send {
            return refuse(index, "has a channel, which only SEND has");
        }
        let at = message.at_ns * PS_PER_NS;
        let mut flow = Flow::new(at, message.from, message.to, message.size_bytes);
        flow.needs = message.after.len() as u32;
        flow.follows = flow.needs > 0;
        flow.channel = message.channel;
        links.extend(message.after.iter().map(|before| (*before, index as u32)));
        flows.push(flow);
    }
    Ok((flows, Dependents::of(messages.len(), &links)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [(f64, f64); 3] = [(0.0, 0.0), (1_000.0, 0.5), (9_000.0, 1.0)];

    #[test]
    fn gaps_are_exponential() {
        let mut random = source(1, 1);
        let gaps: Vec<f64> = (0..200_000).map(|_| exponential(&mut random)).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps
            .iter()
            .map(|gap| (gap - mean) * (gap - mean))
            .sum::<f64>()
            / count;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
        // e^-1, e^-2, e^-3.
        for (least, expected) in [(1.0, 0.367_879), (2.0, 0.135_335), (3.0, 0.049_787)] {
            let part = gaps.iter().filter(|gap| **gap > least).count() as f64 / count;
            assert!((part - expected).abs() < 0.004, "{part} above {least}");
        }
    }

    #[test]
    fn sizes_follow_their_distribution() {
        let sizes = Sizes(&STEPS);
        assert_eq!(sizes.check(), Ok(()));
        assert!((sizes.mean_bytes() - 2_750.0).abs() < 1e-9);
        assert_eq!(sizes.quantile_bytes(0.0), 1);
        assert_eq!(sizes.quantile_bytes(0.25), 500);
        assert_eq!(sizes.quantile_bytes(0.5), 1_000);
        assert_eq!(sizes.quantile_bytes(0.75), 5_000);
        assert_eq!(
            Sizes(&[(700.0, 0.0), (700.0, 1.0)]).quantile_bytes(0.3),
            700
        );
    }

    #[test]
    fn a_distribution_that_is_none_is_refused() {
        for wrong in [
            &[][..],
            &[(1.0, 0.0)],
            &[(0.0, 0.0), (10.0, 0.9)],
            &[(10.0, 0.0), (5.0, 1.0)],
            &[(0.0, 0.0), (10.0, 0.6), (20.0, 0.5), (30.0, 1.0)],
            &[(0.0, 0.0), (1e10, 1.0)],
            &[(0.0, 0.0), (0.0, 1.0)],
        ] {
            assert!(Sizes(wrong).check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_load_is_that_of_the_busiest_host() {
        assert!(
            (busiest_share(8, &[]) - 8.0).abs() < 1e-12,
            "all send alike"
        );
        assert!((busiest_share(4, &[(1, 0), (2, 0), (3, 0)]) - 1.0).abs() < 1e-12);
        assert!((busiest_share(4, &[(0, 1), (1, 0)]) - 2.0).abs() < 1e-12);
    }
}
