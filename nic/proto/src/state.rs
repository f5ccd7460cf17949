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

const RTS_OPTIONAL: AttrMask = mask(&[
    A::CURRENT_STATE,
    A::ACCESS_FLAGS,
    A::MIN_RNR_TIMER,
    A::ALT_PATH,
    A::PATH_MIG_STATE,
]);

const INIT_CONNECTED: AttrMask = mask(&[A::PKEY_INDEX, A::PORT, A::ACCESS_FLAGS]);

const RTR_CONNECTED: AttrMask = mask(&[A::ADDRESS_VECTOR, A::PATH_MTU, A::DEST_QPN, A::RQ_PSN]);

const RTR_OPTIONAL: AttrMask = mask(&[A::ALT_PATH, A::ACCESS_FLAGS, A::PKEY_INDEX]);

/// Rows for reliable connections.
const RC_ROWS: &[Row] = &[
    (
        Reset,
        Init,
        mask(&[A::PKEY_INDEX, A::PORT, A::ACCESS_FLAGS]),
        A::empty(),
    ),
    (
        Init,
        Init,
        A::empty(),
        mask(&[A::PKEY_INDEX, A::PORT, A::ACCESS_FLAGS]),
    ),
    (
        Init,
        ReadyToReceive,
        mask(&[
            A::ADDRESS_VECTOR,
            A::PATH_MTU,
            A::DEST_QPN,
            A::RQ_PSN,
            A::MAX_DEST_RD_ATOMIC,
            A::MIN_RNR_TIMER,
        ]),
        mask(&[A::ALT_PATH, A::ACCESS_FLAGS, A::PKEY_INDEX]),
    ),
    (
        ReadyToReceive,
        ReadyToSend,
        mask(&[
            A::TIMEOUT,
            A::RETRY_COUNT,
            A::RNR_RETRY,
            A::SQ_PSN,
            A::MAX_RD_ATOMIC,
        ]),
        RTS_OPTIONAL,
    ),
    (ReadyToSend, ReadyToSend, A::empty(), RTS_OPTIONAL),
    (ReadyToSend, SendQueueDrain, A::empty(), A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, A::empty(), RTS_OPTIONAL),
    (
        SendQueueDrain,
        SendQueueDrain,
        A::empty(),
        mask(&[
            A::PORT,
            A::PKEY_INDEX,
            A::ACCESS_FLAGS,
            A::ADDRESS_VECTOR,
            A::MAX_RD_ATOMIC,
            A::MIN_RNR_TIMER,
            A::MAX_DEST_RD_ATOMIC,
            A::TIMEOUT,
            A::RETRY_COUNT,
            A::RNR_RETRY,
            A::ALT_PATH,
            A::PATH_MIG_STATE,
        ]),
    ),
];

/// Rows for unreliable connections.
const UC_ROWS: &[Row] = &[
    (
        Reset,
        Init,
        mask(&[A::PKEY_INDEX, A::PORT, A::ACCESS_FLAGS]),
        A::empty(),
    ),
    (
        Init,
        Init,
        A::empty(),
        mask(&[A::PKEY_INDEX, A::PORT, A::ACCESS_FLAGS]),
    ),
    (
        Init,
        ReadyToReceive,
        mask(&[A::ADDRESS_VECTOR, A::PATH_MTU, A::DEST_QPN, A::RQ_PSN]),
        mask(&[A::ALT_PATH, A::ACCESS_FLAGS, A::PKEY_INDEX]),
    ),
    (
        ReadyToReceive,
        ReadyToSend,
        A::SQ_PSN,
        mask(&[
            A::CURRENT_STATE,
            A::ALT_PATH,
            A::ACCESS_FLAGS,
            A::PATH_MIG_STATE,
        ]),
    ),
    (
        ReadyToSend,
        ReadyToSend,
        A::empty(),
        mask(&[
            A::CURRENT_STATE,
            A::ALT_PATH,
            A::ACCESS_FLAGS,
            A::PATH_MIG_STATE,
        ]),
    ),
    (ReadyToSend, SendQueueDrain, A::empty(), A::SQD_NOTIFY),
    (
        SendQueueDrain,
        ReadyToSend,
        A::empty(),
        mask(&[A::CURRENT_STATE, A::ACCESS_FLAGS]),
    ),
    (
        SendQueueDrain,
        SendQueueDrain,
        A::empty(),
        mask(&[
            A::PKEY_INDEX,
            A::ACCESS_FLAGS,
            A::ADDRESS_VECTOR,
            A::ALT_PATH,
        ]),
    ),
    (
        SendQueueError,
        ReadyToSend,
        A::empty(),
        mask(&[A::CURRENT_STATE, A::ACCESS_FLAGS]),
    ),
];

