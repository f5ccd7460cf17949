//! The extended posting interface: `wr_start`, one call per request, its data, `wr_complete`.
//!
//! Requests are gathered between start and complete and posted by complete, in their order. As with
//! every provider, other threads that start on the same queue pair wait until then.
use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use urxe_device::{
    Immediate, Placement, QpType, SendData, SendOp, SendRequest, SendTarget, Sge, Srqn,
};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::handle::Growing;
use crate::lists::sge_list;
use crate::object::INHERITED;
use crate::qp_state::{self, QpState};
use crate::requests::{Batch, Pending, PendingData};
use crate::{convert, mw, post};

/// What may be asked for in `send_ops_flags`.
const OPERATIONS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_ATOMIC_WRITE
    | IBV_QP_EX_WITH_FLUSH) as u64;

/// What only a reliable connection can do (IBTA 1.5 has no opcodes of these for other transports).
const CONNECTION_OPERATIONS: u64 = (IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH) as u64;

/// What a datagram may do.
const DATAGRAM_OPERATIONS: u64 = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM) as u64;
/// What an unreliable connection cannot do (IBTA table 38).
const RELIABLE_OPERATIONS: u64 = (IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) as u64;

/// Whether a queue pair of type `kind` can do all of `operations`.
pub(crate) fn supports(kind: QpType, operations: u64) -> bool {
    let all = match kind {
        QpType::Rc => OPERATIONS,
        QpType::XrcInitiator => OPERATIONS & !CONNECTION_OPERATIONS,
        QpType::Uc => OPERATIONS & !RELIABLE_OPERATIONS & !CONNECTION_OPERATIONS,
        QpType::Ud => DATAGRAM_OPERATIONS,
        QpType::XrcTarget => 0,
    };
    operations & !all == 0
}

impl Batch {
    /// # Safety
    /// Each piece is null, or readable, unless all together are more than `max` bytes.
    unsafe fn set_inline(&mut self, pieces: &[ibv_data_buf], max: u32) {
        if !post::is_inline(pieces.iter().map(|piece| piece.length), max) {
            return self.blame(Errno::INVAL);
        }
        let start = self.inline.len();
        for piece in pieces {
            // SAFETY: by the caller's promise.
            self.inline.extend_from_slice(unsafe { bytes(piece) });
        }
        self.set_data(PendingData::Inline(start..self.inline.len()));
    }

    /// Posts everything, or nothing if the device refuses one of the requests (`man ibv_wr_post`).
    fn post(&self, state: &QpState) -> Outcome<()> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        state.qp.post_sends(|poster| {
            // One request alone is refused, or it is not.
            if self.requests.len() > 1 {
                for (ahead, pending) in self.requests.iter().enumerate() {
                    poster
                        .check(&self.request(state, pending), ahead)
                        .map_err(convert::post_errno)?;
                }
            }
            self.requests.iter().try_for_each(|pending| {
                poster
                    .post(&self.request(state, pending))
                    .map_err(convert::post_errno)
            })
        })
    }

    /// A request as the device takes it.
    fn request(&self, state: &QpState, pending: &Pending) -> SendRequest<'_> {
        let data = match &pending.data {
            PendingData::Sges(range) => SendData::Sges(&self.sges[range.clone()]),
            PendingData::Inline(range) => SendData::Inline(&self.inline[range.clone()]),
        };
        SendRequest {
            wr_id: pending.wr_id,
            op: pending.op,
            data,
            signaled: state.signal_all || pending.flags & IBV_SEND_SIGNALED != 0,
            solicited: pending.flags & IBV_SEND_SOLICITED != 0,
            fence: pending.flags & IBV_SEND_FENCE != 0,
            target: pending.target,
        }
    }
}

/// Runs `f` on the batch that the calling thread started.
///
/// # Safety
/// `qp` is ours and live, and the calling thread is between its start and its complete: it then
/// holds the lock.
unsafe fn with_batch(qp: *mut ibv_qp_ex, f: impl FnOnce(&mut Batch)) {
    // SAFETY: by the caller's promise.
    let builder = &unsafe { qp_state::state(qp.cast()) }.builder.0;
    if !builder.is_locked() {
        log::debug!("a program built a work request without ibv_wr_start");
        return;
    }
    // SAFETY: by the caller's promise the lock is this thread's, so no other thread has a
    // reference.
    f(unsafe { &mut *builder.data_ptr() });
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program's queue pair is live.
    let builder = &unsafe { qp_state::state(qp.cast()) }.builder.0;
    // SAFETY: as above.
    if unsafe { qp_state::is_inherited(qp.cast()) } {
        return;
    }
    let mut batch = builder.lock();
    batch.clear();
    // Complete or abort unlocks.
    std::mem::forget(batch);
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program's queue pair is live.
    if unsafe { qp_state::is_inherited(qp.cast()) } {
        return INHERITED.0;
    }
    // SAFETY: the program's queue pair is live.
    let state = unsafe { qp_state::state(qp.cast()) };
    let mut result = Err(Errno::INVAL);
    // SAFETY: the program called start on this thread.
    unsafe { with_batch(qp, |batch| result = batch.post(state)) };
    // SAFETY: as above.
    unsafe { unlock(state) };
    result.map_or_else(|errno| errno.0, |()| 0)
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the program's queue pair is live, and it called start on this thread.
    unsafe {
        if !qp_state::is_inherited(qp.cast()) {
            unlock(qp_state::state(qp.cast()));
        }
    }
}

