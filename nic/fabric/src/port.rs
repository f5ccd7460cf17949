//! A port: a queue for each priority, and the wire behind them.

use crate::packet::Fifo;
use crate::switch::Marking;
use crate::units::Pace;

/// Priorities, as IEEE 802.1Q has them: the three upper bits of the DSCP. A higher one goes first.
pub(crate) const PRIORITIES: usize = 8;
/// Priority of RDMA's data and acknowledgements: DSCP 34, traffic class 136, as in li2019.
pub(crate) const DATA: u8 = 4;
/// Priority of congestion notifications: DSCP 48.
pub(crate) const NOTIFICATIONS: u8 = 6;
/// Priority of everything else.
pub(crate) const BEST_EFFORT: u8 = 0;

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

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) owner: Owner,
    /// The other end of the cable.
    pub(crate) peer: u32,
    pub(crate) pace: Pace,
    pub(crate) rate_gbps: f64,
    pub(crate) propagation_ps: u64,
    /// How much of a packet the peer waits for, and how long it then takes: see [`crate::network`].
    pub(crate) peer_cut_through: bool,
    pub(crate) peer_latency_ps: u64,
    pub(crate) is_up: bool,
    /// When the wire is free.
    pub(crate) free_at: u64,
    /// Whether an event will look at the queues when the wire is free.
    pub(crate) is_woken: bool,
    pub(crate) queues: [Fifo; PRIORITIES],
    /// A bit for every queue that is not empty.
    pub(crate) occupied: u8,
    /// A bit for every priority that the peer paused.
    pub(crate) paused: u8,
    /// Since when any was.
    pub(crate) paused_since: u64,
    pub(crate) paused_ps: u64,
    /// What came in here and has not left the switch, by priority, without what is in the headroom.
    pub(crate) ingress_bytes: [u64; PRIORITIES],
    /// What is in the headroom: it came after the peer was told to pause.
    pub(crate) headroom_bytes: u64,
    /// A bit for every priority that the peer was told to pause.
    pub(crate) pausing: u8,
    pub(crate) credits: Option<Credits>,
    /// When packets that leave here are marked.
    pub(crate) marking: Option<Marking>,
    pub(crate) stats: PortStats,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets that left.
    pub tx_packets: u64,
    /// Bytes of the wire that they took.
    pub tx_bytes: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Pauses sent to the peer.
    pub pauses: u64,
    /// The most bytes that waited.
    pub queue_max_bytes: u64,
}

impl Port {
    pub(crate) fn queue_bytes(&self) -> u64 {
        // Most of the queues are always empty, and not worth a look.
        let mut occupied = self.occupied;
        let mut bytes = 0;
        while occupied != 0 {
            bytes += self.queues[occupied.trailing_zeros() as usize].bytes;
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

    /// The peer pauses a priority, or lets it go on.
    pub(crate) fn set_paused(&mut self, now: u64, priority: u8, on: bool) {
        let was_paused = self.paused != 0;
        if on {
            self.paused |= 1 << priority;
        } else {
            self.paused &= !(1 << priority);
        }
        match (was_paused, self.paused != 0) {
            (false, true) => self.paused_since = now,
            (true, false) => self.paused_ps += now - self.paused_since,
            _ => {}
        }
    }

    /// How long it was paused up to now.
    pub(crate) const fn paused_total_ps(&self, now: u64) -> u64 {
        if self.paused == 0 {
            self.paused_ps
        } else {
            self.paused_ps + (now - self.paused_since)
        }
    }
}
