//! Congestion control: what the environment says of it, and the notifications that marks on packets
//! cause. The rates are `urxe-proto`'s.

use urxe_proto::{Instant, Transmit};
use urxe_udp::{Framing, Piece, Transmit as UdpTransmit};
use urxe_wire::{ICRC_LEN, pad_len};

use crate::engine::Engine;
use crate::engine::path::Path;

/// The type of service of notifications: DSCP 48 ("class selector 6"), not ECN capable, as ConnectX
/// adapters have it.
const CNP_TOS: u8 = 48 << 2;

impl Engine {
    /// Packets that the queue pair at `index` has just handled were marked: notifies the peer, if
    /// it is time to.
    #[cold]
    pub(crate) fn handle_marked(&mut self, index: u16, now: Instant) {
        let Some(slot) = self.qps.get_mut(index) else {
            return;
        };
        slot.qp.handle_congestion_mark(now);
        let (Some(notification), Some(path)) = (slot.qp.poll_notification(), &slot.path) else {
            return;
        };
        let ports = self.sockets.as_ref().map(|sockets| &sockets.ports);
        let socket = ports.and_then(|ports| ports[path.port].socket.as_deref());
        if let (Some(socket), Some(datagram)) = (socket, datagram(&notification, path)) {
            // What does not get out is lost, as anywhere on the way: the next mark brings another.
            let sent = socket.send(&UdpTransmit {
                destination: &path.destination,
                segment_size: None,
                tos: CNP_TOS,
                framing: Framing::Never,
                whole: None,
                iov: &[Piece::new(&datagram)],
            });
            self.stats.tx_packets += u64::from(sent.is_ok());
        }
    }
}

/// The UDP payload of a packet whose payload is at hand.
fn datagram(packet: &Transmit<'_>, path: &Path) -> Option<Vec<u8>> {
    let urxe_proto::Payload::Bytes(payload) = packet.payload else {
        return None;
    };
    let mut datagram = vec![0; packet.header.wire_len()];
    packet.header.emit(payload.len(), &mut datagram).ok()?;
    datagram.extend_from_slice(payload);
    datagram.resize(datagram.len() + pad_len(payload.len()), 0);
    let icrc = path.flow.start(datagram.len() + ICRC_LEN, 0, &datagram);
    datagram.extend(icrc.finish());
    Some(datagram)
}
