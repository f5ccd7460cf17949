//! Marks of a switch come back as notifications, and slow down the sender of the data: the
//! requester of WRITEs, the responder of READs, a sender on an unreliable connection.

mod support;

use std::sync::Arc;

use support::bench::{Bench, REGION_BYTES};
use support::scenario::PD;
use urxe_congestion::{DcqcnParameters, FirstRate};
use urxe_proto::{PeerAbilities, QpType, SendData, SendOp, SendRequest, SendTarget, Sge, WcStatus};
use urxe_sim::{ConnectOptions, Fault, LinkConfig, Match, QpHandle, Rights, Rule};

const MESSAGE_BYTES: usize = REGION_BYTES;
const RATE_GBPS: u64 = 10;
const OUTSTANDING: u64 = 4;

/// Quick to recover, so that a test needs few messages.
const PARAMETERS: DcqcnParameters = DcqcnParameters {
    line_rate_bps: RATE_GBPS * 1_000_000_000,
    cnp_interval_ns: 50_000,
    clamps_target: true,
    raise_bytes: 150_000,
    additive_step_bps: 40_000_000,
    hyper_step_bps: 400_000_000,
    first_rate: FirstRate::Line,
    min_rate_bps: 1_000_000,
    gain_divisor: 256,
    alpha_interval_ns: 55_000,
    cut_interval_ns: 4_000,
    raise_interval_ns: 300_000,
    fast_recovery_raises: 5,
    pacing_slack_ns: 0,
};

fn link() -> LinkConfig {
    LinkConfig {
        delay_ns: 10_000,
        rate_mbps: 1_000 * RATE_GBPS,
        mtu_bytes: 1_500,
        queue_bytes: None,
    }
}

fn bench(parameters: Option<DcqcnParameters>) -> Bench {
    let mut bench = Bench::over(1, ConnectOptions::default(), link());
    for qp in [bench.a, bench.b] {
        let reaction = parameters.map(|parameters| Arc::new(parameters) as _);
        bench.world.set_notified_control(qp, reaction);
    }
    bench
}

/// Mbit/s of payload of so many messages.
fn goodput_mbps(bench: &mut Bench, is_read: bool, messages: u64) -> u64 {
    let start = bench.world.now();
    let mut posted = 0;
    for completed in 0..messages {
        while posted < messages && posted < completed + OUTSTANDING {
            let (va, rkey) = (bench.target_va(0), bench.target);
            let op = if is_read {
                SendOp::Read { va, rkey }
            } else {
                SendOp::Write { va, rkey }
            };
            bench.post_send(posted, op, 0, MESSAGE_BYTES);
            posted += 1;
        }
        assert_eq!(bench.wait_send().status, WcStatus::Success);
    }
    let bits = 8 * messages * MESSAGE_BYTES as u64;
    1_000 * bits / bench.world.now().since(start)
}

fn counters(bench: &Bench, qp: QpHandle) -> (u64, u64, u64) {
    let qp = bench.world.host(qp.host).qp(qp.number).unwrap();
    let stats = qp.stats();
    (stats.cnp_sent, stats.cnp_handled, stats.cnp_ignored)
}

fn mark(bench: &mut Bench, from: QpHandle, to: QpHandle, rules: Vec<Rule>) {
    bench.world.link_mut(from.host, to.host).rules = rules;
}

#[test]
fn marks_slow_the_sender_of_data_and_it_recovers() {
    for is_read in [false, true] {
        let mut bench = bench(Some(PARAMETERS));
        let (a, b) = (bench.a, bench.b);
        let (sender, receiver) = if is_read { (b, a) } else { (a, b) };
        let free_mbps = goodput_mbps(&mut bench, is_read, 16);
        let always = Rule::always(Match::All, Fault::MarkEcn);
        mark(&mut bench, sender, receiver, vec![always]);
        let marked_mbps = goodput_mbps(&mut bench, is_read, 2);
        mark(&mut bench, sender, receiver, vec![]);
        bench.run_for(1_000_000);
        assert!(
            marked_mbps < free_mbps / 4,
            "{marked_mbps} of {free_mbps} Mbit/s"
        );
        let (sent, ..) = counters(&bench, receiver);
        let (_, handled, ignored) = counters(&bench, sender);
        assert!(
            sent > 4 && (handled, ignored) == (sent, 0),
            "{sent} notifications, {handled} obeyed"
        );

        let _ = goodput_mbps(&mut bench, is_read, 64);
        let again_mbps = goodput_mbps(&mut bench, is_read, 16);
        assert!(
            again_mbps > free_mbps * 98 / 100,
            "{again_mbps} of {free_mbps} Mbit/s"
        );
        let qp = bench.world.host(sender.host).qp(sender.number).unwrap();
        assert!(
            qp.congestion_control().is_none(),
            "back at the line rate, nothing slows it"
        );
    }
}

