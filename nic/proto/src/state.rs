//! Queue pair states and the transitions that `modify` allows, as a table.
//!
//! Source: IBTA 10.3.1 and table 96 (required and optional attributes per transition), restricted
//! to what RoCE has.

use crate::attr_mask::AttrMask;
use crate::verbs::QpType;

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QpState {
    /// Newly created; nothing may be posted.
    Reset,
    /// Receives may be posted; packets are dropped.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
    /// The send queue finishes what it started and starts nothing new.
    SendQueueDrain,
    /// The send queue stopped after an error (UC and UD).
    SendQueueError,
    /// Everything is flushed.
    Error,
}

/// One row of the table: from, to, required attributes, optional attributes.
type Row = (QpState, QpState, AttrMask, AttrMask);

const fn mask(parts: &[AttrMask]) -> AttrMask {
    let mut bits = 0;
    let mut i = 0;
    while i < parts.len() {
        bits |= parts[i].bits();
        i += 1;
    }
    AttrMask::from_bits_retain(bits)
}

use AttrMask as A;
use QpState::{Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};

const NONE: AttrMask = A::empty();
/// What a requester needs to know of a reliable service.
const REQUESTER: AttrMask = mask(&[A::RETRY_COUNT, A::RNR_RETRY, A::MAX_RD_ATOMIC]);
/// What a responder needs to know of a reliable service.
const RESPONDER: AttrMask = mask(&[A::MAX_DEST_RD_ATOMIC, A::MIN_RNR_TIMER]);

const INIT_CONNECTED: AttrMask = mask(&[A::PKEY_INDEX, A::PORT, A::ACCESS_FLAGS]);

const RTR_CONNECTED: AttrMask = mask(&[A::ADDRESS_VECTOR, A::PATH_MTU, A::DEST_QPN, A::RQ_PSN]);
const RTR_RELIABLE: AttrMask = mask(&[RTR_CONNECTED, RESPONDER]);
const RTR_OPTIONAL: AttrMask = mask(&[A::ALT_PATH, A::ACCESS_FLAGS, A::PKEY_INDEX]);
const RTR_INITIATOR_OPTIONAL: AttrMask = mask(&[RTR_OPTIONAL, RESPONDER]);

const RTS_TARGET: AttrMask = mask(&[A::TIMEOUT, A::SQ_PSN]);
const RTS_RELIABLE: AttrMask = mask(&[RTS_TARGET, REQUESTER]);
const RTS_OPTIONAL: AttrMask = mask(&[RTS_UC_OPTIONAL, A::MIN_RNR_TIMER]);
const RTS_TARGET_OPTIONAL: AttrMask = mask(&[RTS_OPTIONAL, REQUESTER]);
const RTS_UC_OPTIONAL: AttrMask = mask(&[RESUME_UC_OPTIONAL, A::ALT_PATH, A::PATH_MIG_STATE]);
const RESUME_UC_OPTIONAL: AttrMask = mask(&[A::CURRENT_STATE, A::ACCESS_FLAGS]);

const SQD_UC: AttrMask = mask(&[RTR_OPTIONAL, A::ADDRESS_VECTOR]);
const SQD_XRC: AttrMask = mask(&[SQD_UC, A::PORT, A::TIMEOUT, A::PATH_MIG_STATE]);
const SQD_INITIATOR: AttrMask = mask(&[SQD_XRC, REQUESTER]);
const SQD_TARGET: AttrMask = mask(&[SQD_XRC, RESPONDER]);
const SQD_RELIABLE: AttrMask = mask(&[SQD_XRC, REQUESTER, RESPONDER]);

const INIT_UD: AttrMask = mask(&[A::PKEY_INDEX, A::PORT, A::QKEY]);
const UD_OPTIONAL: AttrMask = mask(&[A::PKEY_INDEX, A::QKEY]);
const RTS_UD_OPTIONAL: AttrMask = mask(&[A::CURRENT_STATE, A::QKEY]);

/// Rows for reliable connections.
const RC_ROWS: &[Row] = &[
    (Reset, Init, INIT_CONNECTED, NONE),
    (Init, Init, NONE, INIT_CONNECTED),
    (Init, ReadyToReceive, RTR_RELIABLE, RTR_OPTIONAL),
    (ReadyToReceive, ReadyToSend, RTS_RELIABLE, RTS_OPTIONAL),
    (ReadyToSend, ReadyToSend, NONE, RTS_OPTIONAL),
    (ReadyToSend, SendQueueDrain, NONE, A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, NONE, RTS_OPTIONAL),
    (SendQueueDrain, SendQueueDrain, NONE, SQD_RELIABLE),
];

/// Rows for unreliable connections.
const UC_ROWS: &[Row] = &[
    (Reset, Init, INIT_CONNECTED, NONE),
    (Init, Init, NONE, INIT_CONNECTED),
    (Init, ReadyToReceive, RTR_CONNECTED, RTR_OPTIONAL),
    (ReadyToReceive, ReadyToSend, A::SQ_PSN, RTS_UC_OPTIONAL),
    (ReadyToSend, ReadyToSend, NONE, RTS_UC_OPTIONAL),
    (ReadyToSend, SendQueueDrain, NONE, A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, NONE, RESUME_UC_OPTIONAL),
    (SendQueueDrain, SendQueueDrain, NONE, SQD_UC),
    (SendQueueError, ReadyToSend, NONE, RESUME_UC_OPTIONAL),
];

