//! The engine: everything that moves when packets come and go. One lock, held by whoever makes
//! progress.

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
pub(crate) mod table;
pub(crate) mod timers;
pub(crate) mod transmit;
pub(crate) mod vendor_mad;

use std::collections::VecDeque;
use std::sync::Arc;

use urxe_duty::Posts;
use urxe_proto::{ACK_HOLD_NS, Instant, QpType};
use urxe_udp::{RecvBuffer, wait_writable};
use urxe_wire::Operation;

use crate::delivery::events::EventQueue;
use crate::engine::counters::Departed;
use crate::engine::farewell::ended::Ended;
use crate::engine::multicast::group::Group;
use crate::engine::port::{Port, Ports};
use crate::engine::srq::table::SrqTable;
use crate::engine::stats::DeviceStats;
use crate::engine::table::QpTable;
use crate::engine::timers::Timers;
use crate::engine::transmit::Outgoing;
use crate::engine::transmit::payload::MemoryGone;
use crate::memory::MemoryTable;
use crate::process::clock;

pub(crate) use urxe_proto::AckMode;

/// Packets of one queue pair before the others get their turn.
pub(crate) const PACKETS_PER_TURN: u32 = 128;

/// Of what a queue pair sends in a turn, with little in flight, so many packets are a message, whatever its length, and those of the batch
/// that this many end in: as frames, five or six of the peer's 96 places for long ones. What is behind them is a stream.
const MESSAGE_PACKETS: u32 = 64;

/// Packets that a round sends before it looks for what has come meanwhile. Hundreds of queue pairs may have many thousands
/// to send, whose acknowledgements would not all find room.
const PACKETS_PER_ROUND: u32 = 256;

/// How often a round takes in more. Between two READs of 16 KiB that are answered one by one, a batch ends for nothing.
const TAKEN_MAX: usize = 16;

/// The acknowledgements of fewer queue pairs with requests in flight find room till their turn comes, one in each round. To take
/// in many at a time makes rounds rare, and a slow link wants packets in every round: at 1 Gbps it cost a tenth of the
/// bandwidth.
const MANY_SENDERS: usize = 16;

/// Packets that wait for company, at most: enough to spread the cost of a system call, few enough that the peer
/// works on some while the program posts others.
const GATHERED_MAX: usize = 32;

/// Bytes in flight of one queue pair, at most. More gains little once a round trip is covered.
const WINDOW_MAX_BYTES: usize = 1 << 20;
/// The same of all of them together: the rest of the peer's buffer is for other senders, and for datagrams.
const WINDOWS_MAX_BYTES: usize = 16 << 20;

/// How long a queue pair or a process that ends waits for a full send buffer: 25 MB at 1 Gbps.
const DRAIN_MAX_NS: u64 = 200_000_000;

