//! Queue pairs over TCP connections (iWARP): the sockets around `urxe-iwarp`. They are driven by
//! the threads that run the engine, in its rounds, and with its lock.
//!
//! All connections are in one epoll set, which stands for them wherever a thread waits: it is
//! readable while one of them has bytes, or room again.

mod constants;
mod host;
mod pieces;
mod presence;
mod rounds;
mod slot;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashMap;
use urxe_iwarp::{Stats, Terms};
use urxe_proto::{AttrMask, Attributes, Instant, QpState};
use urxe_udp::{Interest, Waiter};
use urxe_wire::Qpn;

use crate::memory::checksums;
use crate::process::error::Error;
use crate::process::random::random_u32;
pub(crate) use host::{Counts, Host, SharedQueues};
pub(crate) use slot::Slot;
pub(crate) use socket::Socket;

/// Bits of a number that are the queue pair's; those above are its device's.
const LOCAL_BITS: u32 = 14;
/// Devices of a process that have numbers of their own.
const DEVICES: u32 = 1 << 10;
/// Queue pairs 0 and 1 belong to management, as those of other devices do.
const FIRST_LOCAL: u32 = 2;

/// What is not there any more.
pub(crate) const GONE: Error = Error::Gone("the queue pair");

fn slot_at(slots: &mut [Option<Box<Slot>>], index: u16) -> Option<&mut Slot> {
    slots.get_mut(usize::from(index))?.as_deref_mut()
}

/// A connection that was set up, for a queue pair.
#[derive(Debug)]
pub struct StreamConnection {
    socket: Socket,
    terms: Terms,
    rest: Vec<u8>,
    cookie: Option<u32>,
}

impl StreamConnection {
    /// A connection on which both ends have agreed to `terms`. `rest` are bytes that have come
    /// behind the peer's set-up frame.
    ///
    /// # Errors
    /// When the socket is not connected.
    pub fn new(stream: std::net::TcpStream, terms: Terms, rest: Vec<u8>) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::new(stream)?,
            terms,
            rest,
            cookie: None,
        })
    }

    /// The same, of whose end communication management is told by this number.
    pub(crate) const fn told_of(mut self, cookie: u32) -> Self {
        self.cookie = Some(cookie);
        self
    }
}

/// The queue pairs of an opened device. See the module.
#[derive(Debug)]
pub(crate) struct Streams {
    prefix: u32,
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<u16>,
    by_number: FxHashMap<Qpn, u16>,
    waiter: Waiter,
    /// Those that have a connection.
    connected: Vec<u16>,
    /// Those that have more to send than a turn allows, or requests that wait for company, each
    /// once.
    ready: VecDeque<u16>,
    /// Since when a request has waited for company.
    gathered_since: Option<Instant>,
    scratch: Box<[u8]>,
    found: Vec<u16>,
    /// The one from which something came last.
    last: Option<u16>,
    /// Times that rounds looked for what has come.
    looks: u32,
    /// Those in which a message waits for a receive request, and perhaps others.
    stalled: Vec<u16>,
    /// Those whose last completion waits for a reply, and perhaps others.
    holding: Vec<u16>,
    /// How many have requests that are not complete.
    senders: usize,
    /// The program may be about to reply to a message until then.
    owes_until: Instant,
    /// When the last round or command was.
    now: Instant,
    /// As many packets of RoCE would have been as much work as what came and went in rounds.
    packets: u64,
    deadline: Option<Instant>,
    /// Told when a connection ends, with its cookie.
    told: Option<fn(u32)>,
    /// Counters of queue pairs that were destroyed.
    departed: Stats,
}

