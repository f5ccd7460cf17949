//! The one agent of a process: all its exchanges, identifiers and doors behind one lock, and a
//! thread that keeps time and reads what no other thread reads.
//!
//! An opened device that gets a packet for QP 1 calls [`super::arrival::receive`] on the thread
//! that runs its engine, with the engine's lock held. It never waits there: what cannot be dealt
//! with at once is left for the thread. So the agent's lock comes before all others.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use urxe_cm::{MAD_LEN, Manager, Path};
use urxe_udp::{Changes, RecvBuffer, Socket, Wakeup};
use urxe_wire::{Packet, Qpn};

use super::door::{Door, path};
use super::exchanges::Exchanges;
use super::files::EventFile;
use super::gsi;
use super::id::{CmEvent, CmEventKind, CmParam, Group, Id, State};
use super::relay::{self};
use super::waiting::WaitingList;
use super::watch::Watch;
use crate::attach::list::DeviceInfo;
use crate::engine::forward;
use crate::engine::origin::{BATCHES_PER_TURN, Origin};
use crate::engine::port::udp_port;
use crate::process::across_fork::AcrossFork;
use crate::process::clock::now;
use crate::process::threads::with_signals_blocked;

/// How often to try whether port 4791 has become free, while requests or answers may come to it.
const LOOK_FOR_PORT_NS: u64 = 250_000_000;

/// A failure as the C interface knows it.
pub(super) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// The agent. There is one per process, and another one in a child that was forked: see
/// [`super::inherited`].
#[derive(Debug)]
pub(crate) struct Agent {
    pub(super) process: u32,
    pub(super) inner: AcrossFork<Inner>,
    /// Datagrams that came while another thread had the lock. Nothing else is locked under it.
    inbox: Mutex<VecDeque<Arrived>>,
    /// Identifiers of iWARP devices whose connections have ended. Locked as the inbox is.
    ended: Mutex<Vec<u32>>,
    wakeup: Wakeup,
    watch: Arc<Watch>,
}

/// Datagrams in the inbox, at most; further ones are lost, and repeated by their peers.
const INBOX_MAX: usize = 4096;

/// A datagram that came to UDP port `port`.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) path: Path,
    pub(super) port: u16,
    pub(super) mad: [u8; MAD_LEN],
}

/// What the lock protects.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) watch: Arc<Watch>,
    pub(super) manager: Manager,
    pub(super) doors: Vec<Door>,
    pub(super) ids: BTreeMap<u32, Id>,
    /// Those that were told to listen: requests look for theirs here, and not among thousands of
    /// connections.
    pub(super) listeners: BTreeSet<u32>,
    pub(super) by_comm: HashMap<u32, u32>,
    /// Connections of iWARP devices that are being set up.
    pub(super) exchanges: Exchanges,
    pub(super) groups: HashMap<u32, Group>,
    pub(super) files: HashMap<u64, EventFile>,
    pub(super) known_devices: Option<(u64, Vec<Arc<DeviceInfo>>)>,
    /// The time of the call under way.
    pub(super) now_ns: u64,
    pub(super) waiting: WaitingList,
    /// When to try port 4791 again.
    pub(super) looks_at_ns: u64,
    /// News of the interfaces.
    pub(super) changes: Changes,
    /// When the thread wakes by itself.
    pub(super) wakes_at_ns: u64,
    /// The thread has to look at something before the time that it knows.
    pub(super) is_stale: bool,
}

pub(super) static AGENT: AtomicPtr<Agent> = AtomicPtr::new(std::ptr::null_mut());
/// Held by the thread that makes it.
pub(super) static MAKING: AcrossFork<()> = AcrossFork::new(());

/// The last numbers of an identifier or group, and of a file. Not the agent's, so that what the
/// child of a fork has of its parent's agent is not mixed up with its own.
static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);
static LAST_FILE: AtomicU64 = AtomicU64::new(0);

