//! Goodput against loss and round trip, as a table that a change of the protocol must not worsen
//! unseen.

mod support;

use std::fmt::Write as _;

use support::bench::Bench;
use support::go_back_n::GoBackN;
use urxe_proto::{Egress, PeerAbilities, SendOp, WcStatus};
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

/// Long enough for a few hundred losses or round trips, whichever is fewer.
const fn messages_for(round_trip_us: u64) -> u64 {
    if round_trip_us > 1_000 { 128 } else { 256 }
}

const fn link(round_trip_us: u64) -> LinkConfig {
    LinkConfig {
        delay_ns: round_trip_us * 500,
        rate_mbps: 1_000 * RATE_GBPS,
        mtu_bytes: 4_300,
        queue_bytes: None,
    }
}

/// Messages of one length, so many at a time.
#[derive(Clone, Copy)]
struct Load {
    verb: Verb,
    peer_abilities: PeerAbilities,
    message_bytes: usize,
    outstanding: u64,
    loss_ppm: u32,
    round_trip_us: u64,
}

impl Load {
    fn post(&self, bench: &mut Bench, wr_id: u64) {
        let (va, rkey) = (bench.target_va(0), bench.target);
        let op = match self.verb {
            Verb::Write => SendOp::Write { va, rkey },
            Verb::Read => SendOp::Read { va, rkey },
        };
        bench.post_send(wr_id, op, 0, self.message_bytes);
    }

    /// Mbit/s of payload, with what is lost as the seed has it.
    fn mbps_of(&self, seed: u64, messages: u64) -> u64 {
        let options = ConnectOptions {
            mtu: Mtu::B4096,
            peer_abilities: self.peer_abilities,
            ..ConnectOptions::default()
        };
        let mut bench = Bench::over(seed, options, link(self.round_trip_us));
        let (a, b) = (bench.a.host, bench.b.host);
        for (from, to) in [(a, b), (b, a)] {
            bench.world.link_mut(from, to).rules =
                vec![Rule::chance(Match::All, Fault::Drop, self.loss_ppm)];
        }
        let start = bench.world.now();
        let mut posted = 0;
        for completed in 0..messages {
            while posted < messages && posted < completed + self.outstanding {
                self.post(&mut bench, posted);
                posted += 1;
            }
            let completion = bench.wait_send();
            assert_eq!(
                (completion.wr_id, completion.status),
                (completed, WcStatus::Success)
            );
        }
        let bits = 8 * messages * self.message_bytes as u64;
        1_000 * bits / bench.world.now().since(start)
    }
}

/// Mbit/s of payload, to a peer that keeps what arrives early or not: the median of some seeds.
fn goodput_mbps(
    verb: Verb,
    peer_abilities: PeerAbilities,
    loss_ppm: u32,
    round_trip_us: u64,
) -> u64 {
    let load = Load {
        verb,
        peer_abilities,
        message_bytes: MESSAGE_BYTES,
        outstanding: OUTSTANDING,
        loss_ppm,
        round_trip_us,
    };
    let mut all = [1, 2, 3, 4, 5].map(|seed| load.mbps_of(seed, messages_for(round_trip_us)));
    all.sort_unstable();
    all[2]
}

/// Mbit/s by bare go-back-N. A READ has for its window what it may ask for at once, the others what
/// a queue pair's may become.
fn bare_mbps(verb: Verb, loss_ppm: u32, round_trip_us: u64) -> u64 {
    let bytes = messages_for(round_trip_us) * MESSAGE_BYTES as u64;
    let packets = bytes / Mtu::B4096.bytes() as u64;
    let max_rd_atomic = u64::from(ConnectOptions::default().max_rd_atomic);
    let window_bytes = match verb {
        Verb::Write => 512 << 10,
        Verb::Read => max_rd_atomic * MESSAGE_BYTES as u64,
    };
    let mut bare = GoBackN::new(link(round_trip_us), loss_ppm, window_bytes);
    8_000 * bytes / bare.transfer_ns(packets)
}

fn table(title: &str, mbps: impl Fn(u32, u64) -> u64) -> String {
    let mut text = format!(
        "{title}, Mbit/s of {}: loss by row, round trip by column\n{:>9}",
        1_000 * RATE_GBPS,
        ""
    );
    for round_trip_us in ROUND_TRIP_US {
        write!(text, "{:>12}", format!("{round_trip_us} us")).unwrap();
    }
    for loss_ppm in LOSS_PPM {
        let percent = format!("{}.{} %", loss_ppm / 10_000, loss_ppm / 1_000 % 10);
        write!(text, "\n{percent:>9}").unwrap();
        for round_trip_us in ROUND_TRIP_US {
            write!(text, "{:>12}", mbps(loss_ppm, round_trip_us)).unwrap();
        }
    }
    text + "\n\n"
}

