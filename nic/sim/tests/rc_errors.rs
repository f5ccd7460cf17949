//! What cannot succeed ends with the right status, in bounded time, and flushes the rest.

mod support;

use support::bench::{Bench, REGION_BYTES};
use support::driver::Outcome;
use support::failures::*;
use support::scenario::{Weather, build};
use support::seeds::for_each_seed;
use urxe_proto::{PeerAbilities, QpState, QueueSide, SendOp, WcStatus};
use urxe_sim::{ConnectOptions, Fault, Match, Random, Rights, Rule};
use urxe_wire::{Immediate, Mtu};

#[test]
fn a_black_hole_exhausts_the_retries() {
    for (op, len) in [(None, 100), (None, 9_000), (Some(()), 3_000)] {
        let mut bench = Bench::new(3, options());
        let (a, b) = (bench.a.host, bench.b.host);
        bench.world.link_mut(a, b).rules = vec![Rule::always(Match::All, Fault::Drop)];
        let (va, rkey) = (bench.target_va(0), bench.target);
        let op = if op.is_some() {
            SendOp::Read { va, rkey }
        } else {
            SendOp::Write { va, rkey }
        };
        assert_eq!(fail_first(&mut bench, op, len), WcStatus::RetryExceeded);
        // 4.096 us * 2^10, four times (the first try and three retries), and up to four times as
        // long (IBTA 9.7.6.1.3).
        let took_ns = bench.world.now().as_nanos();
        assert!((16_000_000..80_000_000).contains(&took_ns), "{took_ns} ns");
    }
}

#[test]
fn a_peer_that_falls_silent_in_the_middle_exhausts_the_retries() {
    for skip in 0..12 {
        let mut bench = Bench::new(3, options());
        let (a, b) = (bench.a.host, bench.b.host);
        bench.world.link_mut(b, a).rules = vec![Rule::nth(Match::All, Fault::Drop, skip, u64::MAX)];
        let read = SendOp::Read {
            va: bench.target_va(0),
            rkey: bench.target,
        };
        assert_eq!(
            fail_first(&mut bench, read, 100_000),
            WcStatus::RetryExceeded,
            "after {skip}"
        );
    }
}

#[test]
fn ends_with_different_path_mtus_refuse_each_other() {
    let options = ConnectOptions {
        mtu: Mtu::B4096,
        mtu_b: Some(Mtu::B1024),
        ..options()
    };
    for len in [1_025, 4_096, 9_000] {
        let mut bench = Bench::new(3, options);
        let (va, rkey) = (bench.target_va(0), bench.target);
        // A packet above the receiver's MTU is an invalid request, one below the sender's in the
        // middle is no answer.
        let status = fail_first(&mut bench, SendOp::Write { va, rkey }, len);
        assert_eq!(status, WcStatus::RemoteInvalidRequest, "{len} bytes");
        target_is_untouched(&bench);
        let mut bench = Bench::new(3, options);
        let status = fail_first(&mut bench, SendOp::Read { va, rkey }, len);
        assert_eq!(status, WcStatus::BadResponse, "{len} bytes");
    }
    let mut bench = Bench::new(3, options);
    bench.write(0, 1_000);
    bench.read(0, 1_000);
}

#[test]
fn a_lower_mtu_one_way_fails_only_what_does_not_fit() {
    let options = ConnectOptions {
        mtu: Mtu::B4096,
        ..options()
    };
    for to_responder in [true, false] {
        let mut bench = Bench::new(3, options);
        let (a, b) = (bench.a.host, bench.b.host);
        let (from, to) = if to_responder { (a, b) } else { (b, a) };
        bench.world.link_mut(from, to).config.mtu_bytes = 1_500;
        let (va, rkey) = (bench.target_va(0), bench.target);
        // Whole, in the direction that has the room.
        bench.write(0, 1_000);
        bench.read(0, 1_000);
        let (fits, fails) = if to_responder {
            (SendOp::Read { va, rkey }, SendOp::Write { va, rkey })
        } else {
            (SendOp::Write { va, rkey }, SendOp::Read { va, rkey })
        };
        bench.post_send(9, fits, 0, 9_000);
        assert_eq!(bench.wait_send().status, WcStatus::Success);
        let status = fail_first(&mut bench, fails, 9_000);
        assert_eq!(status, WcStatus::RetryExceeded);
        assert!(bench.world.link_mut(from, to).stats.too_long >= 4);
    }
}

