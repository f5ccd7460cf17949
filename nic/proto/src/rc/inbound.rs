//! The receive queue, and the message that is arriving.

use alloc::collections::VecDeque;

use smallvec::SmallVec;
use urxe_wire::Qpn;

use crate::verbs::{Completion, CompletionKind, RecvRequest, Sge, WcStatus};

/// A queued receive work request.
#[derive(Clone, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) sges: SmallVec<[Sge; 2]>,
    /// Bytes that it takes.
    pub(crate) capacity: u64,
}

impl RecvWqe {
    pub(crate) fn new(request: &RecvRequest<'_>) -> Self {
        Self {
            wr_id: request.wr_id,
            sges: SmallVec::from_slice(request.sges),
            capacity: request.sges.iter().map(|sge| u64::from(sge.len)).sum(),
        }
    }

    pub(crate) const fn completion(&self, qp: Qpn, status: WcStatus) -> Completion {
        Completion {
            wr_id: self.wr_id,
            status,
            kind: CompletionKind::Recv,
            byte_len: 0,
            qp,
            immediate: None,
            invalidated_rkey: None,
            solicited: false,
        }
    }
}

/// Receive work requests in the order of posting.
pub(crate) type ReceiveQueue = VecDeque<RecvWqe>;

/// What the next packet of the connection continues.
#[derive(Clone, Debug, Default)]
pub(crate) enum Inbound {
    /// Nothing: it starts a message.
    #[default]
    Idle,
    /// A SEND of which `received` bytes are placed.
    Send { wqe: RecvWqe, received: u32 },
    /// An RDMA WRITE of which `left` bytes are missing; the next goes to `va`.
    Write {
        rkey: u32,
        va: u64,
        left: u32,
        length: u32,
    },
}
