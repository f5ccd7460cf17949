//! Collective operations of training jobs as messages that need each other.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use crate::flows::{Dependents, Flow};
use crate::scenario::ScenarioError;
use crate::traffic::{Collective, CollectiveConfig};
use crate::trees;

/// Messages of one operation at most: as many as fit the memory of a workstation.
const MESSAGES_MAX: u64 = 1 << 25;

/// Messages, and who needs whom.
#[derive(Default)]
struct Plan {
    flows: Vec<Flow>,
    /// A message, and one that needs it.
    links: Vec<(u32, u32)>,
}

impl Plan {
    /// Adds a message that needs others. Its number.
    fn add(&mut self, from: u32, to: u32, bytes: u32, needs: &[u32]) -> u32 {
        let number = self.flows.len() as u32;
        let mut flow = Flow::new(0, from, to, bytes);
        flow.needs = needs.len() as u32;
        flow.follows = !needs.is_empty();
        self.links
            .extend(needs.iter().map(|before| (*before, number)));
        self.flows.push(flow);
        number
    }
}

impl CollectiveConfig {
    /// The messages of all groups.
    pub(crate) fn flows(&self, hosts: u32) -> Result<(Vec<Flow>, Dependents), ScenarioError> {
        let ranks = self.ranks.unwrap_or(hosts);
        let stride = self.stride.max(1);
        if ranks < 2 || !hosts.is_multiple_of(ranks * stride) {
            return Err(ScenarioError(format!(
                "{hosts} hosts are not groups of {ranks} ranks, each {stride} hosts from the next; a group has two ranks at least"
            )));
        }
        let halves = self.algorithm == Collective::HalvingDoublingAllReduce;
        if halves && !ranks.is_power_of_two() {
            return Err(ScenarioError(format!(
                "recursive halving and doubling takes a power of two of ranks, not {ranks}"
            )));
        }
        if self.size_bytes < ranks {
            return Err(ScenarioError(
                "a collective has a byte at least for each rank".to_string(),
            ));
        }
        if self.chunk_bytes == Some(0) {
            return Err(ScenarioError("a chunk has a byte at least".to_string()));
        }
        if u64::from(hosts) * self.messages_of_a_rank(ranks) > MESSAGES_MAX {
            return Err(ScenarioError(format!(
                "a collective of {ranks} ranks has more than {MESSAGES_MAX} messages"
            )));
        }
        let mut plan = Plan::default();
        for group in 0..hosts / ranks {
            let first = group / stride * ranks * stride + group % stride;
            let members: Vec<u32> = (0..ranks).map(|rank| first + rank * stride).collect();
            self.add_group(&members, &mut plan);
        }
        let dependents = Dependents::of(plan.flows.len(), &plan.links);
        Ok((plan.flows, dependents))
    }

    /// Messages that a rank sends, at the most.
    fn messages_of_a_rank(&self, ranks: u32) -> u64 {
        match self.algorithm {
            Collective::DoubleTreeAllReduce => {
                let half = self.size_bytes.div_ceil(2);
                4 * u64::from(half.div_ceil(self.chunk_bytes.unwrap_or(half)))
            }
            _ => 2 * u64::from(ranks),
        }
    }

    fn add_group(&self, members: &[u32], plan: &mut Plan) {
        let ranks = members.len();
        let part = self.size_bytes.div_ceil(ranks as u32);
        match self.algorithm {
            Collective::RingAllReduce => ring(members, part, 2 * (ranks - 1), plan),
            Collective::RingAllGather => ring(members, part, ranks - 1, plan),
            Collective::HalvingDoublingAllReduce => self.halve_and_double(members, plan),
            Collective::DoubleTreeAllReduce => {
                let half = self.size_bytes.div_ceil(2);
                for tree in trees::both(members) {
                    reduce_and_broadcast(&tree, half, self.chunk_bytes.unwrap_or(half), plan);
                }
            }
            Collective::AllToAll => {
                // The nearest above first, so that no rank gets from all at once.
                for distance in 1..ranks {
                    for rank in 0..ranks {
                        let to = members[(rank + distance) % ranks];
                        plan.add(members[rank], to, part, &[]);
                    }
                }
            }
        }
    }

    /// Reduce-scatter with ever nearer partners and halves of what there is, and all-gather back
    /// again (Thakur, Rabenseifner and Gropp, 2005).
    fn halve_and_double(&self, members: &[u32], plan: &mut Plan) {
        let ranks = members.len();
        let steps = ranks.ilog2();
        // Of each rank, the message that came to it in the step before.
        let mut came: Vec<Option<u32>> = members.iter().map(|_| None).collect();
        for step in (0..steps).chain((0..steps).rev()) {
            let distance = ranks >> (step + 1);
            let bytes = self.size_bytes.div_ceil(1 << (step + 1));
            let before = came.clone();
            for rank in 0..ranks {
                let partner = rank ^ distance;
                let needs = before[rank].as_slice();
                let sent = plan.add(members[rank], members[partner], bytes, needs);
                came[partner] = Some(sent);
            }
        }
    }
}

/// So many steps, in each of which every rank sends a part to the next, once the part of the step
/// before has come.
fn ring(members: &[u32], part_bytes: u32, steps: usize, plan: &mut Plan) {
    let ranks = members.len();
    let mut came: Vec<Option<u32>> = members.iter().map(|_| None).collect();
    for _ in 0..steps {
        let before = came.clone();
        for rank in 0..ranks {
            let next = (rank + 1) % ranks;
            let needs = before[rank].as_slice();
            let sent = plan.add(members[rank], members[next], part_bytes, needs);
            came[next] = Some(sent);
        }
    }
}

/// Chunk after chunk, what the children have goes up a tree to its root, and from there down again.
///
/// A rank passes a chunk on once it has it from all of its children, or from its parent, and the
/// chunk before has arrived where this one goes to.
fn reduce_and_broadcast(tree: &[u32], bytes: u32, chunk_bytes: u32, plan: &mut Plan) {
    let edges = trees::upwards(tree.len());
    // Of each node, the last message to its parent, and from it.
    let mut up: Vec<Option<u32>> = vec![None; tree.len()];
    let mut down = up.clone();
    let mut left = bytes;
    while left > 0 {
        let chunk = left.min(chunk_bytes);
        left -= chunk;
        let mut came: Vec<Vec<u32>> = vec![Vec::new(); tree.len()];
        for (node, above) in &edges {
            let mut needs = came[*node].clone();
            needs.extend(up[*node]);
            let sent = plan.add(tree[*node], tree[*above], chunk, &needs);
            up[*node] = Some(sent);
            came[*above].push(sent);
        }
        for (node, above) in edges.iter().rev() {
            // Only the root still has what came from below: others wait for their parent.
            let mut needs = down[*above].map_or_else(|| came[*above].clone(), |sent| vec![sent]);
            needs.extend(down[*node]);
            down[*node] = Some(plan.add(tree[*above], tree[*node], chunk, &needs));
        }
    }
}
