//! Multicast groups that datagram queue pairs are attached to: a socket for each, bound to the
//! group's address and port 4791. All processes that join a group have such a socket, and the
//! kernel gives each every datagram, whatever its sender.

pub(crate) mod group;

use std::sync::Arc;

use urxe_udp::RecvBuffer;
use urxe_wire::{Packet, Qpn};

use crate::engine::Engine;
use crate::engine::datagram::grh;
use crate::engine::origin::{BATCHES_PER_TURN, Origin};

impl Engine {
    /// Whether a queue pair is attached to a group.
    pub(crate) fn is_in_group(&self, qp: Qpn) -> bool {
        self.groups.iter().any(|group| group.members.contains(&qp))
    }

    /// Detaches a queue pair that is destroyed from all groups.
    pub(crate) fn detach_from_all(&mut self, qp: Qpn) {
        for group in &mut self.groups {
            group.members.retain(|member| *member != qp);
        }
        self.groups.retain(|group| !group.members.is_empty());
    }

    /// Takes in what was sent to groups. Returns how many packets.
    pub(crate) fn receive_multicast(&mut self, buffer: &mut RecvBuffer) -> usize {
        let mut count = 0;
        for at in 0..self.groups.len() {
            for _ in 0..BATCHES_PER_TURN {
                let socket = Arc::clone(&self.groups[at].socket);
                let meta = match socket.receive(buffer) {
                    Ok(Some(meta)) => meta,
                    Ok(None) => break,
                    Err(_) => {
                        self.stats.rx_errors += 1;
                        break;
                    }
                };
                self.count_batch(&meta);
                let mut origin = Origin {
                    port: usize::MAX,
                    local: socket.local_address(),
                    source: meta.source,
                    tos: meta.tos,
                    ip_id: 0,
                    frame: None,
                };
                for segment in buffer.segments(&meta) {
                    count += 1;
                    self.stats.rx_packets += 1;
                    self.stats.rx_bytes += segment.len() as u64;
                    self.handle_multicast(at, &origin, segment);
                    origin.ip_id = origin.ip_id.wrapping_add(1);
                }
            }
        }
        count
    }

    fn handle_multicast(&mut self, group: usize, origin: &Origin, datagram: &[u8]) {
        let packet = Packet::parse(datagram)
            .ok()
            .filter(|packet| packet.header.bth.dest_qp == Qpn::MULTICAST);
        let Some(packet) = packet else {
            self.stats.rx_malformed += 1;
            return;
        };
        if !origin.has_good_icrc(datagram) {
            self.stats.rx_icrc_errors += 1;
            return;
        }
        let grh = grh(origin, datagram.len());
        for at in 0..self.groups[group].members.len() {
            let member = self.groups[group].members[at];
            if let Some(index) = self.qps.find(member) {
                self.deliver_datagram(index, &packet, &grh);
            }
        }
    }
}
