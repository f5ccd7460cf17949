//! Packets to queue pair 1, which are communication management's.

use std::sync::OnceLock;

use urxe_wire::Packet;

use crate::engine::origin::Origin;

/// Takes in a packet for QP 1 that the device of an interface got: the interface's number, where it came from, the datagram, and
/// what it holds. It is called with the engine's lock.
pub(crate) type Receive = fn(u32, &Origin, &[u8], &Packet<'_>);

static RECEIVE: OnceLock<Receive> = OnceLock::new();

/// Such packets go there from now on.
pub(crate) fn hand_to(receive: Receive) {
    let _ = RECEIVE.set(receive);
}

/// A packet came; without communication management it is dropped.
#[cold]
pub(crate) fn receive(link: u32, origin: &Origin, datagram: &[u8], packet: &Packet<'_>) {
    if let Some(receive) = RECEIVE.get() {
        receive(link, origin, datagram, packet);
    }
}