#[test]
fn goodput_against_loss_and_round_trip() {
    let of = |verb, peer_abilities| {
        move |loss, round_trip| goodput_mbps(verb, peer_abilities, loss, round_trip)
    };
    let tables = [
        table(
            "Write between two urxe",
            of(Verb::Write, PeerAbilities::URXE),
        ),
        table("Read between two urxe", of(Verb::Read, PeerAbilities::URXE)),
        table(
            "Write to another device",
            of(Verb::Write, PeerAbilities::empty()),
        ),
        table(
            "Read from another device",
            of(Verb::Read, PeerAbilities::empty()),
        ),
        table("Write, bare go-back-N", |loss, round_trip| {
            bare_mbps(Verb::Write, loss, round_trip)
        }),
        table("Read, bare go-back-N", |loss, round_trip| {
            bare_mbps(Verb::Read, loss, round_trip)
        }),
    ];
    insta::assert_snapshot!(tables.concat());
}

#[test]
fn recovery_between_two_urxe_is_better_than_bare_go_back_n() {
    for loss_ppm in LOSS_PPM {
        for round_trip_us in ROUND_TRIP_US {
            for verb in [Verb::Write, Verb::Read] {
                let bare = bare_mbps(verb, loss_ppm, round_trip_us);
                let ours = goodput_mbps(verb, PeerAbilities::URXE, loss_ppm, round_trip_us);
                let enough = match (verb, loss_ppm, round_trip_us) {
                    // A window that starts small is what is missing where there is little to
                    // recover from.
                    (_, 0, _) => bare / 2,
                    (_, 1_000, _) => bare * 9 / 10,
                    // As fast, no faster.
                    (Verb::Read, 10_000, 1_000) => bare * 95 / 100,
                    // A READ request that is lost, and has none behind it, is found out by silence,
                    // and silence is costly.
                    (Verb::Read, 50_000, 10_000) => bare / 2,
                    (Verb::Read, 100_000, 10_000) => bare * 9 / 10,
                    _ => bare,
                };
                assert!(
                    ours >= enough,
                    "{verb:?}, {loss_ppm} ppm, {round_trip_us} us: {ours}, bare {bare} Mbit/s"
                );
            }
        }
    }
}

#[test]
fn a_clean_link_is_used_to_the_full() {
    for verb in [Verb::Write, Verb::Read] {
        let mbps = goodput_mbps(verb, PeerAbilities::URXE, 0, 100);
        // Headers take 2 %; the rest is the first and the last round trip.
        assert!(mbps > 9_300, "{verb:?}: {mbps} Mbit/s");
    }
}

/// The window counts packets, so that more of them than needed are fewer bytes.
#[test]
fn writes_that_are_divided_evenly_leave_no_link_idle() {
    for message_bytes in [4_100, 8_204, 10_000, 25_000] {
        for round_trip_us in [10, 100, 1_000] {
            let [divided, whole] =
                [PeerAbilities::URXE, PeerAbilities::empty()].map(|peer_abilities| {
                    let load = Load {
                        verb: Verb::Write,
                        peer_abilities,
                        message_bytes,
                        outstanding: 120,
                        loss_ppm: 0,
                        round_trip_us,
                    };
                    load.mbps_of(1, 2_000)
                });
            let enough = whole * 95 / 100;
            assert!(
                divided >= enough,
                "{message_bytes} bytes, {round_trip_us} us: {divided} Mbit/s instead of {whole}"
            );
        }
    }
}

/// Mbit/s of payload from the first byte of a connection on, over a shaped 1 Gbps Ethernet with a
/// queue of 1 MiB, for `messages`. If `both_ways`, there are as many READs of what the peer has.
fn shaped_mbps(messages: u64, both_ways: bool) -> u64 {
    let link = LinkConfig {
        delay_ns: 25_000,
        rate_mbps: 1_000,
        mtu_bytes: 1_500,
        queue_bytes: Some(1 << 20),
    };
    // As the device sets it, which knows of no queue but the peer's receive buffer.
    let egress = Egress {
        window_bytes: 1 << 20,
        ..Egress::default()
    };
    let options = ConnectOptions {
        egress,
        ..ConnectOptions::default()
    };
    let mut bench = Bench::over(1, options, link);
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
