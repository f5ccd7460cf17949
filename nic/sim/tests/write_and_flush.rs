//! ATOMIC WRITE and FLUSH: what each does, which peer may ask for it, and that each is done once
//! whatever is lost.

mod support;

use support::bench::{Bench, REGION_BYTES};
use support::scenario::PD;
use urxe_proto::{
    AttrMask, Attributes, PeerAbilities, Placement, PostError, QpState, SendData, SendOp,
    SendRequest, SendTarget, WcStatus,
};
use urxe_sim::{ConnectOptions, Fault, Match, Rights, Rule};
use urxe_wire::Operation;

fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: 10,
        retry_count: 3,
        ..ConnectOptions::default()
    }
}

fn run(bench: &mut Bench, op: SendOp, len: usize) -> WcStatus {
    bench.post_send(1, op, 0, len);
    bench.wait_send().status
}

fn write_counter(bench: &Bench) -> SendOp {
    SendOp::AtomicWrite {
        va: bench.counter_va(),
        rkey: bench.target,
    }
}

fn source_word(bench: &Bench) -> u64 {
    let source = bench.world.host(bench.a.host).memory.bytes(bench.source);
    u64::from_ne_bytes(source[..8].try_into().unwrap())
}

#[test]
fn eight_bytes_are_written_and_the_answer_says_so() {
    for peer_abilities in [PeerAbilities::empty(), PeerAbilities::URXE] {
        let mut bench = Bench::new(
            1,
            ConnectOptions {
                peer_abilities,
                ..options()
            },
        );
        let op = write_counter(&bench);
        assert_eq!(run(&mut bench, op, 8), WcStatus::Success);
        assert_eq!(bench.counter(), source_word(&bench));
        // What comes behind it finds it done.
        bench.fetch_add(source_word(&bench), 1);
    }
}

/// The answer is lost, and the request comes again when another has changed the word.
#[test]
fn it_is_done_once_though_its_answer_is_lost() {
    for peer_abilities in [PeerAbilities::empty(), PeerAbilities::URXE] {
        let mut bench = Bench::new(
            1,
            ConnectOptions {
                peer_abilities,
                ..options()
            },
        );
        let (a, b) = (bench.a.host, bench.b.host);
        let answers = Match::Operation(Operation::ReadResponseOnly);
        bench.world.link_mut(b, a).rules = vec![Rule::nth(answers, Fault::Drop, 0, 1)];
        let write = write_counter(&bench);
        let add = SendOp::FetchAdd {
            va: bench.counter_va(),
            rkey: bench.target,
            add: 3,
        };
        bench.post_send(1, write, 0, 8);
        bench.post_send(2, add, 0, 8);
        for wr_id in 1..3 {
            let done = bench.wait_send();
            assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success));
        }
        assert_eq!(bench.lost(false), 1);
        assert_eq!(bench.counter(), source_word(&bench).wrapping_add(3));
    }
}

#[test]
fn a_word_that_may_not_be_written_is_refused() {
    let mut bench = Bench::new(1, options());
    let rkey = bench.target;
    let odd = SendOp::AtomicWrite {
        va: bench.counter_va() - 4,
        rkey,
    };
    let status = run(&mut bench, odd, 8);
    assert_eq!(status, WcStatus::RemoteInvalidRequest);
    let mut bench = Bench::new(1, options());
    let beyond = SendOp::AtomicWrite {
        va: bench.counter_va() + 8,
        rkey,
    };
    assert_eq!(run(&mut bench, beyond, 8), WcStatus::RemoteAccess);
    assert_eq!(bench.counter(), 0);
}

fn flush(bench: &Bench, len: Option<u32>, placement: Placement) -> SendOp {
    SendOp::Flush {
        va: bench.target_va(100),
        rkey: bench.target,
        len,
        placement,
    }
}

#[test]
fn a_flush_is_of_what_was_written_before_it() {
    let mut bench = Bench::new(1, options());
    let all = Placement::all();
    let write = SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    bench.post_send(1, write, 0, 5_000);
    let range = flush(&bench, Some(5_000), Placement::GLOBAL);
    let region = flush(&bench, None, all);
    bench.post_send(2, range, 0, 0);
    bench.post_send(3, region, 0, 0);
    for wr_id in 1..4 {
        let done = bench.wait_send();
        assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success));
    }
    let (target, va) = (bench.target, bench.target_va(100));
    let memory = &bench.world.host(bench.b.host).memory;
    assert_eq!(
        memory.flushed(),
        [
            (target, Some((va, 5_000)), Placement::GLOBAL),
            (target, None, all)
        ]
    );
}

#[test]
fn a_flush_not_allowed_by_queue_pair_or_region_is_refused() {
    let global = Placement::GLOBAL;
    let mut bench = Bench::new(1, options());
    let beyond = flush(&bench, Some(REGION_BYTES as u32), global);
    assert_eq!(run(&mut bench, beyond, 0), WcStatus::RemoteAccess);

    let mut bench = Bench::new(1, options());
    let rights = Rights {
        flush: global,
        ..Rights::ALL
    };
    let memory = &mut bench.world.host_mut(bench.b.host).memory;
    bench.target = memory.register(PD, rights, vec![0; REGION_BYTES]);
    let allowed = flush(&bench, None, global);
    assert_eq!(run(&mut bench, allowed, 0), WcStatus::Success);
    let persistent = flush(&bench, None, Placement::PERSISTENT);
    assert_eq!(run(&mut bench, persistent, 0), WcStatus::RemoteAccess);

    let mut bench = Bench::new(1, options());
    let limits = Attributes {
        state: QpState::ReadyToSend,
        allow_flush: Placement::empty(),
        ..Attributes::new()
    };
    let mask = AttrMask::STATE | AttrMask::ACCESS_FLAGS;
    let responder = bench.b;
    bench.world.modify(responder, &limits, mask).unwrap();
    let refused = flush(&bench, None, global);
    let status = run(&mut bench, refused, 0);
    assert_eq!(status, WcStatus::RemoteInvalidRequest);
}

#[test]
fn an_atomic_write_has_eight_bytes_and_a_flush_none() {
    let mut bench = Bench::new(1, options());
    let write = write_counter(&bench);
    let flush = flush(&bench, None, Placement::GLOBAL);
    let mut post = |op, bytes: &[u8]| {
        let request = SendRequest {
            wr_id: 1,
            op,
            data: SendData::Inline(bytes),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        bench.world.post_send(bench.a, &request)
    };
    assert_eq!(post(write, &[1; 8]), Ok(()));
    assert_eq!(post(write, &[1; 7]), Err(PostError::Unsupported));
    assert_eq!(post(flush, &[]), Ok(()));
    assert_eq!(post(flush, &[1]), Err(PostError::Unsupported));
    for _ in 0..2 {
        assert_eq!(bench.wait_send().status, WcStatus::Success);
    }
    assert_eq!(bench.counter(), u64::from_ne_bytes([1; 8]));
}