/// # Safety
/// The calling thread holds the lock, if any thread does.
unsafe fn unlock(state: &QpState) {
    if state.builder.0.is_locked() {
        // SAFETY: by the caller's promise.
        unsafe { state.builder.0.force_unlock(lock_api::GuardNoSend::new()) };
    }
}

/// Adds a request with the identifier and flags that the program put into the public fields.
///
/// # Safety
/// As for [`with_batch`].
unsafe fn add(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: by the caller's promise.
    unsafe {
        let (wr_id, flags) = ((*qp).wr_id, (*qp).wr_flags);
        with_batch(qp, |batch| batch.add(wr_id, flags, op));
    }
}

/// Functions that add a request: `name(arguments) = operation;`
macro_rules! requests {
    ($($name:ident($($arg:ident: $ty:ty),*) = $op:expr;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: the program's queue pair is live, and it called start on this thread.
            unsafe { add(qp, $op) };
        }
    )*};
}

requests! {
    wr_send() = SendOp::Send;
    wr_send_imm(imm: u32) = SendOp::SendImm(Immediate(imm.to_ne_bytes()));
    wr_send_inv(rkey: u32) = SendOp::SendInvalidate { rkey };
    wr_rdma_write(rkey: u32, va: u64) = SendOp::Write { va, rkey };
    wr_rdma_write_imm(rkey: u32, va: u64, imm: u32) = SendOp::WriteImm { va, rkey, immediate: Immediate(imm.to_ne_bytes()) };
    wr_rdma_read(rkey: u32, va: u64) = SendOp::Read { va, rkey };
    wr_atomic_cmp_swp(rkey: u32, va: u64, compare: u64, swap: u64) = SendOp::CompareSwap { va, rkey, compare, swap };
    wr_local_inv(rkey: u32) = SendOp::LocalInvalidate { rkey };
    wr_atomic_fetch_add(rkey: u32, va: u64, add: u64) = SendOp::FetchAdd { va, rkey, add };
}

