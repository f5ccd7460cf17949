//! Random programs of reliable connection verbs over bad links: in order, exactly once, the right
//! data in the right place, completions in order, an end in bounded time.

mod support;

use support::driver::Outcome;
use support::scenario::{Weather, build};
use support::seeds::for_each_seed;
use urxe_sim::World;

fn all_must_succeed(seed: u64, weather: Option<Weather>, slot: &mut Option<World>) {
    let mut scenario = build(seed, weather, slot);
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