impl Agent {
    /// The agent of this process, made at its first use.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub(super) fn get() -> io::Result<&'static Self> {
        if let Some(agent) = Self::existing() {
            return Ok(agent);
        }
        let _making = MAKING.lock();
        if let Some(agent) = Self::existing() {
            return Ok(agent);
        }
        let (wakeup, watch) = (Wakeup::new()?, Arc::new(Watch::new()?));
        let changes = Changes::listen()?;
        watch.add_reader(&wakeup)?;
        watch.add_reader(&changes)?;
        let exchanges = Exchanges::new()?;
        watch.add_reader(&exchanges.waiter)?;
        let agent: &'static Self = Box::leak(Box::new(Self {
            process: std::process::id(),
            inner: AcrossFork::new(Inner::new(Arc::clone(&watch), changes, exchanges)),
            inbox: Mutex::default(),
            ended: Mutex::default(),
            wakeup,
            watch,
        }));
        let builder = std::thread::Builder::new().name("urxe-cm".into());
        with_signals_blocked(|| builder.spawn(move || agent.run()))?;
        AGENT.store(std::ptr::from_ref(agent).cast_mut(), Ordering::Release);
        Ok(agent)
    }

    /// The agent of this process, if it has one. A parent's, after fork, is not.
    pub(super) fn existing() -> Option<&'static Self> {
        // SAFETY: null, or an agent, which is never freed.
        let agent = unsafe { AGENT.load(Ordering::Acquire).as_ref() };
        agent.filter(|agent| agent.process == std::process::id())
    }

    /// Does something, and then what follows from it.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        self.do_and_settle(&mut inner, work)
    }

    /// The same, unless another thread is at it: for a process that ends.
    pub(super) fn try_with(&self, work: impl FnOnce(&mut Inner)) {
        if let Some(mut inner) = self.inner.try_lock() {
            self.do_and_settle(&mut inner, work);
        }
    }

    fn do_and_settle<T>(&self, inner: &mut Inner, work: impl FnOnce(&mut Inner) -> T) -> T {
        inner.now_ns = now().as_nanos();
        let result = work(inner);
        inner.settle();
        let is_early = inner
            .manager
            .poll_timeout()
            .is_some_and(|at_ns| at_ns < inner.wakes_at_ns);
        if is_early || inner.is_stale {
            self.wakeup.signal();
        }
        result
    }

    fn lock_inbox(&self) -> MutexGuard<'_, VecDeque<Arrived>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_in_inbox(&self) -> Option<Arrived> {
        self.lock_inbox().pop_front()
    }

    /// Takes a datagram in now, if no other thread is at work here and its door is open; else
    /// leaves it for the thread.
    pub(super) fn arrived(&self, arrived: Arrived) {
        // Not before those that wait: a farewell would overtake what made the connection.
        if let Some(mut inner) = self.inner.try_lock()
            && inner.door(arrived.path.link).is_some()
            && self.lock_inbox().is_empty()
        {
            return self.do_and_settle(&mut inner, |inner| {
                inner.incoming(arrived.path, &arrived.mad, Some(arrived.port));
            });
        }
        let mut inbox = self.lock_inbox();
        if inbox.len() < INBOX_MAX {
            inbox.push_back(arrived);
        }
        drop(inbox);
        self.wakeup.signal();
    }

    /// The connection of an identifier has ended.
    pub(super) fn note_ended(&self, id: u32) {
        self.lock_ended().push(id);
        self.wakeup.signal();
    }

    fn lock_ended(&self) -> MutexGuard<'_, Vec<u32>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut buffer = RecvBuffer::new();
        let mut is_file_closed = false;
        loop {
            let timeout_ns = {
                let mut inner = self.inner.lock();
                inner.now_ns = now().as_nanos();
                while let Some(arrived) = self.next_in_inbox() {
                    inner.attach_door(arrived.path.link);
                    inner.incoming(arrived.path, &arrived.mad, Some(arrived.port));
                }
                if is_file_closed {
                    inner.drop_closed_files();
                }
                inner.follow_interfaces();
                for id in std::mem::take(&mut *self.lock_ended()) {
                    inner.end_stream(id);
                }
                inner.turn_streams();
                inner.turn(&mut buffer);
                inner.settle();
                inner.is_stale = false;
                self.wakeup.arm();
                if !self.lock_inbox().is_empty() || !self.lock_ended().is_empty() {
                    self.wakeup.disarm();
                    continue;
                }
                let timeout_ns = inner.timeout_ns();
                inner.wakes_at_ns =
                    timeout_ns.map_or(u64::MAX, |ns| inner.now_ns.saturating_add(ns));
                timeout_ns
            };
            is_file_closed = self.watch.wait(timeout_ns);
            self.wakeup.disarm();
        }
    }
}