/// The 8 bytes are taken at once, as inline data is.
unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, va: u64, value: *const c_void) {
    // SAFETY: the program's 8 bytes are readable, its queue pair is live, and it called start on
    // this thread.
    unsafe {
        add(qp, SendOp::AtomicWrite { va, rkey });
        let value = ibv_data_buf {
            addr: value.cast_mut(),
            length: 8,
        };
        with_batch(qp, |batch| batch.set_inline(&[value], 8));
    }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    va: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let len = match level {
        IBV_FLUSH_RANGE => u32::try_from(length).map(Some).map_err(|_| Errno::INVAL),
        IBV_FLUSH_MR => Ok(None),
        _ => Err(Errno::INVAL),
    };
    let placement = Placement::from_bits(placement)
        .filter(|placement| !placement.is_empty())
        .ok_or(Errno::INVAL);
    // SAFETY: the program's queue pair is live, and it called start on this thread.
    unsafe {
        match (len, placement) {
            (Ok(len), Ok(placement)) => add(
                qp,
                SendOp::Flush {
                    va,
                    rkey,
                    len,
                    placement,
                },
            ),
            (Err(errno), _) | (_, Err(errno)) => with_batch(qp, |batch| batch.blame(errno)),
        }
    }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the program's window and region are live, its queue pair is live, and it called start
    // on this thread.
    unsafe {
        let binding = match info.as_ref() {
            Some(info) if mw::is_type_2(mw) => mw::binding(mw, rkey, info),
            _ => Err(Errno::INVAL),
        };
        match binding {
            Ok(binding) => add(qp, SendOp::BindWindow(binding)),
            Err(errno) => with_batch(qp, |batch| batch.blame(errno)),
        }
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the program's address handle and queue pair are live, and it called start on this
    // thread.
    unsafe {
        let target = post::datagram(ah, qpn, qkey);
        with_batch(qp, |batch| batch.set_target(target));
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    let target = SendTarget::XrcSrq(Srqn::new(srqn));
    // SAFETY: the program's queue pair is live, and it called start on this thread.
    unsafe { with_batch(qp, |batch| batch.set_target(Ok(target))) };
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program's queue pair is live, and it called start on this thread.
    unsafe {
        with_batch(qp, |batch| {
            batch.set_sges([Sge {
                addr,
                len: length,
                lkey,
            }])
        })
    };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the program's list has that many elements.
    let list = unsafe { sge_list(list, count) };
    let set = |batch: &mut Batch| match list {
        Ok(list) => batch.set_sges(list),
        Err(errno) => batch.blame(errno),
    };
    // SAFETY: the program's queue pair is live, and it called start on this thread.
    unsafe { with_batch(qp, set) };
}

/// The bytes of a piece of inline data; a null pointer is no bytes.
///
/// # Safety
/// The piece is null or readable.
unsafe fn bytes(piece: &ibv_data_buf) -> &[u8] {
    if piece.addr.is_null() || piece.length == 0 {
        return &[];
    }
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(piece.addr.cast_const().cast(), piece.length) }
}

/// Gives the request that was begun last inline data.
///
/// # Safety
/// As for [`with_batch`]; the pieces are null or readable, unless they are more than the queue pair
/// takes.
unsafe fn set_inline(qp: *mut ibv_qp_ex, pieces: &[ibv_data_buf]) {
    // SAFETY: by the caller's promise.
    unsafe {
        let max = qp_state::state(qp.cast()).qp.init().capacity.inline_bytes;
        with_batch(qp, |batch| batch.set_inline(pieces, max));
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the program's data is readable, its queue pair is live, and it called start on this
    // thread.
    unsafe { set_inline(qp, &[ibv_data_buf { addr, length }]) };
}

/// Pieces of inline data that a request may have at most: as many as bytes, on the queue pair that
/// takes most.
const PIECES_MAX: usize = 1024;

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let list = if list.is_null() || count == 0 {
        &[]
    } else if count > PIECES_MAX {
        // SAFETY: the program's queue pair is live, and it called start on this thread.
        return unsafe { with_batch(qp, |batch| batch.blame(Errno::INVAL)) };
    } else {
        // SAFETY: the program's list has that many elements.
        unsafe { std::slice::from_raw_parts(list, count) }
    };
    // SAFETY: the program's data is readable, its queue pair is live, and it called start on this
    // thread.
    unsafe { set_inline(qp, list) };
}

/// For requests that were not asked for at creation, and of libibverbs newer than we are: the batch
/// is refused.
unsafe extern "C" fn wr_refused(qp: *mut ibv_qp_ex) {
    // SAFETY: the program's queue pair is live, and it called start on this thread.
    unsafe { with_batch(qp, |batch| batch.blame(Errno::OPNOTSUPP)) };
}

/// A new queue pair's structure with the functions for `operations`; all others refuse.
pub(crate) fn with_operations(mut qp: ibv_qp_ex, operations: u64) -> Growing<ibv_qp_ex> {
    set_operations(&mut qp, operations);
    let refusal = wr_refused as unsafe extern "C" fn(*mut ibv_qp_ex) as *const c_void;
    // SAFETY: functions follow the flags of a request. The first argument of each is the queue
    // pair, and nothing else is looked at.
    let grown = unsafe { Growing::new(qp, offset_of!(ibv_qp_ex, wr_atomic_cmp_swp), refusal) };
    if operations & u64::from(IBV_QP_EX_WITH_FLUSH) == 0 {
        return grown;
    }
    type Flush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);
    grown.with_newer(WR_FLUSH_PLACE, wr_flush as Flush as *const c_void)
}

/// Gives a new queue pair the functions for `operations`; the others stay null for now.
fn set_operations(qp: &mut ibv_qp_ex, operations: u64) {
    let has = |operation: u32| operations & u64::from(operation) != 0;
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    qp.wr_local_inv = has(IBV_QP_EX_WITH_LOCAL_INV).then_some(wr_local_inv);
    qp.wr_bind_mw = has(IBV_QP_EX_WITH_BIND_MW).then_some(wr_bind_mw);
    qp.wr_send = has(IBV_QP_EX_WITH_SEND).then_some(wr_send);
    qp.wr_send_imm = has(IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(wr_send_imm);
    qp.wr_send_inv = has(IBV_QP_EX_WITH_SEND_WITH_INV).then_some(wr_send_inv);
    qp.wr_rdma_write = has(IBV_QP_EX_WITH_RDMA_WRITE).then_some(wr_rdma_write);
    qp.wr_rdma_write_imm = has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(wr_rdma_write_imm);
    qp.wr_rdma_read = has(IBV_QP_EX_WITH_RDMA_READ).then_some(wr_rdma_read);
    qp.wr_atomic_cmp_swp = has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).then_some(wr_atomic_cmp_swp);
    qp.wr_atomic_write = has(IBV_QP_EX_WITH_ATOMIC_WRITE).then_some(wr_atomic_write);
    qp.wr_atomic_fetch_add =
        has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD).then_some(wr_atomic_fetch_add);
}
