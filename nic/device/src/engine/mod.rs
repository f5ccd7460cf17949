//! The engine: everything that moves when packets come and go. One lock, held by the thread that
//! makes progress.

pub(crate) mod congestion;
pub(crate) mod counters;
pub(crate) mod datagram;
pub(crate) mod farewell;
pub(crate) mod forward;
pub(crate) mod management;
pub(crate) mod multicast;
pub(crate) mod origin;
pub(crate) mod path;
pub(crate) mod ping;
pub(crate) mod port;
pub(crate) mod receive;
pub(crate) mod srq;
pub(crate) mod stats;
mod streams;
pub(crate) mod table;
pub(crate) mod timers;
pub(crate) mod transmit;
pub(crate) mod turns;
mod unbuilt;
pub(crate) mod vendor_mad;

use std::collections::VecDeque;
use std::sync::Arc;

use urxe_duty::Posts;
use urxe_proto::{ACK_HOLD_NS, Instant};
use urxe_udp::{RecvBuffer, wait_writable};

use crate::delivery::events::EventQueue;
use crate::engine::counters::Departed;
use crate::engine::farewell::ended::Ended;
use crate::engine::multicast::group::Group;
use crate::engine::port::{Port, Ports};
use crate::engine::srq::table::SrqTable;
use crate::engine::stats::DeviceStats;
use crate::engine::table::{QpTable, Slot};
use crate::engine::timers::Timers;
use crate::engine::transmit::Outgoing;
use crate::engine::unbuilt::Unbuilt;
use crate::memory::MemoryTable;
use crate::process::clock;
use crate::stream::Streams;

pub(crate) use urxe_proto::AckMode;

/// Packets that a round sends before it looks for what has come meanwhile. Hundreds of queue pairs
/// may have many thousands to send, whose acknowledgements would not all find room.
const PACKETS_PER_ROUND: u32 = 256;

/// Packets that wait for company, at most: enough to spread the cost of a system call, few enough
/// that the peer works on some while the program posts others.
const GATHERED_MAX: usize = 32;

/// How long a queue pair or a process that ends waits for a full send buffer: 25 MB at 1 Gbps.
const DRAIN_MAX_NS: u64 = 200_000_000;

/// See the module.
pub(crate) struct Engine {
    /// The network interface of the device.
    pub(crate) link: u32,
    pub(crate) qps: QpTable,
    pub(crate) srqs: SrqTable,
    pub(crate) memory: MemoryTable,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) stats: DeviceStats,
    /// Counters of queue pairs that were destroyed.
    pub(crate) departed: Departed,
    /// Where they had their peers.
    pub(crate) ended: Ended,
    pub(crate) buffer: Option<Box<RecvBuffer>>,
    /// Bound when the first queue pair is made: a program that only looks takes no slot.
    pub(crate) sockets: Option<Ports>,
    /// Of an iWARP device, in place of the sockets.
    pub(crate) streams: Option<Box<Streams>>,
    /// Takes in packets for QP 1; without it they are dropped.
    pub(crate) management: Option<management::Receive>,
    /// Multicast groups that queue pairs are attached to.
    pub(crate) groups: Vec<Group>,
    pub(crate) timers: Timers,
    pub(crate) outgoing: Outgoing,
    /// Queue pairs that may have something to send, each at most once.
    ready: VecDeque<u16>,
    posts: Posts,
    unbuilt: Unbuilt,
    /// The last round left some of them for the next.
    is_unfinished: bool,
    /// Packets of messages and other requests of peers, so far.
    pub(crate) requests: u64,
    /// Queue pairs with requests in flight.
    senders: usize,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({} queue pairs)", self.qps.len())
    }
}

impl Engine {
    pub(crate) fn new(link: u32, events: Arc<EventQueue>) -> Self {
        Self {
            link,
            qps: QpTable::new(),
            srqs: SrqTable::default(),
            memory: MemoryTable::default(),
            events,
            stats: DeviceStats::default(),
            departed: Departed::default(),
            ended: Ended::default(),
            buffer: Some(Box::new(RecvBuffer::new())),
            sockets: None,
            streams: None,
            management: None,
            groups: Vec::new(),
            timers: Timers::default(),
            outgoing: Outgoing::new(),
            ready: VecDeque::new(),
            posts: Posts::new(),
            unbuilt: Unbuilt::default(),
            is_unfinished: false,
            requests: 0,
            senders: 0,
        }
    }

    pub(crate) fn ports(&self) -> &[Port] {
        Ports::of(self.sockets.as_ref())
    }

