//! How much a device holds, and the state of its port.

use urxe_wire::Mtu;

use crate::engine::srq::table::SrqTable;
use crate::engine::table::QpTable;
use crate::memory::{WINDOWS_MAX, dm};

/// How much a device holds. What bounds it is memory; the figures are what programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: usize,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Scatter/gather elements of a work request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: usize,
    /// Entries of a completion queue.
    pub max_cqe: usize,
    /// Memory regions.
    pub max_mr: usize,
    /// Bytes of a memory region.
    pub max_mr_bytes: u64,
    /// Protection domains.
    pub max_pd: usize,
    /// READs and atomics outstanding, each way, of a queue pair.
    pub max_rd_atomic: u8,
    /// Bytes of inline data.
    pub max_inline_bytes: u32,
    /// Bytes of a message.
    pub max_message_bytes: u32,
    /// Bytes of device memory.
    pub max_dm_bytes: u64,
    /// Shared receive queues.
    pub max_srq: usize,
    /// Requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// XRC domains.
    pub max_xrcd: usize,
    /// Memory windows.
    pub max_mw: usize,
    /// Multicast groups.
    pub max_mcast_grp: usize,
    /// Queue pairs attached to a multicast group.
    pub max_mcast_qp_attach: usize,
}

/// The limits of every device.
pub(super) const LIMITS: Limits = Limits {
    max_qp: QpTable::capacity(),
    max_qp_wr: 1 << 15,
    max_sge: 32,
    max_cq: 1 << 16,
    max_cqe: 1 << 22,
    max_mr: 1 << 20,
    max_mr_bytes: u64::MAX,
    max_pd: 1 << 16,
    max_rd_atomic: 128,
    max_inline_bytes: 1024,
    max_message_bytes: 1 << 30,
    max_dm_bytes: dm::MAX_BYTES,
    max_srq: SrqTable::capacity(),
    max_srq_wr: 1 << 15,
    max_xrcd: 1 << 16,
    max_mw: WINDOWS_MAX,
    max_mcast_grp: 1 << 10,
    max_mcast_qp_attach: 1 << 8,
};

/// The state of a device's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether it can carry packets.
    pub is_up: bool,
    /// The largest path MTU.
    pub max_mtu: Mtu,
    /// The largest path MTU that the interface takes now.
    pub active_mtu: Mtu,
}
