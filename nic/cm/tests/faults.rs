//! Two hosts over a network that loses, repeats and reorders, in virtual time from a seed. Every
//! connection ends in bounded time: connected at both ends and then over at both, or with an error
//! event.

mod support;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use oorandom::Rand64;
use support::{path, reply, request};
use urxe_cm::*;
use urxe_wire::{Gid, Qpn};

const MS: u64 = 1_000_000;
/// All repetitions of a message, and all it may wait for, fit into this many times.
const BOUND_NS: u64 = 400_000 * MS;

/// What a network does, in percent.
#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: u64,
    duplicate: u64,
    delay_max_ns: u64,
}

type Flying = (u64, u64, usize, Vec<u8>);

struct World {
    now_ns: u64,
    hosts: [Manager; 2],
    /// Arrival, a number that keeps order, destination, datagram.
    on_the_way: BinaryHeap<Reverse<Flying>>,
    sent: u64,
    random: Rand64,
    faults: Faults,
    next_id: u32,
    events: [BTreeMap<u32, Vec<&'static str>>; 2],
    rejects_percent: u64,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now_ns: 0,
            hosts: Default::default(),
            on_the_way: BinaryHeap::new(),
            sent: 0,
            random: Rand64::new(seed.into()),
            faults,
            next_id: 1000,
            events: Default::default(),
            rejects_percent: 10,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.rand_range(0..100) < percent
    }

    fn settle(&mut self) {
        for host in 0..2 {
            while let Some((id, event)) = self.hosts[host].poll_event() {
                self.program(host, id, event);
            }
            while let Some(transmit) = self.hosts[host].poll_transmit() {
                let copies = if self.chance(self.faults.loss) {
                    0
                } else {
                    1 + u64::from(self.chance(self.faults.duplicate))
                };
                for _ in 0..copies {
                    self.sent += 1;
                    let delay_ns = self.random.rand_range(1..self.faults.delay_max_ns);
                    let entry = (
                        self.now_ns + delay_ns,
                        self.sent,
                        1 - host,
                        transmit.mad.to_vec(),
                    );
                    self.on_the_way.push(Reverse(entry));
                }
            }
        }
    }

    /// What programs do: host 1 accepts or rejects, host 0 confirms.
    fn program(&mut self, host: usize, id: u32, event: Event) {
        let now_ns = self.now_ns;
        let name = match event {
            Event::Request(_) => {
                if self.chance(self.rejects_percent) {
                    let data = [0; Rej::PRIVATE_LEN];
                    self.hosts[host]
                        .reject(id, RejectReason::CONSUMER, data)
                        .unwrap();
                    "reject"
                } else {
                    self.hosts[host].accept(now_ns, id, reply(id)).unwrap();
                    "accept"
                }
            }
            Event::Reply(_) => {
                self.hosts[host].ready(id, [0; Rtu::PRIVATE_LEN]).unwrap();
                "ready"
            }
            Event::Ready(_) => "ready",
            Event::Rejected(_) => "rejected",
            Event::Unreachable => "unreachable",
            Event::Disconnected => "disconnected",
            Event::TimeWaitExit => "exit",
            // Only a stranger resolves.
            Event::Resolve(_) | Event::Resolved(_) => "resolution",
        };
        self.events[host].entry(id).or_default().push(name);
        // An end that is connected hangs up after a while: at once, here.
        if name == "ready" && self.chance(50) {
            let _ = self.hosts[host].disconnect(now_ns, id);
        }
    }

    fn step(&mut self) -> bool {
        self.settle();
        let arrival = self.on_the_way.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let timers = self.hosts.iter().filter_map(Manager::poll_timeout).min();
        let Some(next_ns) = arrival.into_iter().chain(timers).min() else {
            return false;
        };
        self.now_ns = self.now_ns.max(next_ns);
        if arrival == Some(next_ns) {
            let Reverse((_, _, host, raw)) = self.on_the_way.pop().unwrap();
            self.next_id += 1;
            let mad = Mad::parse(&raw).unwrap();
            self.hosts[host].handle_mad(self.now_ns, path(host), &mad, self.next_id);
        } else {
            for host in &mut self.hosts {
                host.handle_timeout(next_ns);
            }
        }
        true
    }

