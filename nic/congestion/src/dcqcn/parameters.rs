//! What can be set.

/// Where a reaction point starts from when the first CNP comes, before it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRate {
    /// The line rate, as hardware.
    Line,
    /// What the queue pair sends at, by its window and its round trip, if those are known and less
    /// than the line rate. For a sender in software, whose interface may name any line rate.
    Measured,
}

/// The parameters of DCQCN. [`Self::default`] has those that ConnectX adapters have; names in
/// parentheses are those of their drivers (NVIDIA, "DCQCN CC Parameters").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnParameters {
    /// Rate of the port, bits per second. No reaction point goes above.
    pub line_rate_bps: u64,
    /// Least rate of a queue pair, bits per second (`rpg_min_rate`).
    pub min_rate_bps: u64,
    /// Where a reaction point starts from (`rate_to_set_on_first_cnp`).
    pub first_rate: FirstRate,
    /// 1/g: how many alpha intervals the congestion estimate looks back on (`dce_tcp_g`).
    pub gain_divisor: u32,
    /// Time between two updates of alpha, nanoseconds (`dce_tcp_rtt`).
    pub alpha_interval_ns: u64,
    /// Least time between two cuts, nanoseconds (`rate_reduce_monitor_period`).
    pub cut_interval_ns: u64,
    /// Time between two raises, nanoseconds (`rpg_time_reset`).
    pub raise_interval_ns: u64,
    /// Bytes sent between two raises (`rpg_byte_reset`). Both count, each by itself.
    pub raise_bytes: u64,
    /// Raises of either kind that only go halfway back, F (`rpg_threshold`).
    pub fast_recovery_raises: u32,
    /// Step of the target rate afterwards, bits per second (`rpg_ai_rate`).
    pub additive_step_bps: u64,
    /// Step of the target rate once raises of both kinds are more than F, bits per second
    /// (`rpg_hai_rate`). The i-th is i times as large.
    pub hyper_step_bps: u64,
    /// Whether every cut makes the rate before it the one to return to. Else a cut that follows
    /// another, with no raise between them, leaves that alone (`clamp_tgt_rate`), so that a burst
    /// of CNPs is recovered from as one.
    pub clamps_target: bool,
    /// Least time between two CNPs that a queue pair sends, nanoseconds (`min_time_between_cnps`).
    pub cnp_interval_ns: u64,
    /// How much a paced queue pair may be behind its schedule and catch up at once, nanoseconds;
    /// also, for how long it waits until it sends that much in one go. 0 sends each packet at its
    /// time, as hardware; a sender in software, which pays for each wake-up, wants a batch.
    pub pacing_slack_ns: u64,
}

impl Default for DcqcnParameters {
    fn default() -> Self {
        Self {
            line_rate_bps: 100_000_000_000,
            min_rate_bps: 1_000_000,
            first_rate: FirstRate::Line,
            // 1019 of 1024 are kept, which is 1 - 1/204.8.
            gain_divisor: 205,
            alpha_interval_ns: 1_000,
            cut_interval_ns: 4_000,
            raise_interval_ns: 300_000,
            raise_bytes: 32_767_000,
            fast_recovery_raises: 1,
            additive_step_bps: 5_000_000,
            hyper_step_bps: 50_000_000,
            clamps_target: false,
            cnp_interval_ns: 4_000,
            pacing_slack_ns: 0,
        }
    }
}