/// Rows for unreliable datagrams.
const UD_ROWS: &[Row] = &[
    (Reset, Init, INIT_UD, NONE),
    (Init, Init, NONE, INIT_UD),
    (Init, ReadyToReceive, NONE, UD_OPTIONAL),
    (ReadyToReceive, ReadyToSend, A::SQ_PSN, RTS_UD_OPTIONAL),
    (ReadyToSend, ReadyToSend, NONE, RTS_UD_OPTIONAL),
    (ReadyToSend, SendQueueDrain, NONE, A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, NONE, RTS_UD_OPTIONAL),
    (SendQueueDrain, SendQueueDrain, NONE, UD_OPTIONAL),
    (SendQueueError, ReadyToSend, NONE, RTS_UD_OPTIONAL),
];

/// Rows for XRC initiators, which execute nothing for the peer. What concerns executing is taken
/// and has no effect: programs (perftest) set it for both ends alike.
const XRC_INITIATOR_ROWS: &[Row] = &[
    (Reset, Init, INIT_CONNECTED, NONE),
    (Init, Init, NONE, INIT_CONNECTED),
    (Init, ReadyToReceive, RTR_CONNECTED, RTR_INITIATOR_OPTIONAL),
    (ReadyToReceive, ReadyToSend, RTS_RELIABLE, RTS_OPTIONAL),
    (ReadyToSend, ReadyToSend, NONE, RTS_OPTIONAL),
    (ReadyToSend, SendQueueDrain, NONE, A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, NONE, RTS_OPTIONAL),
    (SendQueueDrain, SendQueueDrain, NONE, SQD_INITIATOR),
];

/// Rows for XRC targets, which only execute and answer. What concerns requests is taken and has no
/// effect.
const XRC_TARGET_ROWS: &[Row] = &[
    (Reset, Init, INIT_CONNECTED, NONE),
    (Init, Init, NONE, INIT_CONNECTED),
    (Init, ReadyToReceive, RTR_RELIABLE, RTR_OPTIONAL),
    (ReadyToReceive, ReadyToSend, RTS_TARGET, RTS_TARGET_OPTIONAL),
    (ReadyToSend, ReadyToSend, NONE, RTS_OPTIONAL),
    (ReadyToSend, SendQueueDrain, NONE, A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, NONE, RTS_OPTIONAL),
    (SendQueueDrain, SendQueueDrain, NONE, SQD_TARGET),
];

/// All rows of queue pairs of a type. Besides these, any state may go to `Reset` and to `Error`.
#[must_use]
pub const fn transition_table(qp_type: QpType) -> &'static [Row] {
    match qp_type {
        QpType::Rc => RC_ROWS,
        QpType::XrcInitiator => XRC_INITIATOR_ROWS,
        QpType::XrcTarget => XRC_TARGET_ROWS,
        QpType::Uc => UC_ROWS,
        QpType::Ud => UD_ROWS,
    }
}

/// The required and optional attributes of a transition, or `None` if it is not allowed.
#[must_use]
pub fn required_attributes(
    qp_type: QpType,
    from: QpState,
    to: QpState,
) -> Option<(AttrMask, AttrMask)> {
    if matches!(to, QpState::Reset | QpState::Error) {
        return Some((AttrMask::empty(), AttrMask::empty()));
    }
    transition_table(qp_type)
        .iter()
        .find(|(f, t, ..)| *f == from && *t == to)
        .map(|(_, _, required, optional)| (*required, *optional))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::fmt::Write as _;
    use std::string::String;

    use super::*;

    #[test]
    fn transitions_are_those_of_the_specification() {
        let mut text = String::new();
        for qp_type in [
            QpType::Rc,
            QpType::Uc,
            QpType::Ud,
            QpType::XrcInitiator,
            QpType::XrcTarget,
        ] {
            for (from, to, required, optional) in transition_table(qp_type) {
                writeln!(
                    text,
                    "{qp_type:?}: {from:?} -> {to:?}\n    required {required:?}\n    optional {optional:?}"
                )
                .unwrap();
            }
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn every_state_may_be_reset_and_put_in_error() {
        for from in [
            Reset,
            Init,
            ReadyToReceive,
            ReadyToSend,
            SendQueueDrain,
            SendQueueError,
        ] {
            assert!(required_attributes(QpType::Rc, from, QpState::Reset).is_some());
            assert!(required_attributes(QpType::Rc, from, QpState::Error).is_some());
        }
    }

    #[test]
    fn a_connection_cannot_skip_ready_to_receive() {
        assert_eq!(required_attributes(QpType::Rc, Init, ReadyToSend), None);
        assert_eq!(
            required_attributes(QpType::Rc, QpState::Error, ReadyToSend),
            None
        );
    }
}
