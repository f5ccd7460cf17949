//! Packets on their way in: parsed, matched to a queue pair, checked, handed to the protocol.

use std::net::SocketAddr;

use urxe_proto::Instant;
use urxe_udp::RecvBuffer;
use urxe_wire::icrc::Flow;
use urxe_wire::{Opcode, Packet, Qpn};

use crate::engine::Engine;
use crate::table::Path;

/// Batches read from one socket before the others get their turn.
const BATCHES_PER_TURN: usize = 8;

impl Engine {
    /// Takes in what has arrived. Returns how many packets. Sockets that no queue pair uses are looked
    /// at only by a thread that waits for them (`all`), lest they keep it awake.
    pub(crate) fn receive(&mut self, now: Instant, all: bool) -> usize {
        let mut count = 0;
        // The buffer leaves the engine meanwhile, so that the packets in it and the engine can be
        // borrowed together.
        let Some(mut buffer) = self.buffer.take() else {
            return 0;
        };
        for port in 0..self.ports().len() {
            if all || self.ports()[port].users > 0 {
                count += self.receive_from(port, &mut buffer, now);
            }
        }
        self.buffer = Some(buffer);
        count
    }

    /// Takes in what came to sockets that no queue pair uses.
    pub(crate) fn receive_idle(&mut self, now: Instant) {
        let Some(mut buffer) = self.buffer.take() else {
            return;
        };
        for port in 0..self.ports().len() {
            if self.ports()[port].users == 0 {
                self.receive_from(port, &mut buffer, now);
            }
        }
        self.buffer = Some(buffer);
    }

    fn receive_from(&mut self, port: usize, buffer: &mut RecvBuffer, now: Instant) -> usize {
        let mut count = 0;
        for _ in 0..BATCHES_PER_TURN {
            let Some(socket) = &self.ports()[port].socket else {
                break;
            };
            let local = socket.local_address();
            let meta = match socket.receive(buffer) {
                Ok(Some(meta)) => meta,
                Ok(None) => break,
                Err(_) => {
                    self.stats.rx_errors += 1;
                    break;
                }
            };
            self.stats.rx_batches += 1;
            for (index, segment) in buffer.segments(&meta).enumerate() {
                count += 1;
                self.stats.rx_packets += 1;
                self.stats.rx_bytes += segment.len() as u64;
                // A batch that nobody cut apart has the IPv4 IDs 0, 1, 2, ... that its sender assumed.
                let id = u16::try_from(index).unwrap_or(0);
                self.handle_datagram(now, port, local, meta.source, id, segment);
            }
        }
        count
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        port: usize,
        local: SocketAddr,
        source: SocketAddr,
        ip_id: u16,
        datagram: &[u8],
    ) {
        let Ok(packet) = Packet::parse(datagram) else {
            self.stats.rx_malformed += 1;
            return;
        };
        if packet.header.bth.opcode == Opcode::CNP {
            self.stats.rx_cnp += 1;
            return;
        }
        let Some(index) = self.qps.find(packet.header.bth.dest_qp) else {
            if packet.header.bth.dest_qp == Qpn::GSI {
                crate::cm::receive(self.link, local, source, ip_id, datagram, &packet);
            } else {
                self.stats.rx_unknown_qp += 1;
            }
            return;
        };
        let Some(slot) = self.qps.get_mut(index) else {
            return;
        };
        let Some(path) = slot
            .path
            .as_mut()
            .filter(|path| path.is_from_peer(port, source))
        else {
            self.stats.rx_wrong_source += 1;
            return;
        };
        if !path
            .inbound_flow(source, local)
            .is_some_and(|f| f.verify(datagram, ip_id).is_good())
        {
            self.stats.rx_icrc_errors += 1;
            return;
        }
        slot.qp.handle_packet(now, &packet, &mut self.memory);
        slot.deliver(&self.events);
        self.mark_ready(index);
    }
}

impl Path {
    /// Whether a packet that came to `port` from `source` comes from the queue pair's peer. The UDP
    /// source port does not count: Linux rxe and hardware choose it freely.
    fn is_from_peer(&self, port: usize, source: SocketAddr) -> bool {
        self.port == port && self.destination.address().ip() == source.ip()
    }

    fn inbound_flow(&mut self, source: SocketAddr, local: SocketAddr) -> Option<&Flow> {
        if self
            .inbound
            .as_ref()
            .is_none_or(|(known, _)| *known != source)
        {
            self.inbound = Flow::new(source, local).map(|flow| (source, flow));
        }
        self.inbound.as_ref().map(|(_, flow)| flow)
    }
}
