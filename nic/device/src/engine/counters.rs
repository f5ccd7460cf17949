//! Counters by their names.

use urxe_iwarp::Stats;
use urxe_proto::QpStats;

use crate::engine::stats::DeviceStats;

/// A counter and its name.
pub(crate) type Named = (&'static str, u64);

/// The counters of a device by name. Names are those of rdma-core's hw_counters, as mlx5 documents
/// them, where those have one.
pub(crate) fn device_counters(stats: &DeviceStats) -> [Named; 14] {
    [
        ("tx_packets", stats.tx_packets),
        ("tx_bytes", stats.tx_bytes),
        ("tx_batches", stats.tx_batches),
        ("tx_dropped", stats.tx_dropped),
        ("tx_blocked", stats.tx_blocked),
        ("rx_packets", stats.rx_packets),
        ("rx_bytes", stats.rx_bytes),
        ("rx_batches", stats.rx_batches),
        ("rx_errors", stats.rx_errors),
        ("rx_malformed", stats.rx_malformed),
        ("rx_unknown_qp", stats.rx_unknown_qp),
        ("rx_wrong_source", stats.rx_wrong_source),
        ("rx_icrc_encapsulated", stats.rx_icrc_errors),
        ("np_ecn_marked_roce_packets", stats.rx_ecn_marked),
    ]
}

/// How many counters of a queue pair also count for its device.
pub(crate) const TRANSPORT_COUNTERS: usize = 15;

/// These counters.
pub(crate) fn transport_counters(stats: &QpStats) -> [Named; TRANSPORT_COUNTERS] {
    [
        ("duplicate_request", stats.duplicate_request),
        ("out_of_sequence", stats.out_of_sequence),
        ("packet_seq_err", stats.packet_seq_err),
        ("implied_nak_seq_err", stats.implied_nak_seq_err),
        ("local_ack_timeout_err", stats.local_ack_timeout_err),
        ("rnr_nak_retry_err", stats.rnr_nak_received),
        ("out_of_buffer", stats.rnr_nak_sent + stats.out_of_buffer),
        ("bad_qkey", stats.bad_qkey),
        ("too_long", stats.too_long),
        ("early_retransmissions", stats.probes),
        ("ignored_responses", stats.ignored_responses),
        ("qp_dropped", stats.dropped),
        ("rp_cnp_handled", stats.cnp_handled),
        ("rp_cnp_ignored", stats.cnp_ignored),
        ("np_cnp_sent", stats.cnp_sent),
    ]
}

/// The counters of a queue pair of an iWARP device, which also count for that.
pub(crate) const fn stream_counters(stats: &Stats) -> [Named; 9] {
    [
        ("tx_fpdus", stats.fpdus_sent),
        ("rx_fpdus", stats.fpdus_received),
        ("rx_placed_bytes", stats.bytes_placed),
        ("rx_copied_bytes", stats.bytes_copied),
        ("rx_ignored_bytes", stats.bytes_ignored),
        ("rx_fpdu_crc_errors", stats.crc_errors),
        ("tx_terminates", stats.terminates_sent),
        ("rx_terminates", stats.terminates_received),
        ("rx_without_receive", stats.no_receive),
    ]
}

/// The counters of queue pairs that were destroyed.
#[derive(Debug)]
pub(crate) struct Departed(pub(crate) [Named; TRANSPORT_COUNTERS]);

impl Default for Departed {
    fn default() -> Self {
        Self(transport_counters(&QpStats::default()))
    }
}

impl Departed {
    pub(crate) fn add(&mut self, stats: &QpStats) {
        for ((_, sum), (_, value)) in self.0.iter_mut().zip(transport_counters(stats)) {
            *sum += value;
        }
    }
}
