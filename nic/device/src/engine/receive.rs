//! Packets on their way in: parsed, matched to a queue pair, checked, handed to the protocol.

use std::slice::Chunks;

use urxe_proto::Instant;
use urxe_udp::{RecvBuffer, RecvMeta};
use urxe_wire::{Bth, ICRC_LEN, Opcode, Operation, Packet, Qpn, Reth, Transport};

use crate::attach::congestion::is_marked;
use crate::engine::Engine;
use crate::engine::forward;
use crate::engine::origin::{BATCHES_PER_TURN, Origin};
use crate::engine::path::{Path, Verified};
use crate::engine::port::Ports;
use crate::engine::table::Receives;
use crate::engine::vendor_mad::is_services;
use crate::process::clock;

/// Packets read from one socket before the others get their turn, if they are more than
/// [`BATCHES_PER_TURN`] batches: acknowledgements of hundreds of queue pairs come one by one.
const PACKETS_PER_TURN: usize = 128;

/// So few packets at first are probably what the program waits for, and all there is: a message,
/// and the acknowledgement of the one before. To look for more costs as much as 200 ns; the next
/// round does that.
const REPLY_PACKETS: usize = 2;

/// Packets that are handled together, at most: as many as the kernel joins.
const RUN_MAX: usize = 64;

/// WRITEs of one packet, as the header begins.
const WRITE_ONLY: u8 = Opcode::new(Transport::Rc, Operation::WriteOnly).code();
/// The same of what may be handled together: those, and the middle of a SEND, a WRITE, an answer to
/// a READ on a reliable connection.
const RUN_OPCODES: [u8; 4] = [
    WRITE_ONLY,
    Opcode::new(Transport::Rc, Operation::SendMiddle).code(),
    Opcode::new(Transport::Rc, Operation::WriteMiddle).code(),
    Opcode::new(Transport::Rc, Operation::ReadResponseMiddle).code(),
];

impl Engine {
    /// Takes in what has arrived. Returns how many packets. Sockets that no queue pair uses are
    /// looked at only by a thread that waits for them (`all`), lest they keep it awake. `clock` is
    /// when it is, once it was looked at.
    pub(crate) fn receive(&mut self, clock: &mut Option<Instant>, all: bool) -> usize {
        let mut count = 0;
        // The buffer leaves the engine meanwhile, so that the packets in it and the engine can be
        // borrowed together.
        let Some(mut buffer) = self.buffer.take() else {
            return 0;
        };
        if let Some(sockets) = &mut self.sockets {
            sockets.begin_round();
        }
        for port in 0..self.ports().len() {
            let is_due = |sockets: &Ports| all || sockets.is_due(port);
            if self.sockets.as_ref().is_some_and(is_due) {
                let received = self.receive_from(port, &mut buffer, clock);
                if let Some(sockets) = self.sockets.as_mut().filter(|_| received > 0) {
                    sockets.note_heard(port);
                }
                count += received;
            }
        }
        if !self.groups.is_empty() {
            count += self.receive_multicast(&mut buffer);
        }
        self.buffer = Some(buffer);
        count
    }

    /// Takes in what came to sockets that no queue pair uses.
    pub(crate) fn receive_idle(&mut self) {
        let Some(mut buffer) = self.buffer.take() else {
            return;
        };
        for port in 0..self.ports().len() {
            if self.ports()[port].users == 0 {
                self.receive_from(port, &mut buffer, &mut None);
            }
        }
        self.buffer = Some(buffer);
    }