/// What becomes of packets that were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The last batch of them waits for others.
    Gather,
    /// All leave.
    Send,
}

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
    /// Multicast groups that queue pairs are attached to.
    pub(crate) groups: Vec<Group>,
    pub(crate) timers: Timers,
    pub(crate) outgoing: Outgoing,
    /// Queue pairs that may have something to send, each at most once.
    ready: VecDeque<u16>,
    posts: Posts,
    /// More packets were there than the last look took in.
    pub(crate) has_more: bool,
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
            groups: Vec::new(),
            timers: Timers::default(),
            outgoing: Outgoing::new(),
            ready: VecDeque::new(),
            posts: Posts::new(),
            has_more: false,
            is_unfinished: false,
            requests: 0,
            senders: 0,
        }
    }

    pub(crate) fn ports(&self) -> &[Port] {
        self.sockets.as_ref().map_or(&[], |sockets| &sockets.ports)
    }

    /// One round: packets in, timers, packets out; in this order, lest a thread that was kept from its
    /// processor takes for lost what waits in the socket. Acknowledgements may wait for company in a round
    /// that brought something; the next empty one sends them. Returns how many packets came, and when it is: `None` of
    /// a round with nothing to do, in which the clock was not looked at.
    pub(crate) fn run(&mut self) -> (usize, Option<Instant>) {
        self.posts.note_round();
        let mut clock = None;
        let received = self.receive(&mut clock, false);
        if received == 0 {
            self.memory.look_ahead();
        }
        if self.was_quick(received) && self.outgoing.is_empty() && !self.is_unfinished {
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
        let more = self.exchange(now, mode, false);
        (received + more, Some(now))
    }

    /// A round of a thread that looks for packets before it sleeps. An acknowledgement waits for the program's reply as long
    /// as such waits have paid.
    pub(crate) fn run_looking(&mut self, now: Instant) -> usize {
        let received = self.receive(&mut Some(now), true);
        self.expire(now);
        let mode = if self.was_quick(received) {
            AckMode::Hold
        } else {
            AckMode::Idle
        };
        let more = self.exchange(now, mode, true);
        received + more
    }

    /// Whether a program that streams should run a round before it goes on to post. It is taken to do so then.
    pub(crate) fn claim_round(&mut self, now: Instant) -> bool {
        self.posts.claim_round(now)
    }

    /// Whether a request has no answer yet, or a message that has just come in full no acknowledgement: the program may be about
    /// to reply to it.
    pub(crate) fn is_amid(&self) -> bool {
        let is_whole = |index: &u16| {
            self.qps
                .get(*index)
                .is_some_and(|slot| !slot.qp.is_within_message())
        };
        self.senders > 0 || self.ready.iter().any(is_whole)
    }

    /// See [`MANY_SENDERS`].
    pub(crate) const fn has_many_senders(&self) -> bool {
        self.senders >= MANY_SENDERS
    }

    /// Whether the last round left something to send, so that the next is wanted at once.
    pub(crate) const fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Whether a round that received so much looked at memory only. Nobody's patience is measured in such rounds.
    pub(crate) fn was_quick(&self, received: usize) -> bool {
        received == 0 && self.sockets.as_ref().is_some_and(Ports::was_quick)
    }

    /// A round of the background thread before it sleeps. An acknowledgement waits for the program's reply: what came may
    /// be half of a ping-pong, of any length. Sent alone, it would get there first, and a peer that then looks at its memory
    /// only would need its own background thread for the reply, some 20 us.
    pub(crate) fn run_in_background(&mut self, now: Instant) -> usize {
        let received = self.receive(&mut Some(now), true);
        self.expire(now);
        let more = self.exchange(now, AckMode::Hold, true);
        received + more
    }

    /// The queue pair at `index` may have something to send.
    pub(crate) fn mark_ready(&mut self, index: u16) {
        if let Some(slot) = self.qps.get_mut(index)
            && !slot.is_ready
        {
            slot.is_ready = true;
            self.ready.push_back(index);
        }
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
        let held =
            (!self.ready.is_empty() && !self.outgoing.is_blocked()).then(|| now.after(ACK_HOLD_NS));
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
        self.build(now, mode, u32::MAX, Then::Send);
        self.flush();
    }

    /// The same, until it is time to look for what has come. What is there already is taken in meanwhile, so that what it makes
    /// possible leaves with the rest. Returns how many packets that were.
    fn exchange(&mut self, mut now: Instant, mode: AckMode, all: bool) -> usize {
        let (mut received, mut left) = (0, PACKETS_PER_ROUND);
        for _ in 0..TAKEN_MAX {
            if !self.has_more || left == 0 {
                break;
            }
            left = left.saturating_sub(self.build(now, AckMode::Hold, left, Then::Gather));
            let mut clock = None;
            received += self.receive(&mut clock, all);
            now = clock.unwrap_or(now);
        }
        self.build(now, mode, left, Then::Send);
        self.flush();
        received
    }

    /// The program posted. Whether it does so often before it polls, and answers are on their way to it, so that
    /// it will poll: then what it posted need not leave at once.
    pub(crate) fn note_post(&mut self, now: Instant) -> bool {
        self.posts.note_post(now, self.senders > 0)
    }

    /// Makes packets of what may be sent, and sends all but the last batch, unless that has become long. Whoever
    /// calls this sees to it that [`Self::flush`] is called soon.
    pub(crate) fn gather(&mut self, now: Instant) {
        self.build(now, AckMode::Hold, u32::MAX, Then::Gather);
        if self.outgoing.gathered() >= GATHERED_MAX {
            self.flush();
        }
    }

    /// The program posted and then did not poll: nothing waits for company for a while, longer if that was so before.
    pub(crate) fn stop_gathering(&mut self, now: Instant) {
        self.posts.note_unpolled(now);
        self.flush();
    }

    /// Makes packets of what may be sent: no more queue pairs get their turn after `most` packets. Returns how many it made.
    fn build(&mut self, now: Instant, mode: AckMode, most: u32, then: Then) -> u32 {
        self.is_unfinished = false;
        let mut built = 0;
        if self.outgoing.is_blocked() {
            self.flush();
        }
        for _ in 0..self.ready.len() {
            if self.outgoing.is_blocked() {
                return built;
            }
            if built >= most {
                self.is_unfinished = true;
                return built;
            }
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            let then = if self.ready.is_empty() {
                then
            } else {
                Then::Gather
            };
            built += self.transmit_from(index, now, mode, then);
        }
        built
    }

    /// Waits for a while until the sockets have taken what waits for them. For a queue pair or a process that ends:
    /// requests of the unreliable services have completed before, and nobody sends their packets again.
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

    /// Sends the batch under construction.
    pub(crate) fn flush(&mut self) {
        let ports = self
            .sockets
            .as_ref()
            .map_or(&[][..], |sockets| &sockets.ports);
        self.outgoing.flush(ports, &mut self.stats);
    }

    /// Bytes that one queue pair may have in flight. The peer's receive buffer is taken to be like ours
    /// (its address, and so its socket, serves all queue pairs of a process there), and shared by all that
    /// send; half of it, because the kernel counts its own bookkeeping, too.
    fn window_bytes(&self, port: usize) -> u32 {
        let socket = self
            .ports()
            .get(port)
            .and_then(|port| port.socket.as_deref());
        let buffer = socket.map_or(0, urxe_udp::Socket::receive_buffer_bytes);
        window_share_bytes(buffer, self.senders)
    }

    /// Gives a queue pair its turn. What it has made leaves before the bookkeeping, if `then` says so: somebody waits for it.
    /// Returns how many packets that were.
    fn transmit_from(&mut self, index: u16, now: Instant, mode: AckMode, then: Then) -> u32 {
        let Some(slot) = self.qps.get_mut(index) else {
            return 0;
        };
        slot.is_ready = false;
        let port = slot.path.as_ref().map(|path| path.port);
        if mode == AckMode::Hold && port.is_some() && slot.qp.is_at_rest(now) {
            self.end_turn(index, false);
            return 0;
        }
        let window_bytes = port.map_or(0, |port| self.window_bytes(port));
        let ports = self
            .sockets
            .as_ref()
            .map_or(&[][..], |sockets| &sockets.ports);
        let Some(slot) = self.qps.get_mut(index) else {
            return 0;
        };
        slot.qp.set_window_bytes(window_bytes);
        let pd = slot.qp.pd();
        // Where there is no link, none is slow.
        let crosses_link = || slot.path.as_ref().is_some_and(|path| !path.is_local());
        let rate_bps = slot.qp.bulk_rate_bps().filter(|_| crosses_link());
        // Each has its share of the link.
        let all_bps = rate_bps.map(|bps| bps.saturating_mul(self.senders.max(1) as u64));
        self.outgoing.set_rate(all_bps);
        let is_one_of_many = self.senders + self.ready.len() >= MANY_SENDERS;
        self.outgoing
            .set_stream(is_one_of_many || slot.qp.is_streaming());
        self.outgoing
            .expect_acknowledgement(slot.qp.owes_response());
        let mut has_more = true;
        let Some(path) = &slot.path else {
            return self.transmit_datagrams(index, now, mode);
        };
        let mtu_bytes = slot.qp.mtu_bytes();
        let (memory, stats) = (&mut self.memory, &mut self.stats);
        let mut left = PACKETS_PER_TURN;
        let mut is_long = false;
        while left > 0 {
            let mut is_last = false;
            if left < PACKETS_PER_TURN - MESSAGE_PACKETS {
                self.outgoing.set_stream(true);
            }
            // Only behind a full packet others can follow that are like it. The others are spared the question.
            let pushed = if is_long {
                let run_max = self.outgoing.run_max(mtu_bytes, &ports[path.port]);
                let polled = slot.qp.poll_run(now, mode, run_max.min(left), memory);
                let Some(run) = &polled else {
                    has_more = false;
                    break;
                };
                left -= (1 + run.more).min(left);
                self.outgoing.push_run(run, pd, path, memory, ports, stats)
            } else {
                let polled = slot.qp.poll_transmit(now, mode, memory);
                let Some(transmit) = &polled else {
                    has_more = false;
                    break;
                };
                left -= 1;
                is_long = transmit.payload.len() == mtu_bytes;
                is_last = transmit.header.bth.opcode.operation() == Some(Operation::Acknowledge);
                self.outgoing.push(transmit, pd, path, memory, ports, stats)
            };
            if let Err(MemoryGone(bth)) = pushed {
                // As good as lost, and sent again when the program's handler has been told.
                let is_reliable = !matches!(slot.qp.config().qp_type, QpType::Uc | QpType::Ud);
                // Asked of all, so that no later failure of another kind is taken for this fault.
                let is_protected = memory.protected.note_fault(false);
                if !(is_reliable && is_protected) {
                    slot.qp.handle_memory_fault(&bth);
                }
            }
            if self.outgoing.is_blocked() {
                break;
            }
            // Requests go first, then what else is owed, then this: unless they had their turn before.
            if is_last && slot.qp.is_at_rest(now) {
                has_more = false;
                break;
            }
        }
        slot.deliver(&self.events);
        if then == Then::Send {
            self.flush();
        }
        self.end_turn(index, has_more);
        PACKETS_PER_TURN - left
    }

    /// What is left to do for a queue pair that has had its turn, and may have more to send.
    fn end_turn(&mut self, index: u16, has_more: bool) {
        let Some(slot) = self.qps.get_mut(index) else {
            return;
        };
        let is_sender = slot.qp.awaits_answer();
        self.senders += usize::from(is_sender);
        self.senders -= usize::from(std::mem::replace(&mut slot.is_sender, is_sender));
        if has_more || slot.qp.owes_response() {
            self.mark_ready(index);
        }
        self.arm(index);
    }

    /// The memory that packets under construction point to is going away: sends them, and drops those that the
    /// socket does not take now, unless they are copies.
    pub(crate) fn forget_outgoing_memory(&mut self) {
        self.flush();
        self.outgoing.forget_memory();
    }

    /// The socket to wait for before more can be sent.
    pub(crate) fn blocked_port(&self) -> Option<usize> {
        self.outgoing.blocked_port()
    }
}