impl Streams {
    /// None yet.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(crate) fn new(told: Option<fn(u32)>) -> io::Result<Self> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        checksums::prepare();
        let device = LAST.fetch_add(1, Ordering::Relaxed) % DEVICES;
        Ok(Self {
            prefix: device << LOCAL_BITS,
            slots: Vec::new(),
            free: Vec::new(),
            by_number: FxHashMap::default(),
            waiter: Waiter::new()?,
            connected: Vec::new(),
            ready: VecDeque::new(),
            gathered_since: None,
            scratch: vec![0; constants::SCRATCH_BYTES].into_boxed_slice(),
            found: Vec::new(),
            last: None,
            looks: 0,
            stalled: Vec::new(),
            holding: Vec::new(),
            senders: 0,
            owes_until: Instant::from_nanos(0),
            now: Instant::from_nanos(0),
            packets: 0,
            deadline: None,
            told,
            departed: Stats::default(),
        })
    }

    /// Readable while a round has something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }

    /// How many queue pairs there are.
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// A number that none has; random, as those of other devices are.
    pub(crate) fn fresh_number(&self) -> Result<Qpn, Error> {
        if self.len() >= (1 << LOCAL_BITS) - FIRST_LOCAL as usize {
            return Err(Error::Exhausted("queue pairs"));
        }
        loop {
            let local = random_u32()? % (1 << LOCAL_BITS);
            let number = Qpn::new(self.prefix | local);
            if local >= FIRST_LOCAL && !self.by_number.contains_key(&number) {
                return Ok(number);
            }
        }
    }

    pub(crate) fn insert(&mut self, slot: Slot) -> u16 {
        let number = slot.qp.number();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u16::try_from(self.slots.len() - 1).expect("fewer queue pairs than 2^14")
        });
        self.slots[usize::from(index)] = Some(Box::new(slot));
        self.by_number.insert(number, index);
        index
    }

    /// The queue pair at `index`, if the program still has it.
    pub(crate) fn get_mut(&mut self, index: u16, number: Qpn) -> Option<&mut Slot> {
        let slot = slot_at(&mut self.slots, index)?;
        (slot.qp.number() == number && !slot.is_orphan).then_some(slot)
    }

    /// Where the queue pair of this number is.
    pub(crate) fn find(&self, number: Qpn) -> Option<u16> {
        let index = *self.by_number.get(&number)?;
        let slot = self.slots.get(usize::from(index))?.as_ref()?;
        (!slot.is_orphan).then_some(index)
    }

    /// All queue pairs that programs have.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.slots.iter().flatten().map(Box::as_ref);
        slots.filter(|slot| !slot.is_orphan)
    }

    /// Counters of the queue pairs that are no more.
    pub(crate) const fn departed(&self) -> &Stats {
        &self.departed
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Changes attributes and state, as programs do that leave the connection to communication
    /// management. To be ready to receive is a state that a queue pair comes to with its
    /// connection, and librdmacm drains the send queue of one that it disconnects, also when the
    /// peer has disconnected it before.
    pub(crate) fn modify(
        &mut self,
        index: u16,
        wanted: &Attributes,
        mask: AttrMask,
        host: &mut Host<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        let slot = slot_at(&mut self.slots, index).ok_or(GONE)?;
        if mask.contains(AttrMask::STATE) {
            // What was posted before goes first.
            slot.transmit(host, &mut Counts::default());
        }
        let mask = match (slot.qp.state(), wanted.state) {
            (QpState::Init, QpState::ReadyToReceive)
            | (QpState::Error, QpState::SendQueueDrain) => mask - AttrMask::STATE,
            _ => mask,
        };
        slot.qp.modify(wanted, mask, &*host.memory)?;
        if slot.qp.state() == QpState::Reset {
            slot.forget_held();
        }
        self.serve(index, host, now, &mut Counts::default());
        Ok(())
    }

    /// Gives a queue pair its connection, with which it is ready to send. The peer may do what
    /// memory regions allow, as with the drivers of Linux: programs have no occasion to say so.
    pub(crate) fn connect(
        &mut self,
        index: u16,
        connection: StreamConnection,
        host: &mut Host<'_>,
        now: Instant,
    ) -> Result<(), Error> {
        let slot = slot_at(&mut self.slots, index).ok_or(GONE)?;
        let StreamConnection {
            socket,
            terms,
            rest,
            cookie,
        } = connection;
        let token = slot.qp.number().get().into();
        // This can fail, and nothing has been done to the queue pair yet.
        self.waiter.add(&socket, token, Interest::READ)?;
        let before = slot.qp.state();
        if before == QpState::Reset {
            let init = Attributes {
                state: QpState::Init,
                ..Attributes::new()
            };
            slot.qp.modify(&init, AttrMask::STATE, &*host.memory)?;
        }
        if slot.socket.is_some() || !slot.qp.connect(terms, socket.batch_len()) {
            let _ = self.waiter.remove(&socket);
            return Err(Error::Invalid(format!(
                "a connection for a queue pair in the state {before:?}; it has to be in Init, \
                 without a connection"
            )));
        }
        let allowed = Attributes {
            allow_remote_write: true,
            allow_remote_read: true,
            allow_remote_atomic: true,
            ..Attributes::new()
        };
        slot.qp
            .modify(&allowed, AttrMask::ACCESS_FLAGS, &*host.memory)?;
        log::debug!(
            "QP {}: connected from {} to {}, {terms:?}",
            slot.qp.number().get(),
            socket.addresses.0,
            socket.addresses.1
        );
        slot.begin(socket, cookie);
        slot.take_rest(&rest, host);
        self.connected.push(index);
        self.serve(index, host, now, &mut Counts::default());
        Ok(())
    }

    /// Takes a queue pair from its program. Its connection ends.
    pub(crate) fn remove(&mut self, index: u16, host: &mut Host<'_>, now: Instant) {
        let Some(slot) = slot_at(&mut self.slots, index) else {
            return;
        };
        slot.transmit(host, &mut Counts::default());
        slot.qp.disconnect(&*host.memory);
        (slot.send_cq, slot.recv_cq, slot.srq) = (None, None, None);
        slot.is_orphan = true;
        self.serve(index, host, now, &mut Counts::default());
        self.free_if_over(index);
    }

    fn free_if_over(&mut self, index: u16) {
        let at = usize::from(index);
        let is_over = |slot: &Slot| slot.is_orphan && slot.socket.is_none();
        if let Some(slot) = self.slots[at].take_if(|slot| is_over(slot)) {
            self.by_number.remove(&slot.qp.number());
            self.senders -= usize::from(slot.is_sender);
            self.last = self.last.filter(|last| *last != index);
            self.ready.retain(|other| *other != index);
            self.free.push(index);
            add(&mut self.departed, slot.qp.stats());
        }
    }

    /// Ends all connections: the device is closed, or the process ends.
    pub(crate) fn end_all(&mut self, host: &mut Host<'_>, now: Instant) {
        for index in self.connected.clone() {
            if let Some(slot) = &mut self.slots[usize::from(index)] {
                slot.transmit(host, &mut Counts::default());
                slot.qp.disconnect(&*host.memory);
                self.serve(index, host, now, &mut Counts::default());
                self.read_out(index, host);
            }
        }
    }

    /// A receive request was posted, to a queue pair or to a shared receive queue: messages that
    /// wait for one go on, in the order in which they came.
    pub(crate) fn resume(&mut self, host: &mut Host<'_>, now: Instant) {
        for index in std::mem::take(&mut self.stalled) {
            if let Some(slot) = &mut self.slots[usize::from(index)] {
                slot.resume(host);
                slot.has_message(now);
                self.serve(index, host, now, &mut Counts::default());
            }
        }
    }

    /// Whether a message waits for a receive request.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }
}

/// Adds counters up.
pub(crate) const fn add(sum: &mut Stats, more: &Stats) {
    sum.fpdus_sent += more.fpdus_sent;
    sum.fpdus_received += more.fpdus_received;
    sum.bytes_copied += more.bytes_copied;
    sum.bytes_placed += more.bytes_placed;
    sum.crc_errors += more.crc_errors;
    sum.terminates_sent += more.terminates_sent;
    sum.terminates_received += more.terminates_received;
    sum.no_receive += more.no_receive;
    sum.bytes_ignored += more.bytes_ignored;
}

#[cfg(test)]
mod tests;
