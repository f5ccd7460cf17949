//! The queue pairs of an opened device, found by number in constant time.

use std::sync::Arc;

use urxe_proto::{Instant, QueuePair, QueueSide};
use urxe_wire::{Qpn, Srqn};

use crate::delivery::completions::Completions;
use crate::delivery::events::{AsyncEventKind, EventQueue};
use crate::engine::datagram::paths::DatagramPaths;
use crate::engine::path::Path;
use crate::engine::port::LOCAL_BITS;
use crate::engine::srq::domain::Xrcd;
use crate::process::error::Error;
use crate::process::random::random_u32;

const LOCAL_COUNT: usize = 1 << LOCAL_BITS;
/// Queue pairs 0 and 1 of a port belong to management (IBTA 3.9).
const FIRST_LOCAL: u32 = 2;
const NONE: u16 = u16::MAX;

/// A queue pair and what the engine knows of it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) qp: QueuePair,
    pub(crate) send_cq: Option<Arc<Completions>>,
    /// Of an XRC target, that of the shared receive queue that gave the last receive.
    pub(crate) recv_cq: Option<Arc<Completions>>,
    pub(crate) receives: Receives,
    /// Of a connected queue pair.
    pub(crate) path: Option<Path>,
    /// Of a datagram queue pair.
    pub(crate) datagrams: Option<Box<DatagramPaths>>,
    /// It stands in the engine's list of queue pairs that may have something to send.
    pub(crate) is_ready: bool,
    /// It counts among the engine's senders.
    pub(crate) is_sender: bool,
    /// The earliest entry that it has among the timers.
    pub(crate) armed: Option<Instant>,
}

/// Where a queue pair's receives come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// They are its own.
    Own,
    /// A shared receive queue.
    Shared(Srqn),
    /// The shared receive queue of this domain that a packet names (XRC target).
    Named(Xrcd),
}

impl Slot {
    /// Hands completions and events over to where they belong.
    pub(crate) fn deliver(&mut self, events: &EventQueue) {
        while let Some(completion) = self.qp.poll_completion() {
            let side = completion.side();
            let cq = match side {
                QueueSide::Send => &self.send_cq,
                QueueSide::Recv => &self.recv_cq,
            };
            let more = || self.qp.poll_completion_of(side);
            if let Some(cq) = cq
                && cq.push(completion, more).is_err()
            {
                self.qp.handle_cq_overrun();
            }
        }
        while let Some(event) = self.qp.poll_event() {
            log::debug!("QP {}: {event:?}", self.qp.number().get());
            events.push(AsyncEventKind::Qp(self.qp.number(), event));
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct QpTable {
    /// Local number to index.
    by_local: Box<[u16]>,
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<u16>,
}

impl QpTable {
    pub(crate) fn new() -> Self {
        Self {
            by_local: vec![NONE; LOCAL_COUNT].into_boxed_slice(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Most queue pairs of an opened device.
    pub(crate) const fn capacity() -> usize {
        LOCAL_COUNT - FIRST_LOCAL as usize
    }

    /// A number that no queue pair has. Numbers are random: predictable ones help an attacker who
    /// cannot see the traffic to forge packets.
    pub(crate) fn fresh_local(&self) -> Result<u32, Error> {
        if self.len() >= Self::capacity() {
            return Err(Error::Exhausted("queue pairs"));
        }
        loop {
            let local = random_u32()? % LOCAL_COUNT as u32;
            if local >= FIRST_LOCAL && self.by_local[local as usize] == NONE {
                return Ok(local);
            }
        }
    }

    pub(crate) fn insert(&mut self, slot: Box<Slot>) -> u16 {
        let local = local_of(slot.qp.number());
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u16::try_from(self.slots.len() - 1).expect("fewer queue pairs than 2^14")
        });
        self.by_local[local] = index;
        self.slots[usize::from(index)] = Some(slot);
        index
    }

    pub(crate) fn remove(&mut self, index: u16) -> Option<Box<Slot>> {
        let slot = self.slots.get_mut(usize::from(index))?.take()?;
        self.by_local[local_of(slot.qp.number())] = NONE;
        self.free.push(index);
        Some(slot)
    }

    pub(crate) fn get_mut(&mut self, index: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(index))?.as_deref_mut()
    }

    pub(crate) fn get(&self, index: u16) -> Option<&Slot> {
        self.slots.get(usize::from(index))?.as_deref()
    }

    /// All queue pairs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten().map(Box::as_ref)
    }

    /// The index of the queue pair with this number.
    pub(crate) fn find(&self, number: Qpn) -> Option<u16> {
        let index = self.by_local[local_of(number)];
        let slot = self.get(index)?;
        (slot.qp.number() == number).then_some(index)
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        let count = u16::try_from(self.slots.len()).expect("fewer queue pairs than 2^14");
        0..count
    }
}

const fn local_of(number: Qpn) -> usize {
    number.get() as usize & (LOCAL_COUNT - 1)
}