/// See [`Engine::window_bytes`].
fn window_share_bytes(buffer_bytes: usize, senders: usize) -> u32 {
    let share = (buffer_bytes / 2).min(WINDOWS_MAX_BYTES) / senders.max(1);
    u32::try_from(share.min(WINDOW_MAX_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use urxe_proto::{SendOp, SendTarget, WcStatus};
    use urxe_wire::Mtu;

    use super::*;
    use crate::nic::tests::alone::{connected_by, run_until_nobody_is_amid, write};
    use crate::objects::qp::Qp;
    use crate::process::clock::staged::Clock;
    use crate::support::{End, post};

    /// Two devices of which the second, with a large window, has many turns to send, and which the first has `asked` for something.
    fn one_with_many_turns(len: usize, ask: impl FnOnce(&[End; 2], &Qp)) -> ([End; 2], [Qp; 2]) {
        let (ends, qps) = connected_by(Mtu::B1024, len);
        for _ in 0..20 {
            write(&ends[1], &qps[1], &ends[0], len);
            run_until_nobody_is_amid(&ends);
        }
        ask(&ends, &qps[0]);
        write(&ends[1], &qps[1], &ends[0], len);
        (ends, qps)
    }

    /// A peer that sends as much heard nothing until the window was full: on a slow link it stood still for 10 ms.
    #[test]
    fn an_acknowledgement_leaves_between_turns_of_requests() {
        const LEN: usize = 4 << 20;
        // On a busy machine the peer would ask again, and send less.
        let _clock = Clock::new();
        let (ends, _qps) = one_with_many_turns(LEN, |ends, qp| write(&ends[0], qp, &ends[1], LEN));
        let [left, right] = ends.each_ref().map(|end| &end.nic);
        let mut turns = 0;
        while left.stats().tx_packets > right.stats().rx_packets {
            let before = right.stats().tx_packets;
            right.run_looking();
            turns = (right.stats().tx_packets - before) / u64::from(PACKETS_PER_TURN);
        }
        let owes = right
            .engine()
            .qps
            .iter()
            .any(|slot| slot.qp.owes_response());
        assert!(turns > 0, "the window was full");
        assert!(!owes);
    }

    /// It was not while requests kept coming, and gave up.
    #[test]
    fn a_peer_that_reads_is_answered_between_turns_of_requests() {
        const LEN: usize = 4 << 20;
        const READ: usize = 64 << 10;
        let (ends, _qps) = one_with_many_turns(LEN, |ends, qp| {
            let (va, rkey) = (ends[1].va(0), ends[1].key);
            let (read, into) = (SendOp::Read { va, rkey }, ends[0].sge(0, READ));
            post(qp, 7, read, &[into], SendTarget::Connection);
        });
        let [left, right] = ends.each_ref().map(|end| &end.nic);
        let before = right.stats().tx_packets;
        let mut has_read = false;
        while !has_read {
            right.run_looking();
            left.run_looking();
            ends[0].cq.poll(1, |completion| {
                assert_eq!(completion.status, WcStatus::Success);
                has_read = true;
            });
            let sent = right.stats().tx_packets - before;
            assert!(sent < 2 << 10, "half of a message was sent meanwhile");
        }
    }

    #[test]
    fn windows_share_what_is_theirs_of_the_buffer() {
        const MIB: usize = 1 << 20;
        let share = |buffer_mib, senders| window_share_bytes(buffer_mib * MIB, senders) as usize;
        assert_eq!(share(96, 0), MIB);
        assert_eq!(share(96, 16), MIB);
        assert_eq!(share(96, 64), MIB / 4);
        assert_eq!(share(8, 64), MIB / 16, "of a small buffer a half");
    }
}
