//! Which nodes are joined, and which ways lead where.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::groups::{dragonfly, rails};
use crate::port::{Owner, Port};
use crate::scenario::{CableConfig, End, ScenarioError, Topology};

/// A cable, before there are ports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cable {
    pub(crate) ends: [Owner; 2],
    pub(crate) rate_gbps: f64,
}

/// What a topology is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) hosts: u32,
    pub(crate) switches: u32,
    pub(crate) cables: Vec<Cable>,
}

/// The cables of a topology of hosts with so many ports.
pub(crate) fn plan(topology: &Topology, ports: u32, rate_gbps: f64) -> Result<Plan, ScenarioError> {
    let mut cables = Vec::new();
    let mut join = |a, b, rate_gbps| {
        cables.push(Cable {
            ends: [a, b],
            rate_gbps,
        });
    };
    let hosts = topology.hosts();
    let least = if hosts < 2 { "at least two hosts" } else { "" };
    refuse(least)?;
    let switches = match *topology {
        Topology::BackToBack => {
            for _ in 0..ports {
                join(Owner::Host(0), Owner::Host(1), rate_gbps);
            }
            0
        }
        Topology::OneSwitch { hosts } => {
            for host in 0..hosts {
                for _ in 0..ports {
                    join(Owner::Host(host), Owner::Switch(0), rate_gbps);
                }
            }
            1
        }
        Topology::LeafSpine { .. } => leaf_spine(topology, ports, rate_gbps, &mut join)?,
        Topology::Ring { hosts } => {
            refuse(if hosts < 3 {
                "three hosts for a ring"
            } else {
                ""
            })?;
            for host in 0..hosts {
                join(Owner::Host(host), Owner::Switch(host), rate_gbps);
                let next = (host + 1) % hosts;
                join(Owner::Switch(host), Owner::Switch(next), rate_gbps);
            }
            hosts
        }
        Topology::FatTree { .. } => fat_tree(topology, ports, rate_gbps, &mut join)?,
        Topology::Dragonfly { .. } => dragonfly(topology, ports, rate_gbps, &mut join)?,
        Topology::Rails { .. } => rails(topology, ports, rate_gbps, &mut join)?,
        Topology::Listed {
            hosts,
            switches,
            ref cables,
        } => {
            check_listed(hosts, switches, ports, cables)?;
            for cable in cables {
                let [one, other] = cable.ends.map(owner_of);
                join(one, other, cable.gbps.unwrap_or(rate_gbps));
            }
            switches
        }
    };
    Ok(Plan {
        hosts,
        switches,
        cables,
    })
}

const fn owner_of(end: End) -> Owner {
    match end {
        End::Host(host) => Owner::Host(host),
        End::Switch(switch) => Owner::Switch(switch),
    }
}

/// Refuses cables that lead nowhere, and hosts with more or fewer of them than ports.
fn check_listed(
    hosts: u32,
    switches: u32,
    ports: u32,
    cables: &[CableConfig],
) -> Result<(), ScenarioError> {
    let mut used = vec![0; hosts as usize];
    for (index, cable) in cables.iter().enumerate() {
        let mut of_hosts = 0;
        for end in cable.ends {
            let is_there = match end {
                End::Host(host) => host < hosts,
                End::Switch(switch) => switch < switches,
            };
            if !is_there {
                return Err(ScenarioError(format!(
                    "cable {index} ends at {end:?}: there are {hosts} hosts and {switches} switches, numbered from 0"
                )));
            }
            if let End::Host(host) = end {
                of_hosts += 1;
                used[host as usize] += 1;
            }
        }
        let is_positive = cable.gbps.is_none_or(|rate| rate > 0.0);
        if of_hosts == 2 || cable.ends[0] == cable.ends[1] || !is_positive {
            return Err(ScenarioError(format!(
                "cable {index} joins two hosts, or something with itself, or has no rate"
            )));
        }
    }
    match used.iter().position(|cables| *cables != ports) {
        Some(host) => Err(ScenarioError(format!(
            "host {host} has {} cables, and an adapter has {ports} ports",
            used[host]
        ))),
        None => Ok(()),
    }
}

