//! A whole random scenario from a seed: two or three hosts, links with faults, connections, a
//! program in each direction of each.

use urxe_proto::{AttrMask, Attributes, Instant, PdId, PeerAbilities, QpState, QpType, QueueSide};
use urxe_sim::{
    AckPolicy, ConnectOptions, Fault, HostId, LinkConfig, Match, QpHandle, Random, Rights, Rule,
    World,
};
use urxe_wire::{Mtu, Psn, Srqn};

use super::driver::{Driver, Outcome, Pace, SourceKeys};
use super::program::{Mix, SOURCE_BYTES, generate};
use super::queue_pair::any_peer_abilities;
use super::seeds::is_replay;
use super::unreliable::Way;
pub use super::weather::Weather;

/// Virtual time that no scenario takes.
pub const END: Instant = Instant::from_nanos(120_000_000_000);
/// Events that no scenario takes.
const STEPS_MAX: u64 = 20_000_000;

pub const PD: PdId = PdId(3);

/// What happens to a scenario besides the weather.
#[derive(Clone, Copy, Debug)]
pub enum Calamity {
    /// From `from` on, nothing arrives from one host at another for so long; both ways if
    /// `both_ways`.
    BlackHole {
        from: Instant,
        for_ns: u64,
        both_ways: bool,
    },
    /// The same, but all arrives, later by up to `delay_max_ns`, in any order.
    DelaySpike {
        from: Instant,
        for_ns: u64,
        delay_max_ns: u64,
    },
    /// The processes of a host are killed.
    Death { at: Instant, host: HostId },
}

/// See the module.
pub struct Scenario {
    pub hosts: Vec<HostId>,
    death: Option<(Instant, HostId)>,
    pub drivers: Vec<Driver>,
    pub ways: Vec<Way>,
    is_clear: bool,
    pub description: String,
}

fn any_psn(random: &mut Random) -> Psn {
    let near = random.below(40) as u32;
    match random.below(4) {
        0 => Psn::new(0),
        1 => Psn::new(0).sub(near),
        2 => Psn::new(0x80_0000).sub(near),
        _ => Psn::new(random.bits() as u32),
    }
}

fn any_options(random: &mut Random) -> ConnectOptions {
    ConnectOptions {
        mtu: Mtu::ALL[random.index(Mtu::ALL.len())],
        psn_a: any_psn(random),
        psn_b: any_psn(random),
        timeout: [0, 14, 15, 17][random.index(4)],
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: random.between(1, 14) as u8,
        max_rd_atomic: [1, 2, 4, 16][random.index(4)],
        peer_abilities: any_peer_abilities(random),
        ..ConnectOptions::default()
    }
}

fn any_pace(random: &mut Random) -> Pace {
    let eager = random.chance(600_000);
    Pace {
        burst: random.between(1, 16),
        pause_max_ns: [0, 1_000, 100_000, 3_000_000][random.index(4)],
        recvs_at_first: if eager { 200 } else { random.between(1, 4) },
        recv_pause_max_ns: [1_000, 50_000, 2_000_000][random.index(3)],
    }
}

fn any_link(random: &mut Random) -> LinkConfig {
    LinkConfig {
        delay_ns: [500, 5_000, 50_000, 1_000_000][random.index(4)],
        rate_mbps: [1_000, 10_000, 100_000][random.index(3)],
        mtu_bytes: 4_300,
        queue_bytes: None,
    }
}

/// What carries a connection's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// One reliable connection.
    Rc,
    /// The same, with shared receive queues.
    RcWithSrq,
    /// Two pairs of XRC queue pairs, one for each direction.
    Xrc,
    /// Two unreliable connections, one for each direction.
    Uc,
    /// Two datagram queue pairs at each end.
    Ud,
}

/// The ends of one direction, and the receives' queue if they do not have their own.
type Ends = (QpHandle, QpHandle, Option<Srqn>);

