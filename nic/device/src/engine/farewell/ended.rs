//! Queue pairs that ended, and the peers that they had.

use std::collections::{HashMap, VecDeque};

use urxe_proto::Instant;
use urxe_udp::Destination;
use urxe_wire::Qpn;

/// Queue pairs that are remembered after their end.
pub(super) const REMEMBERED: usize = 4096;
/// Queue pairs that ended a while ago, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(super) by_number: HashMap<Qpn, Farewell>,
    order: VecDeque<Qpn>,
}

/// The peer that a queue pair had.
#[derive(Clone, Debug)]
pub(super) struct Farewell {
    /// Index of the socket.
    pub(super) port: usize,
    pub(super) to: Destination,
    pub(super) peer: Qpn,
    pub(super) said_at: Instant,
}

impl Ended {
    pub(super) fn remember(&mut self, number: Qpn, farewell: Farewell) {
        if self.by_number.insert(number, farewell).is_none() {
            self.order.push_back(number);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_number.remove(&oldest);
        }
    }
}
