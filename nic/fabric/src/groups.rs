//! Topologies of groups: dragonflies, and rails.

use alloc::format;

use crate::port::Owner;
use crate::scenario::{ScenarioError, Topology};

/// Groups whose switches are all joined with each other, and each group with each other (Kim et
/// al., ISCA 2008). How many switches those are.
pub(crate) fn dragonfly(
    topology: &Topology,
    ports: u32,
    rate_gbps: f64,
    join: &mut impl FnMut(Owner, Owner, f64),
) -> Result<u32, ScenarioError> {
    let Topology::Dragonfly {
        hosts,
        hosts_per_switch,
        switches_per_group,
        global_cables,
        global_gbps,
    } = *topology
    else {
        return Ok(0);
    };
    let per_group = hosts_per_switch * switches_per_group;
    let groups = hosts.div_ceil(per_group.max(1));
    let most = switches_per_group * global_cables;
    if per_group == 0 || groups < 2 || groups - 1 > most {
        return Err(ScenarioError(format!(
            "a dragonfly of {hosts} hosts with {per_group} in a group has {groups} groups; it has two at least, and a group of {switches_per_group} switches with {global_cables} cables each to others reaches {most}"
        )));
    }
    for host in 0..hosts {
        for _ in 0..ports {
            let switch = Owner::Switch(host / hosts_per_switch);
            join(Owner::Host(host), switch, rate_gbps);
        }
    }
    for group in 0..groups {
        let first = group * switches_per_group;
        for one in 0..switches_per_group {
            for other in one + 1..switches_per_group {
                let ends = [first + one, first + other].map(Owner::Switch);
                join(ends[0], ends[1], rate_gbps);
            }
        }
    }
    // The cables of a group to others, in turns, leave by one switch after the other.
    let each = most / (groups - 1);
    let switch_of = |group: u32, other: u32, cable: u32| {
        let turn = (other + groups - group - 1) % groups;
        group * switches_per_group + (turn * each + cable) % switches_per_group
    };
    for one in 0..groups {
        for other in one + 1..groups {
            for cable in 0..each {
                let ends = [switch_of(one, other, cable), switch_of(other, one, cable)];
                let [near, far] = ends.map(Owner::Switch);
                join(near, far, global_gbps);
            }
        }
    }
    Ok(groups * switches_per_group)
}

/// Nodes of several hosts, one for each rail, and a switch for each rail of a group of nodes. How
/// many switches those are.
pub(crate) fn rails(
    topology: &Topology,
    ports: u32,
    rate_gbps: f64,
    join: &mut impl FnMut(Owner, Owner, f64),
) -> Result<u32, ScenarioError> {
    let Topology::Rails {
        hosts,
        rails,
        nodes_per_group,
        spines,
        uplinks,
        uplink_gbps,
    } = *topology
    else {
        return Ok(0);
    };
    if rails == 0 || nodes_per_group == 0 || spines == 0 || uplinks == 0 {
        return Err(ScenarioError(
            "the topology needs rails, nodes, spines and uplinks".into(),
        ));
    }
    let groups = hosts.div_ceil(rails * nodes_per_group);
    let leaves = groups * rails;
    for host in 0..hosts {
        let (node, rail) = (host / rails, host % rails);
        let leaf = node / nodes_per_group * rails + rail;
        for _ in 0..ports {
            join(Owner::Host(host), Owner::Switch(leaf), rate_gbps);
        }
    }
    for leaf in 0..leaves {
        for spine in 0..spines {
            for _ in 0..uplinks {
                let ends = [leaf, leaves + spine].map(Owner::Switch);
                join(ends[0], ends[1], uplink_gbps);
            }
        }
    }
    Ok(leaves + spines)
}
