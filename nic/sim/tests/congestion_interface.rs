//! A congestion control of a caller's own: the queue pair keeps to its rate and its window, and
//! tells it of losses.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use support::bench::{Bench, REGION_BYTES};
use urxe_congestion::Pacer;
use urxe_proto::{Acknowledged, CongestionControl, Instant, Loss, SendOp, WcStatus};
use urxe_sim::{ConnectOptions, Fault, LinkConfig, Match, Rule};

const MESSAGES: u64 = 8;
/// There and back.
const ROUND_TRIP_NS: u64 = 20_000;

/// Never changes its mind.
#[derive(Clone, Debug)]
struct Fixed {
    rate_bps: Option<u64>,
    window_bytes: Option<u64>,
    pacer: Pacer,
    gaps: Arc<AtomicU32>,
    silences: Arc<AtomicU32>,
}

impl CongestionControl for Fixed {
    fn handle_acknowledged(&mut self, _: Instant, _: &Acknowledged<'_>) {}

    fn handle_notification(&mut self, _: Instant) {}

    fn handle_loss(&mut self, _: Instant, loss: Loss) {
        let counter = match loss {
            Loss::Gap => &self.gaps,
            Loss::Silence => &self.silences,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn handle_sent(&mut self, now: Instant, bytes: u32) {
        if let Some(rate_bps) = self.rate_bps {
            self.pacer.handle_sent(now, bytes, rate_bps);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.pacer.handle_timeout(now);
    }

    fn may_send(&mut self, now: Instant) -> bool {
        self.pacer.may_send(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout()
    }

    fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    fn window_bytes(&self) -> Option<u64> {
        self.window_bytes
    }

    fn boxed_clone(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

fn fixed(rate_bps: Option<u64>, window_bytes: Option<u64>) -> Fixed {
    Fixed {
        rate_bps,
        window_bytes,
        pacer: Pacer::new(Instant::from_nanos(0), 0),
        gaps: Arc::default(),
        silences: Arc::default(),
    }
}

/// Mbit/s of payload over a link of 10 Gbps.
fn goodput_mbps(control: &Fixed, rules: Vec<Rule>) -> u64 {
    let link = LinkConfig {
        delay_ns: ROUND_TRIP_NS / 2,
        rate_mbps: 10_000,
        mtu_bytes: 1_500,
        queue_bytes: None,
    };
    let mut bench = Bench::over(1, ConnectOptions::default(), link);
    let (a, b) = (bench.a, bench.b);
    bench.world.set_congestion_control(a, control.boxed_clone());
    bench.world.link_mut(a.host, b.host).rules = rules;
    let start = bench.world.now();
    for message in 0..MESSAGES {
        let (va, rkey) = (bench.target_va(0), bench.target);
        bench.post_send(message, SendOp::Write { va, rkey }, 0, REGION_BYTES);
    }
    for _ in 0..MESSAGES {
        assert_eq!(bench.wait_send().status, WcStatus::Success);
    }
    let bits = 8 * MESSAGES * REGION_BYTES as u64;
    1_000 * bits / bench.world.now().since(start)
}

#[test]
fn what_is_under_way_keeps_to_the_window_of_a_congestion_control() {
    // Bits in a nanosecond are Gbit/s.
    let most_mbps = |window_bytes: u64| 8_000 * window_bytes / ROUND_TRIP_NS;
    let few = goodput_mbps(&fixed(None, Some(4_096)), vec![]);
    assert!(few <= most_mbps(4_096) && few > 1_000, "{few} Mbit/s");
    // A part of a packet is a packet: else nothing would ever go. Its acknowledgement is held back
    // for 50 us.
    let least = goodput_mbps(&fixed(None, Some(1)), vec![]);
    assert!(least <= most_mbps(1_024) && least > 100, "{least} Mbit/s");
    let enough = goodput_mbps(&fixed(None, Some(262_144)), vec![]);
    assert!(enough > 8_500, "{enough} Mbit/s");
}

#[test]
fn packets_keep_to_the_rate_of_a_congestion_control() {
    let mbps = goodput_mbps(&fixed(Some(2_000_000_000), None), vec![]);
    assert!((1_800..=2_000).contains(&mbps), "{mbps} Mbit/s");
}

#[test]
fn a_congestion_control_hears_of_losses() {
    let control = fixed(None, Some(16_384));
    let drop = Rule::nth(Match::All, Fault::Drop, 20, 1);
    goodput_mbps(&control, vec![drop]);
    assert_eq!(control.gaps.load(Ordering::Relaxed), 1);
    assert_eq!(control.silences.load(Ordering::Relaxed), 0);
    // All of a window: no later packet tells of it.
    let control = fixed(None, Some(1_024));
    let drop = Rule::nth(Match::All, Fault::Drop, 20, 1);
    goodput_mbps(&control, vec![drop]);
    assert!(control.silences.load(Ordering::Relaxed) > 0);
}
