//! What an opened device counts.

/// Counters of an opened device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names say it: packets, bytes and batches (system calls)"
)]
pub struct DeviceStats {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_batches: u64,
    /// Packets that the kernel refused.
    pub tx_dropped: u64,
    /// Times that the send buffer was full.
    pub tx_blocked: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_batches: u64,
    /// Receives that failed.
    pub rx_errors: u64,
    /// Packets that are not RoCEv2.
    pub rx_malformed: u64,
    /// Packets for a queue pair that does not exist.
    pub rx_unknown_qp: u64,
    /// Packets that did not come from the queue pair's peer, or for one that is not connected.
    pub rx_wrong_source: u64,
    /// Packets with a wrong ICRC.
    pub rx_icrc_errors: u64,
    /// Packets that a switch marked "congestion experienced".
    pub rx_ecn_marked: u64,
}
