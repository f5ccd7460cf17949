//! Random programs of reliable verbs (RC, RC with shared receive queues, XRC) over bad links: in order, exactly once, the right
//! data in the right place, completions in order, an end in bounded time.

mod support;

use support::driver::Outcome;
use support::scenario::{Scenario, Service, Weather, build, build_with};
use support::seeds::for_each_seed;
use urxe_sim::World;

fn all_must_succeed(seed: u64, weather: Option<Weather>, slot: &mut Option<World>) {
    let scenario = build(seed, weather, slot);
    all_of_it_must_succeed(scenario, slot);
}

fn all_of_it_must_succeed(mut scenario: Scenario, slot: &mut Option<World>) {
    let world = slot.as_mut().unwrap();
    scenario.run(world);
    for driver in &scenario.drivers {
        assert_eq!(driver.outcome(), Outcome::Done, "{}", scenario.description);
        driver.check_end(world);
    }
}

#[test]
fn programs_over_a_perfect_link() {
    for_each_seed(60, |seed, slot| {
        all_must_succeed(seed, Some(Weather::default()), slot)
    });
}

#[test]
fn programs_over_a_bad_link() {
    for_each_seed(150, |seed, slot| all_must_succeed(seed, None, slot));
}

#[test]
fn programs_of_all_reliable_services_over_a_bad_link() {
    for_each_seed(150, |seed, slot| {
        let services = [Service::Rc, Service::RcWithSrq, Service::Xrc];
        let scenario = build_with(seed, None, &services, slot);
        all_of_it_must_succeed(scenario, slot);
    });
}

#[test]
#[ignore = "slow: 1500 seeds"]
fn programs_over_a_bad_link_for_long() {
    for_each_seed(1_500, |seed, slot| all_must_succeed(seed, None, slot));
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
