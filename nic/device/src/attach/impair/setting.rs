//! How bad a network is, as text says it, and what it did.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A share of packets, in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    pub(super) ppm: u32,
}

impl Share {
    pub(super) const ALL_PPM: u32 = 1_000_000;

    /// The share as a number from 0 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.ppm) / f64::from(Self::ALL_PPM)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write it as 1% or 0.05%";
        let number = text
            .trim()
            .strip_suffix('%')
            .ok_or_else(|| format!("'{text}' has no percent sign: {EXAMPLE}"))?;
        let percent: f64 = number
            .trim()
            .parse()
            .map_err(|_| format!("'{text}' is not a percentage: {EXAMPLE}"))?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(format!("'{text}' is not between 0% and 100%"));
        }
        let ppm = (percent * f64::from(Self::ALL_PPM) / 100.0).round();
        if percent > 0.0 && ppm < 1.0 {
            return Err(format!(
                "'{text}' is less than one packet in a million, the smallest share: 0.0001%"
            ));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to a million"
        )]
        Ok(Self { ppm: ppm as u32 })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.ppm) / 10_000.0)
    }
}

/// A time, as `10us`, `1.5ms` or `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay {
    ns: u64,
}

impl Delay {
    const MAX_NS: u64 = 10_000_000_000;

    /// The time in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write it as 100us, 1.5ms or 2s";
        let trimmed = text.trim();
        let (number, unit_ns) = [("us", 1e3), ("ms", 1e6), ("s", 1e9)]
            .iter()
            .find_map(|(unit, ns)| Some((trimmed.strip_suffix(unit)?, *ns)))
            .ok_or_else(|| format!("'{text}' has no unit: {EXAMPLE}"))?;
        let number: f64 = number
            .trim()
            .parse()
            .map_err(|_| format!("'{text}' is not a time: {EXAMPLE}"))?;
        let ns = (number * unit_ns).round();
        if !(0.0..=Self::MAX_NS as f64).contains(&ns) {
            return Err(format!("'{text}' is not between 0s and 10s"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to ten billion"
        )]
        Ok(Self { ns: ns as u64 })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.ns as f64 / 1e3)
    }
}

/// How bad the network is. As text:
/// `loss=1%,duplicate=0.1%,reorder=0.5%,corrupt=0.1%,delay=1ms,seed=7`, each part once at most and
/// in any order; no text is a good network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Packets that vanish.
    pub loss: Share,
    /// Packets that arrive twice.
    pub duplicate: Share,
    /// Packets that one to three later ones overtake, or that are a millisecond late where none
    /// follow.
    pub reorder: Share,
    /// Packets in which one to eight bits are wrong, so that the ICRC is.
    pub corrupt: Share,
    /// How late every packet is.
    pub delay: Delay,
    /// What decides which packets.
    pub seed: u64,
}

impl Impairment {
    /// Whether packets that it strikes never arrive, or are refused where they do.
    #[must_use]
    pub const fn loses_packets(&self) -> bool {
        self.loss.ppm > 0 || self.corrupt.ppm > 0
    }

    /// Whether it does nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let Self {
            loss,
            duplicate,
            reorder,
            corrupt,
            delay,
            seed: _,
        } = self;
        [loss, duplicate, reorder, corrupt]
            .iter()
            .all(|share| share.ppm == 0)
            && delay.ns == 0
    }
}

impl FromStr for Impairment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut impairment = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' has no value: write it as loss=1%"))?;
            let name = name.trim();
            let share = match name {
                "loss" => &mut impairment.loss,
                "duplicate" => &mut impairment.duplicate,
                "reorder" => &mut impairment.reorder,
                "corrupt" => &mut impairment.corrupt,
                "delay" | "seed" => &mut Share::default(),
                _ => {
                    return Err(format!(
                        "'{name}' is unknown; there are loss, duplicate, reorder, corrupt, delay and seed"
                    ));
                }
            };
            match name {
                "delay" => {
                    impairment.delay = value.parse().map_err(|why| format!("{name}: {why}"))?
                }
                "seed" => {
                    impairment.seed = value
                        .trim()
                        .parse()
                        .map_err(|_| format!("seed: '{value}' is not a number from 0 to 2^64-1"))?;
                }
                _ => *share = value.parse().map_err(|why| format!("{name}: {why}"))?,
            }
            if seen.contains(&name) {
                return Err(format!("{name} is there twice"));
            }
            seen.push(name);
        }
        Ok(impairment)
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            loss,
            duplicate,
            reorder,
            corrupt,
            delay,
            seed,
        } = self;
        write!(
            f,
            "loss={loss},duplicate={duplicate},reorder={reorder},corrupt={corrupt},delay={delay},seed={seed}"
        )
    }
}

/// What the bad network did, in packets.
#[derive(Debug, Default)]
pub(crate) struct ImpairCounters {
    pub(super) lost: AtomicU64,
    pub(super) duplicated: AtomicU64,
    pub(super) reordered: AtomicU64,
    pub(super) corrupted: AtomicU64,
    pub(super) delayed: AtomicU64,
}

impl ImpairCounters {
    /// Every counter with its name.
    pub(crate) fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("impaired_lost", &self.lost),
            ("impaired_duplicated", &self.duplicated),
            ("impaired_reordered", &self.reordered),
            ("impaired_corrupted", &self.corrupted),
            ("impaired_delayed", &self.delayed),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_and_written() {
        for (text, ppm) in [
            ("1%", 10_000),
            ("0.1%", 1_000),
            ("0.0001%", 1),
            ("100%", 1_000_000),
            ("0%", 0),
        ] {
            let share: Share = text.parse().unwrap();
            assert_eq!(share, Share { ppm }, "{text}");
            assert_eq!(share.to_string(), text);
        }
    }

    #[test]
    fn bad_percentages_are_explained() {
        for (text, part) in [
            ("1", "no percent sign"),
            ("x%", "not a percentage"),
            ("101%", "between 0% and 100%"),
            ("-1%", "between 0% and 100%"),
            ("NaN%", "between 0% and 100%"),
            ("0.00001%", "one packet in a million"),
        ] {
            let why = text.parse::<Share>().unwrap_err();
            assert!(why.contains(part) && why.contains(text), "{text}: {why}");
        }
    }

    #[test]
    fn delays_have_units() {
        for (text, ns) in [
            ("100us", 100_000),
            ("1.5ms", 1_500_000),
            ("2s", 2_000_000_000),
        ] {
            assert_eq!(text.parse::<Delay>().unwrap().as_nanos(), ns, "{text}");
        }
        for text in ["1", "ms", "-1ms", "11s", "1h"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_impairment_is_its_text() {
        let text = "loss=1%, duplicate=0.1%,reorder=0.5%,corrupt=0.2%,delay=1ms,seed=7";
        let impairment: Impairment = text.parse().unwrap();
        assert_eq!(impairment.delay.as_nanos(), 1_000_000);
        assert_eq!(impairment.to_string().parse(), Ok(impairment));
        assert!("".parse::<Impairment>().unwrap().is_none());
        assert!("seed=7".parse::<Impairment>().unwrap().is_none());
        assert!(!impairment.is_none());
    }

    #[test]
    fn what_is_wrong_with_an_impairment_is_said() {
        for (text, part) in [
            ("loss", "no value"),
            ("los=1%", "'los' is unknown"),
            ("loss=2", "loss: '2' has no percent sign"),
            ("delay=5", "delay: '5' has no unit"),
            ("seed=x", "seed: 'x'"),
            ("loss=1%,loss=2%", "loss is there twice"),
        ] {
            let why = text.parse::<Impairment>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
