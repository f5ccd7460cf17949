//! Memory windows over bad links: bound and invalidated exactly once whatever is sent again, and
//! shut afterwards.

mod support;

use support::check::assert_same;
use support::queue_pair::any_peer_abilities;
use support::scenario::{PD, Weather};
use support::seeds::{for_each_seed, is_replay};
use urxe_proto::{
    Completion, CompletionKind, PeerAbilities, QpState, QueueSide, RecvRequest, SendData, SendOp,
    SendRequest, SendTarget, Sge, WcStatus, WindowAccess, WindowBind, WindowType,
};
use urxe_sim::{ConnectOptions, LinkConfig, QpHandle, Random, Rights, World};

const REGION_BYTES: usize = 16 << 10;
const UNTOUCHED: u8 = 0xcc;

fn post(world: &mut World, qp: QpHandle, op: SendOp, sges: &[Sge]) {
    let request = SendRequest {
        wr_id: 1,
        op,
        data: SendData::Sges(sges),
        signaled: true,
        solicited: false,
        fence: false,
        target: SendTarget::Connection,
    };
    world.post_send(qp, &request).unwrap();
}

/// Lets time pass until a queue pair completes something on this side.
fn wait(world: &mut World, qp: QpHandle, side: QueueSide) -> Completion {
    loop {
        if let Some((_, completion)) = world.host_mut(qp.host).poll_completion() {
            assert_eq!((completion.qp, completion.side()), (qp.number, side));
            return completion;
        }
        assert!(world.step(), "nothing completes");
    }
}

/// Opens `len` bytes at `va` of a region.
fn bind(world: &mut World, owner: QpHandle, region: u32, (rkey, va, len): (u32, u64, usize)) {
    let bind = WindowBind {
        rkey,
        lkey: region,
        addr: va,
        len: len as u64,
        access: WindowAccess::REMOTE_WRITE,
    };
    post(world, owner, SendOp::BindWindow(bind), &[]);
    let bound = wait(world, owner, QueueSide::Send);
    assert_eq!(
        (bound.kind, bound.status),
        (CompletionKind::BindWindow, WcStatus::Success)
    );
}

fn post_empty_receive(world: &mut World, qp: QpHandle) {
    let receive = RecvRequest {
        wr_id: 2,
        sges: &[],
    };
    world.post_recv(qp, &receive).unwrap();
}

/// A region whose owner may open parts of it.
fn register(world: &mut World, owner: QpHandle) -> u32 {
    let no_peers = Rights {
        local_write: true,
        bind_windows: true,
        ..Rights::default()
    };
    let memory = &mut world.host_mut(owner.host).memory;
    memory.register(PD, no_peers, vec![UNTOUCHED; REGION_BYTES])
}

