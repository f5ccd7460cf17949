//! Every number of the iWARP state machines: its unit, what it means, where it comes
//! from, and how to measure it again. "Chosen" says that nothing derives it. What the formats of
//! the RFCs fix stands with them.
//!
//! Commands are to be run by `urxe run --transport iwarp --` on two nodes of an emulated fabric,
//! interleaved with the value of today.

/// Payload of up to so many is copied to behind its header.
///
/// Unit: bytes. Source: To gather it costs as much. To measure it again: `ib_send_bw -R -s 1024`
/// with half and twice the value: instructions.
pub(crate) const COPIED_BYTES: usize = 1024;

/// What the default of `StreamMemory` copies at a time for a CRC.
///
/// Unit: bytes. Source: Chosen, for the stack. To measure it again: a bench of the simulator;
/// devices have a CRC of their own.
pub(crate) const CHECKSUM_BYTES: usize = 2048;

/// Longest message.
///
/// Unit: bytes. Source: That of a queue pair over RoCE. To measure it again: it is a choice.
pub(crate) const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// Time for the peer to take the last output, and then to close its direction after this end closed
/// its own.
///
/// Unit: ns. Source: Chosen. To measure it again: `nic/iwarp/tests/endings.rs` says what it bounds.
pub const CLOSE_TIMEOUT_NS: u64 = 2_000_000_000;

/// What first frames name. They reach no memory.
///
/// Unit: key. Source: Linux siw has this number, too, and devices of Chelsio end the connection at
/// 0. To measure it again: `make interop`.
pub(crate) const RTR_STAG: u32 = 1;

/// How long a message waits for the receive request that it takes, at most. TCP lets the peer wait
/// meanwhile.
///
/// Unit: ns. Source: Chosen: a program that was kept from its processor is mostly back by then. To
/// measure it again: `nic/iwarp/tests/stalls.rs` says what it bounds.
pub const RECEIVE_TIMEOUT_NS: u64 = 2_000_000_000;

/// Time from the beginning until the peer's frame is complete.
///
/// Unit: ns. Source: RFC 5044, 7.1.2, leaves it to the implementation; Linux siw has 10 s, too. To
/// measure it again: `nic/iwarp/tests/setup.rs` says what it bounds.
pub const SETUP_TIMEOUT_NS: u64 = 10_000_000_000;

/// The same of a reply: the program at the other end may take its time to accept.
///
/// Unit: ns. Source: what connections of RoCE wait, 16 times 4.3 s (`CMA_CM_RESPONSE_TIMEOUT` 20
/// and `CMA_MAX_CM_RETRIES` 15 of Linux). To measure it again: `nic/iwarp/tests/setup.rs`.
pub const REPLY_TIMEOUT_NS: u64 = 68_720_000_000;

/// Most private data that is sent; of an enhanced frame, IRD and ORD included.
///
/// Unit: bytes. Source: RFC 5044 allows 512, which are taken; Linux peers take no more than this
/// (`RDMA_MAX_PRIVATE_DATA` of siw, and cxgb4). To measure it again: `make interop`.
pub const MAX_SENT_PRIVATE_DATA_LEN: usize = 256;
