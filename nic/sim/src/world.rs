//! Hosts, links and the clock.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use urxe_proto::{
    AttrMask, Attributes, CongestionControl, Egress, Instant, ModifyError, NotifiedControl,
    PeerAbilities, PostError, QueuePair, RecvRequest, SendRequest,
};
use urxe_wire::{Gid, Qpn};

use crate::event::{Datagram, Event, EventQueue};
use crate::fault::{Fate, Rule, decide};
use crate::forge::{corrupt, forge};
use crate::host::{Host, HostId, flow};
use crate::link::{Link, LinkConfig};
use crate::random::Random;
use crate::trace::Trace;

/// Names a queue pair of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QpHandle {
    /// Where it is.
    pub host: HostId,
    /// Its number.
    pub number: Qpn,
}

/// See the crate.
#[derive(Debug)]
pub struct World {
    /// What happened.
    pub trace: Trace,
    now: Instant,
    events: EventQueue,
    hosts: Vec<Host>,
    links: BTreeMap<(HostId, HostId), Link>,
    /// Ports of a switch, to the hosts that have one.
    ports: BTreeMap<HostId, Link>,
    addresses: BTreeMap<Gid, HostId>,
    random: Random,
    pub(super) next_qpn: u32,
    ipv6: bool,
}

impl World {
    /// An empty world; everything random in it comes from `seed`. Its hosts speak IPv6 if `ipv6`.
    #[must_use]
    pub fn new(seed: u64, ipv6: bool) -> Self {
        Self {
            trace: Trace::default(),
            now: Instant::default(),
            events: EventQueue::default(),
            hosts: Vec::new(),
            links: BTreeMap::new(),
            ports: BTreeMap::new(),
            addresses: BTreeMap::new(),
            random: Random::new(seed),
            next_qpn: 0x11,
            ipv6,
        }
    }

