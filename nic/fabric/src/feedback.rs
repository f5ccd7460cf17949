//! How what packets carry comes back to congestion control.

use urxe_proto::{Feedback, Instant};
use urxe_wire::Header;

use crate::body::Body;
use crate::network::Network;
use crate::packet::{MARKED, Packet};
use crate::telemetry::{HOPS_MAX, is_acknowledgement};
use crate::units::PS_PER_NS;

impl Network {
    /// A packet of a connection begins to exist.
    pub(crate) fn begin_telemetry(&mut self, packet: u32, connection: u32) {
        if let Some(telemetry) = &mut self.telemetry
            && let Body::Rdma(header) = self.pool.body(packet)
        {
            telemetry.begin(packet, connection, &header);
        }
    }

    /// A packet goes to the port of its adapter.
    pub(crate) fn note_sending(&mut self, packet: u32) {
        let now = self.now;
        if let Some(telemetry) = &mut self.telemetry
            && let Some(record) = telemetry.record(packet)
        {
            if record.is_acknowledgement {
                record.remote_ps = now - record.arrived_at;
            } else {
                record.sent_at = now;
            }
        }
    }

    /// A packet has come to its host.
    pub(crate) fn note_arrival(&mut self, packet: u32) {
        let now = self.now;
        if let Some(telemetry) = &mut self.telemetry
            && let Some(record) = telemetry.record(packet)
        {
            record.arrived_at = now;
        }
    }

    /// A connection has taken note of a packet: of data, its acknowledgement will tell; an
    /// acknowledgement tells congestion control.
    pub(crate) fn bring_back(
        &mut self,
        id: u32,
        packet: &Packet,
        header: &Header,
        is_new: bool,
        connection: u32,
    ) {
        let now = Instant::from_nanos(self.now / PS_PER_NS);
        let Some(telemetry) = &mut self.telemetry else {
            return;
        };
        if !is_acknowledgement(header) {
            if is_new && packet.payload_bytes > 0 {
                telemetry.owe(id, connection, packet.is(MARKED));
            }
            return;
        }
        let has_telemetry = telemetry.needs.has_telemetry;
        let Some(record) = telemetry.record(id).filter(|record| record.packets > 0) else {
            return;
        };
        let hops = if has_telemetry {
            HOPS_MAX.min(record.hops as usize)
        } else {
            0
        };
        let feedback = Feedback {
            round_trip_ns: (record.arrived_at - record.sent_at) / PS_PER_NS,
            remote_ns: record.remote_ps / PS_PER_NS,
            hops: record.hops,
            packets: record.packets,
            marked: record.marked,
            path: &record.path[..hops],
        };
        let qp = &mut self.connections[connection as usize].qp;
        qp.handle_feedback(now, feedback);
    }
}
