//! Congestion control: what the environment says of it, and the ECN field of packets.

use std::str::FromStr;
use std::sync::Arc;

use urxe_congestion::{DcqcnParameters, FirstRate};
use urxe_proto::NotifiedControl;

use crate::attach::impair::Delay;

/// The environment variable that turns congestion control off or sets it; [`CongestionControl`] has
/// its form.
pub const DCQCN_VARIABLE: &str = "URXE_DCQCN";

/// The ECN field of the type of service, its value of a sender that reacts to marks, "ECT(0)", and
/// the mark, "congestion experienced" (RFC 3168, 5).
const ECN_MASK: u8 = 0b11;
const ECN_CAPABLE: u8 = 0b10;
const ECN_CONGESTION_EXPERIENCED: u8 = 0b11;

/// How a device controls congestion. As text: `off`, or parameters of DCQCN as
/// `line_rate=100Gbps,min_rate=1Mbps,gain=256,alpha_interval=55us,cut_interval=50us,raise_interval=300us,raise_bytes=10000000,`
/// `fast_recovery=5,additive_step=5Mbps,hyper_step=50Mbps,cnp_interval=50us,slack=100us`, each once
/// at most and in any order; those that are not there have these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionControl {
    /// The parameters; `None` is no congestion control.
    pub dcqcn: Option<DcqcnParameters>,
}

/// What suits a sender in software, which cannot send each packet at its time, and a receiver for
/// which a CNP costs as much as any other packet.
const DEFAULT: DcqcnParameters = DcqcnParameters {
    line_rate_bps: 100_000_000_000,
    min_rate_bps: 1_000_000,
    first_rate: FirstRate::Measured,
    gain_divisor: 256,
    alpha_interval_ns: 55_000,
    cut_interval_ns: 50_000,
    raise_interval_ns: 300_000,
    raise_bytes: 10_000_000,
    fast_recovery_raises: 5,
    additive_step_bps: 5_000_000,
    hyper_step_bps: 50_000_000,
    clamps_target: true,
    cnp_interval_ns: 50_000,
    pacing_slack_ns: 100_000,
};

impl Default for CongestionControl {
    fn default() -> Self {
        Self {
            dcqcn: Some(DEFAULT),
        }
    }
}

impl CongestionControl {
    /// What queue pairs do about notifications.
    pub(crate) fn reaction(&self) -> Option<Arc<dyn NotifiedControl>> {
        Some(Arc::new(self.dcqcn?))
    }

    /// What packets carry in their ECN field.
    pub(crate) const fn ecn(&self) -> u8 {
        if self.dcqcn.is_some() { ECN_CAPABLE } else { 0 }
    }
}

/// The type of service `tos` with the ECN field `ecn`, unless the program set that.
pub(crate) const fn with_ecn(tos: u8, ecn: u8) -> u8 {
    if tos & ECN_MASK == 0 { tos | ecn } else { tos }
}

/// Whether a switch marked the packet.
pub(crate) const fn is_marked(tos: u8) -> bool {
    tos & ECN_MASK == ECN_CONGESTION_EXPERIENCED
}

/// Bits per second, as `40Mbps` or `2.5Gbps`.
fn rate_bps(text: &str) -> Result<u64, String> {
    const EXAMPLE: &str = "write it as 40Mbps or 2.5Gbps";
    let text = text.trim();
    let (number, unit) = [("Mbps", 1e6), ("Gbps", 1e9)]
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .ok_or_else(|| format!("'{text}' has no unit: {EXAMPLE}"))?;
    let number: f64 = number
        .trim()
        .parse()
        .map_err(|_| format!("'{text}' is not a rate: {EXAMPLE}"))?;
    let bps = (number * unit).round();
    if !(1e6..=1e12).contains(&bps) {
        return Err(format!("'{text}' is not between 1Mbps and 1000Gbps"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from a million to 10^12"
    )]
    Ok(bps as u64)
}

fn time_ns(text: &str) -> Result<u64, String> {
    Ok(text.parse::<Delay>()?.as_nanos())
}

/// A number that is not 0.
fn count<T: FromStr + PartialEq + From<u8>>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|count| *count != T::from(0))
        .ok_or_else(|| format!("'{text}' is not a number from 1 on"))
}

impl FromStr for CongestionControl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "off" {
            return Ok(Self { dcqcn: None });
        }
        let mut dcqcn = DEFAULT;
        let mut seen = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                format!("'{part}' has no value: write off, or parameters as min_rate=10Mbps")
            })?;
            let name = name.trim();
            set(&mut dcqcn, name, value).map_err(|why| format!("{name}: {why}"))?;
            if seen.contains(&name) {
                return Err(format!("{name} is there twice"));
            }
            seen.push(name);
        }
        if dcqcn.min_rate_bps > dcqcn.line_rate_bps {
            return Err("min_rate is above line_rate".into());
        }
        Ok(Self { dcqcn: Some(dcqcn) })
    }
}

