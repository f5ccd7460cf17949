//! What queue pairs over streams have around them.

use urxe_proto::SharedReceiveQueue;
use urxe_wire::Srqn;

use super::constants::PACKET_BYTES;
use crate::delivery::events::EventQueue;
use crate::memory::MemoryTable;

/// What queue pairs have in common with the rest of the device.
pub(crate) struct Host<'a> {
    pub(crate) memory: &'a mut MemoryTable,
    pub(crate) queues: &'a mut dyn SharedQueues,
    pub(crate) events: &'a EventQueue,
}

/// The shared receive queues of a device.
pub(crate) trait SharedQueues {
    /// The queue of this number.
    fn queue(&mut self, number: Srqn) -> Option<&mut SharedReceiveQueue>;
}

/// What happened in a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// As many packets of RoCE would have been as much work.
    pub(crate) packets: u64,
    /// Connections from which something came.
    pub(crate) receives: usize,
}

impl Counts {
    /// So many bytes came or went by a system call.
    pub(super) const fn note(&mut self, bytes: usize) {
        self.packets += bytes.div_ceil(PACKET_BYTES) as u64;
    }
}
