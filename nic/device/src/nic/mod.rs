//! An opened device.

pub(crate) mod background;
mod limits;
pub(crate) mod look;
pub(crate) mod naps;
pub(crate) mod opened;
mod rounds;
mod streams;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use urxe_proto::{QpStats, Sge, WindowType};
use urxe_udp::{Event, Interest, Private, Socket, Waiter};
use urxe_wire::Mtu;

use crate::attach::gid_entry::GidEntry;
use crate::attach::link::Link;
use crate::attach::list::DeviceInfo;
use crate::attach::tap::Taps;
use crate::delivery::events::EventQueue;
use crate::delivery::moderated::Moderated;
use crate::delivery::progress::Progress;
use crate::engine::port::Ports;
use crate::engine::stats::DeviceStats;
use crate::engine::{AckMode, Engine};
use crate::memory::dm::{self, DeviceMemory};
use crate::memory::{Access, MemoryRegion, Pd, Region};
use crate::nic::naps::Naps;
use crate::process::clock::now;
use crate::process::error::Error;
use crate::process::guard;
use crate::process::signalled::EventFd;
use limits::LIMITS;

pub use limits::{Limits, PortInfo};

/// An opened device. Queue pairs, completion queues and channels keep it alive; [`Self::close`]
/// ends its background thread.
#[derive(Debug)]
pub struct Nic {
    info: DeviceInfo,
    engine: Mutex<Engine>,
    progress: Arc<Progress>,
    naps: Naps,
    /// The sockets again, for waiting without the engine's lock.
    sockets: Mutex<Arc<[Arc<Socket>]>>,
    /// Becomes readable, and is replaced, when the sockets change: a thread that waits for them has
    /// to look again.
    stale: Mutex<Arc<EventFd>>,
    /// Of an iWARP device that has started: readable while a connection has something.
    connections: OnceLock<Private<OwnedFd>>,
    link: Link,
    events: Arc<EventQueue>,
    device_memory: dm::Pool,
    moderated: Arc<Moderated>,
    /// What its sockets pass through.
    taps: Arc<Taps>,
}

impl Nic {
    pub(crate) fn new(info: &DeviceInfo, taps: Arc<Taps>) -> Result<Arc<Self>, Error> {
        let events = Arc::new(EventQueue::new()?);
        Ok(Arc::new(Self {
            info: info.clone(),
            engine: Mutex::new(Engine::new(info.ifindex, Arc::clone(&events))),
            progress: Arc::new(Progress::new()?),
            naps: Naps::default(),
            sockets: Mutex::new(Arc::new([])),
            stale: Mutex::new(Arc::new(EventFd::new()?)),
            connections: OnceLock::new(),
            link: Link::new(info)?,
            events,
            device_memory: dm::Pool::default(),
            moderated: Arc::default(),
            taps,
        }))
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.progress.is_stopped()
    }

    /// Its sockets, none before it has started.
    pub(crate) fn sockets(&self) -> Arc<[Arc<Socket>]> {
        Arc::clone(&lock(&self.sockets))
    }

    // ---- what it is --------------------------------------------------------------------------

    /// What it was when it was opened; [`Self::gids`] and [`Self::port`] tell what changes.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Its GID table. Addresses that come and go leave the index of the others as it is.
    #[must_use]
    pub fn gids(&self) -> Arc<[GidEntry]> {
        self.link.state().gids
    }