    /// One round: packets in, timers, packets out; in this order, lest a thread that was kept from
    /// its processor takes for lost what waits in the socket. Acknowledgements may wait for company
    /// in a round that brought something; the next empty one sends them. Returns how many packets
    /// came, and when it is: `None` of a round with nothing to do, in which the clock was not
    /// looked at.
    pub(crate) fn run_round(&mut self) -> (usize, Option<Instant>) {
        if self.streams.is_some() {
            return self.run_program_streams();
        }
        self.posts.note_round();
        let mut clock = None;
        let received = self.receive(&mut clock, false);
        if received == 0 {
            self.memory.look_ahead();
        }
        let has_none_to_send = self.outgoing.is_empty() && self.unbuilt.is_empty();
        if self.was_quick(received) && has_none_to_send && !self.is_unfinished {
            return (0, None);
        }
        let has_nothing = received == 0 && self.ready.is_empty() && self.outgoing.is_empty();
        if has_nothing && !self.posts.looks_at_clock() {
            return (0, None);
        }
        let now = clock.unwrap_or_else(clock::now);
        self.posts.note_round_at(now);
        self.expire(now);
        let mode = if received == 0 && !self.was_quick(received) {
            AckMode::Idle
        } else {
            AckMode::Hold
        };
        self.exchange(now, mode);
        (received, Some(now))
    }

    /// A round of a thread that looks for packets before it sleeps. An acknowledgement waits for
    /// the program's reply as long as such waits have paid.
    pub(crate) fn run_looking_round(&mut self, now: Instant) -> usize {
        if self.streams.is_some() {
            return self.run_streams(now);
        }
        let received = self.receive(&mut Some(now), true);
        self.expire(now);
        let mode = if self.was_quick(received) {
            AckMode::Hold
        } else {
            AckMode::Idle
        };
        self.exchange(now, mode);
        received
    }

    /// Whether a program that streams should run a round before it goes on to post. It is taken to
    /// do so then.
    pub(crate) fn claim_round(&mut self, now: Instant) -> bool {
        self.posts.claim_round(now)
    }

    /// Whether a request has no answer yet, or a message that has just come in full no
    /// acknowledgement: the program may be about to reply to it.
    pub(crate) fn is_amid(&self) -> bool {
        if let Some(streams) = &self.streams {
            return streams.is_amid();
        }
        let is_whole = |index: &u16| {
            self.qps
                .get(*index)
                .is_some_and(|slot| !slot.qp.is_within_message())
        };
        self.senders > 0 || self.ready.iter().any(is_whole)
    }

    /// Packets that were sent so far; of an iWARP device, what was as much work in its rounds.
    pub(crate) fn sent(&self) -> u64 {
        match &self.streams {
            Some(streams) => streams.packets(),
            None => self.stats.tx_packets,
        }
    }

