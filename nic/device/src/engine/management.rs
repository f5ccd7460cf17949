//! Packets to queue pair 1, which are communication management's.

use urxe_wire::Packet;

use crate::engine::origin::Origin;

/// Takes in a packet for QP 1 that the device of an interface got: the interface's number, where it
/// came from, the datagram, and what it holds. It is called with the engine's lock.
pub(crate) type Receive = fn(u32, &Origin, &[u8], &Packet<'_>);
