//! What links do to packets besides carrying them.

use urxe_proto::Instant;
use urxe_wire::{Opcode, Operation, Packet};

use crate::random::Random;

/// Something that happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It arrives up to this much later, so that later ones may overtake it.
    Delay {
        /// Longest extra delay.
        max_ns: u64,
    },
    /// It arrives twice, the second time up to this much later.
    Duplicate {
        /// Longest delay of the copy.
        max_ns: u64,
    },
    /// One to eight of its bits are flipped; its ICRC tells.
    Corrupt,
    /// Its headers are changed, and its ICRC is right for them: what a hostile peer can do.
    Forge,
    /// A switch marks it "congestion experienced".
    MarkEcn,
}

/// Which packets a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All.
    All,
    /// Requests of any operation.
    Requests,
    /// Acknowledgements and responses.
    Responses,
    /// Requests that end a message: after such a one nothing may follow that shows its loss.
    MessageEnds,
    /// One operation.
    Operation(Operation),
}

impl Match {
    fn matches(self, udp_payload: &[u8]) -> bool {
        if self == Self::All {
            return true;
        }
        let Ok(Packet { header, .. }) = Packet::parse(udp_payload) else {
            return false;
        };
        let Opcode::Queue { operation, .. } = header.bth.opcode else {
            return false;
        };
        match self {
            Self::All => true,
            Self::Requests => operation.is_request(),
            Self::Responses => operation.is_response(),
            Self::MessageEnds => operation.is_request() && operation.ends_message(),
            Self::Operation(wanted) => operation == wanted,
        }
    }
}

/// A fault with its conditions. Rules are independent: several may strike the same packet.
#[derive(Clone, Debug)]
pub struct Rule {
    matching: Match,
    fault: Fault,
    chance_ppm: u32,
    skip: u64,
    limit: u64,
    /// How long one strike may last.
    burst_max_ns: u64,
    burst_until: Instant,
    from: Instant,
    until: Option<Instant>,
}

impl Rule {
    /// Strikes matching packets with a probability in parts per million.
    #[must_use]
    pub const fn chance(matching: Match, fault: Fault, chance_ppm: u32) -> Self {
        Self {
            matching,
            fault,
            chance_ppm,
            skip: 0,
            limit: u64::MAX,
            burst_max_ns: 0,
            burst_until: Instant::from_nanos(0),
            from: Instant::from_nanos(0),
            until: None,
        }
    }

    /// Strikes every matching packet.
    #[must_use]
    pub const fn always(matching: Match, fault: Fault) -> Self {
        Self::chance(matching, fault, 1_000_000)
    }

    /// Strikes `count` matching packets, after it has let `skip` pass.
    #[must_use]
    pub const fn nth(matching: Match, fault: Fault, skip: u64, count: u64) -> Self {
        Self {
            skip,
            limit: count,
            ..Self::always(matching, fault)
        }
    }

    /// Each time it strikes, it also strikes what matches in the time after, up to `max_ns` long.
    #[must_use]
    pub const fn in_bursts(mut self, max_ns: u64) -> Self {
        self.burst_max_ns = max_ns;
        self
    }

    /// Strikes nothing that is sent before `from`, or at `until` or later.
    #[must_use]
    pub const fn between(mut self, from: Instant, until: Instant) -> Self {
        self.from = from;
        self.until = Some(until);
        self
    }

    fn strikes(&mut self, now: Instant, udp_payload: &[u8], random: &mut Random) -> bool {
        let is_time = now >= self.from && self.until.is_none_or(|until| now < until);
        if !is_time || self.limit == 0 || !self.matching.matches(udp_payload) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let in_burst = now < self.burst_until;
        let strikes = in_burst || random.chance(self.chance_ppm);
        if strikes && !in_burst && self.burst_max_ns > 0 {
            self.burst_until = now.after(random.below(self.burst_max_ns + 1));
        }
        self.limit -= u64::from(strikes);
        strikes
    }
}

/// What the rules of a link decided about one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) dropped: bool,
    pub(crate) delay_ns: u64,
    pub(crate) duplicate_after_ns: Option<u64>,
    pub(crate) corrupted: bool,
    pub(crate) forged: bool,
    pub(crate) marked: bool,
}

pub(crate) fn decide(
    rules: &mut [Rule],
    now: Instant,
    udp_payload: &[u8],
    random: &mut Random,
) -> Fate {
    let mut fate = Fate::default();
    for rule in rules {
        if !rule.strikes(now, udp_payload, random) {
            continue;
        }
        match rule.fault {
            Fault::Drop => fate.dropped = true,
            Fault::Delay { max_ns } => fate.delay_ns += random.below(max_ns + 1),
            Fault::Duplicate { max_ns } => {
                fate.duplicate_after_ns = Some(random.below(max_ns + 1));
            }
            Fault::Corrupt => fate.corrupted = true,
            Fault::Forge => fate.forged = true,
            Fault::MarkEcn => fate.marked = true,
        }
    }
    fate
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn strikes(rule: &mut Rule, packets: usize) -> usize {
        let mut random = Random::new(1);
        (0..packets)
            .filter(|_| rule.strikes(Instant::default(), &[], &mut random))
            .count()
    }

    #[test]
    fn nth_skips_and_then_strikes_so_often() {
        let mut rule = Rule::nth(Match::All, Fault::Drop, 3, 2);
        assert_eq!(strikes(&mut rule, 3), 0);
        assert_eq!(strikes(&mut rule, 10), 2);
    }

    #[test]
    fn chance_is_a_share() {
        let struck = strikes(&mut Rule::chance(Match::All, Fault::Drop, 50_000), 100_000);
        assert!((4_500..5_500).contains(&struck), "{struck}");
    }

    #[test]
    fn what_does_not_parse_is_neither_request_nor_response() {
        assert_eq!(
            strikes(&mut Rule::always(Match::Requests, Fault::Drop), 5),
            0
        );
        assert_eq!(strikes(&mut Rule::always(Match::All, Fault::Drop), 5), 5);
    }

    #[test]
    fn a_burst_takes_packets_in_a_row() {
        let mut random = Random::new(1);
        let mut rule = Rule::chance(Match::All, Fault::Drop, 10_000).in_bursts(80);
        // One packet every 10 ns: one and up to eight more.
        let struck: Vec<_> = (0..100_000)
            .map(|at| rule.strikes(Instant::from_nanos(10 * at), &[], &mut random))
            .collect();
        let share = struck.iter().filter(|struck| **struck).count();
        let starts = struck.windows(2).filter(|pair| pair == &[false, true]);
        let starts = starts.count();
        assert!((850..1_150).contains(&starts), "{starts} bursts");
        assert!((4..6).contains(&(share / starts)), "{share} in {starts}");
    }

    #[test]
    fn a_rule_keeps_to_its_time() {
        let at = Instant::from_nanos;
        let mut rule = Rule::always(Match::All, Fault::Drop).between(at(10), at(20));
        let mut random = Random::new(1);
        let times = [9, 10, 19, 20];
        let struck = times.map(|now| rule.strikes(at(now), &[], &mut random));
        assert_eq!(struck, [false, true, true, false]);
    }
}
