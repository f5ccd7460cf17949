//! What an adapter does: it picks whose turn it is to send, fetches data, and takes in what
//! arrives.

use urxe_proto::{AckMode, Completion, Instant, Payload, WcStatus};
use urxe_wire::{HELD_LEN, Header, Packet as WirePacket, Syndrome};

use crate::body::Body;
use crate::connection::{NoMemory, connection_of};
use crate::event::Event;
use crate::framing::{LinkKind, rdma_bytes};
use crate::network::Network;
use crate::packet::{COMPLETES, LAST, MARKABLE, MARKED, NAK, Packet};
use crate::port::{DATA, NOTIFICATIONS};
use crate::scenario::HostConfig;
use crate::units::PS_PER_NS;

/// Whether a packet says that one before it is missing.
fn is_nak(header: &Header) -> bool {
    header
        .aeth
        .is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Nak(_)))
}

/// An entry of a completion queue.
const COMPLETION_BYTES: u64 = 64;
/// The payload of every packet.
static ZEROES: [u8; 4096] = [0; 4096];

/// A packet that an adapter is to send.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) packet: Packet,
    pub(crate) body: Body,
    /// Where its payload begins in its message.
    pub(crate) offset: u32,
}

impl Network {
    const fn instant(&self) -> Instant {
        Instant::from_nanos(self.now / PS_PER_NS)
    }

    /// A connection may have something to send.
    pub(crate) fn make_ready(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        if connection.is_ready {
            return;
        }
        connection.is_ready = true;
        let (host, port) = (connection.host, connection.port_index);
        self.hosts[host as usize].ports[port as usize]
            .ready
            .push_back(id);
        self.wake_engine(host);
    }

    pub(crate) fn wake_engine(&mut self, id: u32) {
        let host = &mut self.hosts[id as usize];
        if host.is_engine_woken {
            return;
        }
        host.is_engine_woken = true;
        let at = host.engine_free_at.max(self.now);
        self.schedule(at, Event::Engine { host: id });
    }

    /// Starts the next packet.
    pub(crate) fn run_engine(&mut self, id: u32) {
        self.hosts[id as usize].is_engine_woken = false;
        if let Some(software) = self.host_config().software {
            self.run_software(id, &software);
            return;
        }
        while let Some(index) = self.hosts[id as usize].next_port() {
            let host = &mut self.hosts[id as usize];
            let Some(channel) = host.ports[index].ready.pop_front() else {
                return;
            };
            let started = if self.is_sockets() {
                let segment = self.next_segment(channel);
                segment.map(|(packet, body)| Started {
                    packet,
                    body,
                    offset: 0,
                })
            } else {
                self.next_packet(channel)
            };
            let Some(started) = started else {
                continue;
            };
            self.start_packet(id, index, channel, started);
            let has_more_here = !self.is_sockets() && self.has_gathered(channel);
            let host = &mut self.hosts[id as usize];
            // A turn ends with what was fetched for it.
            if has_more_here {
                host.ports[index].ready.push_front(channel);
            } else {
                host.ports[index].ready.push_back(channel);
            }
            host.end_turn(index);
            host.is_engine_woken = true;
            let at = host.engine_free_at;
            self.schedule(at, Event::Engine { host: id });
            return;
        }
    }

    /// The next packet of a connection that is at its turn.
    pub(crate) fn next_packet(&mut self, id: u32) -> Option<Started> {
        let now = self.instant();
        let connection = &mut self.connections[id as usize];
        let transmit = connection
            .qp
            .poll_transmit(now, AckMode::Flush, &mut NoMemory);
        let found = transmit.map(|transmit| {
            let header = transmit.header;
            let (body, offset) = match transmit.payload {
                Payload::Words(words) => (Body::Held { header, words }, 0),
                Payload::Local { offset, .. } => (Body::Rdma(header), offset),
                // Messages begin at address 0.
                Payload::Remote { va, .. } => (Body::Rdma(header), va as u32),
                Payload::Empty | Payload::Bytes(_) => (Body::Rdma(header), 0),
            };
            (header, body, offset, transmit.payload.len())
        });
        let Some((header, body, offset, payload_bytes)) = found else {
            connection.is_ready = false;
            self.collect(id);
            return None;
        };
        self.watch_timer(id);
        let mut packet = self.packet(id, &header, payload_bytes);
        packet.priority = DATA;
        packet.set(MARKABLE);
        if is_nak(&header) {
            packet.set(NAK);
        }
        Some(Started {
            packet,
            body,
            offset,
        })
    }