    fn receive_from(
        &mut self,
        port: usize,
        buffer: &mut RecvBuffer,
        clock: &mut Option<Instant>,
    ) -> usize {
        let (mut count, mut batches) = (0, 0);
        while batches < BATCHES_PER_TURN || count.max(batches) < PACKETS_PER_TURN {
            batches += 1;
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
            let now = *clock.get_or_insert_with(clock::now);
            self.count_batch(&meta);
            let mut origin = Origin {
                port,
                local,
                source: meta.source,
                tos: meta.tos,
                ip_id: 0,
                frame: meta.frame,
            };
            let mut handled = None;
            let mut may_be_run = true;
            let mut segments = buffer.segments(&meta);
            while let Some(segment) = segments.next() {
                count += 1;
                self.stats.rx_packets += 1;
                self.stats.rx_bytes += segment.len() as u64;
                let index = self.handle_datagram(now, &origin, segment);
                // A batch that was never cut apart has the IPv4 IDs 0, 1, 2, ... that its sender
                // assumed.
                origin.ip_id = origin.ip_id.wrapping_add(1);
                if index != handled {
                    let before = std::mem::replace(&mut handled, index);
                    self.finish_handling(before, now, meta.tos);
                }
                if let Some(index) = index
                    && RUN_OPCODES.contains(&segment[0])
                    && may_be_run
                    && let Some(next) = segments.clone().next()
                    && follows(next, segment)
                {
                    let taken = self.handle_run(index, now, &origin, segment, segments.clone());
                    // What is told apart once is not looked at twice.
                    may_be_run = taken.is_none_or(|taken| taken > 0);
                    let taken = taken.unwrap_or(0);
                    segments.by_ref().take(taken).for_each(drop);
                    count += taken;
                    let ids = u16::try_from(taken).unwrap_or(0);
                    origin.ip_id = origin.ip_id.wrapping_add(ids);
                }
            }
            self.finish_handling(handled, now, meta.tos);
            if count <= REPLY_PACKETS && !(meta.has_more && self.has_many_senders()) {
                break;
            }
        }
        count
    }

    /// Handles what follows a packet of the middle of a message, or a WRITE, for the queue pair at
    /// `index`, and is like it. Returns how many packets were handled; None if none is like it.
    #[inline(never)]
    fn handle_run(
        &mut self,
        index: u16,
        now: Instant,
        origin: &Origin,
        before: &[u8],
        segments: Chunks<'_, u8>,
    ) -> Option<usize> {
        let header_len = run_header_len(before);
        let mut last = before;
        let slot = self.qps.get_mut(index)?;
        let path = slot.path.as_ref()?;
        let (mut payloads, mut count) = ([&[][..]; RUN_MAX], 0);
        let (mut origin, mut first) = (*origin, None);
        for segment in segments.take(RUN_MAX) {
            if !follows(segment, last) || path.verify(&origin, segment) != Verified::Good {
                break;
            }
            first.get_or_insert(segment);
            payloads[count] = &segment[header_len..segment.len() - ICRC_LEN];
            count += 1;
            origin.ip_id = origin.ip_id.wrapping_add(1);
            last = segment;
        }
        let packet = Packet::parse(first?).ok()?;
        let payloads = &payloads[..count];
        let taken = slot.qp.handle_run(now, &packet, payloads, &mut self.memory);
        self.stats.rx_packets += taken as u64;
        self.stats.rx_bytes += (taken * before.len()) as u64;
        Some(taken)
    }

    /// Counts what was received with one system call.
    pub(crate) fn count_batch(&mut self, meta: &RecvMeta) {
        self.stats.rx_batches += 1;
        if is_marked(meta.tos) {
            self.stats.rx_ecn_marked += meta.segments() as u64;
        }
    }

    /// After packets of one batch for a queue pair: delivers what they completed.
    fn finish_handling(&mut self, index: Option<u16>, now: Instant, tos: u8) {
        if let Some(index) = index
            && let Some(slot) = self.qps.get_mut(index)
        {
            slot.deliver(&self.events);
            self.mark_ready(index);
            if is_marked(tos) {
                self.handle_marked(index, now);
            }
        }
    }