fn connect(
    world: &mut World,
    service: Service,
    hosts: [HostId; 2],
    options: &ConnectOptions,
) -> [Ends; 2] {
    let capacity = options.capacity.recv_requests;
    let mut srqs = || hosts.map(|host| Some(world.host_mut(host).add_srq(PD, capacity, 4)));
    match service {
        Service::Rc => {
            let (a, b) = world.connect(hosts[0], hosts[1], PD, options);
            [(a, b, None), (b, a, None)]
        }
        Service::RcWithSrq => {
            let [srq_a, srq_b] = srqs();
            let ends = [
                (hosts[0], (QpType::Rc, srq_a)),
                (hosts[1], (QpType::Rc, srq_b)),
            ];
            let (a, b) = world.connect_as(ends, PD, options);
            [(a, b, srq_b), (b, a, srq_a)]
        }
        Service::Xrc => {
            let [srq_a, srq_b] = srqs();
            let mut direction = |from: HostId, into: HostId| {
                let ends = [
                    (from, (QpType::XrcInitiator, None)),
                    (into, (QpType::XrcTarget, None)),
                ];
                world.connect_as(ends, PD, options)
            };
            let (a, target_b) = direction(hosts[0], hosts[1]);
            let (b, target_a) = direction(hosts[1], hosts[0]);
            [(a, target_b, srq_b), (b, target_a, srq_a)]
        }
        Service::Uc | Service::Ud => unreachable!("messages over them are no programs"),
    }
}

/// Puts a random scenario of reliable connections into `slot`.
pub fn build(seed: u64, weather: Option<Weather>, slot: &mut Option<World>) -> Scenario {
    build_with(seed, weather, &[Service::Rc], slot)
}

/// Puts a random scenario of these services into `slot`.
pub fn build_with(
    seed: u64,
    weather: Option<Weather>,
    services: &[Service],
    slot: &mut Option<World>,
) -> Scenario {
    let mut random = Random::new(seed ^ 0x5eed);
    let world = slot.insert(World::new(seed, random.chance(300_000)));
    if is_replay() {
        world.trace.keep_lines();
    }
    let is_clear = weather == Some(Weather::default());
    let weather = weather.unwrap_or_else(|| Weather::bad(&mut random));
    let link = any_link(&mut random);
    let hosts: Vec<_> = (0..random.between(2, 3))
        .map(|_| world.add_host())
        .collect();
    for (at, a) in hosts.iter().enumerate() {
        for b in &hosts[at + 1..] {
            world.add_link(*a, *b, link, &weather.rules());
        }
    }
    let policies = [AckPolicy::Hold, AckPolicy::Flush, AckPolicy::Mixed];
    for host in &hosts {
        world.host_mut(*host).ack_policy = policies[random.index(3)];
    }
    let mut description = format!("{weather:?}\n{link:?}\n");
    let (mut drivers, mut ways) = (Vec::new(), Vec::new());
    for _ in 0..random.between(1, 3) {
        let options = any_options(&mut random);
        description.push_str(&format!("{options:?}\n"));
        let first = random.index(hosts.len());
        let second = (first + 1 + random.index(hosts.len() - 1)) % hosts.len();
        let service = services[random.index(services.len())];
        description.push_str(&format!("{service:?}\n"));
        let ends = [hosts[first], hosts[second]];
        if let Service::Uc | Service::Ud = service {
            let qp_type = match service {
                Service::Uc => QpType::Uc,
                _ => QpType::Ud,
            };
            for ends in [ends, [ends[1], ends[0]]] {
                ways.push(Way::new(world, &mut random, ends, qp_type));
            }
            continue;
        }
        let ends = connect(world, service, ends, &options);
        drivers.extend(both_directions(world, &mut random, ends, &options));
    }
    Scenario {
        hosts,
        death: None,
        drivers,
        ways,
        is_clear,
        description,
    }
}

fn source(world: &mut World, host: HostId, random: &mut Random) -> (u32, Vec<u8>) {
    let mut bytes = vec![0; SOURCE_BYTES];
    random.fill(&mut bytes);
    let rights = Rights {
        remote_read: true,
        ..Rights::default()
    };
    (
        world
            .host_mut(host)
            .memory
            .register(PD, rights, bytes.clone()),
        bytes,
    )
}

