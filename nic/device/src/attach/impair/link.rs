//! The bad network behind one socket: the fate of each packet, and those that leave later.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use oorandom::Rand64;
use urxe_udp::{Destination, SendError, Sent, Transmit, set_timer_slack_ns};
use urxe_wire::icrc::Flow;

use super::setting::{ImpairCounters, Impairment, Share};
use crate::attach::gid_entry::flow;
use crate::attach::tap::wire::Wire;
use crate::process::threads::with_signals_blocked;

/// A packet that is to be overtaken waits at most so long.
const OVERTAKEN_MAX: Duration = Duration::from_millis(1);
/// Packets that wait, at most; one too many is lost, as in any queue.
const WAITING_MAX: usize = 1 << 14;
/// Timers of the thread may be this late.
const TIMER_SLACK_NS: u32 = 1_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct BadLink {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    impairment: Impairment,
    counters: Arc<ImpairCounters>,
    wire: Arc<Wire>,
    /// The process whose packets these are: a child of it has a copy of them.
    pid: u32,
    state: Mutex<State>,
    news: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({}, {})", self.wire.local, self.impairment)
    }
}

struct State {
    fates: Fates,
    /// The fate of a packet that the socket did not take; it is sent again and keeps it.
    kept: Option<Fate>,
    waiting: BTreeMap<(Instant, u64), Waiting>,
    count: u64,
    /// How many of the waiting are to be overtaken.
    overtaken: usize,
    is_closing: bool,
}

/// A packet that leaves later.
struct Waiting {
    destination: Destination,
    tos: u8,
    bytes: Vec<u8>,
    /// It leaves early once so many others have left; `None` waits for its time.
    overtakers: Option<u8>,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    lost: bool,
    duplicated: bool,
    corrupted: bool,
    /// By how many others it is overtaken.
    overtakers: Option<u8>,
}

/// The decisions, packet by packet.
#[derive(Clone, Debug)]
struct Fates {
    random: Rand64,
    /// For what only struck packets need, so that all packets take equally many numbers of the
    /// other.
    details: Rand64,
}

impl Fates {
    fn new(seed: u64, address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut stream = u128::from(seed) ^ u128::from(ip) ^ u128::from(address.port()) << 64;
        let mut random = Rand64::new(stream);
        stream = u128::from(random.rand_u64());
        Self {
            details: Rand64::new(stream),
            random,
        }
    }

    fn next(&mut self, impairment: &Impairment) -> Fate {
        let Impairment {
            loss,
            duplicate,
            reorder,
            corrupt,
            ..
        } = impairment;
        let [lost, duplicated, reordered, corrupted] =
            [loss, duplicate, reorder, corrupt].map(|share| self.strikes(*share));
        let overtakers = u8::try_from(self.details.rand_range(1..4)).unwrap_or(1);
        Fate {
            lost,
            duplicated,
            corrupted,
            overtakers: reordered.then_some(overtakers),
        }
    }

    fn strikes(&mut self, share: Share) -> bool {
        self.random.rand_range(0..u64::from(Share::ALL_PPM)) < u64::from(share.ppm)
    }

    /// Flips one to eight bits, so that the packet's ICRC is wrong for any IPv4 ID.
    fn damage(&mut self, flow: Option<&Flow>, bytes: &mut [u8]) {
        /// Each attempt fails once in 2^16.
        const ATTEMPTS: usize = 4;
        if bytes.is_empty() {
            return;
        }
        for _ in 0..ATTEMPTS {
            for _ in 0..self.details.rand_range(1..9) {
                let bit = self.details.rand_range(0..bytes.len() as u64 * 8);
                bytes[usize::try_from(bit / 8).unwrap_or(0)] ^= 1 << (bit % 8);
            }
            if flow.is_none_or(|flow| !flow.verify(bytes, 0).is_good()) {
                return;
            }
        }
    }
}

