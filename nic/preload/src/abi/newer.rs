//! What <infiniband/verbs.h> has had since after the release that this library is built with
//! (rdma-core 44). Programs that were built with a newer one bring these structures; a test
//! compares them wherever the header has them.
use std::ffi::{c_int, c_void};

/// Of `ibv_mr_init_attr`, which of its fields count (release 60).
pub(crate) const IBV_REG_MR_MASK_IOVA: u64 = 1 << 0;
pub(crate) const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
pub(crate) const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
pub(crate) const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
/// Release 64.
pub(crate) const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;

/// A request of an extended queue pair (release 46).
pub(crate) const IBV_QP_EX_WITH_FLUSH: u32 = 1 << 11;
/// What a queue pair or a region lets a peer flush (release 46).
pub(crate) const IBV_ACCESS_FLUSH_GLOBAL: u32 = 1 << 8;
/// Where `wr_flush` stands behind the functions of `ibv_qp_ex` that the header has.
pub(crate) const WR_FLUSH_PLACE: usize = 0;
/// Of what a peer flushes (`enum ibv_selectivity_level`): a range, or all of the region.
pub(crate) const IBV_FLUSH_RANGE: u8 = 0;
pub(crate) const IBV_FLUSH_MR: u8 = 1;
/// Of `device_cap_flags_ex`: `IB_UVERBS_DEVICE_FLUSH_GLOBAL` and `IB_UVERBS_DEVICE_ATOMIC_WRITE` of
/// the kernel's <rdma/ib_user_verbs.h>.
pub(crate) const DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
pub(crate) const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// Of `rc_odp_caps`.
pub(crate) const IBV_ODP_SUPPORT_FLUSH: u32 = 1 << 6;
pub(crate) const IBV_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;

/// What `ibv_reg_mr_ex` registers (release 60).
#[repr(C)]
pub(crate) struct ibv_mr_init_attr {
    pub(crate) length: usize,
    pub(crate) access: c_int,
    pub(crate) comp_mask: u64,
    pub(crate) iova: u64,
    pub(crate) addr: *mut c_void,
    pub(crate) fd: c_int,
    pub(crate) fd_offset: u64,
    pub(crate) dmah: *mut c_void,
    /// Only there if the mask says so: it came with release 64.
    pub(crate) buf: *mut ibv_buf,
}

/// A buffer of `ibv_alloc_buf` (release 64); programs see only pointers to it.
#[repr(C)]
pub(crate) struct ibv_buf {
    opaque: [u8; 0],
}