    /// How much it holds.
    #[must_use]
    pub const fn limits(&self) -> &'static Limits {
        &LIMITS
    }

    /// The state of its port.
    #[must_use]
    pub fn port(&self) -> PortInfo {
        let state = self.link.state();
        PortInfo {
            is_up: state.is_up,
            max_mtu: Mtu::B4096,
            active_mtu: Mtu::for_link(state.mtu_bytes).unwrap_or(Mtu::B256),
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

    /// Whether it may be this opened device, and no other, that gave a queue pair its number.
    #[must_use]
    pub fn may_have_numbered(&self, number: urxe_wire::Qpn) -> bool {
        let engine = self.engine();
        if let Some(streams) = &engine.streams {
            return streams.find(number).is_some();
        }
        let own = engine.sockets.as_ref().map(|ports| ports.slot);
        own.is_some_and(|slot| {
            crate::engine::port::udp_port(number) == urxe_wire::ROCE_UDP_PORT + slot
        })
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
    /// [`Error::Invalid`] for rights that contradict each other or a range that wraps, and
    /// [`Error::Access`] for memory that is not mapped so, unless it is on-demand.
    pub fn register(
        &self,
        pd: Pd,
        host: u64,
        len: u64,
        base: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        guard::install();
        let region = Region::new(pd, host, len, base, access)?;
        self.engine().memory.register(region)
    }

    /// The same for memory that the device has mapped itself, [`DeviceMemory`] or a
    /// [`crate::Mapping`], which is not looked at and may be no bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rights that contradict each other.
    pub fn register_own(
        &self,
        pd: Pd,
        host: u64,
        len: u64,
        base: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        guard::install();
        let region = Region::of_device(pd, host, len, base, access)?;
        self.engine().memory.register(region)
    }

    /// Makes the region `lkey` one of `len` bytes at `host`, named from `base` on; its keys stay.
    ///
    /// # Errors
    /// As for [`Self::register`], and [`Error::Busy`] while windows are bound to it; it is as it
    /// was then.
    pub fn register_again(
        &self,
        lkey: u32,
        pd: Pd,
        (host, len, base): (u64, u64, u64),
        access: Access,
    ) -> Result<(), Error> {
        let region = Region::new(pd, host, len, base, access)?;
        let mut engine = self.engine();
        // What waits for company has it as it was.
        engine.send_gathered(now());
        engine.memory.register_again(lkey, region)?;
        engine.forget_outgoing_memory();
        Ok(())
    }

    /// Registers all addresses: they read as zeros, and what is written to them is dropped. For
    /// work requests only, not for peers.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is no such protection domain.
    pub fn register_null(&self, pd: Pd) -> Result<MemoryRegion, Error> {
        self.engine().memory.register_null(pd)
    }

    /// Prepares on-demand memory behind `sge` for access; with `is_wanted_now` it is there when
    /// this returns.
    ///
    /// # Errors
    /// [`Error::Access`]: why it cannot be accessed so. [`Error::Invalid`] for a region that is not
    /// on demand.
    pub fn prefetch(
        &self,
        pd: Pd,
        sge: &Sge,
        writes: bool,
        is_wanted_now: bool,
    ) -> Result<(), Error> {
        let engine = self.engine();
        engine.memory.prefetch(pd, sge, writes, is_wanted_now)
    }

    /// Allocates `length` bytes of device memory, all zero, aligned to 2^`log_align` bytes.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there is not as much left.
    pub fn alloc_dm(&self, length: u64, log_align: u32) -> Result<DeviceMemory, Error> {
        self.device_memory.allocate(length, log_align)
    }

    /// Ends a registration. No packet touches the memory afterwards.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is none with this key, [`Error::Busy`] while memory windows are
    /// bound to it.
    pub fn deregister(&self, lkey: u32) -> Result<(), Error> {
        let mut engine = self.engine();
        // What waits for company may be in it.
        engine.send_gathered(now());
        engine.memory.deregister(lkey)?;
        engine.forget_outgoing_memory();
        Ok(())
    }

    /// Makes a memory window and returns its remote key, which opens nothing until it is bound.
    ///
    /// # Errors
    /// [`Error::Exhausted`], [`Error::Gone`].
    pub fn alloc_window(&self, pd: Pd, kind: WindowType) -> Result<u32, Error> {
        self.engine().memory.alloc_window(pd, kind)
    }

    /// Ends the memory window that `rkey` names with its upper 24 bits.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is none.
    pub fn dealloc_window(&self, rkey: u32) -> Result<(), Error> {
        self.engine().memory.dealloc_window(rkey)
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

    /// The engine for a caller that can wait: it never makes the program wait for it, as a thread
    /// that queues up at the lock would, unless there is no other way.
    pub(crate) fn engine_patiently(&self) -> MutexGuard<'_, Engine> {
        const ATTEMPTS: usize = 2_000;
        const PAUSE: Duration = Duration::from_micros(50);
        for _ in 0..ATTEMPTS {
            if let Ok(engine) = self.engine.try_lock() {
                return engine;
            }
            std::thread::sleep(PAUSE);
        }
        self.engine()
    }

    /// Whether a thread has the engine now.
    pub(crate) fn is_engine_taken(&self) -> bool {
        matches!(self.engine.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) const fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn taps(&self) -> &Taps {
        &self.taps
    }

    pub(crate) const fn events(&self) -> &Arc<EventQueue> {
        &self.events
    }

    /// Sends acknowledgements that are held back, and tells peers that their queue pairs are gone:
    /// the device is closed, or the process ends.
    pub(crate) fn take_leave(&self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            if let Some((streams, mut host)) = engine.streams() {
                return streams.end_all(&mut host, now());
            }
            engine.transmit(now(), AckMode::All);
            engine.bid_all_farewell(now());
            engine.drain();
        }
    }

    // ---- the sockets -------------------------------------------------------------------------

    /// Looks whether the interface changed, and follows it, as the background thread does where
    /// there is one. Takes the engine's lock.
    pub fn follow_link(&self) {
        let apply = |gids: &Arc<[GidEntry]>| {
            let mut engine = self.engine();
            if let Some(ports) = &mut engine.sockets {
                ports.follow(gids, &self.taps);
                self.note_sockets(ports);
            }
        };
        let routes = || self.sockets().iter().for_each(|socket| socket.follow());
        self.link
            .follow(apply, routes, |event| self.events.push(event));
    }

    /// Readable when [`Self::follow_link`] may have something to do.
    pub(crate) fn link_fd(&self) -> BorrowedFd<'_> {
        self.link.fd()
    }

    /// The sockets are now those of `ports`.
    pub(crate) fn note_sockets(&self, ports: &Ports) {
        *lock(&self.sockets) = ports.sockets();
        self.sockets_changed();
    }

    /// There are other sockets to wait for than before.
    pub(crate) fn sockets_changed(&self) {
        match EventFd::new() {
            Ok(fresh) => std::mem::replace(&mut *lock(&self.stale), Arc::new(fresh)).signal(),
            // Without descriptors no other thread can open sockets either; one that waits is not
            // told.
            Err(error) => log::warn!("cannot tell of changed sockets: {error}"),
        }
    }

    /// Whether the sockets have changed since [`Self::watch`] returned `watched`.
    pub(crate) fn is_stale(&self, watched: &Arc<EventFd>) -> bool {
        !Arc::ptr_eq(watched, &lock(&self.stale))
    }

    /// Adds all sockets to `waiter`, and what it returns, which becomes readable when they change.
    pub(crate) fn watch(&self, waiter: &Waiter) -> io::Result<Arc<EventFd>> {
        let stale = Arc::clone(&lock(&self.stale));
        let engine = self.engine();
        for (token, port) in engine.ports().iter().enumerate() {
            if let Some(socket) = &port.socket {
                for fd in socket.readable_fds() {
                    let added = waiter.add(&fd, token as u64, Interest::READ);
                    unless(added, libc::EEXIST)?;
                }
            }
        }
        for group in &engine.groups {
            let added = waiter.add(&group.socket.as_fd(), u64::MAX, Interest::READ);
            unless(added, libc::EEXIST)?;
        }
        if let Some(connections) = self.connections() {
            let added = waiter.add(&connections, 0, Interest::READ);
            unless(added, libc::EEXIST)?;
        }
        waiter.add(&*stale, u64::MAX, Interest::READ)?;
        Ok(stale)
    }

    /// Takes all sockets, and what [`Self::watch`] returned, out of `waiter`.
    pub(crate) fn unwatch(&self, waiter: &Waiter, watched: &EventFd) -> io::Result<()> {
        waiter.remove(watched)?;
        if let Some(connections) = self.connections() {
            unless(waiter.remove(&connections), libc::ENOENT)?;
        }
        let engine = self.engine();
        let sockets = engine
            .ports()
            .iter()
            .filter_map(|port| port.socket.as_ref());
        let groups = engine.groups.iter().map(|group| &group.socket);
        for socket in sockets.chain(groups) {
            // One that came since is not in it.
            for fd in socket.readable_fds() {
                unless(waiter.remove(&fd), libc::ENOENT)?;
            }
        }
        Ok(())
    }

    /// Forgets errors that woke the threads that waited with [`Self::watch`], and would again: of a
    /// link that went down.
    pub(crate) fn forget_errors(&self, ready: &[Event]) {
        for event in ready.iter().filter(|event| event.failed()) {
            let engine = self.engine();
            let port = usize::try_from(event.token()).ok();
            if let Some(port) = port.and_then(|at| engine.ports().get(at))
                && let Some(socket) = &port.socket
            {
                socket.forget_errors();
            }
        }
    }

    /// Waits for the blocked socket to become writable, and no longer for the one it waited for
    /// before.
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
                    let modified = waiter.modify(&socket.as_fd(), port as u64, interest);
                    unless(modified, libc::ENOENT)?;
                }
            }
        }
        Ok(blocked)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Success also if it failed with `errno`.
fn unless(result: io::Result<()>, errno: i32) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
        result => result,
    }
}