/// Rows for unreliable datagrams.
const UD_ROWS: &[Row] = &[
    (
        Reset,
        Init,
        mask(&[A::PKEY_INDEX, A::PORT, A::QKEY]),
        A::empty(),
    ),
    (
        Init,
        Init,
        A::empty(),
        mask(&[A::PKEY_INDEX, A::PORT, A::QKEY]),
    ),
    (
        Init,
        ReadyToReceive,
        A::empty(),
        mask(&[A::PKEY_INDEX, A::QKEY]),
    ),
    (
        ReadyToReceive,
        ReadyToSend,
        A::SQ_PSN,
        mask(&[A::CURRENT_STATE, A::QKEY]),
    ),
    (
        ReadyToSend,
        ReadyToSend,
        A::empty(),
        mask(&[A::CURRENT_STATE, A::QKEY]),
    ),
    (ReadyToSend, SendQueueDrain, A::empty(), A::SQD_NOTIFY),
    (
        SendQueueDrain,
        ReadyToSend,
        A::empty(),
        mask(&[A::CURRENT_STATE, A::QKEY]),
    ),
    (
        SendQueueDrain,
        SendQueueDrain,
        A::empty(),
        mask(&[A::PKEY_INDEX, A::QKEY]),
    ),
    (
        SendQueueError,
        ReadyToSend,
        A::empty(),
        mask(&[A::CURRENT_STATE, A::QKEY]),
    ),
];

/// Rows for XRC initiators, which execute nothing for the peer. What concerns executing is taken
/// and has no effect: programs (perftest) set it for both ends alike.
const XRC_INITIATOR_ROWS: &[Row] = &[
    (Reset, Init, INIT_CONNECTED, A::empty()),
    (Init, Init, A::empty(), INIT_CONNECTED),
    (
        Init,
        ReadyToReceive,
        RTR_CONNECTED,
        mask(&[RTR_OPTIONAL, A::MAX_DEST_RD_ATOMIC, A::MIN_RNR_TIMER]),
    ),
    (
        ReadyToReceive,
        ReadyToSend,
        mask(&[
            A::TIMEOUT,
            A::RETRY_COUNT,
            A::RNR_RETRY,
            A::SQ_PSN,
            A::MAX_RD_ATOMIC,
        ]),
        RTS_OPTIONAL,
    ),
    (ReadyToSend, ReadyToSend, A::empty(), RTS_OPTIONAL),
    (ReadyToSend, SendQueueDrain, A::empty(), A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, A::empty(), RTS_OPTIONAL),
    (
        SendQueueDrain,
        SendQueueDrain,
        A::empty(),
        mask(&[
            A::PORT,
            A::PKEY_INDEX,
            A::ACCESS_FLAGS,
            A::ADDRESS_VECTOR,
            A::MAX_RD_ATOMIC,
            A::TIMEOUT,
            A::RETRY_COUNT,
            A::RNR_RETRY,
            A::ALT_PATH,
            A::PATH_MIG_STATE,
        ]),
    ),
];

/// Rows for XRC targets, which only execute and answer. What concerns requests is taken and has no
/// effect.
const XRC_TARGET_ROWS: &[Row] = &[
    (Reset, Init, INIT_CONNECTED, A::empty()),
    (Init, Init, A::empty(), INIT_CONNECTED),
    (
        Init,
        ReadyToReceive,
        mask(&[RTR_CONNECTED, A::MAX_DEST_RD_ATOMIC, A::MIN_RNR_TIMER]),
        RTR_OPTIONAL,
    ),
    (
        ReadyToReceive,
        ReadyToSend,
        mask(&[A::TIMEOUT, A::SQ_PSN]),
        mask(&[RTS_OPTIONAL, A::RETRY_COUNT, A::RNR_RETRY, A::MAX_RD_ATOMIC]),
    ),
    (ReadyToSend, ReadyToSend, A::empty(), RTS_OPTIONAL),
    (ReadyToSend, SendQueueDrain, A::empty(), A::SQD_NOTIFY),
    (SendQueueDrain, ReadyToSend, A::empty(), RTS_OPTIONAL),
    (
        SendQueueDrain,
        SendQueueDrain,
        A::empty(),
        mask(&[
            A::PORT,
            A::PKEY_INDEX,
            A::ACCESS_FLAGS,
            A::ADDRESS_VECTOR,
            A::MIN_RNR_TIMER,
            A::MAX_DEST_RD_ATOMIC,
            A::TIMEOUT,
            A::ALT_PATH,
            A::PATH_MIG_STATE,
        ]),
    ),
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