    /// Whether the last round left something to send, so that the next is wanted at once.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished || self.streams.as_ref().is_some_and(|all| all.is_unfinished())
    }

    /// Whether a round that received so much looked at memory only. Such rounds do not count as
    /// looks in vain.
    pub(crate) fn was_quick(&self, received: usize) -> bool {
        received == 0 && self.sockets.as_ref().is_some_and(Ports::was_quick)
    }

    /// A round of the background thread before it sleeps. An acknowledgement waits for the
    /// program's reply: what came may be half of a ping-pong, of any length. Sent alone, it would
    /// get there first, and a peer that then looks at its memory only would need its own background
    /// thread for the reply, some 20 us.
    pub(crate) fn run_background_round(&mut self, now: Instant) -> usize {
        if self.streams.is_some() {
            return self.run_streams(now);
        }
        let received = self.receive(&mut Some(now), true);
        self.expire(now);
        self.exchange(now, AckMode::Hold);
        received
    }

    fn expire(&mut self, now: Instant) {
        while let Some(index) = self.timers.pop(now) {
            let Some(slot) = self.qps.get_mut(index) else {
                continue;
            };
            slot.armed = None;
            if slot.qp.poll_retry_timeout().is_some_and(|at| at <= now) {
                let was_silent = slot.qp.is_silent(now);
                slot.qp.handle_timeout(now);
                if !was_silent {
                    self.mark_ready(index);
                    continue;
                }
                let (qp, stats) = (&slot.qp, slot.qp.stats());
                log::debug!(
                    "QP {}: no answer in time; {} early retransmissions and {} timeouts so far, now {:?}",
                    qp.number().get(),
                    stats.probes,
                    stats.local_ack_timeout_err,
                    qp.state()
                );
                if let Some(path) = &mut slot.path {
                    path.handle_silence();
                }
                slot.deliver(&self.events);
                self.mark_ready(index);
            } else {
                self.arm(index);
            }
        }
    }

    /// Makes sure that the timers know the queue pair's deadline.
    fn arm(&mut self, index: u16) {
        let Some(slot) = self.qps.get_mut(index) else {
            return;
        };
        if let Some(at) = slot.qp.poll_retry_timeout()
            && slot.armed.is_none_or(|armed| at < armed)
        {
            self.timers.set(index, slot.armed, at);
            slot.armed = Some(at);
        }
    }

    /// When the engine wants to run again: at the earliest deadline of a queue pair, or soon, when
    /// acknowledgements are held back.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if let Some(streams) = &self.streams {
            return streams.deadline();
        }
        let holds = self.unbuilt.are_others(self.ready.len()) && !self.outgoing.is_blocked();
        let held = holds.then(|| now.after(ACK_HOLD_NS));
        match (held, self.timers.next()) {
            (Some(held), Some(timer)) => Some(held.min(timer)),
            (held, timer) => held.or(timer),
        }
    }

    /// Takes a queue pair out of the table, with its timer.
    pub(crate) fn remove(&mut self, index: u16) {
        if let Some(slot) = self.qps.remove(index) {
            self.timers.clear(index, slot.armed);
            self.departed.add(slot.qp.stats());
            self.senders -= usize::from(slot.is_sender);
        }
    }

    /// Sends what may be sent, queue pair by queue pair.
    pub(crate) fn transmit(&mut self, now: Instant, mode: AckMode) {
        self.build(now, mode, u32::MAX);
        self.flush();
    }

    /// The same, until it is time to look for what has come.
    fn exchange(&mut self, now: Instant, mode: AckMode) {
        self.build(now, mode, PACKETS_PER_ROUND);
        self.flush();
    }

    /// The program posted requests of so many bytes to the queue pair at `index`. Whether it does
    /// so often before it polls, and answers are on their way to it, so that it will poll: then
    /// what it posted need not leave at once.
    pub(crate) fn note_post(&mut self, now: Instant, index: u16, bytes: u64) -> bool {
        let is_ready = |slot: &Slot| slot.is_ready || slot.qp.owes_response();
        let is_first = self.qps.get_mut(index).is_some_and(|slot| !is_ready(slot));
        self.unbuilt.add(bytes, is_first);
        self.mark_ready(index);
        self.posts.note_post(now, self.senders > 0)
    }

    /// Makes packets of what may be sent, of a stream once that is enough, and sends all but the
    /// last batch, unless that has become long. The caller sees to it that [`Self::send_gathered`]
    /// is called soon.
    pub(crate) fn gather(&mut self, now: Instant) {
        if self.posts.is_streaming() && !self.unbuilt.is_due(self.ready.len()) {
            return;
        }
        self.build(now, AckMode::Hold, u32::MAX);
        if self.outgoing.gathered() >= GATHERED_MAX {
            self.flush();
        }
    }

    /// The program posted and then did not poll: nothing waits for company for a while, longer if
    /// that was so before.
    pub(crate) fn stop_gathering(&mut self, now: Instant) {
        self.posts.note_unpolled(now);
        self.send_gathered(now);
    }

    /// Waits for a while until the sockets have taken what waits for them. For a queue pair or a
    /// process that ends: requests of the unreliable services have completed before, and nothing
    /// sends their packets again.
    pub(crate) fn drain(&mut self) {
        let end = clock::now().after(DRAIN_MAX_NS);
        while let Some(port) = self.blocked_port() {
            let left_ns = end.since(clock::now());
            let socket = self.ports()[port].socket.clone();
            let Some(socket) = socket.filter(|_| left_ns > 0) else {
                return;
            };
            wait_writable(&socket, left_ns);
            self.transmit(clock::now(), AckMode::All);
        }
    }

    /// Sends what waits for company.
    pub(crate) fn send_gathered(&mut self, now: Instant) {
        if self.streams.is_some() {
            return self.send_gathered_streams(now);
        }
        if !self.unbuilt.is_empty() {
            self.build(now, AckMode::Hold, u32::MAX);
        }
        self.flush();
    }

    /// Sends the batch under construction.
    pub(crate) fn flush(&mut self) {
        let ports = Ports::of(self.sockets.as_ref());
        self.outgoing.flush(ports, &mut self.stats);
    }

    /// The memory that packets under construction point to is going away: sends them, and drops
    /// those that the socket does not take now, unless they are copies.
    pub(crate) fn forget_outgoing_memory(&mut self) {
        self.send_gathered(clock::now());
        self.outgoing.forget_memory();
    }

    /// The socket to wait for before more can be sent.
    pub(crate) fn blocked_port(&self) -> Option<usize> {
        self.outgoing.blocked_port()
    }
}

#[cfg(test)]
mod tests;