fn both_directions(
    world: &mut World,
    random: &mut Random,
    [forth, back]: [Ends; 2],
    options: &ConnectOptions,
) -> [Driver; 2] {
    let (a, b) = (forth.0, back.0);
    let (a_key, a_source) = source(world, a.host, random);
    let (b_key, b_source) = source(world, b.host, random);
    let mut direction = |ends, keys, own: &[u8], peer: &[u8]| {
        let mix = Mix {
            ops: random.between(1, 40),
            mtu_bytes: options.mtu.bytes(),
            inline_bytes: options.capacity.inline_bytes as usize,
            has_atomic_write: world.qp(forth.0).config().qp_type == QpType::Rc,
        };
        let program = generate(random, mix, own, peer);
        let (pace, seed) = (any_pace(random), random.bits());
        let random = Random::new(seed);
        let mut driver = Driver::new(world, ends, PD, program, keys, pace, random);
        driver.executes_in_leaps = options
            .peer_abilities
            .contains(PeerAbilities::SELECTIVE_REPEAT);
        driver
    };
    [
        direction(
            forth,
            SourceKeys {
                requester: a_key,
                responder: b_key,
            },
            &a_source,
            &b_source,
        ),
        direction(
            back,
            SourceKeys {
                requester: b_key,
                responder: a_key,
            },
            &b_source,
            &a_source,
        ),
    ]
}

impl Scenario {
    /// Lets something happen, of which the description will tell.
    pub fn strike(&mut self, world: &mut World, calamity: Calamity) {
        self.description.push_str(&format!("{calamity:?}\n"));
        let (first, second) = (self.hosts[0], self.hosts[1]);
        let mut rule = |from: HostId, to: HostId, fault, at: Instant, for_ns| {
            let rule = Rule::always(Match::All, fault).between(at, at.after(for_ns));
            world.link_mut(from, to).rules.push(rule);
        };
        match calamity {
            Calamity::BlackHole {
                from,
                for_ns,
                both_ways,
            } => {
                rule(first, second, Fault::Drop, from, for_ns);
                if both_ways {
                    rule(second, first, Fault::Drop, from, for_ns);
                }
            }
            Calamity::DelaySpike {
                from,
                for_ns,
                delay_max_ns,
            } => {
                let delay = Fault::Delay {
                    max_ns: delay_max_ns,
                };
                rule(first, second, delay, from, for_ns);
                rule(second, first, delay, from, for_ns);
            }
            Calamity::Death { at, host } => self.death = Some((at, host)),
        }
    }

    /// Limits all retries, so that what cannot succeed ends soon.
    pub fn give_up_quickly(&self, world: &mut World) {
        self.limit_retries(world, |_| true);
    }

    /// The same for connections with one host.
    pub fn give_up_quickly_on(&self, world: &mut World, host: HostId) {
        self.limit_retries(world, |driver| driver.involves(host));
    }

    fn limit_retries(&self, world: &mut World, whose: impl Fn(&Driver) -> bool) {
        for driver in self.drivers.iter().filter(|driver| whose(driver)) {
            let limits = Attributes {
                state: QpState::SendQueueDrain,
                timeout: 11,
                retry_count: 4,
                rnr_retry: 4,
                ..Attributes::new()
            };
            let mask = AttrMask::TIMEOUT | AttrMask::RETRY_COUNT | AttrMask::RNR_RETRY;
            let qp = driver.requester;
            // The specification lets these change only while the send queue is drained.
            world.modify(qp, &limits, AttrMask::STATE).unwrap();
            world.modify(qp, &limits, mask).unwrap();
            let resume = Attributes {
                state: QpState::ReadyToSend,
                ..limits
            };
            world.modify(qp, &resume, AttrMask::STATE).unwrap();
        }
    }

