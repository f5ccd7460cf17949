//! Goodput against loss and round trip, as a table that a change of the protocol must not worsen unseen.

mod support;

use std::fmt::Write as _;

use support::bench::Bench;
use urxe_proto::{SendOp, WcStatus};
use urxe_sim::{ConnectOptions, Fault, LinkConfig, Match, Rule};
use urxe_wire::Mtu;

const MESSAGE_BYTES: usize = 64 << 10;
const OUTSTANDING: u64 = 16;
const RATE_GBPS: u64 = 10;
/// Loss rates in parts per million; the same in both directions.
const LOSS_PPM: [u32; 5] = [0, 1_000, 10_000, 50_000, 100_000];
const ROUND_TRIP_US: [u64; 4] = [10, 100, 1_000, 10_000];

#[derive(Clone, Copy, Debug)]
enum Verb {
    Write,
    Read,
}

/// Mbit/s of payload.
fn goodput_mbps(verb: Verb, loss_ppm: u32, round_trip_us: u64) -> u64 {
    // Long enough for a few hundred losses or round trips, whichever is fewer.
    let messages = if round_trip_us > 1_000 { 128 } else { 256 };
    let link = LinkConfig {
        delay_ns: round_trip_us * 500,
        rate_gbps: RATE_GBPS,
        mtu_bytes: 4_300,
        queue_bytes: None,
    };
    let options = ConnectOptions {
        mtu: Mtu::B4096,
        ..ConnectOptions::default()
    };
    let mut bench = Bench::over(1, options, link);
    let (a, b) = (bench.a.host, bench.b.host);
    for (from, to) in [(a, b), (b, a)] {
        bench.world.link_mut(from, to).rules =
            vec![Rule::chance(Match::All, Fault::Drop, loss_ppm)];
    }
    let start = bench.world.now();
    let mut posted = 0;
    for completed in 0..messages {
        while posted < messages && posted < completed + OUTSTANDING {
            let (va, rkey) = (bench.target_va(0), bench.target);
            let op = match verb {
                Verb::Write => SendOp::Write { va, rkey },
                Verb::Read => SendOp::Read { va, rkey },
            };
            bench.post_send(posted, op, 0, MESSAGE_BYTES);
            posted += 1;
        }
        let completion = bench.wait_send();
        assert_eq!(
            (completion.wr_id, completion.status),
            (completed, WcStatus::Success)
        );
    }
    let bits = 8 * messages * MESSAGE_BYTES as u64;
    1_000 * bits / bench.world.now().since(start)
}

#[test]
fn goodput_against_loss_and_round_trip() {
    let mut table = String::new();
    for verb in [Verb::Write, Verb::Read] {
        writeln!(
            table,
            "{verb:?}, Mbit/s of {}: loss by row, round trip by column",
            1_000 * RATE_GBPS
        )
        .unwrap();
        write!(table, "{:>9}", "").unwrap();
        for round_trip_us in ROUND_TRIP_US {
            write!(table, "{:>12}", format!("{round_trip_us} us")).unwrap();
        }
        for loss_ppm in LOSS_PPM {
            write!(
                table,
                "\n{:>9}",
                format!("{}.{} %", loss_ppm / 10_000, loss_ppm / 1_000 % 10)
            )
            .unwrap();
            for round_trip_us in ROUND_TRIP_US {
                write!(table, "{:>12}", goodput_mbps(verb, loss_ppm, round_trip_us)).unwrap();
            }
        }
        table.push_str("\n\n");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_clean_link_is_used_to_the_full() {
    for verb in [Verb::Write, Verb::Read] {
        let mbps = goodput_mbps(verb, 0, 100);
        // Headers take 2 %; the rest is the first and the last round trip.
        assert!(mbps > 9_300, "{verb:?}: {mbps} Mbit/s");
    }
}

/// Mbit/s of payload from the first byte of a connection on, over a shaped 1 Gbps Ethernet with a queue of 1 MiB, for
/// `messages`, with as many READs of what the peer has if `both_ways`.
fn shaped_mbps(messages: u64, both_ways: bool) -> u64 {
    let link = LinkConfig {
        delay_ns: 25_000,
        rate_gbps: 1,
        mtu_bytes: 1_500,
        queue_bytes: Some(1 << 20),
    };
    let mut bench = Bench::over(1, ConnectOptions::default(), link);
    // As the device sets it, which knows of no queue but the peer's receive buffer.
    for qp in [bench.a, bench.b] {
        bench.world.set_window_bytes(qp, 1 << 20);
    }
    let start = bench.world.now();
    let verbs = if both_ways { 2 } else { 1 };
    let (mut posted, mut completed) = (0, 0);
    while completed < messages * verbs {
        while posted < messages * verbs && posted < completed + SHAPED_OUTSTANDING {
            let (va, rkey) = (bench.target_va(0), bench.target);
            let op = if posted % verbs == 0 {
                SendOp::Write { va, rkey }
            } else {
                SendOp::Read { va, rkey }
            };
            bench.post_send(posted, op, 0, MESSAGE_BYTES);
            posted += 1;
        }
        assert_eq!(bench.wait_send().status, WcStatus::Success);
        completed += 1;
    }
    let bits = 8 * messages * verbs * MESSAGE_BYTES as u64;
    1_000 * bits / bench.world.now().since(start)
}

/// Requests that wait, as of perftest.
const SHAPED_OUTSTANDING: u64 = 128;
/// What the headers leave of 1 Gbps with packets of 1024 bytes: 1024 of 1106 bytes.
const SHAPED_MBPS: u64 = 925;

#[test]
fn a_shaped_link_is_used_to_the_full_from_the_start() {
    for messages in [32, 64, 512] {
        let mbps = shaped_mbps(messages, false);
        assert!(mbps > SHAPED_MBPS * 97 / 100, "{messages}: {mbps} Mbit/s");
    }
    // Acknowledgements wait behind data, and take a little themselves.
    let mbps = shaped_mbps(64, true);
    assert!(mbps > 2 * SHAPED_MBPS * 97 / 100, "{mbps} Mbit/s both ways");
}
