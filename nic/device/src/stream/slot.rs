//! A queue pair with its connection: bytes in and out, and what they complete.

use std::io;
use std::sync::Arc;

use urxe_duty::Replies;
use urxe_iwarp::{CLOSE_TIMEOUT_NS, Place, QueuePair, StreamAction};
use urxe_proto::{
    Completion, CompletionKind, Instant, LocalAccess, PostError, QpEvent, QpState, QueueSide,
    RemoteAccess, SendRequest, SharedReceiveQueue, WcStatus,
};
use urxe_udp::{Interest, Waiter};
use urxe_wire::Srqn;

use super::constants::{
    GATHERED_MAX, GATHERED_MAX_BYTES, LAST_TURNS, LONG_BYTES, OUTPUT_BYTES, PIECES_MAX,
    SCRATCH_BYTES, TURN_BYTES, WATCH_AGAIN_NS,
};
use super::host::{Counts, Host};
use super::pieces::gather;
use super::presence::Presence;
use super::socket::{Piece, Socket};
use crate::delivery::completions::Completions;
use crate::delivery::events::AsyncEventKind;
use crate::memory::MemoryTable;

/// Padding, CRC and the header of the next FPDU, where that is long.
const BETWEEN_BYTES: usize = 3 + 4 + 2 + 18;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) qp: QueuePair,
    pub(crate) send_cq: Option<Arc<Completions>>,
    pub(crate) recv_cq: Option<Arc<Completions>>,
    pub(crate) srq: Option<Srqn>,
    pub(crate) socket: Option<Socket>,
    /// Who is to be told when the connection ends.
    pub(super) cookie: Option<u32>,
    /// It stands in the list of those that have more to send.
    pub(super) is_ready: bool,
    /// It counts among the senders of the device.
    pub(super) is_sender: bool,
    replies: Replies,
    /// A request was posted, and not all is sent since.
    has_posted: bool,
    /// Requests that were posted since it was last its turn to send, and their bytes.
    posted: (u32, u64),
    /// Turns ([`urxe_duty::Posts`]) when the program last posted.
    posted_after: Option<u64>,
    /// The completion of the last SEND or WRITE, while it waits for the reply.
    held: Option<Completion>,
    /// Messages that had come when it was last looked for.
    messages: u64,
    /// The program has destroyed it. It stays until its connection is closed.
    pub(super) is_orphan: bool,
    has_ended: bool,
    /// Nothing can be sent any more.
    is_broken: bool,
    /// The socket has no room for what is to be sent, until it says so.
    pub(super) is_blocked: bool,
    /// What of the socket is watched, if it is.
    pub(super) interest: Option<Interest>,
    /// When to try again to watch it, where that failed.
    watches_at: Option<Instant>,
    presence: Presence,
    /// When the connection is given up that should be over by then.
    gives_up_at: Option<Instant>,
}

impl Slot {
    pub(crate) const fn new(
        qp: QueuePair,
        send_cq: Option<Arc<Completions>>,
        recv_cq: Option<Arc<Completions>>,
        srq: Option<Srqn>,
    ) -> Self {
        Self {
            qp,
            send_cq,
            recv_cq,
            srq,
            socket: None,
            cookie: None,
            is_ready: false,
            is_sender: false,
            replies: Replies::new(),
            has_posted: false,
            posted: (0, 0),
            posted_after: None,
            held: None,
            messages: 0,
            is_orphan: false,
            has_ended: false,
            is_broken: false,
            is_blocked: false,
            interest: None,
            watches_at: None,
            presence: Presence::new(),
            gives_up_at: None,
        }
    }

    /// It has a connection from now on, which is watched.
    pub(super) fn begin(&mut self, socket: Socket, cookie: Option<u32>) {
        self.socket = Some(socket);
        self.cookie = cookie;
        (self.has_ended, self.is_broken, self.is_blocked) = (false, false, false);
        self.interest = Some(Interest::READ);
        (self.watches_at, self.gives_up_at) = (None, None);
        self.presence = Presence::new();
        self.replies = Replies::new();
    }

