//! Which congestion control adapters have, and what each needs of packets and switches.

use alloc::boxed::Box;
use alloc::sync::Arc;

use serde::Deserialize;
use urxe_congestion::{
    DcqcnParameters, Dctcp, DctcpParameters, Hpcc, HpccParameters, Path, Swift, SwiftParameters,
    Timely, TimelyParameters,
};
use urxe_proto::{CongestionControl, QueuePair};

/// In-band telemetry of HPCC: 2 bytes with the number of hops, and 8 for each of at most five
/// (section 4.1 of its paper). All of it is reserved when a packet is made, as in HPCC's public
/// simulator, and comes back in the acknowledgement as it is.
const TELEMETRY_BYTES: u32 = 2 + 5 * 8;
/// How long a packet was in the peer, which the acknowledgement tells.
const REMOTE_DELAY_BYTES: u32 = 4;
/// How many packets came and were marked, which the acknowledgement tells.
const MARKS_BYTES: u32 = 4;

/// Congestion control of every adapter, and its parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "algorithm", rename_all = "lowercase")]
pub enum CongestionConfig {
    /// What adapters have: notifications of marks.
    Dcqcn(Dcqcn),
    /// The load of every link of the way.
    Hpcc(HpccParameters),
    /// Round trips and their gradient.
    Timely(TimelyParameters),
    /// Round trips and a target.
    Swift(SwiftParameters),
    /// How many packets of a window were marked.
    Dctcp(DctcpParameters),
}

/// What congestion control needs of packets, beside marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// What each packet of data is longer by.
    pub(crate) data_bytes: u32,
    /// What each acknowledgement is longer by.
    pub(crate) acknowledgement_bytes: u32,
    /// Whether switches write into packets.
    pub(crate) has_telemetry: bool,
}

impl CongestionConfig {
    /// What cannot be in it, for a person.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match self {
            Self::Dcqcn(_) => None,
            Self::Hpcc(parameters) => parameters.problem(),
            Self::Timely(parameters) => parameters.problem(),
            Self::Swift(parameters) => parameters.problem(),
            Self::Dctcp(parameters) => parameters.problem(),
        }
    }

    /// What it is called in a scenario.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Dcqcn(_) => "dcqcn",
            Self::Hpcc(_) => "hpcc",
            Self::Timely(_) => "timely",
            Self::Swift(_) => "swift",
            Self::Dctcp(_) => "dctcp",
        }
    }

    /// What it needs acknowledgements to bring back; `None`: nothing.
    pub(crate) const fn needs(&self) -> Option<Needs> {
        let (data_bytes, acknowledgement_bytes) = match self {
            Self::Dcqcn(_) => return None,
            Self::Hpcc(_) => (TELEMETRY_BYTES, TELEMETRY_BYTES),
            // The adapter notes when it sent which packet.
            Self::Timely(_) => (0, 0),
            Self::Swift(_) => (0, REMOTE_DELAY_BYTES),
            Self::Dctcp(_) => (0, MARKS_BYTES),
        };
        Some(Needs {
            data_bytes,
            acknowledgement_bytes,
            has_telemetry: matches!(self, Self::Hpcc(_)),
        })
    }

    /// Sets the congestion control of a queue pair that is ready to send.
    pub(crate) fn give_to(self, qp: &mut QueuePair, path: Path) {
        let control: Box<dyn CongestionControl> = match self {
            Self::Dcqcn(dcqcn) => {
                let parameters = dcqcn.parameters(path.line_rate_bps);
                qp.set_notified_control(Some(Arc::new(parameters)));
                return;
            }
            Self::Hpcc(parameters) => Box::new(Hpcc::new(parameters, path)),
            Self::Timely(parameters) => Box::new(Timely::new(parameters, path)),
            Self::Swift(parameters) => Box::new(Swift::new(parameters, path)),
            Self::Dctcp(parameters) => Box::new(Dctcp::new(parameters, path)),
        };
        qp.set_congestion_control(control);
    }
}

/// Parameters of DCQCN; see [`DcqcnParameters`], whose defaults hold for what is not here. A burst
/// of notifications does not lower the rate to return to, as adapters have it by default
/// (`clamp_tgt_rate`).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dcqcn {
    /// Time between two raises.
    pub raise_interval_ns: u64,
    /// Bytes between two raises.
    pub raise_bytes: u64,
    /// Additive step, 10^6 bit/s.
    pub additive_step_mbps: u64,
    /// Hyper step, 10^6 bit/s.
    pub hyper_step_mbps: u64,
    /// Least rate, 10^6 bit/s.
    pub min_rate_mbps: u64,
    /// Least time between two notifications of a queue pair.
    pub cnp_interval_ns: u64,
    /// Least time between two cuts.
    pub cut_interval_ns: u64,
    /// Time between two updates of alpha.
    pub alpha_interval_ns: u64,
    /// 1/g: how many of these alpha looks back on.
    pub gain_divisor: u32,
    /// Raises that only go halfway back, F.
    pub fast_recovery_raises: u32,
}

impl Dcqcn {
    /// For a port of this rate.
    fn parameters(&self, line_rate_bps: u64) -> DcqcnParameters {
        DcqcnParameters {
            line_rate_bps,
            min_rate_bps: self.min_rate_mbps * 1_000_000,
            raise_interval_ns: self.raise_interval_ns,
            raise_bytes: self.raise_bytes,
            additive_step_bps: self.additive_step_mbps * 1_000_000,
            hyper_step_bps: self.hyper_step_mbps * 1_000_000,
            cnp_interval_ns: self.cnp_interval_ns,
            cut_interval_ns: self.cut_interval_ns,
            alpha_interval_ns: self.alpha_interval_ns,
            gain_divisor: self.gain_divisor,
            fast_recovery_raises: self.fast_recovery_raises,
            ..DcqcnParameters::default()
        }
    }
}