fn set(dcqcn: &mut DcqcnParameters, name: &str, value: &str) -> Result<(), String> {
    match name {
        "line_rate" => dcqcn.line_rate_bps = rate_bps(value)?,
        "min_rate" => dcqcn.min_rate_bps = rate_bps(value)?,
        "gain" => dcqcn.gain_divisor = count(value)?,
        "alpha_interval" => dcqcn.alpha_interval_ns = time_ns(value)?,
        "cut_interval" => dcqcn.cut_interval_ns = time_ns(value)?,
        "raise_interval" => dcqcn.raise_interval_ns = time_ns(value)?,
        "raise_bytes" => dcqcn.raise_bytes = count(value)?,
        "fast_recovery" => dcqcn.fast_recovery_raises = count(value)?,
        "additive_step" => dcqcn.additive_step_bps = rate_bps(value)?,
        "hyper_step" => dcqcn.hyper_step_bps = rate_bps(value)?,
        "cnp_interval" => dcqcn.cnp_interval_ns = time_ns(value)?,
        "slack" => dcqcn.pacing_slack_ns = time_ns(value)?,
        _ => {
            return Err(
                "there is no such parameter; there are line_rate, min_rate, gain, \
                        alpha_interval, cut_interval, raise_interval, raise_bytes, fast_recovery, \
                        additive_step, hyper_step, cnp_interval and slack"
                    .into(),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_counts_and_the_rest_stays() {
        let wanted: CongestionControl = "min_rate=2.5Gbps, cnp_interval=4us,fast_recovery=1"
            .parse()
            .unwrap();
        let expected = DcqcnParameters {
            min_rate_bps: 2_500_000_000,
            cnp_interval_ns: 4_000,
            fast_recovery_raises: 1,
            ..DEFAULT
        };
        assert_eq!(wanted.dcqcn, Some(expected));
        assert_eq!("".parse(), Ok(CongestionControl::default()));
        assert_eq!("off".parse(), Ok(CongestionControl { dcqcn: None }));
    }

    #[test]
    fn the_documented_text_is_the_default() {
        let text = "line_rate=100Gbps,min_rate=1Mbps,gain=256,alpha_interval=55us,cut_interval=50us,\
                    raise_interval=300us,raise_bytes=10000000,fast_recovery=5,additive_step=5Mbps,\
                    hyper_step=50Mbps,cnp_interval=50us,slack=100us";
        assert_eq!(text.parse(), Ok(CongestionControl::default()));
        let documented = include_str!("congestion.rs").replace("`\n/// `", "");
        assert!(documented.contains(&text.replace(' ', "")));
    }

    #[test]
    fn errors_say_what_is_allowed() {
        for (text, expected) in [
            (
                "on",
                "'on' has no value: write off, or parameters as min_rate=10Mbps",
            ),
            (
                "min_rate=1",
                "min_rate: '1' has no unit: write it as 40Mbps or 2.5Gbps",
            ),
            (
                "min_rate=1Kbps",
                "min_rate: '1Kbps' has no unit: write it as 40Mbps or 2.5Gbps",
            ),
            (
                "min_rate=0Mbps",
                "min_rate: '0Mbps' is not between 1Mbps and 1000Gbps",
            ),
            ("gain=0", "gain: '0' is not a number from 1 on"),
            ("gain=1,gain=2", "gain is there twice"),
            (
                "slack=1",
                "slack: '1' has no unit: write it as 100us, 1.5ms or 2s",
            ),
            (
                "min_rate=2Gbps,line_rate=1Gbps",
                "min_rate is above line_rate",
            ),
        ] {
            assert_eq!(text.parse::<CongestionControl>(), Err(expected.into()));
        }
        let unknown = "rate=1Mbps".parse::<CongestionControl>().unwrap_err();
        assert!(unknown.starts_with("rate: there is no such parameter; there are line_rate,"));
    }

    #[test]
    fn the_program_decides_about_the_ecn_field_if_it_sets_it() {
        assert_eq!(with_ecn(0xb8, ECN_CAPABLE), 0xba);
        assert_eq!(with_ecn(0xb9, ECN_CAPABLE), 0xb9);
        assert_eq!(with_ecn(0xb8, 0), 0xb8);
        assert!(is_marked(0xbb) && !is_marked(0xba));
    }
}
