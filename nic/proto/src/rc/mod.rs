//! The reliable connection (RC, and XRC, which is the same but for where receives come from): one
//! requester and one responder per queue pair.

pub(crate) mod ack_patience;
pub(crate) mod acknowledge;
pub(crate) mod early;
pub(crate) mod reply;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod retry;
pub(crate) mod window;

/// Packets in flight, from so many on, are of a large message or a stream.
const STREAM_PACKETS: u32 = 8;