/// The cables of racks whose leaves are joined by spines. How many switches those are.
fn leaf_spine(
    topology: &Topology,
    ports: u32,
    rate_gbps: f64,
    join: &mut impl FnMut(Owner, Owner, f64),
) -> Result<u32, ScenarioError> {
    let Topology::LeafSpine {
        hosts,
        hosts_per_rack,
        leaves_per_rack,
        spines,
        uplinks,
        uplink_gbps,
    } = *topology
    else {
        return Ok(0);
    };
    let some = hosts_per_rack > 0 && leaves_per_rack > 0 && spines > 0 && uplinks > 0;
    refuse(if some {
        ""
    } else {
        "racks, leaves, spines and uplinks"
    })?;
    let leaves = hosts.div_ceil(hosts_per_rack) * leaves_per_rack;
    for host in 0..hosts {
        for port in 0..ports {
            let leaf = host / hosts_per_rack * leaves_per_rack + port % leaves_per_rack;
            join(Owner::Host(host), Owner::Switch(leaf), rate_gbps);
        }
    }
    for leaf in 0..leaves {
        for spine in 0..spines {
            for _ in 0..uplinks {
                join(
                    Owner::Switch(leaf),
                    Owner::Switch(leaves + spine),
                    uplink_gbps,
                );
            }
        }
    }
    Ok(leaves + spines)
}

fn refuse(what: &str) -> Result<(), ScenarioError> {
    if what.is_empty() {
        Ok(())
    } else {
        Err(ScenarioError(format!("the topology needs {what}")))
    }
}

/// Pods of radix/2 edge and radix/2 aggregation switches, and (radix/2)^2 core switches.
fn fat_tree(
    topology: &Topology,
    ports: u32,
    rate_gbps: f64,
    join: &mut impl FnMut(Owner, Owner, f64),
) -> Result<u32, ScenarioError> {
    let Topology::FatTree {
        hosts,
        radix,
        hosts_per_edge,
    } = *topology
    else {
        return Ok(0);
    };
    let half = radix / 2;
    let below = hosts_per_edge.unwrap_or(half);
    let room = radix * half * below;
    if radix < 2 || !radix.is_multiple_of(2) || hosts > room {
        return Err(ScenarioError(format!(
            "a fat tree of radix {radix} has room for {room} hosts, not {hosts}; the radix is even"
        )));
    }
    let edges = radix * half;
    let pods = hosts.div_ceil(half * below);
    for host in 0..hosts {
        for _ in 0..ports {
            join(Owner::Host(host), Owner::Switch(host / below), rate_gbps);
        }
    }
    for pod in 0..pods {
        for above in 0..half {
            let aggregation = edges + pod * half + above;
            for below in 0..half {
                let edge = pod * half + below;
                join(Owner::Switch(edge), Owner::Switch(aggregation), rate_gbps);
            }
            for core in 0..half {
                let core = 2 * edges + above * half + core;
                join(Owner::Switch(aggregation), Owner::Switch(core), rate_gbps);
            }
        }
    }
    Ok(2 * edges + half * half)
}

/// Which ports lead towards a host, for every switch. Hosts at the same switches share their ways.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// Of every host.
    class: Vec<u32>,
    classes: usize,
    /// By switch and class, a list of ways. Switches have few lists, and many classes: so all that
    /// a packet needs of this stays in a cache.
    list: Vec<u32>,
    /// Where each list is in `ports`: its beginning and its end.
    lists: Vec<(u32, u32)>,
    ports: Vec<u32>,
}

