//! One packet of each kind lost, at the worst moment: recovery is quick, costs no error, and
//! executes nothing twice.

mod support;

use support::bench::Bench;
use urxe_proto::{PeerAbilities, SendOp, WcStatus};
use urxe_sim::{ConnectOptions, Fault, LinkConfig, Match, Rule};
use urxe_wire::{Immediate, Mtu, Operation};

/// Runs one operation while the rule strikes in the given direction; returns how long it took.
fn with_loss(
    bench: &mut Bench,
    to_responder: bool,
    rule: Rule,
    run: impl FnOnce(&mut Bench),
) -> u64 {
    let (from, to) = if to_responder {
        (bench.a.host, bench.b.host)
    } else {
        (bench.b.host, bench.a.host)
    };
    bench.world.link_mut(from, to).rules = vec![rule];
    let start = bench.world.now();
    run(bench);
    bench.world.now().since(start)
}

/// A probe after silence comes within this time, once a round trip has been measured.
const PROBE_NS: u64 = 10_000_000;

fn warmed_up(options: ConnectOptions) -> Bench {
    let mut bench = Bench::new(1, options);
    bench.write(0, 64);
    bench
}

#[test]
fn a_lost_request_is_sent_again() {
    for operation in [
        Operation::WriteOnly,
        Operation::WriteFirst,
        Operation::WriteMiddle,
        Operation::WriteLast,
        Operation::ReadRequest,
        Operation::CompareSwap,
        Operation::FetchAdd,
    ] {
        let mut bench = warmed_up(ConnectOptions::default());
        let rule = Rule::nth(Match::Operation(operation), Fault::Drop, 0, 1);
        let took_ns = with_loss(&mut bench, true, rule, |bench| {
            bench.write(0, 100);
            bench.write(1_000, 5_000);
            bench.read(0, 5_000);
            bench.compare_swap(0, 7);
            bench.fetch_add(7, 5);
        });
        assert!(took_ns < PROBE_NS, "{operation:?} took {took_ns} ns");
        assert_eq!(bench.lost(true), 1, "{operation:?}");
        assert_eq!(bench.counter(), 12);
    }
}

#[test]
fn a_lost_response_is_sent_again_and_nothing_is_executed_twice() {
    for operation in [
        Operation::Acknowledge,
        Operation::ReadResponseOnly,
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseLast,
        Operation::AtomicAcknowledge,
    ] {
        let mut bench = warmed_up(ConnectOptions::default());
        let rule = Rule::nth(Match::Operation(operation), Fault::Drop, 0, 1);
        let took_ns = with_loss(&mut bench, false, rule, |bench| {
            bench.write(0, 100);
            bench.read(0, 700);
            bench.read(0, 5_000);
            bench.fetch_add(0, 3);
            bench.fetch_add(3, 4);
        });
        assert!(took_ns < PROBE_NS, "{operation:?} took {took_ns} ns");
        assert_eq!(bench.lost(false), 1, "{operation:?}");
        assert_eq!(
            bench.counter(),
            7,
            "{operation:?}: an atomic is executed once"
        );
    }
}

