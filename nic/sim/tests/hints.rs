//! Whether the peer is urxe, too, is a hint: an attacker that can guess the numbers of a connection
//! could make either end believe the other. Whatever the ends believe, and whenever they change
//! their minds, no data may be wrong and nothing may hang.

mod support;

use support::bench::{Bench, REGION_BYTES};
use support::check::assert_same;
use support::queue_pair::any_peer_abilities;
use support::seeds::for_each_seed;
use urxe_proto::{SendOp, WcStatus};
use urxe_sim::{ConnectOptions, Fault, Match, Random, Rule};
use urxe_wire::Mtu;

/// What a turn has for itself, in each region: its last bytes are for what an atomic fetches.
const TURN_BYTES: usize = 8 << 10;
/// The last one would be where the counter is.
const TURNS: usize = REGION_BYTES / TURN_BYTES - 1;
const ATOMIC_AT: usize = TURN_BYTES - 8;
/// Longest time for all of it: some 300 times as much as it takes.
const PATIENCE_NS: u64 = 60_000_000_000;

fn bad_network(random: &mut Random) -> Vec<Rule> {
    let max_ns = 1 + random.below(200_000);
    vec![
        Rule::chance(Match::All, Fault::Drop, 30_000),
        Rule::chance(Match::All, Fault::Delay { max_ns }, 30_000),
        Rule::chance(Match::All, Fault::Duplicate { max_ns }, 10_000),
    ]
}

/// Posts a WRITE, a READ of what it wrote, and an atomic.
fn post_turn(bench: &mut Bench, turn: usize, len: usize) {
    let (at, rkey) = (turn * TURN_BYTES, bench.target);
    let va = bench.target_va(at);
    let counter = SendOp::FetchAdd {
        va: bench.counter_va(),
        rkey,
        add: 1,
    };
    let wr_id = 3 * turn as u64;
    bench.post_send(wr_id, SendOp::Write { va, rkey }, at, len);
    bench.post_send(wr_id + 1, SendOp::Read { va, rkey }, at, len);
    bench.post_send(wr_id + 2, counter, at + ATOMIC_AT, 8);
}

fn check_turn(bench: &Bench, turn: usize, len: usize) {
    let at = turn * TURN_BYTES;
    let source = bench.world.host(bench.a.host).memory.bytes(bench.source);
    let fetched = bench.world.host(bench.a.host).memory.bytes(bench.fetched);
    let target = bench.world.host(bench.b.host).memory.bytes(bench.target);
    assert_same(&target[at..at + len], &source[at..at + len], "written");
    assert_same(&fetched[at..at + len], &source[at..at + len], "read");
    let original = &fetched[at + ATOMIC_AT..at + TURN_BYTES];
    assert_same(original, &(turn as u64).to_ne_bytes(), "original value");
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let options = ConnectOptions {
        mtu: [Mtu::B256, Mtu::B1024][random.index(2)],
        max_rd_atomic: [1, 4, 16][random.index(3)],
        ..ConnectOptions::default()
    };
    let mut bench = Bench::new(seed, options);
    let (a, b) = (bench.a, bench.b);
    for (from, to) in [(a.host, b.host), (b.host, a.host)] {
        bench.world.link_mut(from, to).rules = bad_network(&mut random);
    }
    let lengths: Vec<_> = (0..TURNS).map(|_| random.index(ATOMIC_AT)).collect();
    for (turn, len) in lengths.iter().enumerate() {
        post_turn(&mut bench, turn, *len);
    }
    let mind_ns = [5_000, 50_000, 500_000][random.index(3)];
    let mut done = 0;
    while done < 3 * TURNS {
        bench.run_for(1 + random.below(mind_ns));
        for end in [a, b] {
            bench
                .world
                .set_peer_abilities(end, any_peer_abilities(&mut random));
        }
        while let Some(completion) = bench.send_completion() {
            let expected = (done as u64, WcStatus::Success);
            assert_eq!((completion.wr_id, completion.status), expected);
            done += 1;
        }
        let now_ns = bench.world.now().as_nanos();
        assert!(now_ns < PATIENCE_NS, "only {done} requests completed");
    }
    for (turn, len) in lengths.iter().enumerate() {
        check_turn(&bench, turn, *len);
    }
    assert_eq!(bench.counter(), TURNS as u64);
}

#[test]
fn ends_that_change_their_minds_about_each_other_lose_nothing() {
    for_each_seed(100, |seed, _| run(seed));
}

/// Parts of READs were kept that the peer asked for as a whole since, and then it was taken for
/// another device.
#[test]
fn reads_that_were_kept_in_parts_are_not_too_many() {
    run(1635);
}