impl Routes {
    /// The shortest ways over all cables that are up.
    pub(crate) fn find(hosts: &[Vec<u32>], switches: &[Vec<u32>], ports: &[Port]) -> Self {
        let mut names: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        let mut class = Vec::with_capacity(hosts.len());
        for own in hosts {
            let up = own.iter().filter(|port| ports[**port as usize].is_up);
            let mut leaves: Vec<u32> = up.filter_map(|port| neighbour(ports, *port)).collect();
            leaves.sort_unstable();
            leaves.dedup();
            let next = names.len() as u32;
            class.push(*names.entry(leaves).or_insert(next));
        }
        let mut members = vec![Vec::new(); names.len()];
        for (leaves, name) in names {
            members[name as usize] = leaves;
        }
        let distances: Vec<Vec<u32>> = members
            .iter()
            .map(|leaves| distances(leaves, switches, ports))
            .collect();
        let mut routes = Self {
            class,
            classes: members.len(),
            list: Vec::new(),
            lists: Vec::new(),
            ports: Vec::new(),
        };
        for (switch, own) in switches.iter().enumerate() {
            // A port is of one switch, so no other has the same list, unless that is empty.
            let mut known: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
            for distance in &distances {
                let here = distance[switch];
                let nearer = own.iter().filter(|port| {
                    ports[**port as usize].is_up
                        && neighbour(ports, **port)
                            .is_some_and(|next| here != u32::MAX && distance[next as usize] < here)
                });
                let ways: Vec<u32> = nearer.copied().collect();
                let list = *known.entry(ways).or_insert_with_key(|ways| {
                    let start = routes.ports.len() as u32;
                    routes.ports.extend(ways);
                    routes.lists.push((start, routes.ports.len() as u32));
                    routes.lists.len() as u32 - 1
                });
                routes.list.push(list);
            }
        }
        routes
    }

    /// The ports of `switch` that lead to `host`, which is not at it.
    #[inline]
    pub(crate) fn ways(&self, switch: u32, host: u32) -> &[u32] {
        let at = switch as usize * self.classes + self.class[host as usize] as usize;
        let (start, end) = self.lists[self.list[at] as usize];
        &self.ports[start as usize..end as usize]
    }
}

/// The switch at the other end of a port.
fn neighbour(ports: &[Port], port: u32) -> Option<u32> {
    match ports[ports[port as usize].peer as usize].owner {
        Owner::Switch(switch) => Some(switch),
        Owner::Host(_) => None,
    }
}

/// Cables from every switch to the nearest of `from`.
fn distances(from: &[u32], switches: &[Vec<u32>], ports: &[Port]) -> Vec<u32> {
    let mut distance = vec![u32::MAX; switches.len()];
    let mut next = from.to_vec();
    for switch in from {
        distance[*switch as usize] = 0;
    }
    let mut steps = 0;
    while !next.is_empty() {
        steps += 1;
        let mut reached = Vec::new();
        for switch in next {
            for port in &switches[switch as usize] {
                if !ports[*port as usize].is_up {
                    continue;
                }
                if let Some(other) = neighbour(ports, *port)
                    && distance[other as usize] == u32::MAX
                {
                    distance[other as usize] = steps;
                    reached.push(other);
                }
            }
        }
        next = reached;
    }
    distance
}