    /// Queues a send request.
    pub(crate) fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qp.post_send(request)?;
        self.replies.note_post();
        self.has_posted = true;
        self.posted.0 += 1;
        self.posted.1 += request.data.len();
        Ok(())
    }

    /// The program has posted, after so many turns. Whether it has yet to poll for what it posted
    /// before: it has not polled since, or there are completions.
    pub(super) fn note_post(&mut self, turns: u64) -> bool {
        let has_polled = self.posted_after.replace(turns) != Some(turns);
        let cq = self.send_cq.as_ref();
        cq.is_some_and(|cq| (!has_polled || cq.has_some()) && !cq.is_armed())
    }

    /// Whether what was posted may wait for more.
    pub(super) fn may_gather(&self) -> bool {
        self.posted.0 < GATHERED_MAX
            && self.posted.1 < GATHERED_MAX_BYTES
            && self.qp.state() == QpState::ReadyToSend
            && !self.is_blocked
    }

    /// Whether nothing comes any more.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether a request is not complete for the program.
    pub(super) fn has_requests(&self) -> bool {
        self.held.is_some() || self.qp.has_requests()
    }

    /// Whether a completion waits for the reply.
    pub(super) const fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a message of the peer has come in full since this was asked last.
    pub(super) fn has_message(&mut self, now: Instant) -> bool {
        let messages = self.qp.messages();
        let has_one = std::mem::replace(&mut self.messages, messages) != messages;
        if has_one {
            self.replies.note_message(now);
        }
        has_one
    }

    /// No completion waits for the reply any more.
    pub(super) fn let_go(&mut self, host: &mut Host<'_>, now: Instant) {
        self.replies.stop_waiting();
        self.deliver(host, now);
    }

    /// Drops the completion that waits for the reply: the queue pair was reset.
    pub(super) fn forget_held(&mut self) {
        self.held = None;
    }

    /// Bytes that came with the set-up of the connection.
    pub(super) fn take_rest(&mut self, bytes: &[u8], host: &mut Host<'_>) {
        with_queue(self.srq, host, |queue, memory| {
            self.qp.handle_bytes(bytes, queue, memory);
        });
    }

    /// Takes in what came. How many bytes.
    pub(super) fn receive(&mut self, scratch: &mut [u8], host: &mut Host<'_>) -> usize {
        let mut total = 0;
        while total < TURN_BYTES && !self.has_ended && !self.qp.is_stalled() {
            let Some(socket) = &self.socket else {
                break;
            };
            let mut pieces = [Piece::new(0, 0); PIECES_MAX];
            let (mut count, mut room) = self.places(host.memory, &mut pieces[..PIECES_MAX - 1]);
            let tail = if room >= LONG_BYTES {
                BETWEEN_BYTES
            } else {
                scratch.len()
            };
            pieces[count] = Piece::new(scratch.as_mut_ptr() as u64, tail);
            // SAFETY: the places are verified to be registered for writing, and the buffer is ours.
            let mut received = unsafe { socket.receive(&mut pieces[..=count]) };
            if count > 0 && is(&received, libc::EFAULT) {
                // Memory that is protected, or gone: a copy finds out.
                (pieces[0], count, room) = (pieces[count], 0, 0);
                // SAFETY: the buffer is ours.
                received = unsafe { socket.receive(&mut pieces[..1]) };
            }
            let len = match received {
                Ok(0) => {
                    self.has_ended = true;
                    self.qp.handle_end(self.is_broken, host.memory);
                    break;
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.note_broken(&error, host);
                    break;
                }
            };
            total += len;
            let placed = len.min(room);
            if placed > 0 {
                self.qp.handle_placed(placed, host.memory);
            }
            let rest = &scratch[..len - placed];
            if !rest.is_empty() {
                with_queue(self.srq, host, |queue, memory| {
                    self.qp.handle_bytes(rest, queue, memory);
                });
            }
            if len < room + pieces[count].len() {
                break;
            }
        }
        total
    }

    /// There may be a receive request for the message that waits for one.
    pub(super) fn resume(&mut self, host: &mut Host<'_>) {
        with_queue(self.srq, host, |queue, memory| {
            self.qp.resume(queue, memory);
        });
    }

    /// Notices what was to happen until now.
    pub(super) fn expire(&mut self, host: &mut Host<'_>, now: Instant) {
        if self.qp.poll_timeout().is_some_and(|at| at <= now) {
            self.qp.handle_timeout(now, host.memory);
        }
        if let Some(socket) = self.socket.as_ref().filter(|_| !self.has_ended)
            && self.presence.is_lost(|| socket.owing(), now)
        {
            self.note_broken(&io::Error::from_raw_os_error(libc::ETIMEDOUT), host);
        }
    }

    /// Where the next bytes go: how many pieces, and the bytes in them.
    fn places(&self, memory: &MemoryTable, pieces: &mut [Piece]) -> (usize, usize) {
        let (mut count, mut room) = (0, 0);
        for place in &self.qp.destinations(memory) {
            let len = place.len() as usize;
            let at = match *place {
                Place::Local { pd, sge } => memory.local(pd, &sge, 0, len, LocalAccess::Write),
                Place::Remote { via, range } => memory.remote(via, range, RemoteAccess::Write),
            };
            let (Ok(at), Some(piece)) = (at, pieces.get_mut(count)) else {
                break;
            };
            *piece = Piece::new(at, len);
            count += 1;
            room += len;
        }
        (count, room)
    }

    /// Sends what may be sent. Whether there may be more, for which the socket has room. Nothing
    /// that was prepared is left then: its payload might change.
    pub(super) fn transmit(&mut self, host: &mut Host<'_>, counts: &mut Counts) -> bool {
        let mut total = 0;
        self.posted = (0, 0);
        while !self.is_blocked
            && total < TURN_BYTES
            && self.qp.poll_output(OUTPUT_BYTES, host.memory) > 0
        {
            let Some(socket) = &self.socket else {
                break;
            };
            let mut pieces = [Piece::new(0, 0); PIECES_MAX];
            let count = gather(&self.qp, host.memory, &mut pieces);
            let wanted: usize = pieces[..count].iter().map(Piece::len).sum();
            let sent = match count {
                0 => Err(io::Error::from_raw_os_error(libc::EFAULT)),
                // SAFETY: what the program registered, or what the queue pair made.
                _ => unsafe { socket.send(&pieces[..count]) },
            };
            match sent {
                Ok(len) => {
                    self.qp.handle_sent(len);
                    self.presence.note_sent();
                    total += len;
                    counts.note(len);
                    self.is_blocked = len < wanted;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_blocked = true,
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                    if self.qp.state() == QpState::Error {
                        self.qp.handle_end(true, host.memory);
                        break;
                    }
                    self.qp.handle_memory_fault(host.memory);
                }
                Err(error) => {
                    self.is_broken = true;
                    self.receive_last(host);
                    self.note_broken(&error, host);
                    break;
                }
            }
            if self.is_blocked {
                self.qp.handle_blocked(host.memory);
            }
        }
        total >= TURN_BYTES && !self.is_blocked
    }

    /// Takes in what came before the connection broke: the peer's last messages, or its reason.
    fn receive_last(&mut self, host: &mut Host<'_>) {
        let mut scratch = vec![0; SCRATCH_BYTES];
        for _ in 0..LAST_TURNS {
            if self.receive(&mut scratch, host) < TURN_BYTES {
                return;
            }
        }
    }

    fn note_broken(&mut self, error: &io::Error, host: &mut Host<'_>) {
        log::debug!(
            "QP {}: its connection broke: {error}",
            self.qp.number().get()
        );
        self.has_ended = true;
        self.qp.handle_end(true, host.memory);
    }

    /// Hands over completions and events, and does what is to be done with the connection. Whether
    /// it is closed by that.
    pub(super) fn settle(&mut self, waiter: &Waiter, host: &mut Host<'_>, now: Instant) -> bool {
        if self.has_posted && !self.qp.has_requests() {
            self.has_posted = false;
            self.replies.note_sent(now);
        }
        self.deliver(host, now);
        self.presence.see(now);
        if self.socket.is_none() {
            return false;
        }
        if self.qp.state() != QpState::ReadyToSend && self.qp.state() != QpState::SendQueueDrain {
            let at = *self.gives_up_at.get_or_insert(now.after(CLOSE_TIMEOUT_NS));
            if at <= now {
                self.qp.handle_end(true, host.memory);
            }
        }
        let mut is_closed = false;
        while let Some(action) = self.qp.poll_action(now) {
            match (action, &self.socket) {
                (StreamAction::Shutdown, Some(socket)) => socket.shutdown(),
                (StreamAction::Shutdown, None) => {}
                (StreamAction::Close, _) => is_closed = true,
            }
        }
        if is_closed {
            if let Some(socket) = self.socket.take() {
                let _ = waiter.remove(&socket);
            }
            return true;
        }
        self.watch(waiter, now);
        false
    }

    /// Hands completions and events over to where they belong.
    pub(super) fn deliver(&mut self, host: &mut Host<'_>, now: Instant) {
        if self.held.is_some() && !self.may_hold(now) {
            self.deliver_held(host);
        }
        while let Some(completion) = self.qp.poll_completion() {
            if completion.side() == QueueSide::Recv {
                self.deliver_one(completion, host);
                continue;
            }
            self.deliver_held(host);
            let is_sent = matches!(
                completion.kind,
                CompletionKind::Send | CompletionKind::Write
            );
            if is_sent && completion.status == WcStatus::Success && self.may_hold(now) {
                self.held = Some(completion);
            } else {
                self.deliver_one(completion, host);
            }
        }
        while let Some(event) = self.qp.poll_event() {
            log::debug!("QP {}: {event:?}", self.qp.number().get());
            // The drivers of Linux tell of no connection in this way, and a program might wonder.
            if !self.is_orphan && event != QpEvent::CommunicationEstablished {
                let number = self.qp.number();
                host.events.push(AsyncEventKind::Qp(number, event));
            }
        }
    }

    fn deliver_held(&mut self, host: &mut Host<'_>) {
        if let Some(completion) = self.held.take() {
            self.deliver_one(completion, host);
        }
    }

    fn deliver_one(&mut self, completion: Completion, host: &mut Host<'_>) {
        let cq = match completion.side() {
            QueueSide::Send => &self.send_cq,
            QueueSide::Recv => &self.recv_cq,
        };
        if let Some(cq) = cq
            && cq.push(completion, || None).is_err()
        {
            self.qp.handle_cq_overrun(host.memory);
        }
    }

    /// Whether the completion of what was sent last may wait for the reply: not where a thread
    /// waits for its event.
    fn may_hold(&mut self, now: Instant) -> bool {
        self.replies.waits(now)
            && !self.qp.has_requests()
            && self.qp.state() == QpState::ReadyToSend
            && self.send_cq.as_ref().is_some_and(|cq| !cq.is_armed())
    }

    fn watch(&mut self, waiter: &Waiter, now: Instant) {
        self.watches_at = None;
        let wanted = match (self.has_ended, self.is_blocked) {
            // Not at all: that the peer is gone would be told again and again.
            (false, false) if self.qp.is_stalled() => None,
            (false, true) if self.qp.is_stalled() => Some(Interest::WRITE),
            (false, false) => Some(Interest::READ),
            (false, true) => Some(Interest::READ_WRITE),
            (true, false) => Some(Interest::NONE),
            (true, true) => Some(Interest::WRITE),
        };
        let Some(socket) = self.socket.as_ref().filter(|_| wanted != self.interest) else {
            return;
        };
        let token = self.qp.number().get().into();
        let changed = match (self.interest, wanted) {
            (Some(_), Some(wanted)) => waiter.modify(socket, token, wanted),
            (None, Some(wanted)) => waiter.add(socket, token, wanted),
            (_, None) => waiter.remove(socket),
        };
        if changed.is_ok() {
            self.interest = wanted;
        } else {
            self.watches_at = Some(now.after(WATCH_AGAIN_NS));
        }
    }

    /// When it is to be looked at, whatever comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.socket.as_ref()?;
        let looks_at = self.presence.deadline().filter(|_| !self.has_ended);
        let closes_at = [self.qp.poll_timeout(), self.gives_up_at];
        let all = closes_at.into_iter().chain([looks_at, self.watches_at]);
        all.flatten().min()
    }
}

/// Runs `work` with the shared receive queue, if there is one, and reports what happened to it.
fn with_queue(
    number: Option<Srqn>,
    host: &mut Host<'_>,
    work: impl FnOnce(Option<&mut SharedReceiveQueue>, &mut MemoryTable),
) {
    let Some(number) = number else {
        return work(None, host.memory);
    };
    work(host.queues.queue(number), host.memory);
    if let Some(event) = host
        .queues
        .queue(number)
        .and_then(SharedReceiveQueue::poll_event)
    {
        host.events.push(AsyncEventKind::Srq(number, event));
    }
}

fn is(result: &io::Result<usize>, errno: i32) -> bool {
    let error = result.as_ref().err();
    error.and_then(io::Error::raw_os_error) == Some(errno)
}