/// Each turn the owner binds the window to another part, the peer writes all of it and invalidates
/// it; at last the peer uses a key that was invalidated.
fn run(seed: u64, slot: &mut Option<World>) {
    let mut random = Random::new(seed ^ 0x817d);
    let world = slot.insert(World::new(seed, random.chance(300_000)));
    if is_replay() {
        world.trace.keep_lines();
    }
    let hosts = [world.add_host(), world.add_host()];
    let weather = Weather::bad(&mut random);
    world.add_link(hosts[0], hosts[1], LinkConfig::default(), &weather.rules());
    let options = ConnectOptions {
        peer_abilities: any_peer_abilities(&mut random),
        ..ConnectOptions::default()
    };
    let (owner, peer) = world.connect(hosts[0], hosts[1], PD, &options);
    let region = register(world, owner);
    let memory = &mut world.host_mut(owner.host).memory;
    let mut rkey = memory.alloc_window(PD, WindowType::Type2);
    let mut source = vec![0; REGION_BYTES];
    random.fill(&mut source);
    let memory = &mut world.host_mut(peer.host).memory;
    let source_key = memory.register(PD, Rights::default(), source.clone());
    let source_va = memory.va(source_key, 0);
    let mut expected = vec![UNTOUCHED; REGION_BYTES];
    let mut va = 0;
    for _ in 0..random.between(1, 8) {
        let at = random.index(REGION_BYTES / 2);
        let len = 1 + random.index(REGION_BYTES / 2);
        va = world.host(owner.host).memory.va(region, at as u64);
        rkey = (rkey & !0xff) | (rkey + 1) & 0xff;
        bind(world, owner, region, (rkey, va, len));
        post_empty_receive(world, owner);
        let data = [Sge {
            addr: source_va,
            len: len as u32,
            lkey: source_key,
        }];
        post(world, peer, SendOp::Write { va, rkey }, &data);
        post(world, peer, SendOp::SendInvalidate { rkey }, &[]);
        let told = wait(world, owner, QueueSide::Recv);
        assert_eq!(told.invalidated_rkey, Some(rkey));
        for _ in 0..2 {
            let done = wait(world, peer, QueueSide::Send);
            assert_eq!(done.status, WcStatus::Success);
        }
        expected[at..at + len].copy_from_slice(&source[..len]);
        let bytes = world.host(owner.host).memory.bytes(region);
        assert_same(bytes, &expected, "what the peer wrote");
    }
    let data = [Sge {
        addr: source_va,
        len: 1,
        lkey: source_key,
    }];
    post(world, peer, SendOp::Write { va, rkey }, &data);
    let refused = wait(world, peer, QueueSide::Send);
    // The refusal may be lost, and is not repeated: the owner's queue pair is in error by then.
    let refusals = [WcStatus::RemoteAccess, WcStatus::RetryExceeded];
    assert!(refusals.contains(&refused.status), "{refused:?}");
    assert_eq!(world.qp(owner).state(), QpState::Error);
    let bytes = world.host(owner.host).memory.bytes(region);
    assert_same(bytes, &expected, "after the last write");
}

#[test]
fn a_window_is_open_only_between_binding_and_invalidation() {
    for_each_seed(150, run);
}

/// Packets of a WRITE are messages of their own where all of it was written before, by the same
/// key.
#[test]
fn a_write_beyond_a_window_places_no_byte_once_it_opened_more() {
    const BYTES: usize = 4096;
    let mut world = World::new(1, false);
    let hosts = [world.add_host(), world.add_host()];
    world.add_link(hosts[0], hosts[1], LinkConfig::default(), &[]);
    let options = ConnectOptions {
        peer_abilities: PeerAbilities::URXE,
        ..ConnectOptions::default()
    };
    let (owner, peer) = world.connect(hosts[0], hosts[1], PD, &options);
    let region = register(&mut world, owner);
    let memory = &mut world.host_mut(owner.host).memory;
    let window = memory.alloc_window(PD, WindowType::Type2) & !0xff;
    let va = memory.va(region, 0);
    let memory = &mut world.host_mut(peer.host).memory;
    let source = memory.register(PD, Rights::default(), vec![1; BYTES]);
    let data = [Sge {
        addr: memory.va(source, 0),
        len: BYTES as u32,
        lkey: source,
    }];
    for key in [1, 2] {
        let rkey = window | key;
        bind(&mut world, owner, region, (rkey, va, BYTES));
        post_empty_receive(&mut world, owner);
        post(&mut world, peer, SendOp::Write { va, rkey }, &data);
        post(&mut world, peer, SendOp::SendInvalidate { rkey }, &[]);
        wait(&mut world, owner, QueueSide::Recv);
        for _ in 0..2 {
            let done = wait(&mut world, peer, QueueSide::Send);
            assert_eq!(done.status, WcStatus::Success);
        }
    }
    let rkey = window | 1;
    bind(&mut world, owner, region, (rkey, va, BYTES - 1));
    let memory = &mut world.host_mut(peer.host).memory;
    let other = memory.register(PD, Rights::default(), vec![2; BYTES]);
    let data = [Sge {
        addr: memory.va(other, 0),
        lkey: other,
        ..data[0]
    }];
    post(&mut world, peer, SendOp::Write { va, rkey }, &data);
    let refused = wait(&mut world, peer, QueueSide::Send);
    assert_eq!(refused.status, WcStatus::RemoteAccess);
    let bytes = world.host(owner.host).memory.bytes(region);
    assert_same(&bytes[..BYTES], &[1; BYTES], "after the last write");
}