    /// A datagram that the holder of port 4791 passed on; the holder says where it came from.
    /// Another urxe sends to the port that the queue pair's number tells, and management datagrams
    /// are passed on by another way.
    #[cold]
    fn handle_passed_on(&mut self, now: Instant, was: &Origin, datagram: &[u8]) -> Option<u16> {
        let dest_qp = Packet::parse(datagram).ok()?.header.bth.dest_qp;
        let slot = self.qps.find(dest_qp).and_then(|index| self.qps.get(index));
        let path = slot.and_then(|slot| slot.path.as_ref());
        if dest_qp == Qpn::GSI || path.is_some_and(Path::is_to_our_kind) {
            self.stats.rx_wrong_source += 1;
            return None;
        }
        self.handle_datagram(now, was, datagram)
    }

    /// Returns the queue pair that handled the packet, for [`Self::finish_handling`].
    fn handle_datagram(&mut self, now: Instant, origin: &Origin, datagram: &[u8]) -> Option<u16> {
        // By reference: headers are large, and moved otherwise.
        let parsed = Packet::parse(datagram);
        let Ok(packet) = &parsed else {
            if let Some((was, datagram)) = forward::unwrap(origin, datagram) {
                return self.handle_passed_on(now, &was, datagram);
            }
            self.stats.rx_malformed += 1;
            return None;
        };
        let Some(index) = self.qps.find(packet.header.bth.dest_qp) else {
            if origin.frame.is_some() && is_services(packet.header.bth.dest_qp) {
                // RDMA-CM is RoCEv2's alone.
                self.handle_vendor_mad(now, origin, packet, datagram);
            } else if packet.header.bth.dest_qp != Qpn::GSI {
                if self.pass_on(origin, packet, datagram) {
                    return None;
                }
                self.stats.rx_unknown_qp += 1;
                self.answer_for_ended(now, origin, packet, datagram);
            } else if !self.handle_vendor_mad(now, origin, packet, datagram)
                && let Some(receive) = self.management
            {
                receive(self.link, origin, datagram, packet);
            }
            return None;
        };
        let slot = self.qps.get_mut(index)?;
        let Some(path) = slot
            .path
            .as_mut()
            .filter(|path| path.is_from_peer(origin.port, origin.source))
        else {
            self.handle_unconnected(index, packet, origin, datagram);
            return None;
        };
        match path.verify(origin, datagram) {
            Verified::Good => {}
            Verified::News => {
                if slot.qp.is_credible(packet) {
                    path.believe(origin);
                    slot.qp.set_peer_abilities(path.peer_abilities());
                }
            }
            Verified::Foreign => {
                self.stats.rx_wrong_source += 1;
                return None;
            }
            Verified::Bad => {
                self.stats.rx_icrc_errors += 1;
                return None;
            }
        }
        let operation = packet.header.bth.opcode.operation();
        self.requests += u64::from(operation.is_some_and(Operation::is_request));
        if slot.receives == Receives::Own {
            slot.qp.handle_packet(now, packet, None, &mut self.memory);
        } else {
            self.srqs
                .handle_packet(slot, now, packet, &mut self.memory, &self.events);
            slot.deliver(&self.events);
        }
        Some(index)
    }
}

/// Length of the headers of a packet that may be handled with others.
fn run_header_len(segment: &[u8]) -> usize {
    let is_write = segment.first() == Some(&WRITE_ONLY);
    Bth::LEN + if is_write { Reth::LEN } else { 0 }
}

/// Whether a packet is like the one `before`, which may be handled with others, and comes next.
fn follows(segment: &[u8], before: &[u8]) -> bool {
    let headers = |segment: &[u8]| {
        let (bth, rest) = segment.split_first_chunk()?;
        Some((*bth, *rest.first_chunk()?))
    };
    let (Some((bth, reth)), Some((bth_before, reth_before))) = (headers(segment), headers(before))
    else {
        return false;
    };
    segment.len() == before.len()
        && Bth::follows(&bth, &bth_before)
        && (before[0] != WRITE_ONLY || Reth::follows(&reth, &reth_before))
}
