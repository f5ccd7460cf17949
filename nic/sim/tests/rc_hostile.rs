//! A peer that sends what it likes, with a right ICRC: nothing panics, nothing is written where the
//! peer may not write, and everything ends.

mod support;

use support::program::UNTOUCHED;
use support::scenario::{PD, Service, Weather, build_with};
use support::seeds::for_each_seed;
use urxe_sim::{HostId, Rights, World};

/// Content of what no packet may change: all regions without remote write or atomic rights that are
/// not written by the program itself either.
fn protected(world: &World, hosts: &[HostId]) -> Vec<(HostId, u32, Vec<u8>)> {
    let mut found = Vec::new();
    for host in hosts.iter().copied() {
        for (key, region) in world.host(host).memory.regions() {
            let Rights {
                local_write,
                remote_write,
                remote_atomic,
                ..
            } = region.rights;
            if !local_write && !remote_write && !remote_atomic {
                found.push((host, key, region.bytes.clone()));
            }
        }
    }
    found
}

fn forged(seed: u64, slot: &mut Option<World>, forge_ppm: u32) {
    let weather = Weather {
        forge_ppm,
        loss_ppm: 10_000,
        ..Weather::default()
    };
    let services = [Service::Rc, Service::RcWithSrq, Service::Xrc];
    let mut scenario = build_with(seed, Some(weather), &services, slot);
    let world = slot.as_mut().unwrap();
    let mut guards = Vec::new();
    for host in scenario.hosts.iter().copied() {
        // Writable for its owner alone, which never does so; and one of another domain.
        for (pd, rights) in [
            (
                PD,
                Rights {
                    local_write: true,
                    ..Rights::default()
                },
            ),
            (urxe_proto::PdId(PD.0 + 1), Rights::ALL),
        ] {
            let key = world
                .host_mut(host)
                .memory
                .register(pd, rights, vec![UNTOUCHED; 8_192]);
            guards.push((host, key));
        }
    }
    let before = protected(world, &scenario.hosts);
    scenario.believe_anything();
    scenario.give_up_quickly(world);
    scenario.run(world);
    for (host, key, bytes) in before {
        assert!(
            world.host(host).memory.bytes(key) == bytes,
            "host {host:?} region {key:#x}"
        );
    }
    for (host, key) in guards {
        let bytes = world.host(host).memory.bytes(key);
        assert!(
            bytes.iter().all(|byte| *byte == UNTOUCHED),
            "host {host:?} region {key:#x}"
        );
    }
}

#[test]
fn forged_packets_now_and_then() {
    for_each_seed(150, |seed, slot| forged(seed, slot, 20_000));
}

#[test]
fn mostly_forged_packets() {
    for_each_seed(80, |seed, slot| forged(seed, slot, 600_000));
}

#[test]
fn forged_packets_for_long() {
    for_each_seed(1_500, |seed, slot| {
        forged(seed, slot, if seed % 2 == 0 { 50_000 } else { 500_000 })
    });
}
