//! Random messages over unreliable connections and datagrams, alone, and beside programs of all
//! other services on the same hosts and links.

mod support;

use support::scenario::{PD, Service, Weather, build_with};
use support::seeds::for_each_seed;
use urxe_proto::{
    AttrMask, Attributes, QpState, QpType, RecvRequest, SendData, SendOp, SendRequest, SendTarget,
    Sge, WcStatus,
};
use urxe_sim::{ConnectOptions, HostId, LinkConfig, Rights, World};

const UNTOUCHED: u8 = 0xcc;

/// Runs a scenario of these services to its end, which all programs reach.
fn run(seed: u64, weather: Option<Weather>, services: &[Service], slot: &mut Option<World>) {
    let mut scenario = build_with(seed, weather, services, slot);
    scenario.run_to_success(slot.as_mut().unwrap());
}

const UNRELIABLE: [Service; 2] = [Service::Uc, Service::Ud];

#[test]
fn everything_arrives_over_a_perfect_link() {
    for_each_seed(60, |seed, slot| {
        run(seed, Some(Weather::default()), &UNRELIABLE, slot);
    });
}

#[test]
fn messages_over_a_bad_link() {
    for_each_seed(300, |seed, slot| run(seed, None, &UNRELIABLE, slot));
}

#[test]
fn all_services_at_once_over_a_bad_link() {
    let all = [
        Service::Rc,
        Service::RcWithSrq,
        Service::Xrc,
        Service::Uc,
        Service::Ud,
    ];
    for_each_seed(500, |seed, slot| run(seed, None, &all, slot));
}

#[test]
fn a_message_that_is_cut_off_is_dropped_and_the_next_arrives() {
    let mut world = World::new(5, false);
    let hosts = [world.add_host(), world.add_host()];
    world.add_link(hosts[0], hosts[1], LinkConfig::default(), &[]);
    let ends = hosts.map(|host| (host, (QpType::Uc, None)));
    let (a, b) = world.connect_as(ends, PD, &ConnectOptions::default());
    let mut register = |host: HostId, byte, len: usize| {
        let memory = &mut world.host_mut(host).memory;
        let key = memory.register(PD, Rights::ALL, vec![byte; len]);
        let sge = Sge {
            addr: memory.va(key, 0),
            len: len as u32,
            lkey: key,
        };
        [sge]
    };
    let (long, short) = (register(hosts[0], 1, 200_000), register(hosts[0], 2, 3000));
    let received = register(hosts[1], UNTOUCHED, 200_000);
    let request = RecvRequest {
        wr_id: 9,
        sges: &received,
    };
    world.post_recv(b, &request).unwrap();
    let post = |world: &mut World, wr_id, sges: &[Sge]| {
        let request = SendRequest {
            wr_id,
            op: SendOp::Send,
            data: SendData::Sges(sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        world.post_send(a, &request).unwrap();
    };
    post(&mut world, 1, &long);
    post(&mut world, 2, &short);
    world.run_until(world.now().after(10_000));
    world.host_mut(hosts[0]).memory.deregister(long[0].lkey);
    while world.step() {}
    let completions = |world: &mut World, host| -> Vec<_> {
        let host = world.host_mut(host);
        let next = || host.poll_completion();
        std::iter::from_fn(next)
            .map(|(_, completion)| (completion.wr_id, completion.status))
            .collect()
    };
    let expected = [(1, WcStatus::LocalProtection), (2, WcStatus::WrFlush)];
    assert_eq!(completions(&mut world, hosts[0]), expected);
    assert_eq!(world.qp(a).state(), QpState::SendQueueError);
    assert_eq!(completions(&mut world, hosts[1]), []);
    let resume = Attributes {
        state: QpState::ReadyToSend,
        ..Attributes::new()
    };
    world.modify(a, &resume, AttrMask::STATE).unwrap();
    post(&mut world, 3, &short);
    while world.step() {}
    assert_eq!(completions(&mut world, hosts[0]), [(3, WcStatus::Success)]);
    assert_eq!(completions(&mut world, hosts[1]), [(9, WcStatus::Success)]);
    let bytes = world.host(hosts[1]).memory.bytes(received[0].lkey);
    assert!(bytes[..3000].iter().all(|byte| *byte == 2));
}
