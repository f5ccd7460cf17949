//! A queue pair with its connection: bytes in and out, and what they complete.

use std::io;
use std::sync::Arc;

use urxe_iwarp::{CLOSE_TIMEOUT_NS, Place, QueuePair, StreamAction};
use urxe_proto::{
    Instant, LocalAccess, Payload, QpEvent, QpState, QueueSide, RemoteAccess, RemoteRange,
    SharedReceiveQueue, for_each_piece,
};
use urxe_udp::{Interest, Waiter};
use urxe_wire::Srqn;

use super::host::{Counts, Host};
use super::socket::{PIECES_MAX, Piece, Socket};
use crate::delivery::completions::Completions;
use crate::delivery::events::AsyncEventKind;
use crate::memory::MemoryTable;

/// Bytes that one queue pair sends or takes in before the others get their turn.
const TURN_BYTES: usize = 512 << 10;
/// Bytes that are made ready to be sent at a time.
const OUTPUT_BYTES: usize = 128 << 10;
/// Bytes that are read to a buffer of the device at a time, where it is not known yet what they
/// are.
pub(super) const SCRATCH_BYTES: usize = 16 << 10;
/// From so many bytes that have their place on, only the end of the FPDU and the header of the next
/// are read to that buffer, so that the payload of the next is placed, too.
const LONG_BYTES: usize = 8 << 10;
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
    /// The program has destroyed it. It stays until its connection is closed.
    pub(super) is_orphan: bool,
    has_ended: bool,
    is_blocked: bool,
    interest: Interest,
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
            is_orphan: false,
            has_ended: false,
            is_blocked: false,
            interest: Interest::NONE,
            gives_up_at: None,
        }
    }

    /// It has a connection from now on, which is watched.
    pub(super) fn begin(&mut self, socket: Socket, cookie: Option<u32>) {
        self.socket = Some(socket);
        self.cookie = cookie;
        self.has_ended = false;
        self.is_blocked = false;
        self.interest = Interest::READ;
        self.gives_up_at = None;
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
        while total < TURN_BYTES && !self.has_ended {
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
                    self.qp.handle_end(false, host.memory);
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

    /// Sends what may be sent. Whether there is more, for which the socket has room.
    pub(super) fn transmit(&mut self, host: &mut Host<'_>, counts: &mut Counts) -> bool {
        let mut total = 0;
        self.is_blocked = false;
        while self.qp.poll_output(OUTPUT_BYTES, host.memory) > 0 {
            if total >= TURN_BYTES {
                return true;
            }
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
                    total += len;
                    counts.sends += 1;
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
                    self.note_broken(&error, host);
                    break;
                }
            }
            if self.is_blocked {
                break;
            }
        }
        false
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
        if self.qp.poll_timeout().is_some_and(|at| at <= now) {
            self.qp.handle_timeout(now);
        }
        self.deliver(host);
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
        self.watch(waiter);
        false
    }

    /// Hands completions and events over to where they belong.
    pub(super) fn deliver(&mut self, host: &mut Host<'_>) {
        while let Some(completion) = self.qp.poll_completion() {
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
        while let Some(event) = self.qp.poll_event() {
            log::debug!("QP {}: {event:?}", self.qp.number().get());
            // The drivers of Linux tell of no connection in this way, and a program might wonder.
            if !self.is_orphan && event != QpEvent::CommunicationEstablished {
                let number = self.qp.number();
                host.events.push(AsyncEventKind::Qp(number, event));
            }
        }
    }

    fn watch(&mut self, waiter: &Waiter) {
        let wanted = match (self.has_ended, self.is_blocked) {
            (false, false) => Interest::READ,
            (false, true) => Interest::READ_WRITE,
            (true, false) => Interest::NONE,
            (true, true) => Interest::WRITE,
        };
        if wanted != self.interest
            && let Some(socket) = &self.socket
            && waiter
                .modify(socket, self.qp.number().get().into(), wanted)
                .is_ok()
        {
            self.interest = wanted;
        }
    }

    /// When it is to be looked at, whatever comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.socket.as_ref()?;
        match (self.qp.poll_timeout(), self.gives_up_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
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

/// Where what is to be sent is; how many pieces, up to the first that cannot be reached.
fn gather(qp: &QueuePair, memory: &MemoryTable, pieces: &mut [Piece; PIECES_MAX]) -> usize {
    let pd = qp.pd();
    let mut count = 0;
    let mut add = |at: u64, len: usize| match pieces.get_mut(count) {
        Some(piece) => {
            *piece = Piece::new(at, len);
            count += 1;
            true
        }
        None => false,
    };
    for payload in qp.output() {
        let is_added = match payload {
            Payload::Empty | Payload::Words(_) => true,
            Payload::Bytes(bytes) => bytes.is_empty() || add(bytes.as_ptr() as u64, bytes.len()),
            Payload::Local { sges, offset, len } => {
                let mut has_room = true;
                let reached = for_each_piece(sges, offset, len as usize, |sge, at, len| {
                    let from = memory.local(pd, sge, at, len, LocalAccess::Read)?;
                    has_room = has_room && add(from, len);
                    Ok(())
                });
                reached.is_ok() && has_room
            }
            Payload::Remote { via, rkey, va, len } => {
                let range = RemoteRange { rkey, va, len };
                let from = memory.remote(via, range, RemoteAccess::Read);
                len == 0 || from.is_ok_and(|from| add(from, len as usize))
            }
        };
        if !is_added {
            break;
        }
    }
    count
}

fn is(result: &io::Result<usize>, errno: i32) -> bool {
    let error = result.as_ref().err();
    error.and_then(io::Error::raw_os_error) == Some(errno)
}