impl Inner {
    fn new(watch: Arc<Watch>, changes: Changes, exchanges: Exchanges) -> Self {
        Self {
            watch,
            manager: Manager::with_ports(udp_port),
            doors: Vec::new(),
            ids: BTreeMap::new(),
            listeners: BTreeSet::new(),
            by_comm: HashMap::new(),
            exchanges,
            groups: HashMap::new(),
            files: HashMap::new(),
            known_devices: None,
            now_ns: 0,
            waiting: WaitingList::default(),
            looks_at_ns: 0,
            changes,
            wakes_at_ns: 0,
            is_stale: false,
        }
    }

    // ---- tables ------------------------------------------------------------------------------

    pub(super) fn id(&mut self, id: u32) -> io::Result<&mut Id> {
        self.ids.get_mut(&id).ok_or_else(|| errno(libc::ENOENT))
    }

    pub(super) fn in_state(&mut self, id: u32, states: &[State]) -> io::Result<&mut Id> {
        let entry = self.id(id)?;
        if states.contains(&entry.state) {
            Ok(entry)
        } else {
            Err(errno(libc::EINVAL))
        }
    }

    /// The identifiers that listen, with their numbers, ascending.
    pub(super) fn listening(&self) -> impl Iterator<Item = (u32, &Id)> {
        self.listeners
            .iter()
            .filter_map(|number| Some((*number, self.ids.get(number)?)))
            .filter(|(_, id)| id.state == State::Listening)
    }

    /// A number for an identifier or group that none has.
    pub(super) fn fresh_number(&mut self) -> u32 {
        loop {
            let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if !self.ids.contains_key(&number) && !self.groups.contains_key(&number) {
                return number;
            }
        }
    }

    pub(super) fn add_file(&mut self, file: EventFile) -> io::Result<u64> {
        self.watch.add_writer(&file.ours)?;
        let key = LAST_FILE.fetch_add(1, Ordering::Relaxed) + 1;
        self.files.insert(key, file);
        Ok(key)
    }

    /// An event of an identifier.
    pub(super) fn push(&mut self, id: u32, kind: CmEventKind, status: i32, param: CmParam) {
        if let Some(entry) = self.ids.get(&id) {
            let (file, uid) = (entry.file, entry.uid);
            self.push_to(
                file,
                CmEvent {
                    uid,
                    id,
                    kind,
                    status,
                    param,
                    of: id,
                },
            );
        }
    }

    pub(super) fn push_to(&mut self, file: u64, event: CmEvent) {
        if let Some(file) = self.files.get_mut(&file) {
            file.push(event);
        }
    }

    /// Ends an identifier, whatever it is at, with its events and groups. Returns how many events
    /// of it the program got.
    pub(super) fn remove_id(&mut self, id: u32) -> Option<u32> {
        let entry = self.ids.remove(&id)?;
        self.listeners.remove(&id);
        self.abandon_stream(id, &entry);
        if let Some(comm) = entry.comm {
            self.by_comm.remove(&comm);
            self.manager.abandon(self.now_ns, comm);
        }
        self.groups.retain(|_, group| group.of != id);
        let events = self
            .files
            .get_mut(&entry.file)
            .map_or_else(Vec::new, |file| {
                file.take(|event| event.of == id || event.id == id)
            });
        for event in events {
            // A request that the program did not take is refused with its listener.
            if event.kind == CmEventKind::ConnectRequest && event.id != id {
                self.remove_id(event.id);
            }
        }
        if let Some(listener) = entry
            .listener
            .and_then(|listener| self.ids.get_mut(&listener))
        {
            listener.pending = listener.pending.saturating_sub(1);
        }
        Some(entry.events_reported)
    }

    // ---- what the thread does ----------------------------------------------------------------

