//! An opened device.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use urxe_proto::{Instant, QpStats};
use urxe_udp::{Interest, Socket, Waiter, wait_readable};
use urxe_wire::Mtu;

use crate::channel::CompletionChannel;
use crate::clock::now;
use crate::cm;
use crate::cq::Cq;
use crate::engine::{AckMode, Engine};
use crate::error::Error;
use crate::events::{AsyncEvent, EventQueue};
use crate::exit;
use crate::idle;
use crate::list::{DeviceInfo, GidEntry};
use crate::memory::{Access, MemoryRegion, Pd};
use crate::port::Ports;
use crate::progress::Progress;
use crate::table::QpTable;

/// How much a device holds. What bounds it is memory; the figures are what programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: usize,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Scatter/gather elements of a work request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: usize,
    /// Entries of a completion queue.
    pub max_cqe: usize,
    /// Memory regions.
    pub max_mr: usize,
    /// Bytes of a memory region.
    pub max_mr_bytes: u64,
    /// Protection domains.
    pub max_pd: usize,
    /// READs and atomics outstanding, each way, of a queue pair.
    pub max_rd_atomic: u8,
    /// Bytes of inline data.
    pub max_inline_bytes: u32,
    /// Bytes of a message.
    pub max_message_bytes: u32,
}

/// The limits of every device.
const LIMITS: Limits = Limits {
    max_qp: QpTable::capacity(),
    max_qp_wr: 1 << 15,
    max_sge: 32,
    max_cq: 1 << 16,
    max_cqe: 1 << 22,
    max_mr: 1 << 20,
    max_mr_bytes: u64::MAX,
    max_pd: 1 << 16,
    max_rd_atomic: 128,
    max_inline_bytes: 1024,
    max_message_bytes: 1 << 30,
};

/// The state of a device's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether it can carry packets.
    pub is_up: bool,
    /// The largest path MTU.
    pub max_mtu: Mtu,
    /// The largest path MTU that the interface takes now.
    pub active_mtu: Mtu,
}

/// Counters of an opened device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names say it: packets, bytes and batches (system calls)"
)]
pub struct DeviceStats {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_batches: u64,
    /// Packets that the kernel refused.
    pub tx_dropped: u64,
    /// Times that the send buffer was full.
    pub tx_blocked: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_batches: u64,
    /// Receives that failed.
    pub rx_errors: u64,
    /// Packets that are not RoCEv2.
    pub rx_malformed: u64,
    /// Packets for a queue pair that does not exist.
    pub rx_unknown_qp: u64,
    /// Packets that did not come from the queue pair's peer, or for one that is not connected.
    pub rx_wrong_source: u64,
    /// Packets with a wrong ICRC.
    pub rx_icrc_errors: u64,
    /// Congestion notifications.
    pub rx_cnp: u64,
}

/// An opened device. Queue pairs, completion queues and channels keep it alive; [`Self::close`] ends
/// its background thread.
#[derive(Debug)]
pub struct Nic {
    info: DeviceInfo,
    engine: Mutex<Engine>,
    progress: Progress,
    /// The sockets again, for waiting without the engine's lock.
    sockets: OnceLock<Vec<Arc<Socket>>>,
    events: Arc<EventQueue>,
}

