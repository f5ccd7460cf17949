//! Every number of the connections of iWARP devices: its unit, what it means, where it comes
//! from, and how to measure it again. "Chosen" says that nothing derives it. What the formats of
//! the RFCs fix stands with them.
//!
//! Commands are to be run by `urxe run --transport iwarp --` on two nodes of an emulated fabric,
//! interleaved with the value of today.

/// What one queue pair sends or takes in before the others get their turn; the last system call of
/// a turn may take it further.
///
/// Unit: bytes. Source: Chosen: four times what is made ready at a time. To measure it again:
/// `ib_write_bw -R -s 1048576 -q 16`, and the shares of the queue pairs.
pub(super) const TURN_BYTES: usize = 512 << 10;

/// Turns in which is read what has come over a connection that is about to be closed.
///
/// Unit: turns. Source: 8 MiB, more than Linux keeps of a connection (`tcp_rmem`). To measure it
/// again: it is arithmetic.
pub(super) const LAST_TURNS: usize = 16;

/// What is made ready to be sent at a time; the last FPDU may take it further.
///
/// Unit: bytes. Source: Chosen: two of the longest segments that TCP is given. To measure it again:
/// `ib_write_bw -R -s 65536` with half and twice the value.
pub(super) const OUTPUT_BYTES: usize = 128 << 10;

/// Requests of a queue pair that wait for company, at most: enough to spread the cost of a system
/// call, few enough that the peer works on some while the program posts others.
///
/// Unit: requests. Source: Chosen: as many as packets that wait for company over RoCE. To measure
/// it again: `ib_send_bw -R -s 64` with half and twice the value.
pub(super) const GATHERED_MAX: u32 = 32;

/// From so many on they leave, whatever their number.
///
/// Unit: bytes. Source: Chosen: as of requests that wait for company over RoCE. To measure it
/// again: `ib_send_bw -R -s 1024` and `-s 4096` with half and twice the value.
pub(super) const GATHERED_MAX_BYTES: u64 = 8 << 10;

/// What is read to a buffer of the device at a time, where it is not known yet what it is.
///
/// Unit: bytes. Source: Chosen. To measure it again: `ib_send_bw -R -s 64` and `-s 4096` with half
/// and twice the value.
pub(super) const SCRATCH_BYTES: usize = 16 << 10;

/// From so many bytes that have their place on, only the end of the FPDU and the header of the next
/// are read to that buffer, so that the payload of the next is placed, too.
///
/// Unit: bytes. Source: Chosen. To measure it again: `ib_write_bw -R -s 65536`: bytes copied, and
/// instructions.
pub(super) const LONG_BYTES: usize = 8 << 10;

/// Of so many, one asks for all connections. The others read from that alone which had something
/// last: a system call instead of two.
///
/// Unit: rounds. Source: Of 1, 4 and 8, 4 and 8 were alike. To measure it again: `ib_send_lat -R -s
/// 64`, with one connection and with sixteen.
pub(super) const LOOKS_PER_QUESTION: u32 = 4;

/// What is as much work as a packet of RoCE.
///
/// Unit: bytes. Source: The longest payload of such a packet. To measure it again: it is
/// arithmetic.
pub(super) const PACKET_BYTES: usize = 4096;

/// Pieces of memory of a system call, at most.
///
/// Unit: pieces. Source: Chosen; Linux takes 1024 (`UIO_MAXIOV`). To measure it again: `ib_send_bw
/// -R -s 2048`: calls of `sendmsg`.
pub(super) const PIECES_MAX: usize = 64;

/// The least that TCP puts in a segment, whatever the kernel says.
///
/// Unit: bytes. Source: RFC 9293, 3.7.1. To measure it again: it is a standard.
pub(super) const SEGMENT_MIN: usize = 536;

/// The longest that TCP is given as one segment or many.
///
/// Unit: bytes. Source: An FPDU is no longer: its length has 16 bits (RFC 5044, 4.1). To measure it
/// again: it is a standard.
pub(super) const BATCH_MAX: usize = 65_535;

/// A peer is gone that has acknowledged nothing for so long, though it was asked again and again.
///
/// Unit: ns. Source: Chosen: a queue pair over RoCE gives up after 4 s to 17 s, by the values of
/// Linux's RDMA-CM (eight times 0.54 s, or up to four times as long by IBTA vol 1, 9.7.6.1.3). To
/// measure it again: `nic/device/tests/iwarp_vanished.rs` says what it bounds.
pub(super) const GONE_AFTER_NS: u64 = 20_000_000_000;

/// From one look at what TCP knows of a peer that owes acknowledgements to the next.
///
/// Unit: ns. Source: Chosen: a quarter of the time above is a system call or two in five seconds,
/// and so much later a peer may be missed. To measure it again: it is arithmetic.
pub(super) const PEER_LOOK_NS: u64 = GONE_AFTER_NS / 4;

/// Repetitions of TCP, or probes, that were not answered, at least, of a peer that is gone. A peer
/// that takes nothing in is probed up to 120 s apart (`TCP_RTO_MAX` of Linux), and answers.
///
/// Unit: packets. Source: Chosen: TCP has repeated so often after 6.2 s, where its first timeout is
/// 200 ms (`TCP_RTO_MIN` of Linux). To measure it again: it is arithmetic.
pub(super) const UNANSWERED_MIN: u8 = 5;

/// An idle connection is probed after so long.
///
/// Unit: s. Source: Chosen: half of the time after which a peer is gone. To measure it again:
/// packets of an idle connection.
pub(super) const KEEPALIVE_IDLE_S: u32 = 10;

/// From one probe of an idle connection to the next, while there is no answer.
///
/// Unit: s. Source: Chosen: the shortest that Linux knows, so that some probes may be lost. To
/// measure it again: packets of a connection whose peer is gone.
pub(super) const KEEPALIVE_PROBE_S: u32 = 1;

/// Probes of an idle connection that are not answered, before its peer is gone.
///
/// Unit: packets. Source: The rest of the time after which a peer is gone. Of ten, one comes back
/// but for once in 10^7 where each packet is lost with 10 %. To measure it again: it is arithmetic.
pub(super) const KEEPALIVE_PROBES: u32 = 10;

/// A socket that could not be watched, for want of the kernel's memory, is tried again after so
/// long.
///
/// Unit: ns. Source: Chosen: as of listeners that cannot take connections in. To measure it again:
/// `nic/device/src/stream/tests/broken.rs` says what it bounds.
pub(super) const WATCH_AGAIN_NS: u64 = 100_000_000;

// What must hold between them.
const _: () = {
    let idle_s = KEEPALIVE_IDLE_S + KEEPALIVE_PROBES * KEEPALIVE_PROBE_S;
    assert!(
        idle_s as u64 * 1_000_000_000 == GONE_AFTER_NS,
        "a peer is missed as soon whether or not the connection is idle"
    );
    assert!(OUTPUT_BYTES <= TURN_BYTES);
    assert!(
        GATHERED_MAX_BYTES as usize <= OUTPUT_BYTES,
        "what waits is to leave at once"
    );
    assert!(
        GATHERED_MAX as usize <= PIECES_MAX,
        "a request that waits is one piece"
    );
    assert!(LONG_BYTES <= SCRATCH_BYTES);
};
