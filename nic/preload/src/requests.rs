//! Requests of the extended posting interface, between `wr_start` and `wr_complete`.
use std::ffi::c_uint;
use std::ops::Range;

use urxe_device::{Mutex, SendOp, SendTarget, Sge};

use crate::errno::{Errno, Outcome};

/// Requests between start and complete.
#[derive(Default)]
pub(crate) struct Builder(pub(crate) Mutex<Batch>);

/// Held from start to complete or abort. The vectors keep their memory for the next batch.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<Pending>,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline: Vec<u8>,
    /// The first mistake; complete returns it and posts nothing.
    pub(crate) mistake: Option<Errno>,
}

pub(crate) struct Pending {
    pub(crate) wr_id: u64,
    pub(crate) flags: c_uint,
    pub(crate) op: SendOp,
    pub(crate) data: PendingData,
    pub(crate) target: SendTarget,
}

/// Ranges of the batch's vectors.
pub(crate) enum PendingData {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.mistake = None;
    }

    pub(crate) fn add(&mut self, wr_id: u64, flags: c_uint, op: SendOp) {
        let data = PendingData::Sges(0..0);
        self.requests.push(Pending {
            wr_id,
            flags,
            op,
            data,
            target: SendTarget::Connection,
        });
    }

    pub(crate) fn blame(&mut self, errno: Errno) {
        self.mistake.get_or_insert(errno);
    }

    /// Gives the request that was begun last its data.
    pub(crate) fn set_data(&mut self, data: PendingData) {
        match self.requests.last_mut() {
            Some(request) => request.data = data,
            None => self.blame(Errno::INVAL),
        }
    }

    /// Says where the request that was begun last goes.
    pub(crate) fn set_target(&mut self, target: Outcome<SendTarget>) {
        match (self.requests.last_mut(), target) {
            (Some(request), Ok(target)) => request.target = target,
            (Some(_), Err(errno)) => self.blame(errno),
            (None, _) => self.blame(Errno::INVAL),
        }
    }

    pub(crate) fn set_sges(&mut self, list: impl IntoIterator<Item = Sge>) {
        let start = self.sges.len();
        self.sges.extend(list);
        self.set_data(PendingData::Sges(start..self.sges.len()));
    }
}