    // ---- getters -----------------------------------------------------------------------------

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A number that two runs share only if the same happened in both.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.trace.digest()
    }

    /// A host. Panics if there is none of this name.
    #[must_use]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[usize::from(id.0)]
    }

    /// A host, to change it. Panics if there is none of this name.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[usize::from(id.0)]
    }

    /// A queue pair. Panics if there is none of this name.
    #[must_use]
    pub fn qp(&self, handle: QpHandle) -> &QueuePair {
        self.host(handle.host)
            .qp(handle.number)
            .expect("no such queue pair")
    }

    /// The link from one host to another. Panics if there is none.
    pub fn link_mut(&mut self, from: HostId, to: HostId) -> &mut Link {
        self.links.get_mut(&(from, to)).expect("no such link")
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Adds a host.
    #[expect(clippy::cast_possible_truncation, reason = "nobody makes 65536 hosts")]
    pub fn add_host(&mut self) -> HostId {
        let id = HostId(self.hosts.len() as u16);
        let host = Host::new(id, self.ipv6);
        self.addresses.insert(host.gid(), id);
        self.hosts.push(host);
        id
    }

    /// Links two hosts, both ways alike.
    pub fn add_link(&mut self, a: HostId, b: HostId, config: LinkConfig, rules: &[Rule]) {
        for ends in [(a, b), (b, a)] {
            let mut link = Link::new(config);
            link.rules = rules.to_vec();
            self.links.insert(ends, link);
        }
    }

    /// Puts a host behind a port of a switch: what the links of all others to it carry goes through
    /// that, too.
    pub fn add_port(&mut self, to: HostId, config: LinkConfig) {
        self.ports.insert(to, Link::new(config));
    }

    /// Says how much a queue pair's host sends on at once.
    pub fn set_egress(&mut self, qp: QpHandle, egress: Egress) {
        if let Some(qp) = self.host_mut(qp.host).qp_mut(qp.number) {
            qp.set_egress(egress);
        }
    }

    /// Tells a queue pair what its peer does beyond the specification.
    pub fn set_peer_abilities(&mut self, qp: QpHandle, abilities: PeerAbilities) {
        if let Some(qp) = self.host_mut(qp.host).qp_mut(qp.number) {
            qp.set_peer_abilities(abilities);
        }
    }

    /// Turns congestion control of a queue pair by notifications on or off.
    pub fn set_notified_control(
        &mut self,
        qp: QpHandle,
        reaction: Option<Arc<dyn NotifiedControl>>,
    ) {
        if let Some(qp) = self.host_mut(qp.host).qp_mut(qp.number) {
            qp.set_notified_control(reaction);
        }
    }

    /// Lets something control the congestion of a queue pair that is always there.
    pub fn set_congestion_control(&mut self, qp: QpHandle, control: Box<dyn CongestionControl>) {
        if let Some(qp) = self.host_mut(qp.host).qp_mut(qp.number) {
            qp.set_congestion_control(control);
        }
    }

    /// A queue pair is gone from one moment to the next, as when its process is killed: no peer
    /// hears of it, and what arrives for it is dropped.
    pub fn remove_qp(&mut self, qp: QpHandle) {
        self.trace
            .note(self.now, || format!("{} loses {}", qp.host.0, qp.number));
        self.host_mut(qp.host).remove(qp.number);
    }

    /// Modifies a queue pair.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn modify(
        &mut self,
        qp: QpHandle,
        wanted: &Attributes,
        mask: AttrMask,
    ) -> Result<(), ModifyError> {
        self.command(qp, |queue_pair| queue_pair.modify(wanted, mask))
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub fn post_send(&mut self, qp: QpHandle, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.trace.note(self.now, || {
            format!("{} post {} {:?}", qp.host.0, request.wr_id, request.op)
        });
        self.command(qp, |queue_pair| queue_pair.post_send(request))
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`].
    pub fn post_recv(&mut self, qp: QpHandle, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.trace.note(self.now, || {
            format!("{} post_recv {}", qp.host.0, request.wr_id)
        });
        self.command(qp, |queue_pair| queue_pair.post_recv(request))
    }

    fn command<T>(&mut self, handle: QpHandle, run: impl FnOnce(&mut QueuePair) -> T) -> T {
        let now = self.now;
        let host = self.host_mut(handle.host);
        let result = run(host.qp_mut(handle.number).expect("no such queue pair"));
        host.collect(now, handle.number);
        self.pump(handle.host);
        result
    }

    // ---- time --------------------------------------------------------------------------------

    /// When something happens next.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.events.next_at()
    }

    /// Lets the next thing happen. False if nothing will.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.events.pop() else {
            return false;
        };
        self.now = at;
        match event {
            Event::Forward(datagram) => {
                let Datagram {
                    from,
                    to,
                    udp_payload,
                    ..
                } = &datagram;
                let port = self.ports.get_mut(to);
                match port.and_then(|port| port.carry(at, udp_payload.len())) {
                    Some(at) => self.events.schedule(at, Event::Deliver(datagram)),
                    None => self.trace.packet(at, "LOST", *from, *to, udp_payload),
                }
            }
            Event::Deliver(Datagram {
                from,
                to,
                udp_payload,
                ecn,
            }) => {
                self.trace.packet(at, "arrives", from, to, &udp_payload);
                let from = from.address(self.ipv6);
                let host = self.host_mut(to);
                host.stats.ecn_marked += u64::from(ecn);
                host.handle_datagram(at, from, &udp_payload, ecn);
                self.pump(to);
            }
            Event::Wake { host } => {
                let host_state = self.host_mut(host);
                if host_state.wake_at == Some(at) {
                    host_state.wake_at = None;
                }
                self.pump(host);
            }
        }
        true
    }

    /// Lets everything happen that does before `end`, and sets the clock to it.
    pub fn run_until(&mut self, end: Instant) {
        while self.next_at().is_some_and(|at| at < end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Runs the timers of a host that are due and sends what it has to send, as far as its links
    /// are free; sees to it that it wakes for the rest.
    fn pump(&mut self, id: HostId) {
        let now = self.now;
        self.host_mut(id).handle_timeouts(now);
        // What datagrams find busy is the link's queue: nothing holds their senders back.
        for number in self.host(id).datagram_qps() {
            loop {
                let host = &mut self.hosts[usize::from(id.0)];
                let Some((to, udp_payload)) = host.transmit(now, number, &mut self.random) else {
                    break;
                };
                if let Some(to) = self.addresses.get(&to).copied() {
                    self.send(id, to, udp_payload);
                }
            }
        }
        let mut link_free_at = None;
        'again: loop {
            for (number, peer) in self.host(id).turns() {
                let Some(to) = self.addresses.get(&peer).copied() else {
                    continue;
                };
                let Some(free_at) = self.links.get(&(id, to)).map(Link::free_at) else {
                    continue;
                };
                if free_at > now {
                    link_free_at =
                        Some(link_free_at.map_or(free_at, |at: Instant| at.min(free_at)));
                    continue;
                }
                let host = &mut self.hosts[usize::from(id.0)];
                if let Some((_, udp_payload)) = host.transmit(now, number, &mut self.random) {
                    self.send(id, to, udp_payload);
                    continue 'again;
                }
            }
            break;
        }
        self.schedule_wake(id, link_free_at);
    }

    fn schedule_wake(&mut self, id: HostId, link_free_at: Option<Instant>) {
        let now = self.now;
        let host = self.host(id);
        let timeout = host.poll_timeout();
        if link_free_at.is_none() {
            // Everything was polled just now: a deadline that has passed would never do anything.
            assert!(
                timeout.is_none_or(|at| at > now),
                "host {} sleeps over a deadline",
                id.0
            );
        }
        let timeout = timeout.filter(|at| *at > now);
        let Some(at) = [timeout, link_free_at].into_iter().flatten().min() else {
            return;
        };
        if host.wake_at.is_none_or(|planned| at < planned) {
            self.host_mut(id).wake_at = Some(at);
            self.events.schedule(at, Event::Wake { host: id });
        }
    }

    /// Puts a packet on a link, where the rules strike it.
    fn send(&mut self, from: HostId, to: HostId, mut udp_payload: Vec<u8>) {
        let now = self.now;
        let ends = (from.address(self.ipv6), to.address(self.ipv6));
        let Some(link) = self.links.get_mut(&(from, to)) else {
            return;
        };
        let fate = decide(&mut link.rules, now, &udp_payload, &mut self.random);
        let arrives_at = link.carry(now, udp_payload.len());
        link.stats.dropped += u64::from(fate.dropped);
        self.trace.packet(now, verb(fate), from, to, &udp_payload);
        let Some(at) = arrives_at.filter(|_| !fate.dropped) else {
            return;
        };
        self.damage(fate, ends, &mut udp_payload);
        let datagram = Datagram {
            from,
            to,
            udp_payload,
            ecn: fate.marked,
        };
        let goes_on = if self.ports.contains_key(&to) {
            Event::Forward
        } else {
            Event::Deliver
        };
        if let Some(after) = fate.duplicate_after_ns {
            self.events
                .schedule(at.after(after), goes_on(datagram.clone()));
        }
        self.events
            .schedule(at.after(fate.delay_ns), goes_on(datagram));
    }

    fn damage(&mut self, fate: Fate, (src, dst): (IpAddr, IpAddr), udp_payload: &mut Vec<u8>) {
        if fate.forged
            && let Some(flow) = flow(src, dst)
        {
            forge(udp_payload, &flow, &mut self.random);
        }
        if fate.corrupted {
            corrupt(udp_payload, &mut self.random);
        }
    }
}

const fn verb(fate: Fate) -> &'static str {
    match fate {
        Fate { dropped: true, .. } => "LOST",
        Fate { forged: true, .. } => "FORGED",
        Fate {
            corrupted: true, ..
        } => "CORRUPTED",
        Fate {
            duplicate_after_ns: Some(_),
            ..
        } => "DUPLICATED",
        Fate { delay_ns: 1.., .. } => "DELAYED",
        _ => "sends",
    }
}
