//! Several hosts write to one through a switch with a shallow queue and no flow control: the port
//! is used to the full, and no host is starved.

mod support;

use support::scenario::PD;
use urxe_proto::{
    Instant, PeerAbilities, QueueSide, SendData, SendOp, SendRequest, SendTarget, Sge, WcStatus,
};
use urxe_sim::{
    ConnectOptions, Fault, HostId, LinkConfig, Match, QpHandle, Random, Rights, Rule, World,
};
use urxe_wire::Mtu;

const MESSAGE_BYTES: usize = 64 << 10;
const OUTSTANDING: u64 = 32;
const SEEDS: u64 = 4;
/// What RoCEv2 and Ethernet leave of a packet.
const PAYLOAD_SHARE: f64 = 1024.0 / 1106.0;
/// Senders begin within this time.
const BEGIN_MAX_NS: u64 = 30_000_000;

struct Sender {
    qp: QpHandle,
    source: u32,
    begins_at: Instant,
    completed: u64,
}

struct Incast {
    world: World,
    receiver: HostId,
    target: u32,
    senders: Vec<Sender>,
}

impl Incast {
    /// Every cable and the receiver's port have the same rate.
    fn new(seed: u64, senders: u32, rate_mbps: u64, queue_bytes: u64) -> Self {
        let mut random = Random::new(seed);
        let mut world = World::new(seed, false);
        let receiver = world.add_host();
        let cable = LinkConfig {
            delay_ns: 20_000,
            rate_mbps,
            mtu_bytes: 1_500,
            queue_bytes: None,
        };
        world.add_port(
            receiver,
            LinkConfig {
                queue_bytes: Some(queue_bytes),
                ..cable
            },
        );
        // No two hosts keep step: one that does may find a place in the queue each time that
        // another never finds.
        let packet_ns = 8_000 * 1_106 / rate_mbps;
        let jitter = Rule::always(Match::All, Fault::Delay { max_ns: packet_ns });
        let memory = &mut world.host_mut(receiver).memory;
        let target = memory.register(PD, Rights::ALL, vec![0; MESSAGE_BYTES]);
        let options = ConnectOptions {
            mtu: Mtu::B1024,
            peer_abilities: PeerAbilities::URXE,
            ..ConnectOptions::default()
        };
        let senders = (0..senders).map(|_| {
            let host = world.add_host();
            world.add_link(receiver, host, cable, std::slice::from_ref(&jitter));
            let memory = &mut world.host_mut(host).memory;
            Sender {
                source: memory.register(PD, Rights::default(), vec![1; MESSAGE_BYTES]),
                qp: world.connect(host, receiver, PD, &options).0,
                begins_at: Instant::from_nanos(random.between(0, BEGIN_MAX_NS)),
                completed: 0,
            }
        });
        let mut senders: Vec<Sender> = senders.collect();
        senders.sort_by_key(|sender| sender.begins_at);
        Self {
            world,
            receiver,
            target,
            senders,
        }
    }

    fn post(&mut self, sender: usize) {
        let Sender { qp, source, .. } = self.senders[sender];
        let va = self.world.host(self.receiver).memory.va(self.target, 0);
        let sge = Sge {
            addr: self.world.host(qp.host).memory.va(source, 0),
            len: MESSAGE_BYTES as u32,
            lkey: source,
        };
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Write {
                va,
                rkey: self.target,
            },
            data: SendData::Sges(&[sge]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.world.post_send(qp, &request).unwrap();
    }

    /// Lets every sender send until then, and tells what each got, Mbit/s, and how often something
    /// was missing.
    fn run_for(mut self, nanos: u64) -> (Vec<f64>, u64) {
        for sender in 0..self.senders.len() {
            self.run_until(self.senders[sender].begins_at);
            for _ in 0..OUTSTANDING {
                self.post(sender);
            }
        }
        self.run_until(Instant::from_nanos(nanos));
        let mbps = |sender: &Sender| {
            (8_000 * sender.completed * MESSAGE_BYTES as u64) as f64 / nanos as f64
        };
        let missing = |sender: &Sender| self.world.qp(sender.qp).stats().packet_seq_err;
        let rates = self.senders.iter().map(mbps).collect();
        (rates, self.senders.iter().map(missing).sum())
    }

    fn run_until(&mut self, end: Instant) {
        while self.world.next_at().is_some_and(|at| at < end) {
            self.world.step();
            for sender in 0..self.senders.len() {
                let host = self.senders[sender].qp.host;
                while let Some((_, completion)) = self.world.host_mut(host).poll_completion() {
                    assert_eq!(
                        (completion.side(), completion.status),
                        (QueueSide::Send, WcStatus::Success)
                    );
                    self.senders[sender].completed += 1;
                    self.post(sender);
                }
            }
        }
    }
}

/// (sum x)^2 / (n sum x^2): 1 if all are the same (Jain et al., 1984).
fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn a_full_queue_is_shared_and_the_port_busy() {
    const SECOND: u64 = 1_000_000_000;
    for (senders, rate_mbps, queue_bytes, nanos) in [
        (4, 100, 32 << 10, 3 * SECOND),
        (8, 200, 64 << 10, 3 * SECOND),
        (4, 1_000, 32 << 10, SECOND / 2),
        (8, 1_000, 64 << 10, SECOND / 2),
    ] {
        for seed in 0..SEEDS {
            let incast = Incast::new(seed, senders, rate_mbps, queue_bytes);
            let (rates, missing) = incast.run_for(nanos);
            let told = format!(
                "{senders} to 1 at {rate_mbps} Mbit/s, {queue_bytes} bytes, seed {seed}: {rates:.0?}"
            );
            let used = rates.iter().sum::<f64>() / (rate_mbps as f64 * PAYLOAD_SHARE);
            assert!(missing > 0, "the queue was never full: {told}");
            assert!((0.85..1.01).contains(&used), "{used:.2} used: {told}");
            assert!(fairness(&rates) > 0.85, "{:.2}: {told}", fairness(&rates));
        }
    }
}
