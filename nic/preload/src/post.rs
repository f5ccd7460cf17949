//! Posting with `ibv_post_send` and `ibv_post_recv`: lists of C work requests.
use std::ffi::c_int;

use urxe_device::{
    Immediate, QpType, Qpn, SendData, SendOp, SendPoster, SendRequest, SendTarget, Srqn,
};

use crate::abi::*;
use crate::errno::{Errno, Outcome};
use crate::lists::{receive_list, refuse_all, request_list};
use crate::qp_state::{self, QpState};
use crate::unsupported::refuse;
use crate::{ah, convert, mw};

/// `ibv_post_send`: posts the list up to the first request that is refused, which `bad` then names.
///
/// # Safety
/// `qp` is ours and live, `wr` is a list of requests, `bad` is null or writable.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the caller's promise.
    if unsafe { qp_state::is_inherited(qp) } {
        // SAFETY: by the caller's promise.
        return unsafe { refuse_all(wr, bad) };
    }
    // SAFETY: by the caller's promise.
    let state = unsafe { qp_state::state(qp) };
    state.qp.post_sends(|poster| {
        while !wr.is_null() {
            // SAFETY: by the caller's promise.
            if let Err(errno) = unsafe { send_one(poster, state, &*wr) } {
                if !bad.is_null() {
                    // SAFETY: by the caller's promise.
                    unsafe { *bad = wr };
                }
                return errno.0;
            }
            // SAFETY: by the caller's promise.
            wr = unsafe { (*wr).next };
        }
        0
    })
}

/// # Safety
/// The lists and, for inline data, the memory that `wr` names are readable; its objects are live.
unsafe fn send_one(poster: &mut SendPoster<'_>, state: &QpState, wr: &ibv_send_wr) -> Outcome<()> {
    let capacity = &state.qp.init().capacity;
    if i64::from(wr.num_sge) > i64::from(capacity.send_sges) {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let list = unsafe { request_list(wr.sg_list, wr.num_sge) }?;
    // SAFETY: by the caller's promise.
    let op = unsafe { operation(wr) }?;
    // SAFETY: by the caller's promise.
    let target = unsafe { target(state.kind, wr) }?;
    let mut post = |data| {
        let request = SendRequest {
            wr_id: wr.wr_id,
            op,
            data,
            signaled: state.signal_all || wr.send_flags & IBV_SEND_SIGNALED != 0,
            solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
            fence: wr.send_flags & IBV_SEND_FENCE != 0,
            target,
        };
        poster.post(&request).map_err(convert::post_errno)
    };
    if wr.send_flags & IBV_SEND_INLINE == 0 {
        return post(SendData::Sges(list.as_slice()));
    }
    let lengths = list.iter().map(|sge| sge.len as usize);
    if !is_inline(lengths, capacity.inline_bytes) {
        return Err(Errno::INVAL);
    }
    match list.as_slice() {
        // SAFETY: by the caller's promise the memory is readable.
        [only] => post(SendData::Inline(unsafe { convert::bytes(only) })),
        several => {
            // SAFETY: by the caller's promise the memory is readable.
            let pieces = several.iter().map(|sge| unsafe { convert::bytes(sge) });
            let joined = pieces.collect::<Vec<_>>().concat();
            post(SendData::Inline(&joined))
        }
    }
}

/// Whether pieces of these lengths are at most `max` bytes altogether. To be asked before any of
/// them is touched: inline data has no key, and a program may be wrong about its length.
pub(crate) fn is_inline(lengths: impl IntoIterator<Item = usize>, max: u32) -> bool {
    let left = lengths
        .into_iter()
        .try_fold(max as usize, |left, length| left.checked_sub(length));
    left.is_some()
}

/// Where a request goes, on a queue pair of type `kind`.
///
/// # Safety
/// The address handle in `wr` is null or live.
unsafe fn target(kind: QpType, wr: &ibv_send_wr) -> Outcome<SendTarget> {
    match kind {
        QpType::Rc | QpType::Uc => Ok(SendTarget::Connection),
        // SAFETY: of a datagram request this member is set, and by the caller's promise.
        QpType::Ud => unsafe { datagram(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey) },
        // SAFETY: every bit pattern is a number.
        QpType::XrcInitiator => Ok(SendTarget::XrcSrq(Srqn::new(unsafe {
            wr.qp_type.xrc.remote_srqn
        }))),
        QpType::XrcTarget => Err(Errno::INVAL),
    }
}

/// # Safety
/// `ah` is null or live.
pub(crate) unsafe fn datagram(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Outcome<SendTarget> {
    if ah.is_null() {
        return Err(Errno::INVAL);
    }
    Ok(SendTarget::Datagram {
        // SAFETY: by the caller's promise; a queue pair of ours is given handles of ours.
        address: unsafe { ah::address(ah) },
        qp: Qpn::new(qpn),
        qkey,
    })
}

/// What a request asks for.
///
/// # Safety
/// The window and the region in `wr` are null or live.
unsafe fn operation(wr: &ibv_send_wr) -> Outcome<SendOp> {
    // SAFETY: all members of the unions are plain numbers, of which every bit pattern is one.
    let (immediate, invalidate, rdma, atomic) = unsafe {
        (
            Immediate(wr.__bindgen_anon_1.imm_data.to_ne_bytes()),
            wr.__bindgen_anon_1.invalidate_rkey,
            wr.wr.rdma,
            wr.wr.atomic,
        )
    };
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(immediate),
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate { rkey: invalidate },
        IBV_WR_RDMA_WRITE => SendOp::Write {
            va: rdma.remote_addr,
            rkey: rdma.rkey,
        },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm {
            va: rdma.remote_addr,
            rkey: rdma.rkey,
            immediate,
        },
        IBV_WR_RDMA_READ => SendOp::Read {
            va: rdma.remote_addr,
            rkey: rdma.rkey,
        },
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
            add: atomic.compare_add,
        },
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate { rkey: invalidate },
        // SAFETY: of this request the member is set, and by the caller's promise.
        IBV_WR_BIND_MW => SendOp::BindWindow(unsafe {
            let bind = &wr.__bindgen_anon_2.bind_mw;
            if !mw::is_type_2(bind.mw) {
                return Err(Errno::INVAL);
            }
            mw::binding(bind.mw, bind.rkey, &bind.bind_info)?
        }),
        IBV_WR_TSO => return refuse("TCP segmentation (TSO)"),
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite {
            va: rdma.remote_addr,
            rkey: rdma.rkey,
        },
        _ => return Err(Errno::INVAL),
    })
}

/// `ibv_post_recv`: as [`post_send`].
///
/// # Safety
/// `qp` is ours and live, `wr` is a list of requests, `bad` is null or writable.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the caller's promise.
    if unsafe { qp_state::is_inherited(qp) } {
        // SAFETY: by the caller's promise.
        return unsafe { refuse_all(wr, bad) };
    }
    // SAFETY: by the caller's promise.
    let queue = &unsafe { qp_state::state(qp) }.qp;
    // SAFETY: by the caller's promise.
    unsafe { receive_list(wr, bad, |request| queue.post_recv(request)) }
}
