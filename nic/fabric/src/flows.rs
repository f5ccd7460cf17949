//! Flows as data: what is to be sent, what has come of it, and who waits for what.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;
use urxe_wire::Psn;

use crate::traffic::Operation;

/// A message, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// When it starts, at the earliest; then, when it started.
    pub(crate) at: u64,
    /// When its sender was told that it had ended; 0 until then.
    pub(crate) ended_at: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u32,
    /// Messages that have to arrive before it starts, and have not.
    pub(crate) needs: u32,
    /// Which queue pair between its hosts it goes over; `None`: one that is idle.
    pub(crate) channel: Option<u32>,
    /// Whether there were any: it does not start by its time alone.
    pub(crate) follows: bool,
    pub(crate) is_of_incast: bool,
    /// Whether it is after the warm-up.
    pub(crate) counts: bool,
}

impl Flow {
    pub(crate) const fn new(at: u64, from: u32, to: u32, bytes: u32) -> Self {
        Self {
            at,
            ended_at: 0,
            from,
            to,
            bytes,
            needs: 0,
            channel: None,
            follows: false,
            is_of_incast: false,
            counts: true,
        }
    }
}

/// By flow, the flows that need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependents {
    /// Where those of a flow begin, and one more at the end. Empty: no flow needs another.
    starts: Vec<u32>,
    flows: Vec<u32>,
}

impl Dependents {
    /// Of so many flows, from pairs of a flow and one that needs it.
    pub(crate) fn of(count: usize, links: &[(u32, u32)]) -> Self {
        if links.is_empty() {
            return Self::default();
        }
        let mut starts = vec![0_u32; count + 1];
        for (before, _) in links {
            starts[*before as usize + 1] += 1;
        }
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let (mut next, mut flows) = (starts.clone(), vec![0; links.len()]);
        for (before, after) in links {
            let place = &mut next[*before as usize];
            flows[*place as usize] = *after;
            *place += 1;
        }
        Self { starts, flows }
    }

    /// Where those of a flow are: see [`Self::at`].
    pub(crate) fn places(&self, flow: u32) -> core::ops::Range<usize> {
        let at = flow as usize;
        match self.starts.get(at..at + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => 0..0,
        }
    }

    /// The flow at a place.
    pub(crate) fn at(&self, place: usize) -> u32 {
        self.flows[place]
    }
}

/// The flows that a connection has, in the order of their starts: of a requester those that have
/// not ended, of a responder of SENDs those that have not arrived.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    flows: VecDeque<u32>,
    /// How many of them the program has posted.
    posted: usize,
    /// Of the first packet of the first of them.
    first_psn: Psn,
}

impl UnderWay {
    /// Another has started.
    pub(crate) fn add(&mut self, flow: u32) {
        self.flows.push_back(flow);
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<u32> {
        self.flows.front().copied()
    }

    /// The next that the program posts.
    pub(crate) fn post(&mut self) -> Option<u32> {
        let flow = self.flows.get(self.posted).copied();
        self.posted += 1;
        flow
    }

    /// The first of them has ended, or arrived.
    pub(crate) fn end(&mut self, packets_of: impl Fn(u32) -> u32) -> Option<u32> {
        let flow = self.flows.pop_front()?;
        self.posted = self.posted.saturating_sub(1);
        self.first_psn = self.first_psn.add(packets_of(flow));
        Some(flow)
    }

    /// The one that a packet belongs to, which was sent and not acknowledged.
    pub(crate) fn of_packet(&self, psn: Psn, packets_of: impl Fn(u32) -> u32) -> Option<u32> {
        if self.flows.len() < 2 {
            return self.first();
        }
        let mut begins = self.first_psn;
        self.flows.iter().copied().find(|flow| {
            begins = begins.add(packets_of(*flow));
            psn.is_before(begins)
        })
    }
}

/// All flows of a run.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub(crate) list: Vec<Flow>,
    pub(crate) dependents: Dependents,
    /// What all are sent by; `None`: the run has no flows.
    pub(crate) operation: Option<Operation>,
    /// Of each, how long it takes on the empty network, picoseconds.
    pub(crate) alone_ps: Vec<f64>,
    /// How many have started.
    pub(crate) started: usize,
    /// The next that arrives by itself.
    pub(crate) next: u32,
    /// By the hosts of the requester and the responder, queue pairs of requesters that are idle;
    /// those of their responders have the next number.
    pub(crate) idle: BTreeMap<(u32, u32), Vec<u32>>,
    /// The same of channels, each of which keeps its queue pair: by its hosts and its number.
    pub(crate) channels: BTreeMap<(u32, u32, u32), u32>,
    /// By connection.
    pub(crate) of_connection: Vec<UnderWay>,
}

/// What came of flows: columns of one table, a row for each flow in the order of their starts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowsOutcome {
    /// Hosts that sent.
    pub from: Vec<u32>,
    /// Hosts that received.
    pub to: Vec<u32>,
    /// Lengths.
    pub size_bytes: Vec<u32>,
    /// When they started, nanoseconds.
    pub started_ns: Vec<f64>,
    /// From the start until the sender had the completion, nanoseconds; `None` of those that had
    /// not ended.
    pub took_ns: Vec<Option<f64>>,
    /// How long it takes on the empty network without congestion control, nanoseconds.
    pub alone_ns: Vec<f64>,
    /// Whether it belongs to an incast.
    pub is_of_incast: Vec<bool>,
    /// Whether it counts: it started after the warm-up.
    pub counts: Vec<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_are_found_by_what_they_need() {
        let found = Dependents::of(4, &[(0, 2), (1, 2), (0, 3)]);
        let of = |flow| &found.flows[found.places(flow)];
        assert_eq!(of(0), [2, 3]);
        assert_eq!(of(1), [2]);
        assert_eq!((of(2), of(3)), (&[][..], &[][..]));
        assert!(Dependents::of(4, &[]).places(0).is_empty());
    }

    #[test]
    fn a_packet_is_of_the_message_that_its_number_is_within() {
        // Of as many packets as its number, and the numbers of packets begin anew at 2^24.
        let packets_of = |flow: u32| flow;
        let mut under_way = UnderWay {
            first_psn: Psn::new(0xff_fffe),
            ..UnderWay::default()
        };
        for flow in [3, 1, 2] {
            under_way.add(flow);
        }
        let of = |under_way: &UnderWay, psn| under_way.of_packet(Psn::new(psn), packets_of);
        let found = [0xff_fffe, 0xff_ffff, 0, 1, 2, 3].map(|psn| of(&under_way, psn));
        assert_eq!(found, [3, 3, 3, 1, 2, 2].map(Some));
        assert_eq!(of(&under_way, 4), None);
        assert_eq!(
            [(); 4].map(|()| under_way.post()),
            [Some(3), Some(1), Some(2), None]
        );
        assert_eq!(under_way.end(packets_of), Some(3));
        assert_eq!(of(&under_way, 1), Some(1));
        assert_eq!(under_way.end(packets_of), Some(1));
        assert_eq!(under_way.first(), Some(2));
    }
}