impl Nic {
    /// Opens a device.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn open(info: &DeviceInfo) -> Result<Arc<Self>, Error> {
        let events = Arc::new(EventQueue::new()?);
        let nic = Arc::new(Self {
            info: info.clone(),
            engine: Mutex::new(Engine::new(info.ifindex, Arc::clone(&events))),
            progress: Progress::new()?,
            sockets: OnceLock::new(),
            events,
        });
        exit::remember(&nic);
        Ok(nic)
    }

    /// Ends the background thread, after what is owed to peers was sent.
    pub fn close(&self) {
        self.flush_owed();
        self.progress.stop();
        cm::released();
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.progress.is_stopped()
    }

    /// Its sockets, once they are bound.
    pub(crate) fn sockets(&self) -> Option<&[Arc<Socket>]> {
        self.sockets.get().map(Vec::as_slice)
    }

    // ---- what it is --------------------------------------------------------------------------

    /// What it was opened as.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Its GID table.
    #[must_use]
    pub fn gids(&self) -> &[GidEntry] {
        &self.info.gids
    }

    /// How much it holds.
    #[must_use]
    pub const fn limits(&self) -> &'static Limits {
        &LIMITS
    }

    /// The state of its port.
    #[must_use]
    pub fn port(&self) -> PortInfo {
        PortInfo {
            is_up: self.info.is_up,
            max_mtu: Mtu::B4096,
            active_mtu: self.info.active_mtu(),
        }
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        self.engine().stats
    }

    /// The counters of its queue pairs, added up.
    #[must_use]
    pub fn qp_stats(&self) -> Vec<(urxe_wire::Qpn, QpStats)> {
        let engine = self.engine();
        let indices = engine.qps.indices();
        indices
            .filter_map(|index| engine.qps.get(index))
            .map(|slot| (slot.qp.number(), *slot.qp.stats()))
            .collect()
    }

    // ---- objects -----------------------------------------------------------------------------

    /// Makes a protection domain.
    #[must_use]
    pub fn alloc_pd(&self) -> Pd {
        self.engine().memory.alloc_pd()
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    /// [`Error::Busy`] while regions or queue pairs belong to it.
    pub fn dealloc_pd(&self, pd: Pd) -> Result<(), Error> {
        self.engine().memory.dealloc_pd(pd)
    }

    /// Registers `len` bytes at `host` (an address of this process), which work requests and peers
    /// name from `base` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rights that contradict each other or a range that wraps.
    pub fn register(
        &self,
        pd: Pd,
        host: u64,
        len: u64,
        base: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.engine().memory.register(pd, host, len, base, access)
    }

    /// Ends a registration. No packet touches the memory afterwards.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is none with this key.
    pub fn deregister(&self, lkey: u32) -> Result<(), Error> {
        let mut engine = self.engine();
        engine.memory.deregister(lkey)?;
        engine.discard_outgoing();
        Ok(())
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn create_channel(self: &Arc<Self>) -> Result<Arc<CompletionChannel>, Error> {
        Ok(CompletionChannel::new(self)?)
    }

    /// Makes a completion queue. `cookie` comes back from the channel and in events.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a depth of zero or above the limit.
    pub fn create_cq(
        self: &Arc<Self>,
        depth: usize,
        channel: Option<Arc<CompletionChannel>>,
        cookie: u64,
    ) -> Result<Arc<Cq>, Error> {
        if depth == 0 || depth > LIMITS.max_cqe {
            return Err(Error::Invalid(format!(
                "a completion queue has 1 to {} entries, not {depth}",
                LIMITS.max_cqe
            )));
        }
        Ok(Cq::new(self, depth, channel, cookie))
    }

    /// The next asynchronous event; waits for it unless [`Self::event_fd`] is non-blocking.
    ///
    /// # Errors
    /// EAGAIN or EINTR.
    pub fn next_event(&self) -> io::Result<AsyncEvent> {
        self.events.next()
    }

    /// A descriptor that is readable while asynchronous events wait.
    #[must_use]
    pub fn event_fd(&self) -> RawFd {
        self.events.raw_fd()
    }

    // ---- the engine --------------------------------------------------------------------------

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn events(&self) -> &EventQueue {
        &self.events
    }

    /// Binds the sockets and starts the background thread, once.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), Error> {
        {
            let mut engine = self.engine();
            if engine.sockets.is_none() {
                let ports = match cm::adopt(self, &self.info.gids) {
                    Some(ports) => ports,
                    None => Ports::open(&self.info.gids)?,
                };
                let sockets = ports.ports.iter().filter_map(|port| port.socket.clone());
                self.sockets.get_or_init(|| sockets.collect());
                engine.sockets = Some(ports);
            }
        }
        Ok(self.progress.start(self)?)
    }

    /// Takes in what came to sockets that no queue pair uses, for which a program that polls does not
    /// look.
    pub(crate) fn run_idle_sockets(&self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            engine.receive_idle(now());
        }
    }

    /// Whether the sockets are bound.
    pub(crate) fn is_started(&self) -> bool {
        self.engine().sockets.is_some()
    }

    /// One round on the program's own thread, unless another thread is at it.
    pub(crate) fn run_inline(&self) {
        self.progress.note_round();
        let mut received = 0;
        if let Ok(mut engine) = self.engine.try_lock() {
            let now = now();
            received = engine.run(now);
            self.after(&engine, now);
        }
        if idle::should_wait(received > 0)
            && let Some(sockets) = self.sockets.get()
        {
            wait_readable(sockets.iter().map(Arc::as_ref), idle::WAIT_NS);
        }
    }

    /// One round of a thread that is going to wait for packets. Returns how many packets came, and when
    /// it is wanted again.
    pub(crate) fn run_waiting(&self) -> (usize, Option<Instant>) {
        let mut engine = self.engine();
        let now = now();
        let received = engine.run_in_background(now);
        (received, engine.deadline(now))
    }

    /// After a round or a command of the program: the background thread may have to wake earlier.
    pub(crate) fn after(&self, engine: &Engine, now: Instant) {
        self.progress.note_deadline(engine.deadline(now));
    }

    pub(crate) fn earliest_deadline(&self) -> Option<Instant> {
        self.engine().deadline(now())
    }

    /// Sends acknowledgements that are held back.
    pub(crate) fn flush_owed(&self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            engine.transmit(now(), AckMode::Flush);
        }
    }

    /// Adds all sockets to `waiter`.
    pub(crate) fn watch(&self, waiter: &Waiter) -> io::Result<()> {
        let engine = self.engine();
        for (token, port) in engine.ports().iter().enumerate() {
            if let Some(socket) = &port.socket {
                waiter.add(&socket.as_fd(), token as u64, Interest::READ)?;
            }
        }
        Ok(())
    }

    /// Takes all sockets out of `waiter`.
    pub(crate) fn unwatch(&self, waiter: &Waiter) -> io::Result<()> {
        let engine = self.engine();
        let sockets = engine
            .ports()
            .iter()
            .filter_map(|port| port.socket.as_ref());
        for socket in sockets {
            waiter.remove(&socket.as_fd())?;
        }
        Ok(())
    }

    /// Waits for the blocked socket to become writable, and no longer for the one it waited for before.
    pub(crate) fn watch_writable(
        &self,
        waiter: &Waiter,
        before: Option<usize>,
    ) -> io::Result<Option<usize>> {
        let engine = self.engine();
        let blocked = engine.blocked_port();
        if blocked != before {
            for (port, interest) in [(before, Interest::READ), (blocked, Interest::READ_WRITE)] {
                let socket = port.and_then(|port| engine.ports()[port].socket.as_ref());
                if let (Some(port), Some(socket)) = (port, socket) {
                    waiter.modify(&socket.as_fd(), port as u64, interest)?;
                }
            }
        }
        Ok(blocked)
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        cm::released();
    }
}