/// An unreliable sender has no window: notifications are all that holds it back.
#[test]
fn marks_slow_a_sender_on_an_unreliable_connection() {
    let mut bench = bench(None);
    let ends = [bench.a.host, bench.b.host].map(|host| (host, (QpType::Uc, None)));
    let (a, b) = bench.world.connect_as(ends, PD, &ConnectOptions::default());
    (bench.a, bench.b) = (a, b);
    for qp in [a, b] {
        bench
            .world
            .set_notified_control(qp, Some(Arc::new(PARAMETERS)));
    }
    let free_mbps = goodput_mbps(&mut bench, false, 16);
    let always = Rule::always(Match::All, Fault::MarkEcn);
    mark(&mut bench, a, b, vec![always]);
    let marked_mbps = goodput_mbps(&mut bench, false, 2);
    assert!(
        marked_mbps < free_mbps / 4,
        "{marked_mbps} of {free_mbps} Mbit/s"
    );
}

#[test]
fn without_congestion_control_marks_are_ignored() {
    let mut bench = bench(None);
    let (a, b) = (bench.a, bench.b);
    let always = Rule::always(Match::All, Fault::MarkEcn);
    mark(&mut bench, a, b, vec![always]);
    let mbps = goodput_mbps(&mut bench, false, 16);
    assert!(mbps > 8_500, "{mbps} Mbit/s");
    assert_eq!(counters(&bench, b), (0, 0, 0));
}

#[test]
fn a_sender_without_congestion_control_ignores_notifications() {
    let mut bench = bench(Some(PARAMETERS));
    let (a, b) = (bench.a, bench.b);
    bench.world.set_notified_control(a, None);
    let always = Rule::always(Match::All, Fault::MarkEcn);
    mark(&mut bench, a, b, vec![always]);
    let mbps = goodput_mbps(&mut bench, false, 16);
    assert!(mbps > 8_500, "{mbps} Mbit/s");
    let (sent, ..) = counters(&bench, b);
    assert_eq!(counters(&bench, a), (0, 0, sent));
}

/// Its requests had every place that congestion control gives.
#[test]
fn who_is_slowed_down_answers_between_its_requests() {
    const READ: u64 = 0;
    let mut bench = bench(Some(PARAMETERS));
    let (a, b) = (bench.a, bench.b);
    let always = Rule::always(Match::All, Fault::MarkEcn);
    mark(&mut bench, b, a, vec![always]);
    let memory = &mut bench.world.host_mut(a.host).memory;
    let rkey = memory.register(PD, Rights::ALL, vec![0; REGION_BYTES]);
    let va = memory.va(rkey, 0);
    let sges = [Sge {
        addr: bench.target_va(0),
        len: REGION_BYTES as u32,
        lkey: bench.target,
    }];
    for wr_id in [READ + 1, READ + 2] {
        let request = SendRequest {
            wr_id,
            op: SendOp::Write { va, rkey },
            data: SendData::Sges(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        bench.world.post_send(b, &request).unwrap();
    }
    // Its rate is down by then.
    bench.run_for(100_000);
    let (va, rkey) = (bench.target_va(0), bench.target);
    bench.post_send(READ, SendOp::Read { va, rkey }, 0, REGION_BYTES / 16);
    assert_eq!(bench.wait_send().wr_id, READ);
}

/// Marks and losses together, on packets of all kinds: everything still arrives.
#[test]
fn slow_and_lossy_is_still_reliable() {
    for seed in 0..20 {
        let mut bench = bench(Some(PARAMETERS));
        let (a, b) = (bench.a, bench.b);
        for (from, to) in [(a, b), (b, a)] {
            let marks = Rule::chance(Match::All, Fault::MarkEcn, 1_000 * (seed + 1));
            let losses = Rule::chance(Match::All, Fault::Drop, 2_000 * seed);
            mark(&mut bench, from, to, vec![marks, losses]);
        }
        for at in [0, 1, 4_096] {
            bench.write(at, REGION_BYTES - 4_096);
            bench.read(at, REGION_BYTES - 4_096);
        }
    }
}

/// A TCP that heeds losses alone fills the queue in spite of marks. A sender that obeyed them would
/// leave the link to it.
#[test]
fn marks_are_ignored_while_others_fill_the_queue_until_it_overflows() {
    let queues_ns = 5_000_000;
    let options = ConnectOptions {
        peer_abilities: PeerAbilities::URXE,
        ..ConnectOptions::default()
    };
    let mut bench = Bench::over(1, options, link());
    let (a, b) = (bench.a, bench.b);
    for qp in [a, b] {
        let reaction = Arc::new(PARAMETERS) as _;
        bench.world.set_notified_control(qp, Some(reaction));
    }
    let _ = goodput_mbps(&mut bench, false, 4);
    bench.world.link_mut(a.host, b.host).config.delay_ns += queues_ns;
    let marks = Rule::chance(Match::All, Fault::MarkEcn, 20_000);
    mark(&mut bench, a, b, vec![marks.clone()]);
    let _ = goodput_mbps(&mut bench, false, 64);
    let (_, obeyed, ignored) = counters(&bench, a);
    assert!(obeyed > 0 && ignored == 0, "{obeyed}, {ignored} ignored");

    let losses = Rule::chance(Match::Requests, Fault::Drop, 2_000);
    mark(&mut bench, a, b, vec![marks, losses]);
    let _ = goodput_mbps(&mut bench, false, 64);
    let (_, handled, ignored) = counters(&bench, a);
    assert!(
        ignored > handled - obeyed,
        "{} obeyed, {ignored} ignored",
        handled - obeyed
    );
}
