//! A port: a queue for each priority, and the wire behind them.
//!
//! A large network has more ports than fit the caches next to a processor. So a [`Port`] is what
//! every packet needs, in two cache lines, and [`PortDetails`] are the rest.

use crate::packet::{Fifo, Pool};
use crate::switch::Marking;
use crate::units::Pace;

/// Priorities in use, of the eight that IEEE 802.1Q has. A higher one goes first.
pub(crate) const PRIORITIES: usize = 3;
/// Priority of everything else.
pub(crate) const BEST_EFFORT: u8 = 0;
/// Priority of RDMA's data and acknowledgements: DSCP 34, traffic class 136, as in li2019.
pub(crate) const DATA: u8 = 1;
/// Priority of congestion notifications: DSCP 48.
pub(crate) const NOTIFICATIONS: u8 = 2;

/// Whose port it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Host(u32),
    Switch(u32),
}

/// Credits of an InfiniBand link (IBTA volume 1, 7.9), in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credits {
    /// What the peer has room for.
    pub(crate) left: u64,
    /// What has left our own buffer, and the peer was not told yet.
    pub(crate) owed: u64,
}

/// See the module. What a packet needs that leaves comes first, and what it needs where it comes in
/// is together.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
pub(crate) struct Port {
    /// When the wire is free.
    pub(crate) free_at: u64,
    pub(crate) pace: Pace,
    /// From one end of the cable until the switch there has looked at the packet.
    pub(crate) delay_ps: u64,
    pub(crate) queues: [Fifo; PRIORITIES],
    /// The other end of the cable.
    pub(crate) peer: u32,
    /// Bytes of the wire that what left here took.
    pub(crate) tx_bytes: u64,
    pub(crate) owner: Owner,
    /// A bit for every queue that is not empty.
    pub(crate) occupied: u8,
    /// A bit for every priority that the peer paused.
    pub(crate) paused: u8,
    /// A bit for every priority that the peer was told to pause.
    pub(crate) pausing: u8,
    pub(crate) is_up: bool,
    /// Whether an event will look at the queues when the wire is free.
    pub(crate) is_woken: bool,
    /// Whether the peer sends a packet on before it has all of it: see [`crate::network`].
    pub(crate) peer_cut_through: bool,
    /// Whether packets wait for credits of the peer: [`PortDetails::credits`].
    pub(crate) has_credits: bool,
    /// The most bytes that waited.
    pub(crate) queue_max_bytes: u32,
    /// No packet is marked that meets no more than so much: [`PortDetails::marking`].
    pub(crate) unmarked_bytes: u32,
    /// What came in here and has not left the switch, by priority, without what is in the headroom.
    pub(crate) ingress_bytes: [u32; PRIORITIES],
    /// What is in the headroom: it came after the peer was told to pause.
    pub(crate) headroom_bytes: u32,
    /// What fits the headroom.
    pub(crate) headroom_max_bytes: u32,
}

/// What few packets need of a port, or nothing but what is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortDetails {
    pub(crate) rate_gbps: f64,
    pub(crate) propagation_ps: u64,
    /// Since when any priority was paused.
    pub(crate) paused_since: u64,
    pub(crate) paused_ps: u64,
    pub(crate) credits: Credits,
    /// When packets that leave here are marked.
    pub(crate) marking: Option<Marking>,
    /// Packets that found no room.
    pub(crate) dropped: u64,
    /// Packets marked "congestion experienced".
    pub(crate) marked: u64,
}

impl Port {
    pub(crate) fn queue_bytes(&self) -> u64 {
        // Most of the queues are always empty, and not worth a look.
        let mut occupied = self.occupied;
        let mut bytes = 0;
        while occupied != 0 {
            bytes += self.queues[occupied.trailing_zeros() as usize].bytes();
            occupied &= occupied - 1;
        }
        bytes
    }

    /// The priority that goes next, if any may.
    #[inline]
    pub(crate) const fn next_priority(&self) -> Option<usize> {
        let ready = self.occupied & !self.paused;
        if ready == 0 {
            None
        } else {
            Some(7 - ready.leading_zeros() as usize)
        }
    }

    /// Takes the first packet out of a queue.
    #[inline]
    pub(crate) fn pop(&mut self, priority: usize, pool: &Pool) -> Option<u32> {
        let queue = &mut self.queues[priority];
        let packet = queue.pop(pool);
        if queue.front().is_none() {
            self.occupied &= !(1 << priority);
        }
        packet
    }

    /// The peer pauses a priority, or lets it go on.
    pub(crate) fn set_paused(
        &mut self,
        details: &mut PortDetails,
        now: u64,
        priority: u8,
        on: bool,
    ) {
        let was_paused = self.paused != 0;
        if on {
            self.paused |= 1 << priority;
        } else {
            self.paused &= !(1 << priority);
        }
        match (was_paused, self.paused != 0) {
            (false, true) => details.paused_since = now,
            (true, false) => details.paused_ps += now - details.paused_since,
            _ => {}
        }
    }

    /// How long it was paused up to now.
    pub(crate) const fn paused_total_ps(&self, details: &PortDetails, now: u64) -> u64 {
        if self.paused == 0 {
            details.paused_ps
        } else {
            details.paused_ps + (now - details.paused_since)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_packet_needs_of_a_port_is_two_cache_lines() {
        assert_eq!(size_of::<Port>(), 128);
        assert_eq!(core::mem::offset_of!(Port, tx_bytes), 64);
    }
}
