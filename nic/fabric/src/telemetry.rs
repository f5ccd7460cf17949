//! What packets carry for congestion control, and acknowledgements bring back.
//!
//! An adapter notes when a packet of data goes to its port, and when the acknowledgement has come:
//! that is the round trip. The simulation lets the packet carry the time, which costs nothing, as
//! an adapter would look it up by the packet's number. Switches write into packets what each has
//! at the port by which it leaves. The receiver keeps what the last packet of data brought, and
//! counts packets and marks, until its next acknowledgement takes all that along, with the time
//! that has passed since the packet came.

use alloc::vec::Vec;

use urxe_proto::Hop;
use urxe_wire::{Header, Operation};

use crate::congestion::Needs;
use crate::port::Port;
use crate::units::PS_PER_NS;

/// Switches that may write into a packet.
pub(crate) const HOPS_MAX: usize = 5;

/// What a packet carries. Times are picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    /// When the data went to the port of its adapter.
    pub(crate) sent_at: u64,
    /// When this packet came to its host.
    pub(crate) arrived_at: u64,
    /// Of an acknowledgement: how long the data, and then this, was in the host.
    pub(crate) remote_ps: u64,
    /// Of an acknowledgement: what came since the last one; 0 if it brings nothing back.
    pub(crate) packets: u32,
    pub(crate) marked: u32,
    pub(crate) hops: u32,
    pub(crate) is_acknowledgement: bool,
    pub(crate) path: [Hop; HOPS_MAX],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) needs: Needs,
    /// By packet.
    records: Vec<Record>,
    /// By connection: what its next acknowledgement takes along.
    owed: Vec<Record>,
}

pub(crate) fn is_acknowledgement(header: &Header) -> bool {
    header.bth.opcode.operation() == Some(Operation::Acknowledge)
}

impl Telemetry {
    pub(crate) const fn new(needs: Needs) -> Self {
        Self {
            needs,
            records: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// What a packet is longer by.
    pub(crate) fn bytes(&self, header: &Header, payload_bytes: u32) -> u32 {
        if is_acknowledgement(header) {
            self.needs.acknowledgement_bytes
        } else if payload_bytes > 0 && header.bth.opcode.operation().is_some() {
            self.needs.data_bytes
        } else {
            0
        }
    }

    /// A packet of a connection begins to exist.
    pub(crate) fn begin(&mut self, packet: u32, connection: u32, header: &Header) {
        let mut record = Record::default();
        if is_acknowledgement(header)
            && let Some(owed) = self.owed.get_mut(connection as usize)
        {
            record = *owed;
            owed.packets = 0;
            owed.marked = 0;
        }
        record.is_acknowledgement = is_acknowledgement(header);
        let index = packet as usize;
        if self.records.len() <= index {
            self.records.resize(index + 1, Record::default());
        }
        self.records[index] = record;
    }

    pub(crate) fn record(&mut self, packet: u32) -> Option<&mut Record> {
        self.records.get_mut(packet as usize)
    }

    /// A packet leaves a switch by a port of a rate at `start`, picoseconds.
    pub(crate) fn pass(&mut self, packet: u32, port: &Port, rate_gbps: f64, start: u64) {
        let has_telemetry = self.needs.has_telemetry;
        let Some(record) = self.record(packet).filter(|it| !it.is_acknowledgement) else {
            return;
        };
        if has_telemetry && let Some(hop) = record.path.get_mut(record.hops as usize) {
            *hop = Hop {
                at_ns: start / PS_PER_NS,
                queue_bytes: port.queue_bytes(),
                sent_bytes: port.tx_bytes,
                rate_bps: (rate_gbps * 1e9) as u64,
            };
        }
        record.hops += 1;
    }

    /// New data came on a connection.
    pub(crate) fn owe(&mut self, packet: u32, connection: u32, is_marked: bool) {
        let Some(record) = self.record(packet).copied() else {
            return;
        };
        let index = connection as usize;
        if self.owed.len() <= index {
            self.owed.resize(index + 1, Record::default());
        }
        let before = &self.owed[index];
        let (packets, marked) = (before.packets + 1, before.marked + u32::from(is_marked));
        self.owed[index] = Record {
            packets,
            marked,
            ..record
        };
    }
}