    fn turn(&mut self, buffer: &mut RecvBuffer) {
        for index in 0..self.doors.len() {
            let link = self.doors[index].link();
            for socket in self.doors[index].front_sockets().to_vec() {
                self.read(link, &socket, buffer);
            }
            while let Some(relayed) = self.doors[index]
                .relay
                .as_ref()
                .and_then(|socket| relay::receive(socket))
            {
                self.incoming(relayed.path, &relayed.mad, None);
            }
        }
        let listeners: Vec<_> = self
            .listening()
            .filter_map(|(_, id)| id.requests.clone())
            .collect();
        for listener in listeners {
            while let Some(relayed) = relay::receive(&listener) {
                self.incoming(relayed.path, &relayed.mad, None);
            }
        }
        if self.wants_port() && self.now_ns >= self.looks_at_ns {
            self.looks_at_ns = self.now_ns + LOOK_FOR_PORT_NS;
            for door in &mut self.doors {
                door.try_to_hold();
                for socket in door.front_sockets() {
                    // It says so if it is there already.
                    let _ = self.watch.add_reader(socket.as_ref());
                }
            }
        }
        self.look_at_waiting();
        self.manager.handle_timeout(self.now_ns);
    }

    fn read(&mut self, link: u32, socket: &Socket, buffer: &mut RecvBuffer) {
        let local = socket.local_address();
        for _ in 0..BATCHES_PER_TURN {
            let Ok(Some(meta)) = socket.receive(buffer) else {
                return;
            };
            for (index, datagram) in buffer.segments(&meta).enumerate() {
                let Ok(packet) = Packet::parse(datagram) else {
                    continue;
                };
                let origin = Origin {
                    port: 0,
                    local,
                    source: meta.source,
                    tos: meta.tos,
                    ip_id: u16::try_from(index).unwrap_or(0),
                    frame: None,
                };
                if packet.header.bth.dest_qp != Qpn::GSI {
                    forward::pass_on(socket, &origin, &packet, datagram);
                } else if let Some(mad) =
                    gsi::mad(meta.source, local, origin.ip_id, datagram, &packet)
                {
                    let path = path(link, local, meta.source);
                    self.incoming(path, mad, Some(local.port()));
                }
            }
        }
    }

    /// Ends what belonged to event files that the program has closed.
    fn drop_closed_files(&mut self) {
        let closed: Vec<u64> = self
            .files
            .iter()
            .filter(|(_, file)| file.is_closed())
            .map(|(key, _)| *key)
            .collect();
        for key in closed {
            self.drop_file(key);
        }
    }

    /// Ends an event file and what belongs to it.
    pub(super) fn drop_file(&mut self, key: u64) {
        self.files.remove(&key);
        let ids: Vec<u32> = self
            .ids
            .iter()
            .filter(|(_, id)| id.file == key)
            .map(|(number, _)| *number)
            .collect();
        for id in ids {
            self.remove_id(id);
        }
    }

    /// Whether a peer may send to port 4791 what this process waits for, and no process holds it
    /// for us.
    fn wants_port(&self) -> bool {
        let is_listening = || self.listening().next().is_some();
        self.doors.iter().any(|door| !door.is_holder())
            && (!self.manager.is_idle() || is_listening())
    }

    /// Delivers events, and sends what is to be sent.
    fn settle(&mut self) {
        while let Some((comm, event)) = self.manager.poll_event() {
            self.handle_exchange_event(comm, event);
        }
        while let Some(transmit) = self.manager.poll_transmit() {
            if let Some(door) = self.door(transmit.path.link) {
                door.send(&transmit);
            }
        }
    }

    fn timeout_ns(&self) -> Option<u64> {
        let timer = self
            .manager
            .poll_timeout()
            .map(|at_ns| at_ns.saturating_sub(self.now_ns));
        let look = self
            .wants_port()
            .then(|| self.looks_at_ns.saturating_sub(self.now_ns));
        let waiting = self.waiting.next_ns();
        let waiting = waiting.map(|at_ns| at_ns.saturating_sub(self.now_ns));
        let streams = self.exchanges.deadline();
        let streams = streams.map(|at| at.as_nanos().saturating_sub(self.now_ns));
        let all = timer.into_iter().chain(look).chain(waiting);
        all.chain(streams).min()
    }
}
