//! One service ID resolution (SIDR): a question, and its answer.

use super::values::Path;
use crate::mad::Message;
use crate::message::SidrReq;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked; repeats until answered.
    Asked,
    /// A peer asked; the program has to answer.
    ToAnswer,
    /// Answered; answers repetitions.
    Answered,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Resolution {
    pub(super) state: State,
    pub(super) path: Path,
    pub(super) transaction: u64,
    pub(super) request_id: u32,
    pub(super) is_owned: bool,
    pub(super) request: Option<SidrReq>,
    pub(super) sent: Option<Message>,
    pub(super) attempts: u8,
    pub(super) deadline_ns: Option<u64>,
}
