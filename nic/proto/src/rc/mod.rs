//! The reliable connection (RC, and XRC, which is the same but for where receives come from): one
//! requester and one responder per queue pair.

use urxe_wire::Psn;

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

/// `later - earlier` for PSNs known to be in this order.
fn distance(later: Psn, earlier: Psn) -> u32 {
    later.distance_from(earlier).max(0).unsigned_abs()
}

/// The later one of two.
fn later(a: Psn, b: Psn) -> Psn {
    if b.is_after(a) { b } else { a }
}