    fn packet(&self, id: u32, header: &Header, payload_bytes: u32) -> Packet {
        let connection = &self.connections[id as usize];
        let config = self.host_config();
        let delimiters = config.delimiter_bytes;
        let mut wire_bytes = rdma_bytes(config.link, delimiters, header, payload_bytes);
        if let Some(telemetry) = &self.telemetry {
            wire_bytes += telemetry.bytes(header, payload_bytes);
        }
        Packet::new(payload_bytes, wire_bytes, connection.flow)
    }

    /// Fetches the data of a packet, and sends it into the pipeline.
    fn start_packet(&mut self, id: u32, index: usize, channel: u32, started: Started) {
        let Started {
            mut packet,
            body,
            offset,
        } = started;
        let HostConfig {
            packet_ps, send_ns, ..
        } = self.scenario.host;
        let now = self.now;
        let ready_at = self.gather(id, channel, &packet, &body, offset);
        let host = &mut self.hosts[id as usize];
        host.ports[index].backlog_bytes += u64::from(packet.wire_bytes);
        host.engine_free_at = host.pcie.read_free_at().max(now + packet_ps);
        packet.tail_at = ready_at + send_ns * PS_PER_NS;
        let (at, port) = (packet.tail_at, host.ports[index].id);
        let packet = self.pool.insert(packet, &body);
        self.begin_telemetry(packet, channel);
        self.schedule(at, Event::Enter { port, packet });
    }

    /// A packet has gone out to the wire.
    pub(crate) fn leave_adapter(&mut self, id: u32, port: u32, bytes: u64) {
        let host = &mut self.hosts[id as usize];
        let Some(own) = host.ports.iter_mut().find(|own| own.id == port) else {
            return;
        };
        // Notifications do not count.
        own.backlog_bytes = own.backlog_bytes.saturating_sub(bytes);
        if !own.ready.is_empty() {
            self.wake_engine(id);
        }
    }

    /// A packet has arrived: it goes to memory.
    pub(crate) fn take_in(&mut self, id: u32, packet: u32) {
        if let Some(software) = &self.scenario.host.software {
            let at = self.now + software.latency_ns * PS_PER_NS;
            self.schedule(at, Event::Deliver { host: id, packet });
            return;
        }
        let HostConfig {
            packet_ps,
            receive_ns,
            ..
        } = self.scenario.host;
        let (payload_bytes, is_nak, completes) = {
            let packet = self.pool.get(packet);
            let bytes = u64::from(packet.payload_bytes);
            (bytes, packet.is(NAK), packet.is(COMPLETES))
        };
        // All of a packet has to be there: its check stands at its end.
        let host = &mut self.hosts[id as usize];
        let start = host.intake_free_at.max(self.now);
        let entry_bytes = if completes { COMPLETION_BYTES } else { 0 };
        let written_at = host.pcie.write(start, payload_bytes + entry_bytes);
        host.intake_free_at = written_at.max(start + packet_ps);
        let stored_ps = self.scenario.host.buffer_ps(payload_bytes);
        // A short packet does not pass a long one.
        host.taken_in_at = host.taken_in_at.max(written_at + stored_ps);
        let taken_in_at = host.taken_in_at;
        let slow_ns = if is_nak { self.scenario.host.nak_ns } else { 0 };
        let at = taken_in_at + (receive_ns + slow_ns) * PS_PER_NS;
        self.schedule(at, Event::Receive { host: id, packet });
    }

    /// A packet is in memory: the protocol takes note of it.
    pub(crate) fn handle_received(&mut self, host: u32, id: u32) {
        let body = self.pool.body(id);
        let packet = self.pool.remove(id);
        self.return_host_credit(host, &packet);
        match body {
            Body::Rdma(header) => {
                self.handle_rdma(
                    id,
                    &packet,
                    header,
                    &ZEROES[..packet.payload_bytes as usize],
                );
            }
            Body::Held { header, words } => {
                let mut payload = [0; HELD_LEN];
                for (bytes, word) in payload.as_chunks_mut().0.iter_mut().zip(words) {
                    *bytes = word.to_be_bytes();
                }
                self.handle_rdma(id, &packet, header, &payload);
            }
            Body::Segment { stream, end } => self.handle_segment(stream, end),
            Body::Acknowledgement { stream, end } => self.handle_stream_ack(stream, end),
        }
    }

