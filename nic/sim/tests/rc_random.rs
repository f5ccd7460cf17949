//! Random programs of reliable verbs (RC, RC with shared receive queues, XRC) over bad links: in
//! order, exactly once, the right data in the right place, completions in order, an end in bounded
//! time.

mod support;

use support::driver::Outcome;
use support::scenario::{Calamity, Service, Weather, build, build_with};
use support::seeds::for_each_seed;
use urxe_proto::{Instant, WcStatus};
use urxe_sim::{Random, World};

fn all_must_succeed(seed: u64, weather: Option<Weather>, slot: &mut Option<World>) {
    let mut scenario = build(seed, weather, slot);
    scenario.run_to_success(slot.as_mut().unwrap());
}

#[test]
fn programs_over_a_perfect_link() {
    for_each_seed(60, |seed, slot| {
        all_must_succeed(seed, Some(Weather::default()), slot)
    });
}

#[test]
fn programs_over_a_bad_link() {
    for_each_seed(1_500, |seed, slot| all_must_succeed(seed, None, slot));
}

#[test]
fn programs_of_all_reliable_services_over_a_bad_link() {
    for_each_seed(150, |seed, slot| {
        let mut scenario = build_with(seed, None, &ALL_RELIABLE, slot);
        scenario.run_to_success(slot.as_mut().unwrap());
    });
}

const ALL_RELIABLE: [Service; 3] = [Service::Rc, Service::RcWithSrq, Service::Xrc];

/// A time within which programs run.
fn any_time(random: &mut Random) -> Instant {
    let end_ns = [100_000, 3_000_000, 60_000_000][random.index(3)];
    Instant::from_nanos(random.below(end_ns))
}

#[test]
fn a_black_hole_or_a_delay_spike_is_survived() {
    for_each_seed(300, |seed, slot| {
        let mut random = Random::new(seed ^ 0xb1ac);
        let mut scenario = build_with(seed, None, &ALL_RELIABLE, slot);
        let world = slot.as_mut().unwrap();
        let from = any_time(&mut random);
        // The shortest of the timeouts lasts for half a second.
        let for_ns = random.below(300_000_000);
        let calamity = if random.chance(500_000) {
            Calamity::BlackHole {
                from,
                for_ns,
                both_ways: random.chance(500_000),
            }
        } else {
            Calamity::DelaySpike {
                from,
                for_ns,
                delay_max_ns: random.below(20_000_000),
            }
        };
        scenario.strike(world, calamity);
        scenario.run_to_success(world);
    });
}

/// What was asked of a peer that dies ends, and what others do is not disturbed. After a restart
/// all goes as before, though the survivors of the old connections still try to reach them.
#[test]
fn a_peer_that_dies_fails_its_own_connections_and_no_others() {
    for_each_seed(300, |seed, slot| {
        let mut random = Random::new(seed ^ 0xdead);
        let mut scenario = build_with(seed, None, &ALL_RELIABLE, slot);
        let world = slot.as_mut().unwrap();
        let (at, host) = (any_time(&mut random), scenario.hosts[0]);
        scenario.give_up_quickly_on(world, host);
        scenario.strike(world, Calamity::Death { at, host });
        scenario.run_until_death(world);
        let old = scenario.drivers.len();
        if random.chance(500_000) {
            let service = ALL_RELIABLE[random.index(ALL_RELIABLE.len())];
            scenario.connect_again(world, &mut random, service);
        }
        scenario.run(world);
        let (before, after) = scenario.drivers.split_at(old);
        let (hit, spared): (Vec<_>, Vec<_>) =
            before.iter().partition(|driver| driver.involves(host));
        for driver in spared.into_iter().chain(after) {
            assert_eq!(driver.outcome(), Outcome::Done, "{}", scenario.description);
            driver.check_end(world);
        }
        for driver in hit {
            let expected = [
                WcStatus::RetryExceeded,
                WcStatus::RnrRetryExceeded,
                WcStatus::WrFlush,
            ];
            match driver.outcome() {
                Outcome::Failed(status) => assert!(expected.contains(&status), "{status:?}"),
                outcome => assert_eq!(outcome, Outcome::Done, "{}", scenario.description),
            }
        }
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    let digest = |seed| {
        let mut slot = None;
        all_must_succeed(seed, None, &mut slot);
        slot.unwrap().digest()
    };
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}