#[test]
fn every_packet_of_a_long_transfer_may_be_the_lost_one() {
    for skip in 0..40 {
        for to_responder in [true, false] {
            let mut bench = warmed_up(ConnectOptions {
                mtu: Mtu::B256,
                ..ConnectOptions::default()
            });
            let rule = Rule::nth(Match::All, Fault::Drop, skip, 1);
            let took_ns = with_loss(&mut bench, to_responder, rule, |bench| {
                bench.write(17, 4_000);
                bench.read(17, 4_000);
                bench.fetch_add(0, 1);
                bench.write(33, 2_000);
                bench.read(33, 2_000);
            });
            assert!(
                took_ns < PROBE_NS,
                "packet {skip} ({to_responder}): {took_ns} ns"
            );
            assert_eq!(bench.counter(), 1);
        }
    }
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let mut bench = warmed_up(ConnectOptions {
        rnr_retry: 7,
        min_rnr_timer: 12,
        ..ConnectOptions::default()
    });
    bench.post_send(1, SendOp::SendImm(Immediate([1, 2, 3, 4])), 0, 3_000);
    bench.run_for(100_000_000);
    assert!(
        bench.send_completion().is_none(),
        "nothing to receive it yet"
    );
    // 640 us each: it waits as long as it is told to, not longer and not for ever.
    let nacks = bench.world.qp(bench.a).stats().rnr_nak_received;
    assert!((120..=157).contains(&nacks), "{nacks} RNR NAKs in 100 ms");
    bench.post_recv(2, 4_000);
    bench.run_for(2_000_000);
    assert_eq!(
        bench.send_completion().map(|c| c.status),
        Some(WcStatus::Success)
    );
    assert_eq!(
        bench.recv_completion().map(|c| (c.status, c.byte_len)),
        Some((WcStatus::Success, 3_000))
    );
}

#[test]
fn a_held_acknowledgement_goes_out_before_the_peer_asks_again() {
    let mut bench = warmed_up(ConnectOptions::default());
    for _ in 0..20 {
        bench.write(0, 8);
        bench.run_for(1_000_000);
    }
    let stats = bench.world.qp(bench.a).stats();
    assert_eq!((stats.probes, stats.local_ack_timeout_err), (0, 0));
    assert_eq!(bench.world.qp(bench.b).stats().duplicate_request, 0);
}

#[test]
fn reordering_alone_loses_nothing() {
    let mut bench = warmed_up(ConnectOptions::default());
    let rule = Rule::chance(Match::All, Fault::Delay { max_ns: 40_000 }, 300_000);
    let took_ns = with_loss(&mut bench, true, rule, |bench| {
        for _ in 0..50 {
            bench.write(0, 10_000);
        }
    });
    assert!(took_ns < 50 * PROBE_NS, "{took_ns} ns");
}

#[test]
fn a_refusal_that_arrives_twice_counts_once() {
    let options = ConnectOptions {
        rnr_retry: 1,
        min_rnr_timer: 12,
        ..ConnectOptions::default()
    };
    let mut bench = warmed_up(options);
    let (a, b) = (bench.a.host, bench.b.host);
    let twice = Rule::always(Match::Responses, Fault::Duplicate { max_ns: 20_000 });
    bench.world.link_mut(b, a).rules = vec![twice];
    bench.post_send(1, SendOp::Send, 0, 3_000);
    bench.run_for(100_000);
    bench.post_recv(2, 4_000);
    assert_eq!(bench.wait_send().status, WcStatus::Success);
    // 640 us from the first refusal, not from its copy.
    assert!(
        bench.world.now().as_nanos() < 800_000,
        "{:?}",
        bench.world.now()
    );
}

