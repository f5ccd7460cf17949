//! How the payload of a packet comes to the adapter.
//!
//! A short request comes with the doorbell: the program writes it to the adapter. So does one to
//! READ, which has no payload. Of all others, the adapter fetches the payload over the bus, which
//! begins to come a while after it was asked for. It fetches a unit at a time, and a packet leaves
//! once the unit that it ends in is there. It asks for the next unit before that, so that only the
//! first of a message is waited for. A message that goes on after a loss begins so again.

use urxe_wire::Operation::{self, SendOnly, WriteOnly};

use crate::body::Body;
use crate::gathered::Piece;
use crate::network::Network;
use crate::packet::Packet;
use crate::scenario::HostConfig;
use crate::units::{PS_PER_NS, Pace};

impl HostConfig {
    /// How much is fetched at a time.
    pub(crate) const fn unit_bytes(&self) -> u64 {
        let (unit, packet) = (self.gather_bytes as u64, self.mtu_bytes as u64);
        if unit > packet { unit } else { packet }
    }

    /// From a read over the bus until its answer begins to come, picoseconds.
    const fn read_ps(&self) -> u64 {
        self.pcie.read_latency_ns * PS_PER_NS
    }

    /// What the fetch of a work request adds to that.
    const fn request_ps(&self) -> u64 {
        if self.fetches_requests {
            self.read_ps()
        } else {
            0
        }
    }

    /// The most that a packet waits for what is fetched.
    pub(crate) const fn fetch_ps(&self) -> u64 {
        self.read_ps() + self.request_ps()
    }

    /// How long a packet takes through the adapter's own memory.
    pub(crate) fn buffer_ps(&self, bytes: u64) -> u64 {
        self.buffer_gbps
            .map_or(0, |rate_gbps| Pace::of_gbps(rate_gbps).of_bytes(bytes))
    }
}

impl Network {
    /// Whether a connection may go on without asking memory for more.
    pub(crate) fn has_gathered(&self, channel: u32) -> bool {
        let packet_bytes = u64::from(self.scenario.host.mtu_bytes);
        self.connections[channel as usize]
            .gathered
            .has_next(packet_bytes)
    }

    /// Fetches what a packet needs, which begins `offset` bytes into its message: when all of it is
    /// there.
    pub(crate) fn gather(
        &mut self,
        host: u32,
        channel: u32,
        packet: &Packet,
        body: &Body,
        offset: u32,
    ) -> u64 {
        let (now, config) = (self.now, self.scenario.host);
        let payload_bytes = u64::from(packet.payload_bytes);
        if matches!(body, Body::Held { .. }) {
            // The adapter made it itself.
            return now;
        }
        let Body::Rdma(header) = body else {
            return if payload_bytes == 0 {
                now
            } else {
                let bus = &mut self.hosts[host as usize].pcie;
                bus.read(now, payload_bytes) + config.read_ps()
            };
        };
        let of_flow = if payload_bytes > 0 {
            self.sent_bytes(channel, header.bth.psn)
        } else {
            None
        };
        let connection = &mut self.connections[channel as usize];
        let bus = &mut self.hosts[host as usize].pcie;
        let message_bytes = of_flow.unwrap_or(connection.message_bytes);
        let gathered = &mut connection.gathered;
        let operation = header.bth.opcode.operation();
        let is_with_doorbell = matches!(operation, Some(SendOnly | WriteOnly))
            && payload_bytes <= u64::from(config.inline_bytes);
        if is_with_doorbell {
            gathered.drop_rest();
        } else if payload_bytes > 0 {
            let piece = Piece {
                psn: header.bth.psn,
                offset: u64::from(offset),
                bytes: payload_bytes,
                message_bytes: u64::from(message_bytes),
            };
            let asked_bytes = gathered.take(piece, config.unit_bytes());
            if asked_bytes > 0 {
                let is_request = !operation.is_some_and(Operation::is_response);
                let request_ps = if is_request { config.request_ps() } else { 0 };
                let there_at = bus.read(now, asked_bytes) + config.read_ps() + request_ps;
                gathered.ready_at = gathered.ready_at.max(there_at);
            }
        }
        gathered.ready_at = gathered.ready_at.max(now);
        // A short packet does not pass a long one.
        let passed_at = gathered.ready_at + config.buffer_ps(payload_bytes);
        gathered.passed_at = gathered.passed_at.max(passed_at);
        gathered.passed_at
    }
}