#[test]
fn a_receiver_that_is_never_ready_exhausts_the_rnr_retries() {
    let mut bench = Bench::new(3, options());
    assert_eq!(
        fail_first(&mut bench, SendOp::Send, 100),
        WcStatus::RnrRetryExceeded
    );
    let (va, rkey) = (bench.target_va(0), bench.target);
    let mut bench = Bench::new(3, options());
    let op = SendOp::WriteImm {
        va,
        rkey,
        immediate: Immediate([0; 4]),
    };
    assert_eq!(
        fail_first(&mut bench, op, 5_000),
        WcStatus::RnrRetryExceeded
    );
    assert_eq!(
        bench.world.qp(bench.b).stats().rnr_nak_sent,
        4,
        "the first try and three retries"
    );
}

#[test]
fn access_that_is_not_granted_is_refused_and_touches_nothing() {
    let wrong_keys: [fn(&Bench) -> SendOp; 6] = [
        |bench| SendOp::Write {
            va: bench.target_va(0),
            rkey: bench.target + 1,
        },
        |bench| SendOp::Write {
            va: bench.target_va(REGION_BYTES - 99),
            rkey: bench.target,
        },
        |bench| SendOp::Write {
            va: bench.target_va(0).wrapping_sub(1),
            rkey: bench.target,
        },
        |bench| SendOp::Write {
            va: u64::MAX - 50,
            rkey: bench.target,
        },
        |bench| SendOp::Read {
            va: bench.target_va(0),
            rkey: 0,
        },
        |bench| SendOp::Read {
            va: bench.target_va(REGION_BYTES),
            rkey: bench.target,
        },
    ];
    for (index, op) in wrong_keys.iter().enumerate() {
        let mut bench = Bench::new(4, options());
        let op = op(&bench);
        assert_eq!(
            fail_first(&mut bench, op, 100),
            WcStatus::RemoteAccess,
            "case {index}"
        );
        assert_eq!(
            bench.world.qp(bench.b).state(),
            QpState::Error,
            "case {index}"
        );
        target_is_untouched(&bench);
    }
}

#[test]
fn a_long_write_that_does_not_fit_places_no_byte() {
    let mut bench = Bench::new(4, options());
    let op = SendOp::Write {
        va: bench.target_va(REGION_BYTES - 20_000),
        rkey: bench.target,
    };
    assert_eq!(fail_first(&mut bench, op, 20_001), WcStatus::RemoteAccess);
    target_is_untouched(&bench);
}

/// Even if it is one whose packets could be messages of their own, as all of it that may be written
/// was written before.
#[test]
fn a_repeated_short_write_that_does_not_fit_places_no_byte() {
    let options = ConnectOptions {
        peer_abilities: PeerAbilities::URXE,
        ..options()
    };
    let mut bench = Bench::new(4, options);
    bench.write(REGION_BYTES - 5_000, 5_000);
    let op = SendOp::Write {
        va: bench.target_va(REGION_BYTES - 5_000),
        rkey: bench.target,
    };
    bench.post_send(1, op, 0, 5_001);
    assert_eq!(bench.wait_send().status, WcStatus::RemoteAccess);
    let source = bench.world.host(bench.a.host).memory.bytes(bench.source);
    let target = bench.world.host(bench.b.host).memory.bytes(bench.target);
    assert_eq!(
        target[REGION_BYTES - 5_000..],
        source[REGION_BYTES - 5_000..]
    );
}

#[test]
fn rights_are_those_of_the_region_and_its_protection_domain() {
    let regions = [
        (
            support::scenario::PD,
            Rights {
                remote_read: true,
                local_write: true,
                ..Rights::default()
            },
        ),
        (urxe_proto::PdId(99), Rights::ALL),
    ];
    for (pd, rights) in regions {
        let mut bench = Bench::new(5, options());
        let memory = &mut bench.world.host_mut(bench.b.host).memory;
        let rkey = memory.register(pd, rights, vec![0; 4_096]);
        let va = memory.va(rkey, 0);
        assert_eq!(
            fail_first(&mut bench, SendOp::Write { va, rkey }, 8),
            WcStatus::RemoteAccess
        );
        let mut bench = Bench::new(5, options());
        let memory = &mut bench.world.host_mut(bench.b.host).memory;
        let rkey = memory.register(pd, rights, vec![0; 4_096]);
        let op = SendOp::FetchAdd {
            va: memory.va(rkey, 0),
            rkey,
            add: 1,
        };
        assert_eq!(fail_first(&mut bench, op, 8), WcStatus::RemoteAccess);
    }
}

