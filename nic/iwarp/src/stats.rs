//! Counters of a queue pair.

/// Counters of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// FPDUs that were sent as a whole or in part.
    pub fpdus_sent: u64,
    /// FPDUs that were received as a whole.
    pub fpdus_received: u64,
    /// Bytes of payload that were received and copied to where they go.
    pub bytes_copied: u64,
    /// Bytes of payload that were read from the stream to where they go.
    pub bytes_placed: u64,
    /// FPDUs with a wrong CRC.
    pub crc_errors: u64,
    /// TERMINATE messages sent.
    pub terminates_sent: u64,
    /// TERMINATE messages received.
    pub terminates_received: u64,
    /// Messages that came before a receive was posted for them.
    pub no_receive: u64,
    /// Bytes that came after the connection had failed.
    pub bytes_ignored: u64,
}
