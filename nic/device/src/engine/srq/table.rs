//! Shared receive queues and XRC domains, as the engine knows them.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use urxe_proto::{Instant, SharedReceiveQueue};
use urxe_wire::{Packet, Srqn};

use super::domain::Xrcd;
use crate::delivery::completions::Completions;
use crate::delivery::events::{AsyncEventKind, EventQueue};
use crate::engine::table::{Receives, Slot};
use crate::memory::MemoryTable;
use crate::process::error::Error;
use crate::process::random::random_u32;

pub(crate) const GONE: Error = Error::Gone("the shared receive queue");

/// A shared receive queue as the engine knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) queue: SharedReceiveQueue,
    /// The domain, and where receives complete, of one for XRC.
    pub(crate) xrc: Option<(Xrcd, Arc<Completions>)>,
    /// Queue pairs that have it.
    pub(crate) users: u32,
}

impl Entry {
    fn report(&mut self, number: Srqn, events: &EventQueue) {
        if let Some(event) = self.queue.poll_event() {
            events.push(AsyncEventKind::Srq(number, event));
        }
    }
}

/// All shared receive queues and XRC domains of an opened device.
#[derive(Debug, Default)]
pub(crate) struct SrqTable {
    pub(crate) entries: FxHashMap<Srqn, Entry>,
    /// Domains, and how many objects are in each.
    pub(crate) domains: FxHashMap<Xrcd, u32>,
    pub(crate) next_domain: u32,
}

impl SrqTable {
    /// Gives a queue pair whose receives are not its own a packet.
    pub(crate) fn handle_packet(
        &mut self,
        slot: &mut Slot,
        now: Instant,
        packet: &Packet<'_>,
        memory: &mut MemoryTable,
        events: &EventQueue,
    ) {
        let number = match slot.receives {
            Receives::Own => None,
            Receives::Shared(number) => Some(number),
            Receives::Named(xrcd) => self.named(slot, xrcd, packet),
        };
        let mut entry = number.and_then(|number| Some((number, self.entries.get_mut(&number)?)));
        let queue = entry.as_mut().map(|(_, entry)| &mut entry.queue);
        slot.qp.handle_packet(now, packet, queue, memory);
        if let Some((number, entry)) = entry {
            entry.report(number, events);
        }
    }

    /// The queue that a packet to an XRC target names, if it is of the target's domain.
    fn named(&self, slot: &mut Slot, xrcd: Xrcd, packet: &Packet<'_>) -> Option<Srqn> {
        let number = packet.header.xrceth?.srqn;
        let Some(entry) = self.entries.get(&number) else {
            unknown_queue(number);
            return None;
        };
        let (_, completions) = entry.xrc.as_ref().filter(|(domain, _)| *domain == xrcd)?;
        let is_known = slot
            .recv_cq
            .as_ref()
            .is_some_and(|cq| Arc::ptr_eq(cq, completions));
        if !is_known {
            slot.recv_cq = Some(Arc::clone(completions));
        }
        Some(number)
    }

    /// Gives a datagram queue pair a datagram.
    pub(crate) fn handle_datagram(
        &mut self,
        slot: &mut Slot,
        packet: &Packet<'_>,
        grh: &[u8; urxe_proto::GRH_BYTES],
        memory: &mut MemoryTable,
        events: &EventQueue,
    ) {
        let Receives::Shared(number) = slot.receives else {
            slot.qp.handle_datagram(packet, grh, None, memory);
            return;
        };
        let mut entry = self.entries.get_mut(&number);
        let queue = entry.as_mut().map(|entry| &mut entry.queue);
        slot.qp.handle_datagram(packet, grh, queue, memory);
        if let Some(entry) = entry {
            entry.report(number, events);
        }
    }

    /// Counts a queue pair that has the queue.
    pub(crate) fn use_queue(&mut self, number: Srqn) -> Result<(), Error> {
        let entry = self.entries.get_mut(&number).ok_or(GONE)?;
        entry.users += 1;
        Ok(())
    }

    pub(crate) fn release_queue(&mut self, number: Srqn) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.users -= 1;
        }
    }

    /// Counts an object in the domain.
    pub(crate) fn use_domain(&mut self, xrcd: Xrcd) -> Result<(), Error> {
        let users = self.domains.get_mut(&xrcd);
        *users.ok_or(Error::Gone("the XRC domain"))? += 1;
        Ok(())
    }

    pub(crate) fn release_domain(&mut self, xrcd: Xrcd) {
        if let Some(users) = self.domains.get_mut(&xrcd) {
            *users -= 1;
        }
    }

    /// Most shared receive queues of an opened device.
    pub(crate) const fn capacity() -> usize {
        1 << 16
    }

    pub(crate) fn fresh_number(&self) -> Result<Srqn, Error> {
        if self.entries.len() >= Self::capacity() {
            return Err(Error::Exhausted("shared receive queues"));
        }
        loop {
            let number = Srqn::new(random_u32()?);
            if number.get() != 0 && !self.entries.contains_key(&number) {
                return Ok(number);
            }
        }
    }
}

/// Says once that a peer named a shared receive queue that is not there, for a person who expects
/// that the processes of a host share their XRC domains.
#[cold]
fn unknown_queue(number: Srqn) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        log::error!(
            "a peer sent to XRC shared receive queue {}, which this process does not have; XRC domains are not \
             shared between processes",
            number.get()
        );
    });
}