    fn run(&mut self) {
        while self.step() {
            assert!(
                self.now_ns < BOUND_NS,
                "still busy after {} ms",
                self.now_ns / MS
            );
        }
    }
}

fn check(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, faults);
    for id in 1..=20 {
        world.hosts[0].connect(0, id, path(0), request(id + 100));
    }
    world.run();
    for id in 1..=20 {
        let events = world.events[0].get(&id).cloned().unwrap_or_default();
        let last = events.iter().rev().find(|name| **name != "exit");
        assert!(last.is_some(), "seed {seed} {faults:?}: no event for {id}");
        let one_end = events
            .iter()
            .filter(|name| matches!(**name, "rejected" | "unreachable" | "disconnected"));
        assert!(one_end.count() <= 1, "seed {seed} {faults:?}: {events:?}");
    }
    // Each connection that still stands does so at both ends: as many here as there, apart from
    // those that one end gave up after all its repetitions were lost.
    for (host, events) in world.events.iter().enumerate() {
        for (id, events) in events {
            let is_ready = events.contains(&"ready") || host == 1 && events.contains(&"accept");
            let ended = events.iter().any(|name| {
                matches!(
                    *name,
                    "disconnected" | "rejected" | "unreachable" | "reject"
                )
            });
            assert!(
                is_ready || ended,
                "seed {seed} {faults:?}: host {host}, {id}: {events:?}"
            );
        }
    }
    world
}

#[test]
fn without_faults_every_connection_stands_or_is_rejected() {
    let faults = Faults {
        loss: 0,
        duplicate: 0,
        delay_max_ns: MS,
    };
    for seed in 0..50 {
        let world = check(seed, faults);
        let names = || world.events[0].values().flatten();
        assert!(names().all(|name| *name != "unreachable"), "seed {seed}");
        assert!(
            world.now_ns < 2_000 * MS,
            "seed {seed}: {} ms",
            world.now_ns / MS
        );
        assert!(
            names().filter(|name| **name == "ready").count() >= 10,
            "seed {seed}"
        );
    }
}

#[test]
fn loss_duplication_and_reordering_only_cost_time() {
    for seed in 0..300 {
        for (loss, duplicate, delay_ms) in [(10, 0, 1), (0, 30, 40), (30, 30, 100), (60, 10, 10)] {
            let faults = Faults {
                loss,
                duplicate,
                delay_max_ns: delay_ms * MS,
            };
            let world = check(seed, faults);
            if loss <= 30 {
                let names = || world.events[0].values().flatten();
                assert!(
                    names().all(|name| *name != "unreachable"),
                    "seed {seed} {faults:?}"
                );
            }
        }
    }
}

#[test]
fn a_peer_that_is_not_there_is_unreachable_within_a_minute() {
    let mut world = World::new(
        1,
        Faults {
            loss: 100,
            duplicate: 0,
            delay_max_ns: MS,
        },
    );
    world.hosts[0].connect(0, 1, path(0), request(5));
    world.run();
    assert_eq!(world.events[0][&1], ["unreachable"]);
    assert!(world.now_ns < 60_000 * MS, "{} ms", world.now_ns / MS);
    assert!(world.hosts[0].is_idle());
}

#[test]
fn an_abandoned_connection_ends_at_both_ends_and_is_forgotten() {
    let mut world = World::new(
        2,
        Faults {
            loss: 20,
            duplicate: 20,
            delay_max_ns: 20 * MS,
        },
    );
    world.rejects_percent = 0;
    world.hosts[0].connect(0, 1, path(0), request(5));
    while !world.events[0].contains_key(&1) {
        assert!(world.step());
    }
    world.hosts[0].abandon(world.now_ns, 1);
    world.run();
    assert!(world.hosts.iter().all(Manager::is_idle));
    let there: Vec<_> = world.events[1].values().flatten().copied().collect();
    assert!(there.contains(&"disconnected"), "{there:?}");
}