/// Messages that all leave before a refusal of the first is heard: so many packets are lost of them
/// that no peer keeps what is left. Returns how often the first was refused.
fn with_a_long_burst_of_losses(retry_count: u8, way_back: Vec<Rule>) -> u64 {
    const MESSAGES: usize = 40;
    const LENGTH: usize = 4 << 10;
    const LOST: u64 = 200;
    let roomy = LinkConfig {
        queue_bytes: Some(4 << 20),
        ..LinkConfig::default()
    };
    let options = ConnectOptions {
        mtu: Mtu::B256,
        peer_abilities: PeerAbilities::all(),
        retry_count,
        ..ConnectOptions::default()
    };
    let mut bench = Bench::over(1, options, roomy);
    for _ in 0..16 {
        bench.write(0, 128 << 10);
    }
    let (a, b) = (bench.a.host, bench.b.host);
    bench.world.link_mut(a, b).rules = vec![Rule::nth(Match::All, Fault::Drop, 0, LOST)];
    bench.world.link_mut(b, a).rules = way_back;
    let write = SendOp::Write {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    (0..MESSAGES).for_each(|at| bench.post_send(at as u64, write, 0, LENGTH));
    for at in 0..MESSAGES {
        let done = bench.wait_send();
        assert_eq!((done.wr_id, done.status), (at as u64, WcStatus::Success));
    }
    assert_eq!(bench.lost(true), LOST);
    bench.world.qp(bench.a).stats().packet_seq_err
}

#[test]
fn what_is_too_far_away_to_be_kept_is_not_refused_each_time() {
    let refusals = with_a_long_burst_of_losses(7, Vec::new());
    assert!((1..8).contains(&refusals), "refused {refusals} times");
}

/// Transfers of 512 packets, all of which are under way when the first of the last one is found to
/// be lost. How many more packets that takes than without the loss.
fn more_packets_of_far_transfers(transfer: fn(&mut Bench), is_read: bool) -> u64 {
    let far = LinkConfig {
        delay_ns: 500_000,
        ..LinkConfig::default()
    };
    let options = ConnectOptions {
        mtu: Mtu::B256,
        peer_abilities: PeerAbilities::URXE,
        ..ConnectOptions::default()
    };
    let mut bench = Bench::over(1, options, far);
    (0..16).for_each(|_| transfer(&mut bench));
    let (from, to) = if is_read {
        (bench.b, bench.a)
    } else {
        (bench.a, bench.b)
    };
    let mut packets = |rules| {
        bench.world.link_mut(from.host, to.host).rules = rules;
        let before = bench.world.qp(from).stats().tx_packets;
        transfer(&mut bench);
        bench.world.qp(from).stats().tx_packets - before
    };
    let without_loss = packets(Vec::new());
    let with_loss = packets(vec![Rule::nth(Match::All, Fault::Drop, 0, 1)]);
    assert_eq!(bench.lost(!is_read), 1);
    with_loss - without_loss
}

/// A refusal tells of 192 packets.
#[test]
fn of_a_window_longer_than_a_refusal_tells_one_packet_is_sent_again() {
    let more = more_packets_of_far_transfers(|bench| bench.write(0, 128 << 10), false);
    assert_eq!(more, 1);
}

#[test]
fn of_a_long_answer_one_packet_is_asked_for_again() {
    let more = more_packets_of_far_transfers(|bench| bench.read(0, 128 << 10), true);
    assert_eq!(more, 1);
}

/// A peer of release 0.2.0 refuses each message.
#[test]
fn refusals_of_one_flight_use_up_no_retries() {
    let twice = Rule::always(Match::Responses, Fault::Duplicate { max_ns: 20_000 });
    let refusals = with_a_long_burst_of_losses(1, vec![twice]);
    assert!(refusals > 1, "refused {refusals} times");
}

/// A slow responder goes on with what it was asked for before it comes to the READ that is asked
/// for again. While it does, it is not silent.
#[test]
fn who_still_answers_later_reads_uses_up_no_retries() {
    const READS: usize = 8;
    const LENGTH: usize = 128 << 10;
    let slow = LinkConfig {
        rate_mbps: 1_000,
        queue_bytes: Some(4 << 20),
        ..LinkConfig::default()
    };
    let options = ConnectOptions {
        // 131 us. With all retries less than what is on its way takes to come: 384 packets, 3.4 ms.
        timeout: 5,
        retry_count: 5,
        max_rd_atomic: 16,
        ..ConnectOptions::default()
    };
    let mut bench = Bench::over(1, options, slow);
    for _ in 0..16 {
        bench.read(0, LENGTH);
    }
    let read = SendOp::Read {
        va: bench.target_va(0),
        rkey: bench.target,
    };
    (0..READS).for_each(|at| bench.post_send(at as u64, read, 0, LENGTH));
    bench.run_for(1_000_000);
    let (a, b) = (bench.a.host, bench.b.host);
    let drop = Rule::nth(
        Match::Operation(Operation::ReadResponseMiddle),
        Fault::Drop,
        0,
        1,
    );
    bench.world.link_mut(b, a).rules = vec![drop];
    for at in 0..READS {
        let done = bench.wait_send();
        assert_eq!((done.wr_id, done.status), (at as u64, WcStatus::Success));
    }
    assert_eq!(bench.lost(false), 1);
    let stats = bench.world.qp(bench.a).stats();
    assert_eq!(stats.local_ack_timeout_err, 0, "{stats:?}");
}

#[test]
fn a_long_round_trip_of_single_packets_is_learnt_too() {
    const MESSAGES: u64 = 20;
    for (is_read, peer_abilities) in [true, false].into_iter().flat_map(|is_read| {
        [PeerAbilities::URXE, PeerAbilities::empty()].map(|abilities| (is_read, abilities))
    }) {
        let link = LinkConfig {
            delay_ns: 100_000_000,
            ..LinkConfig::default()
        };
        // Longer than the round trip.
        let options = ConnectOptions {
            timeout: 18,
            peer_abilities,
            ..ConnectOptions::default()
        };
        let mut bench = Bench::over(1, options, link);
        for at in 0..MESSAGES {
            if is_read {
                bench.read(0, 64);
            } else {
                bench.write(at as usize, 64);
            }
        }
        let probes = bench.world.qp(bench.a).stats().probes;
        assert!(
            probes <= 5,
            "{probes} probes, READ {is_read}, {peer_abilities:?}"
        );
    }
}

/// Longer than the first probe waits, as in a deep queue in front of a slow link.
const LONG_DELAY_NS: u64 = 25_000_000;

#[test]
fn a_round_trip_that_is_longer_than_the_first_probe_is_learnt() {
    const MESSAGES: u64 = 64;
    const BYTES: usize = 64 << 10;
    for peer_abilities in [PeerAbilities::URXE, PeerAbilities::empty()] {
        for is_read in [true, false] {
            let options = ConnectOptions {
                mtu: Mtu::B4096,
                peer_abilities,
                ..ConnectOptions::default()
            };
            let link = LinkConfig {
                delay_ns: LONG_DELAY_NS,
                rate_mbps: 1_000,
                ..LinkConfig::default()
            };
            let mut bench = Bench::over(1, options, link);
            for wr_id in 0..MESSAGES {
                let (va, rkey) = (bench.target_va(0), bench.target);
                let op = if is_read {
                    SendOp::Read { va, rkey }
                } else {
                    SendOp::Write { va, rkey }
                };
                bench.post_send(wr_id, op, 0, BYTES);
            }
            for _ in 0..MESSAGES {
                assert_eq!(bench.wait_send().status, WcStatus::Success);
            }
            let stats = bench.world.qp(bench.a).stats();
            let told = format!("READ {is_read}, {peer_abilities:?}: {stats:?}");
            assert!(stats.probes <= 2, "{told}");
            let (a, b) = (bench.a.host, bench.b.host);
            let (from, to) = if is_read { (b, a) } else { (a, b) };
            let needed = MESSAGES * (BYTES / 4096) as u64;
            let sent = bench.world.link_mut(from, to).stats.packets;
            assert!(
                sent <= needed + needed / 8,
                "{sent} packets for {needed}: {told}"
            );
        }
    }
}

/// UCX's tests of peer failure ask for 100 us and 4 retries.
#[test]
fn a_peer_waiting_for_a_processor_survives_any_timeout() {
    const SILENT_NS: u64 = 12_000_000;
    let options = ConnectOptions {
        timeout: 5,
        retry_count: 4,
        ..ConnectOptions::default()
    };
    for peer_abilities in [PeerAbilities::empty(), PeerAbilities::URXE] {
        let mut bench = Bench::new(
            9,
            ConnectOptions {
                peer_abilities,
                ..options
            },
        );
        bench.write(0, 100);
        let (a, b) = (bench.a.host, bench.b.host);
        let now = bench.world.now();
        let silence = Rule::always(Match::All, Fault::Drop).between(now, now.after(SILENT_NS));
        bench.world.link_mut(a, b).rules = vec![silence];
        bench.write(0, 10_000);
        bench.read(0, 10_000);
        assert!(bench.world.now().since(now) >= SILENT_NS);
    }
}
