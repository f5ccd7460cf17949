//! What queue pairs over streams have around them.

use urxe_proto::SharedReceiveQueue;
use urxe_wire::Srqn;

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
    /// System calls that sent something.
    pub(crate) sends: u64,
    /// Connections from which something came.
    pub(crate) receives: usize,
}