/// Mixes what a way is chosen by (the finaliser of splitmix64).
#[inline]
pub(crate) const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fat_tree_has_as_many_cables_at_every_level() {
        let tree = Topology::FatTree {
            hosts: 1_024,
            radix: 16,
            hosts_per_edge: None,
        };
        let plan = plan(&tree, 1, 100.0).unwrap();
        assert_eq!(plan.switches, 320, "5/4 radix^2");
        assert_eq!(plan.cables.len(), 3 * 1_024);
        let mut degree = vec![0; plan.switches as usize];
        for end in plan.cables.iter().flat_map(|cable| cable.ends) {
            if let Owner::Switch(switch) = end {
                degree[switch as usize] += 1;
            }
        }
        assert!(degree.iter().all(|ports| *ports == 16));
    }

    /// Cables of each switch to others.
    fn degrees(topology: &Topology) -> Vec<u32> {
        let plan = plan(topology, 1, 100.0).unwrap();
        let mut degree = vec![0; plan.switches as usize];
        for cable in &plan.cables {
            if let [Owner::Switch(one), Owner::Switch(other)] = cable.ends {
                degree[one as usize] += 1;
                degree[other as usize] += 1;
            }
        }
        degree
    }

    #[test]
    fn more_hosts_at_an_edge_over_subscribe_a_tree() {
        let tree = Topology::FatTree {
            hosts: 48,
            radix: 4,
            hosts_per_edge: Some(6),
        };
        let plan = plan(&tree, 1, 100.0).unwrap();
        let edges = plan.cables[..48].iter().map(|cable| cable.ends[1]);
        assert!(edges.eq((0..48).map(|host| Owner::Switch(host / 6))));
        assert_eq!(degrees(&tree)[..8], [2; 8], "three times as many hosts");
    }

    #[test]
    fn a_dragonfly_joins_each_group_with_each_other_as_often() {
        // The balanced one of p = h = 2, a = 4: nine groups, one cable between any two.
        let fly = Topology::Dragonfly {
            hosts: 72,
            hosts_per_switch: 2,
            switches_per_group: 4,
            global_cables: 2,
            global_gbps: 100.0,
        };
        let plan = plan(&fly, 1, 100.0).unwrap();
        assert_eq!(plan.switches, 36);
        assert!(degrees(&fly).iter().all(|cables| *cables == 3 + 2));
        let mut between = BTreeMap::new();
        for cable in &plan.cables {
            if let [Owner::Switch(one), Owner::Switch(other)] = cable.ends
                && one / 4 != other / 4
            {
                *between.entry((one / 4, other / 4)).or_insert(0) += 1;
            }
        }
        assert_eq!(between.len(), 36, "pairs of nine groups");
        assert!(between.values().all(|cables| *cables == 1));
    }

    #[test]
    fn a_dragonfly_of_too_many_groups_says_so() {
        let fly = Topology::Dragonfly {
            hosts: 80,
            hosts_per_switch: 2,
            switches_per_group: 4,
            global_cables: 2,
            global_gbps: 100.0,
        };
        let error = plan(&fly, 1, 100.0).unwrap_err();
        assert!(error.0.contains("10 groups"), "{error}");
    }

    #[test]
    fn hosts_of_a_rail_are_at_one_leaf() {
        let rails = Topology::Rails {
            hosts: 16,
            rails: 4,
            nodes_per_group: 2,
            spines: 2,
            uplinks: 1,
            uplink_gbps: 100.0,
        };
        let plan = plan(&rails, 1, 100.0).unwrap();
        assert_eq!(plan.switches, 2 * 4 + 2);
        let leaf = |host: usize| plan.cables[host].ends[1];
        assert_eq!((leaf(1), leaf(5)), (Owner::Switch(1), Owner::Switch(1)));
        assert_eq!((leaf(2), leaf(10)), (Owner::Switch(2), Owner::Switch(6)));
    }

    #[test]
    fn a_list_of_cables_is_checked() {
        let listed = |cables: &[[End; 2]]| {
            let cables = cables.iter().map(|ends| CableConfig {
                ends: *ends,
                gbps: None,
            });
            let topology = Topology::Listed {
                hosts: 2,
                switches: 2,
                cables: cables.collect(),
            };
            plan(&topology, 1, 100.0).map(|plan| plan.cables.len())
        };
        let (host, switch) = (End::Host, End::Switch);
        let one = [host(0), switch(0)];
        let between = [switch(0), switch(1)];
        assert_eq!(listed(&[one, [switch(1), host(1)], between]), Ok(3));
        let said = |cables: &[[End; 2]]| listed(cables).unwrap_err().0;
        assert!(said(&[one, between]).contains("host 1 has 0 cables"));
        assert!(said(&[[host(0), host(1)]]).contains("joins two hosts"));
        assert!(said(&[[host(0), switch(2)]]).contains("2 switches, numbered from 0"));
    }

    #[test]
    fn a_tree_that_is_too_small_says_so() {
        let tree = Topology::FatTree {
            hosts: 17,
            radix: 4,
            hosts_per_edge: None,
        };
        let error = plan(&tree, 1, 100.0).unwrap_err();
        assert!(error.0.contains("room for 16 hosts"), "{error}");
    }
}