impl BadLink {
    /// A bad network in front of `wire`.
    pub(crate) fn new(
        impairment: Impairment,
        counters: &Arc<ImpairCounters>,
        wire: &Arc<Wire>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            impairment,
            counters: Arc::clone(counters),
            wire: Arc::clone(wire),
            pid: std::process::id(),
            state: Mutex::new(State {
                fates: Fates::new(impairment.seed, wire.local),
                kept: None,
                waiting: BTreeMap::new(),
                count: 0,
                overtaken: 0,
                is_closing: false,
            }),
            news: Condvar::new(),
        });
        let delays = impairment.reorder > Share::default() || impairment.delay.as_nanos() > 0;
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new()
            .name("urxe-impair".into())
            .stack_size(1 << 17);
        let thread = delays
            .then(|| with_signals_blocked(|| builder.spawn(move || theirs.send_late())))
            .transpose()?;
        Ok(Self { shared, thread })
    }

    /// Sends datagrams, or what the network leaves of them.
    pub(crate) fn send(&self, transmit: &Transmit<'_>, bytes: &[u8]) -> Result<Sent, SendError> {
        let stride = transmit.segment_size.map_or(bytes.len(), usize::from);
        let mut sent = Sent::default();
        for datagram in bytes.chunks(stride.max(1)) {
            match self
                .shared
                .send(transmit.destination, transmit.tos, datagram)
            {
                Ok(one) => {
                    sent.bytes += datagram.len();
                    sent.lost = sent.lost.or(one.lost);
                }
                Err(SendError::WouldBlock) if sent.bytes > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Sends what waits, at once.
    pub(crate) fn flush(&self) {
        if self.shared.pid == std::process::id() {
            self.shared.send_due(&mut self.shared.lock(), None);
        }
    }
}

impl Drop for BadLink {
    fn drop(&mut self) {
        if self.shared.pid != std::process::id() {
            return;
        }
        self.flush();
        self.shared.lock().is_closing = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, to: &Destination, tos: u8, datagram: &[u8]) -> Result<Sent, SendError> {
        let mut state = self.lock();
        let state = &mut *state;
        let kept = state.kept.take();
        let fate = kept.unwrap_or_else(|| state.fates.next(&self.impairment));
        let accepted = Sent {
            bytes: datagram.len(),
            lost: None,
        };
        if fate.lost {
            count(&self.counters.lost);
            return Ok(accepted);
        }
        let mut damaged;
        let mut bytes = datagram;
        if fate.corrupted {
            let is_v1 = self.wire.socket.has_frames_only();
            let flow = flow(is_v1, self.wire.local, to.address());
            damaged = datagram.to_vec();
            state.fates.damage(flow.as_ref(), &mut damaged);
            bytes = &damaged;
        }
        let delay_ns = self.impairment.delay.as_nanos();
        if delay_ns > 0 || fate.overtakers.is_some() {
            self.keep(state, fate, to, tos, bytes);
        } else {
            match self.wire.send(to, tos, bytes) {
                Err(SendError::WouldBlock) => {
                    state.kept = Some(fate);
                    return Err(SendError::WouldBlock);
                }
                outcome => outcome?,
            };
            if fate.duplicated {
                let _ = self.wire.send(to, tos, bytes);
            }
            self.overtake(state);
        }
        for (struck, counter) in [
            (fate.corrupted, &self.counters.corrupted),
            (fate.duplicated, &self.counters.duplicated),
            (fate.overtakers.is_some(), &self.counters.reordered),
            (delay_ns > 0, &self.counters.delayed),
        ] {
            if struck {
                count(counter);
            }
        }
        Ok(accepted)
    }

    /// Lets a packet wait for its time.
    fn keep(&self, state: &mut State, fate: Fate, to: &Destination, tos: u8, bytes: &[u8]) {
        let patience = fate.overtakers.map_or(Duration::ZERO, |_| OVERTAKEN_MAX);
        let due =
            Instant::now() + Duration::from_nanos(self.impairment.delay.as_nanos()) + patience;
        for _ in 0..=usize::from(fate.duplicated) {
            if state.waiting.len() >= WAITING_MAX {
                count(&self.counters.lost);
                return;
            }
            state.count += 1;
            state.overtaken += usize::from(fate.overtakers.is_some());
            let waiting = Waiting {
                destination: *to,
                tos,
                bytes: bytes.to_vec(),
                overtakers: fate.overtakers,
            };
            state.waiting.insert((due, state.count), waiting);
        }
        self.news.notify_one();
    }

    /// Another packet has left: those that waited for it leave, too.
    fn overtake(&self, state: &mut State) {
        if state.overtaken == 0 {
            return;
        }
        let mut ready = Vec::new();
        for (key, waiting) in &mut state.waiting {
            if let Some(left) = &mut waiting.overtakers {
                *left -= 1;
                if *left == 0 {
                    ready.push(*key);
                }
            }
        }
        for key in ready {
            self.release(state, key);
        }
    }

    fn release(&self, state: &mut State, key: (Instant, u64)) {
        if let Some(waiting) = state.waiting.remove(&key) {
            state.overtaken -= usize::from(waiting.overtakers.is_some());
            let _ = self
                .wire
                .send(&waiting.destination, waiting.tos, &waiting.bytes);
        }
    }

    /// Sends what is due at `now`, or all of it.
    fn send_due(&self, state: &mut State, now: Option<Instant>) {
        while let Some((&key, waiting)) = state.waiting.first_key_value()
            && now.is_none_or(|now| key.0 <= now)
        {
            let counts = waiting.overtakers.is_none();
            self.release(state, key);
            if counts {
                self.overtake(state);
            }
        }
    }

    /// The thread: sends each packet when it is due.
    fn send_late(&self) {
        let _ = set_timer_slack_ns(TIMER_SLACK_NS);
        let mut state = self.lock();
        while !state.is_closing {
            let now = Instant::now();
            self.send_due(&mut state, Some(now));
            let next = state.waiting.first_key_value();
            state = match next.map(|((due, _), _)| due.saturating_duration_since(now)) {
                None => self
                    .news
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let waited = self.news.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(text: &str, address: &str) -> Vec<Fate> {
        let impairment: Impairment = text.parse().unwrap();
        let mut fates = Fates::new(impairment.seed, address.parse().unwrap());
        (0..20_000).map(|_| fates.next(&impairment)).collect()
    }

    fn lost(fates: &[Fate]) -> Vec<usize> {
        let lost = fates.iter().enumerate().filter(|(_, fate)| fate.lost);
        lost.map(|(index, _)| index).collect()
    }

    const HERE: &str = "192.0.2.1:4791";

    #[test]
    fn the_seed_and_the_address_decide() {
        let first = fates("loss=1%,seed=7", HERE);
        assert_eq!(first, fates("loss=1%,seed=7", HERE));
        assert_ne!(lost(&first), lost(&fates("loss=1%,seed=8", HERE)));
        for other in ["192.0.2.1:4792", "192.0.2.2:4791", "[2001:db8::1]:4791"] {
            assert_ne!(
                lost(&first),
                lost(&fates("loss=1%,seed=7", other)),
                "{other}"
            );
        }
    }

    #[test]
    fn the_share_is_kept() {
        let struck = fates("loss=1%,duplicate=5%,reorder=2%,corrupt=100%", HERE);
        let count = |is: fn(&Fate) -> bool| struck.iter().filter(|fate| is(fate)).count();
        assert!((150..250).contains(&count(|fate| fate.lost)));
        assert!((850..1150).contains(&count(|fate| fate.duplicated)));
        assert!((320..480).contains(&count(|fate| fate.overtakers.is_some())));
        assert_eq!(count(|fate| fate.corrupted), 20_000);
        assert!(fates("seed=3", HERE).iter().all(|fate| !fate.lost));
    }

    #[test]
    fn another_fault_does_not_change_which_packets_are_lost() {
        let alone = fates("loss=1%,seed=7", HERE);
        let together = fates("loss=1%,duplicate=10%,reorder=10%,corrupt=10%,seed=7", HERE);
        assert_eq!(lost(&alone), lost(&together));
    }

    #[test]
    fn damage_is_never_hidden_by_the_unknown_id() {
        let (here, there) = (HERE.parse().unwrap(), "192.0.2.2:4791".parse().unwrap());
        let flow = Flow::new(here, there).unwrap();
        let mut good = vec![0x11; 60];
        let mut icrc = flow.start(64, 0, &good);
        icrc.update(&[]);
        good.extend(icrc.finish());
        assert!(flow.verify(&good, 0).is_good());
        let mut fates = Fates::new(1, here);
        for _ in 0..50_000 {
            let mut bytes = good.clone();
            fates.damage(Some(&flow), &mut bytes);
            assert!(!flow.verify(&bytes, 0).is_good());
        }
    }
}
