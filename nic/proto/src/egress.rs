//! The shape of the way out, which the caller knows.

/// How much the caller sends on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Bytes that may be in flight to the peer at most: what its receive buffer takes.
    pub window_bytes: u32,
    /// Packets of one length that leave together, for hardly more than the price of one; a shorter
    /// one may be behind them. 1 where each leaves alone.
    pub batch_packets: u32,
}

impl Default for Egress {
    /// Half a megabyte, and each packet alone.
    fn default() -> Self {
        Self {
            window_bytes: 512 << 10,
            batch_packets: 1,
        }
    }
}