#[test]
fn an_atomic_on_an_odd_address_is_an_invalid_request() {
    let mut bench = Bench::new(5, options());
    let op = SendOp::FetchAdd {
        va: bench.counter_va() - 4,
        rkey: bench.target,
        add: 1,
    };
    assert_eq!(
        fail_first(&mut bench, op, 8),
        WcStatus::RemoteInvalidRequest
    );
    target_is_untouched(&bench);
}

#[test]
fn a_message_longer_than_its_receive_fails_at_both_ends() {
    for len in [101, 1_024, 5_000] {
        let mut bench = Bench::new(6, options());
        bench.post_recv(7, 100);
        bench.post_recv(8, 100);
        assert_eq!(
            fail_first(&mut bench, SendOp::Send, len),
            WcStatus::RemoteInvalidRequest
        );
        let first = bench.recv_completion().unwrap();
        assert_eq!((first.wr_id, first.status), (7, WcStatus::LocalLength));
        let second = bench.recv_completion().unwrap();
        assert_eq!((second.wr_id, second.status), (8, WcStatus::WrFlush));
    }
}

#[test]
fn local_memory_without_rights_is_a_local_protection_error() {
    let mut bench = Bench::new(6, options());
    let source = bench.source;
    bench.source += 1;
    assert_eq!(
        fail_first(&mut bench, SendOp::Send, 10),
        WcStatus::LocalProtection
    );
    // A READ into memory without the right to write it.
    let mut bench = Bench::new(6, options());
    bench.fetched = source;
    let op = SendOp::Read {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    assert_eq!(fail_first(&mut bench, op, 10), WcStatus::LocalProtection);
}

/// The peer has carried out what was asked of it by then; what it refuses, it says first.
#[test]
fn memory_closed_to_an_answer_is_found_out_when_it_comes() {
    for rkey_off in [0, 1] {
        let expected = if rkey_off == 0 {
            WcStatus::LocalProtection
        } else {
            WcStatus::RemoteAccess
        };
        for (is_read, lkey_off, len) in [(false, 1, 8), (true, 1, 10), (true, 0, REGION_BYTES + 1)]
        {
            let mut bench = Bench::new(6, options());
            bench.fetched += lkey_off;
            let rkey = bench.target + rkey_off;
            let op = if is_read {
                let va = bench.target_va(0);
                SendOp::Read { va, rkey }
            } else {
                let va = bench.counter_va();
                SendOp::FetchAdd { va, rkey, add: 5 }
            };
            // A READ of more than there is at home is one of more than there is at the peer's, too.
            let expected = if len > REGION_BYTES {
                WcStatus::RemoteAccess
            } else {
                expected
            };
            assert_eq!(fail_first(&mut bench, op, len), expected, "{op:?} of {len}");
            let added = u64::from(!is_read && rkey_off == 0) * 5;
            assert_eq!(bench.counter(), added, "{op:?}");
        }
    }
}

/// Everything posted completes on both sides, whatever happens.
#[test]
fn terrible_links_end_every_program_one_way_or_the_other() {
    for_each_seed(120, |seed, slot| {
        let mut random = Random::new(!seed);
        let weather = Weather {
            loss_ppm: random.between(100_000, 900_000) as u32,
            duplicate_ppm: 100_000,
            delay_ppm: 200_000,
            delay_max_ns: 1_000_000,
            corrupt_ppm: 50_000,
            ..Weather::default()
        };
        let mut scenario = build(seed, Some(weather), slot);
        let world = slot.as_mut().unwrap();
        scenario.give_up_quickly(world);
        scenario.run(world);
        for driver in &scenario.drivers {
            match driver.outcome() {
                Outcome::Done => {}
                Outcome::Failed(status) => {
                    // A peer whose own direction failed drops everything, hence the flushes.
                    let expected = [
                        WcStatus::RetryExceeded,
                        WcStatus::RnrRetryExceeded,
                        WcStatus::WrFlush,
                    ];
                    assert!(
                        expected.contains(&status),
                        "{status:?}\n{}",
                        scenario.description
                    );
                    driver.check_all_flushed();
                }
                Outcome::Running => panic!("{}", scenario.description),
            }
        }
    });
}

#[test]
fn a_completion_says_which_queue_it_is_from() {
    let mut bench = Bench::new(6, options());
    bench.post_recv(7, 100);
    bench.post_send(1, SendOp::Send, 0, 50);
    assert_eq!(bench.wait_send().side(), QueueSide::Send);
    assert_eq!(bench.recv_completion().unwrap().side(), QueueSide::Recv);
}