    /// Takes completions as they come, without the model: for peers that lie.
    pub fn believe_anything(&mut self) {
        for driver in &mut self.drivers {
            driver.believes_anything = true;
        }
    }

    /// Runs until a host dies that shall.
    pub fn run_until_death(&mut self, world: &mut World) {
        while self.death.is_some() {
            self.step(world);
        }
    }

    /// The first two hosts connect once more, and run programs.
    pub fn connect_again(&mut self, world: &mut World, random: &mut Random, service: Service) {
        let options = any_options(random);
        self.description
            .push_str(&format!("again {service:?} {options:?}\n"));
        let ends = connect(world, service, [self.hosts[0], self.hosts[1]], &options);
        let drivers = both_directions(world, random, ends, &options);
        self.drivers.extend(drivers);
    }

    /// Runs until every direction is done or has failed, then until nothing happens any more.
    pub fn run(&mut self, world: &mut World) {
        let mut steps = 0;
        while self.is_running() {
            steps += 1;
            self.step(world);
            assert!(
                world.now() < END && steps < STEPS_MAX,
                "stuck: {}",
                self.stuck(world)
            );
        }
        while world.step() {
            self.observe(world);
            assert!(
                world.now() < END,
                "does not come to rest: {}",
                self.stuck(world)
            );
        }
    }

    /// The same, and every program must reach its end.
    pub fn run_to_success(&mut self, world: &mut World) {
        self.run(world);
        for driver in &self.drivers {
            assert_eq!(driver.outcome(), Outcome::Done, "{}", self.description);
            driver.check_end(world);
        }
        for way in &self.ways {
            way.check_end(world, self.is_clear);
        }
    }

    fn is_running(&self) -> bool {
        let is_running = |driver: &Driver| driver.outcome() == Outcome::Running;
        self.drivers.iter().any(is_running) || self.ways.iter().any(|way| way.next_at().is_some())
    }

    fn step(&mut self, world: &mut World) {
        if let Some((at, host)) = self.death
            && world.next_at().is_none_or(|next| next >= at)
        {
            self.death = None;
            world.run_until(at);
            for driver in &mut self.drivers {
                driver.handle_death(world, host);
            }
            return;
        }
        let programs = self.drivers.iter().filter_map(Driver::next_at);
        let own = programs.chain(self.ways.iter().filter_map(Way::next_at));
        let own = own.min();
        match (own, world.next_at()) {
            (Some(own), next) if next.is_none_or(|next| own <= next) => {
                world.run_until(own);
                for driver in &mut self.drivers {
                    driver.act(world);
                }
                for way in &mut self.ways {
                    way.act(world);
                }
            }
            (_, Some(_)) => {
                world.step();
            }
            _ => panic!("nothing will ever happen again: {}", self.stuck(world)),
        }
        self.observe(world);
    }

    fn observe(&mut self, world: &mut World) {
        for host in self.hosts.clone() {
            while let Some((_, completion)) = world.host_mut(host).poll_completion() {
                let qp = QpHandle {
                    host,
                    number: completion.qp,
                };
                for driver in &mut self.drivers {
                    match completion.side() {
                        QueueSide::Send if driver.requester == qp => {
                            driver.handle_send_completion(world, &completion);
                        }
                        QueueSide::Recv if driver.responder == qp => {
                            driver.handle_recv_completion(world, &completion);
                        }
                        _ => {}
                    }
                }
                for way in &mut self.ways {
                    way.observe(world, qp, &completion);
                }
            }
        }
    }

    fn stuck(&self, world: &World) -> String {
        let mut text = format!("at {:?} in\n{}", world.now(), self.description);
        for driver in &self.drivers {
            let host = world.host(driver.requester.host);
            let qp = host.qp(driver.requester.number);
            let state = qp.map(|qp| (qp.state(), qp.stats()));
            let (name, outcome) = (driver.requester, driver.outcome());
            text.push_str(&format!("{name:?}: {outcome:?} {state:?}\n"));
        }
        text
    }
}
