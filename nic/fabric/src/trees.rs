//! Double binary trees: each rank has two children in one of them at most, so that both together
//! fill all cables (Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast,
//! reduction and scan, 2009), as NCCL has had them since release 2.4.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Both trees over so many ranks, each by its ranks in the order of its nodes.
///
/// Nodes with odd numbers have no children. The second tree counts from the other end, or, where
/// the number of ranks is odd, one further, so that they are other ranks.
pub(crate) fn both(members: &[u32]) -> [Vec<u32>; 2] {
    let mut second = members.to_vec();
    if members.len().is_multiple_of(2) {
        second.reverse();
    } else {
        second.rotate_left(1);
    }
    [members.to_vec(), second]
}

/// Every node but the root, which is node 0, with its parent: children before their parents.
pub(crate) fn upwards(nodes: usize) -> Vec<(usize, usize)> {
    let mut depths = vec![0; nodes];
    for (node, depth) in depths.iter_mut().enumerate() {
        let mut at = node;
        while let Some(above) = parent(at, nodes) {
            at = above;
            *depth += 1;
        }
    }
    let mut edges: Vec<_> = (0..nodes)
        .filter_map(|node| parent(node, nodes).map(|above| (node, above)))
        .collect();
    edges.sort_by_key(|(node, _)| Reverse(depths[*node]));
    edges
}

/// In order: the numbers of a node's left branch are below its own, those of the right above.
fn parent(node: usize, nodes: usize) -> Option<usize> {
    if node == 0 {
        return None;
    }
    let lowest = 1 << node.trailing_zeros();
    let above = (node - lowest) | (lowest << 1);
    // On the right edge of a tree that is not full, the branch hangs further up.
    Some(if above < nodes { above } else { node - lowest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_every_node_once_and_is_as_deep_as_its_logarithm() {
        for nodes in 2..200 {
            let edges = upwards(nodes);
            assert_eq!(edges.len(), nodes - 1);
            let mut done = vec![false; nodes];
            for (node, above) in edges {
                assert!(!done[node] && !done[above], "children come first");
                done[node] = true;
            }
            let depth = |mut node: usize| {
                let mut steps = 0;
                while let Some(above) = parent(node, nodes) {
                    node = above;
                    steps += 1;
                }
                steps
            };
            let deepest = (0..nodes).map(depth).max().unwrap();
            assert!(deepest <= (nodes - 1).ilog2() + 1, "{nodes} nodes");
        }
    }

    #[test]
    fn a_rank_has_two_children_in_one_tree_at_most() {
        for ranks in 2..200_u32 {
            let members: Vec<u32> = (0..ranks).collect();
            let mut children = vec![Vec::new(); ranks as usize];
            for tree in both(&members) {
                let mut of_tree = vec![0; ranks as usize];
                for (_, above) in upwards(tree.len()) {
                    of_tree[tree[above] as usize] += 1;
                }
                for (rank, count) in of_tree.into_iter().enumerate() {
                    assert!(count <= 2);
                    children[rank].push(count);
                }
            }
            for counts in children {
                assert!(counts != [2, 2], "{ranks} ranks");
            }
        }
    }
}
