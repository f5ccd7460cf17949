//! What packets are for.

use urxe_proto::PdId;

/// Packets of one queue pair's turn: whose they are, and what they are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The protection domain of their payload.
    pub(crate) pd: PdId,
    /// Bytes of a batch, at most ([`super::Outgoing::room_bytes`]).
    pub(crate) room_bytes: usize,
    /// They are part of a stream, or of one of many flows, which are one to the link.
    pub(crate) is_stream: bool,
}