    fn return_host_credit(&mut self, host: u32, packet: &Packet) {
        if self.host_config().link == LinkKind::Infiniband {
            let port = self.hosts[host as usize].ports[0].id;
            self.return_credit(port, u64::from(packet.wire_bytes));
        }
    }

    fn handle_rdma(&mut self, packet_id: u32, packet: &Packet, header: Header, payload: &[u8]) {
        let now = self.instant();
        let id = connection_of(header.bth.dest_qp);
        let Some(connection) = self.connections.get_mut(id as usize) else {
            return;
        };
        let arrived = WirePacket { header, payload };
        let before = *connection.qp.stats();
        connection
            .qp
            .handle_packet(now, &arrived, None, &mut NoMemory);
        let after = connection.qp.stats();
        let is_new = before.duplicate_request == after.duplicate_request
            && before.out_of_sequence == after.out_of_sequence
            && before.ignored_responses == after.ignored_responses;
        self.totals.notifications += after.cnp_handled - before.cnp_handled;
        if is_new && packet.payload_bytes > 0 && header.bth.opcode.operation().is_some() {
            let bytes = u64::from(packet.payload_bytes);
            let (host, process) = (connection.host, connection.process);
            self.hosts[host as usize].received_bytes += bytes;
            self.processes[process as usize].received_bytes += bytes;
        } else if !is_new {
            self.totals.repeated += 1;
        }
        self.bring_back(packet_id, packet, &header, is_new, id);
        if packet.is(MARKED) {
            self.notify(id);
        }
        self.collect(id);
        self.make_ready(id);
    }

    /// A marked packet came: its sender is told, if it is time.
    fn notify(&mut self, id: u32) {
        let now = self.instant();
        let connection = &mut self.connections[id as usize];
        connection.qp.handle_congestion_mark(now);
        let Some(transmit) = connection.qp.poll_notification() else {
            return;
        };
        let (header, bytes) = (transmit.header, transmit.payload.len());
        let port = connection.port;
        let mut packet = self.packet(id, &header, bytes);
        packet.priority = NOTIFICATIONS;
        // Software sends it by a call of its own.
        packet.set(LAST);
        let packet = self.pool.insert(packet, &Body::Rdma(header));
        let at = self.now + self.host_config().send_ns * PS_PER_NS;
        self.schedule(at, Event::Enter { port, packet });
    }

    /// Hands completions to programs, and looks at the timers.
    pub(crate) fn collect(&mut self, id: u32) {
        while let Some(completion) = self.connections[id as usize].qp.poll_completion() {
            self.complete(id, &completion);
        }
        while self.connections[id as usize].qp.poll_event().is_some() {}
        self.watch_timer(id);
    }

    fn complete(&mut self, id: u32, completion: &Completion) {
        if completion.status != WcStatus::Success {
            self.totals.failed += 1;
            self.totals.failure.get_or_insert(completion.status);
            self.is_over = true;
            return;
        }
        let process = self.connections[id as usize].process;
        // The entry of the completion queue is under way to the program.
        let at = self.now + self.scenario.host.posted_ns * PS_PER_NS;
        match completion.side() {
            urxe_proto::QueueSide::Send => self.handle_sent(process, id, at),
            urxe_proto::QueueSide::Recv => self.handle_message(process, id, at),
        }
    }

    /// Sees to it that an event looks at the timers of a connection in time.
    fn watch_timer(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        let Some(deadline) = connection.qp.poll_retry_timeout() else {
            return;
        };
        let at = (deadline.as_nanos() * PS_PER_NS).max(self.now);
        if at < connection.timer_at {
            connection.timer_at = at;
            self.schedule(at, Event::Timer { connection: id });
        }
    }

    pub(crate) fn handle_timer(&mut self, id: u32) {
        let now = self.instant();
        let connection = &mut self.connections[id as usize];
        if connection.timer_at > self.now {
            return;
        }
        connection.timer_at = u64::MAX;
        let is_due = connection
            .qp
            .poll_retry_timeout()
            .is_some_and(|at| at <= now);
        if is_due {
            connection.qp.handle_timeout(now);
            self.collect(id);
            self.make_ready(id);
        } else {
            self.watch_timer(id);
        }
    }
}
