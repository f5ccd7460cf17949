//! Flows as data: what is to be sent, what has come of it, and who waits for what.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;

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
    /// By connection, the flow that has it.
    pub(crate) of_connection: Vec<u32>,
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
}