#[test]
fn a_stranger_cannot_end_a_connection() {
    let mut world = World::new(
        3,
        Faults {
            loss: 0,
            duplicate: 0,
            delay_max_ns: MS,
        },
    );
    world.rejects_percent = 0;
    world.hosts[0].connect(0, 1, path(0), request(5));
    while !world.events[0].contains_key(&1) {
        assert!(world.step());
    }
    let elsewhere = Path {
        remote: Gid::from(std::net::Ipv4Addr::new(10, 0, 0, 9)),
        ..path(0)
    };
    let id_there = *world.events[1].keys().next().unwrap();
    let dreq = Dreq {
        local_comm_id: id_there,
        remote_comm_id: 1,
        remote_qpn: Qpn::new(5),
        private_data: [0; Dreq::PRIVATE_LEN],
    };
    let before = world.events[0][&1].clone();
    let mad = Mad {
        transaction: 0,
        message: dreq.into(),
    };
    world.hosts[0].handle_mad(world.now_ns, elsewhere, &mad, 50);
    assert_eq!(world.hosts[0].poll_event(), None, "after {before:?}");
    // Nor can one that names the same queue pair in a request.
    let mut first = Manager::default();
    first.connect(0, 77, elsewhere, request(id_there));
    let mad = Mad::parse(&first.poll_transmit().unwrap().mad[..]).unwrap();
    world.hosts[0].handle_mad(world.now_ns, elsewhere, &mad, 51);
    assert!(matches!(
        world.hosts[0].poll_event(),
        Some((51, Event::Request(_)))
    ));
    assert_eq!(world.hosts[0].poll_event(), None);
}

#[test]
fn a_queue_pair_in_a_new_life_is_told_of_its_old_one() {
    let mut world = World::new(
        4,
        Faults {
            loss: 0,
            duplicate: 0,
            delay_max_ns: MS,
        },
    );
    world.rejects_percent = 0;
    let mut first = Manager::default();
    first.connect(0, 1, path(0), request(5));
    let mad = Mad::parse(&first.poll_transmit().unwrap().mad[..]).unwrap();
    world.hosts[1].handle_mad(0, path(1), &mad, 500);
    world.settle();
    world.on_the_way.clear();
    // The first process died; another one got the same queue pair number.
    world.hosts[0].connect(0, 2, path(0), request(5));
    world.run();
    assert_eq!(world.events[0][&2], ["rejected"]);
    assert_eq!(world.events[1][&500], ["accept", "disconnected", "exit"]);
}

/// Datagrams that are true but for a few bytes, from the peer and from elsewhere, at any time:
/// nothing panics, and what a program lets go of is forgotten in the end.
#[test]
fn a_hostile_peer_leaves_nothing_behind() {
    for seed in 0..200 {
        let faults = Faults {
            loss: 5,
            duplicate: 5,
            delay_max_ns: 5 * MS,
        };
        let mut world = World::new(seed, faults);
        for id in 1..=5 {
            world.hosts[0].connect(0, id, path(0), request(id + 100));
        }
        for _ in 0..200 {
            world.settle();
            if let Some(Reverse((_, _, host, raw))) = world.on_the_way.peek().cloned() {
                let mut raw = raw;
                for _ in 0..world.random.rand_range(1..4) {
                    // Attribute, communication IDs, or anything.
                    let at = [17, 27, 31, world.random.rand_range(16..256) as usize];
                    let at = at[world.random.rand_range(0..4) as usize];
                    raw[at] = world.random.rand_u64() as u8;
                }
                let mut from = path(host);
                if world.chance(30) {
                    from.remote = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, 9));
                }
                if let Ok(mad) = Mad::parse(&raw) {
                    world.next_id += 1;
                    let (now_ns, fresh) = (world.now_ns, world.next_id);
                    world.hosts[host].handle_mad(now_ns, from, &mad, fresh);
                }
            }
            if !world.step() {
                break;
            }
        }
        for host in 0..2 {
            let now_ns = world.now_ns;
            for id in 0..world.next_id + 1 {
                world.hosts[host].abandon(now_ns, id);
            }
        }
        world.on_the_way.clear();
        for host in &mut world.hosts {
            while host.poll_transmit().is_some() {}
            host.handle_timeout(world.now_ns + BOUND_NS);
            while let Some(at_ns) = host.poll_timeout() {
                host.handle_timeout(at_ns);
            }
            assert!(host.is_idle(), "seed {seed}: {host:?}");
        }
    }
}
