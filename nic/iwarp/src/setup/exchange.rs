//! The bytes of both frames on their way, and the time there is for them.

use alloc::vec::Vec;

use urxe_iwarp_wire::{Enhanced, MAX_SETUP_FRAME_LEN, ParseError, SetupFrame};
use urxe_proto::Instant;

use crate::constants::MAX_SENT_PRIVATE_DATA_LEN;

use super::terms::{Outcome, SetupError};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    is_complete: bool,
    deadline: Instant,
    pub(super) outcome: Outcome,
}

impl Exchange {
    /// The peer's frame has to be complete after so long.
    pub(super) fn new(now: Instant, within_ns: u64) -> Self {
        Self {
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            is_complete: false,
            deadline: now.after(within_ns),
            outcome: Outcome::Pending,
        }
    }

    /// Queues a frame.
    pub(super) fn send(&mut self, frame: &SetupFrame<'_>) -> Result<(), SetupError> {
        let len = frame.private_data.len();
        let of_enhanced = frame.enhanced.map_or(0, |_| Enhanced::LEN);
        let allowed = MAX_SENT_PRIVATE_DATA_LEN - of_enhanced;
        if len > allowed {
            return Err(SetupError::PrivateDataTooLong { len, allowed });
        }
        let mut raw = [0; MAX_SETUP_FRAME_LEN];
        let len = frame.emit(&mut raw).map_err(SetupError::Frame)?;
        self.out.extend_from_slice(&raw[..len]);
        Ok(())
    }

    /// Queues what goes to the peer behind its frame.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn output(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    pub(super) fn handle_sent(&mut self, len: usize) {
        self.sent = self.out.len().min(self.sent + len);
    }

    /// Takes what belongs to the frame; how many bytes. The frame is complete then, or more is
    /// needed, or it failed.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.outcome == Outcome::Pending && !self.is_complete {
            match SetupFrame::parse(&self.input) {
                Ok(_) => self.is_complete = true,
                Err(ParseError::TooShort { needed, available }) => {
                    let rest = &bytes[taken..];
                    // Any beginning that is no key is found out as soon as it comes.
                    let next = rest.len().min(needed - available);
                    if next == 0 {
                        break;
                    }
                    self.input.extend_from_slice(&rest[..next]);
                    taken += next;
                }
                Err(error) => self.fail(SetupError::Frame(error)),
            }
        }
        taken
    }

    /// The peer's frame, once it is complete.
    pub(super) fn frame(&self) -> Option<SetupFrame<'_>> {
        SetupFrame::parse(&self.input).ok()
    }

    /// Fails, unless it came to an end before.
    pub(super) fn fail(&mut self, error: SetupError) {
        if self.outcome == Outcome::Pending {
            self.outcome = Outcome::Failed(error);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.outcome == Outcome::Pending && !self.is_complete).then_some(self.deadline)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| now >= deadline) {
            self.fail(SetupError::TimedOut);
        }
    }
}
