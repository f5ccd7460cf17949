//! Communication management: RDMA-CM as the kernel's `rdma_cm` device offers it, in the process.
//!
//! [`CmFile`] is that interface: identifiers, commands on them, and files that events are read
//! from. Behind it, `urxe-cm` keeps the protocol ([`agent`]); datagrams go out and come in through
//! the sockets of the device that an identifier is bound to ([`door`]), and between the processes
//! of a host ([`relay`]).

mod address;
mod agent;
mod arrival;
mod connect;
mod door;
mod doors;
mod exchange;
mod exchanges;
mod files;
mod follow;
mod gsi;
mod id;
mod incoming;
mod inherited;
mod news;
mod relay;
pub(crate) mod sharing;
mod stream;
mod waiting;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use urxe_cm::PortSpace;
use urxe_proto::QpState;
use urxe_udp::Private;

use crate::process::blocking::{self, BlockingCall, Step, Waiting};
use agent::{Agent, Inner, errno};
pub(crate) use arrival::receive;
use exchange::canonical;
use files::EventFile;
pub use id::{
    CmAddress, CmEvent, CmEventKind, CmInfo, CmParam, CmQpAttributes, CmQpType, ConnectionParam,
    DatagramParam, ReliableSender,
};
use id::{Id, State};
pub(crate) use inherited::hold_over_forks;
pub(crate) use stream::stream_ended;

/// An event file, with which a program does everything else. Its identifiers are its own: a number
/// of another file is refused. It is closed by closing its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmFile {
    key: u64,
    fd: RawFd,
    identity: (u64, u64),
}

/// An option of an identifier (`rdma_set_option(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmOption {
    /// Type of service, the traffic class of the connection's packets.
    TypeOfService(u8),
    /// Whether others that want so, too, may bind to the same port.
    ReuseAddress(bool),
    /// Whether all IPv6 addresses are without the IPv4 ones.
    Ipv6Only(bool),
    /// Local ACK timeout code of the queue pair, 0 to 31.
    AckTimeout(u8),
}

impl CmFile {
    /// Opens a file. The program owns the descriptor.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn open(is_cloexec: bool, is_nonblocking: bool) -> io::Result<Self> {
        let file = EventFile::new(is_cloexec, is_nonblocking)?;
        // SAFETY: a descriptor that was just made, and that none has yet. It is closed if the rest
        // fails.
        let programs = unsafe { OwnedFd::from_raw_fd(file.fd()) };
        let identity = file.own_identity();
        let key = arrival::agent()?.with(|inner| inner.add_file(file))?;
        let fd = programs.into_raw_fd();
        Ok(Self { key, fd, identity })
    }

    /// Its descriptor.
    #[must_use]
    pub const fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether its descriptor still is this file: the program may have closed it, and the number
    /// come to mean something else.
    #[must_use]
    pub fn is_current(&self) -> bool {
        EventFile::identity(self.fd) == Some(self.identity)
    }

    /// Ends it with all that belongs to it if its descriptor was closed and no other one is left of
    /// it, so that all is free at once. The agent's thread, which finds out by itself, does so a
    /// little later.
    pub fn end_if_closed(&self) {
        if inherited::has(self.key) {
            // Its parent's, which lives on.
            return inherited::remove_file(self.key);
        }
        let _ = self.with(|inner| {
            let file = inner.files.get(&self.key);
            if file.is_some_and(EventFile::is_closed) {
                inner.drop_file(self.key);
            }
            Ok(())
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> io::Result<T>) -> io::Result<T> {
        if inherited::has(self.key) && !inherited::take_over(Some(inherited::PATIENCE)) {
            return Err(errno(libc::EBADF));
        }
        let agent = Agent::existing().ok_or_else(|| errno(libc::EBADF))?;
        agent.with(work)
    }

    /// The same for an identifier, which has to be of this file.
    fn of<T>(&self, id: u32, work: impl FnOnce(&mut Inner) -> io::Result<T>) -> io::Result<T> {
        self.with(|inner| {
            if inner.id(id)?.file == self.key {
                work(inner)
            } else {
                Err(errno(libc::EINVAL))
            }
        })
    }

    // ---- events ------------------------------------------------------------------------------

    /// Takes the next event; waits for it unless the descriptor is non-blocking. As with a system
    /// call, what another thread does to the descriptor meanwhile, such as closing it, changes
    /// nothing.
    ///
    /// # Errors
    /// EAGAIN or EINTR; EBADF if the descriptor is not this file any more.
    pub fn next_event(&self) -> io::Result<CmEvent> {
        blocking::finish(self.begin_wait()?)
    }

    /// The same in steps.
    ///
    /// # Errors
    /// EBADF if the descriptor is not this file any more.
    pub fn begin_wait(&self) -> io::Result<CmWait> {
        Ok(CmWait {
            file: *self,
            held: self.hold()?.into(),
            elder: None,
        })
    }

    /// A descriptor of our own for the program's end.
    fn hold(&self) -> io::Result<OwnedFd> {
        // SAFETY: plain integers; what comes back is ours.
        let held = unsafe {
            match libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 0) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        if EventFile::identity(held.as_raw_fd()) == Some(self.identity) {
            Ok(held)
        } else {
            Err(errno(libc::EBADF))
        }
    }

    // ---- identifiers -------------------------------------------------------------------------

    /// Makes an identifier. `uid` comes back in its events.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn create_id(&self, uid: u64, space: PortSpace, qp_type: CmQpType) -> io::Result<u32> {
        let psn = connect::random_psn()?;
        self.with(|inner| {
            if !inner.files.contains_key(&self.key) {
                return Err(errno(libc::EBADF));
            }
            let number = inner.fresh_number();
            inner
                .ids
                .insert(number, Id::new(self.key, uid, space, qp_type, psn));
            Ok(number)
        })
    }

    /// Ends an identifier and whatever it is at. Returns how many events of it the program got, all
    /// of which it has to have acknowledged before it frees what they point to.
    ///
    /// # Errors
    /// ENOENT, or EINVAL if it is another file's; so for all that follow.
    pub fn destroy_id(&self, id: u32) -> io::Result<u32> {
        if inherited::has(self.key) && !inherited::take_over(Some(Duration::ZERO)) {
            // Its parent's, which lives on.
            return inherited::remove_id(self.key, id).ok_or_else(|| errno(libc::ENOENT));
        }
        self.of(id, |inner| {
            inner.remove_id(id).ok_or_else(|| errno(libc::ENOENT))
        })
    }

    /// Binds to an address and port; 0 is any port, the unspecified address all addresses.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL for another host's address, ENODEV for one of an interface without
    /// a device, EINVAL if it is bound.
    pub fn bind(&self, id: u32, address: SocketAddr) -> io::Result<()> {
        self.of(id, |inner| inner.bind(id, canonical(address)))
    }

    /// Binds to native InfiniBand addresses, none in particular. There is nothing to connect to
    /// from there.
    ///
    /// # Errors
    /// EINVAL if it is bound.
    pub fn bind_native(&self, id: u32) -> io::Result<()> {
        self.of(id, |inner| inner.bind_native(id))
    }

    /// Finds the device and own address for a peer; tells by an event.
    ///
    /// # Errors
    /// EINVAL in the wrong state, and those of [`Self::bind`] for `source`.
    pub fn resolve_address(
        &self,
        id: u32,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> io::Result<()> {
        let (source, destination) = (source.map(canonical), canonical(destination));
        self.of(id, |inner| inner.resolve_address(id, source, destination))
    }

    /// Finds the route to the peer; tells by an event.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_route(&self, id: u32) -> io::Result<()> {
        self.of(id, |inner| inner.resolve_route(id))
    }

    /// What an identifier is bound to.
    ///
    /// # Errors
    /// As [`Self::destroy_id`].
    pub fn query(&self, id: u32) -> io::Result<CmInfo> {
        self.of(id, |inner| {
            let entry = inner.id(id)?;
            Ok(CmInfo {
                source: entry.source,
                destination: entry.destination,
                device: entry.device.as_ref().map(|device| Arc::clone(&device.info)),
                has_route: entry.comm.is_some() || entry.state == State::RouteResolved,
                traffic_class: entry.traffic_class,
            })
        })
    }

    /// Sets an option.
    ///
    /// # Errors
    /// EINVAL for a value that is not allowed, or too late.
    pub fn set_option(&self, id: u32, option: CmOption) -> io::Result<()> {
        self.of(id, |inner| {
            let entry = inner.id(id)?;
            match option {
                CmOption::TypeOfService(tos) => entry.traffic_class = tos,
                CmOption::ReuseAddress(yes) => entry.may_share_port = yes,
                CmOption::Ipv6Only(yes) if entry.state == State::Idle => entry.is_ipv6_only = yes,
                CmOption::AckTimeout(code) if code < 32 => entry.ack_timeout = Some(code),
                CmOption::Ipv6Only(_) | CmOption::AckTimeout(_) => return Err(errno(libc::EINVAL)),
            }
            Ok(())
        })
    }

    /// Moves an identifier with its events from another file to this one. Returns how many events
    /// of it the program got.
    ///
    /// # Errors
    /// As [`Self::destroy_id`], of the file `from`.
    pub fn migrate(&self, id: u32, from: &Self) -> io::Result<u32> {
        from.of(id, |inner| {
            let events = inner
                .files
                .get_mut(&from.key)
                .map_or_else(Vec::new, |file| file.take(|event| event.of == id));
            let entry = inner.id(id)?;
            entry.file = self.key;
            let events_reported = entry.events_reported;
            for group in inner.groups.values_mut().filter(|group| group.of == id) {
                group.file = self.key;
            }
            for event in events {
                // A request takes its new identifier along.
                if let Ok(requested) = inner.id(event.id) {
                    requested.file = self.key;
                }
                inner.push_to(self.key, event);
            }
            Ok(events_reported)
        })
    }

    /// Asks the subnet administrator for a service. Ethernet has none.
    ///
    /// # Errors
    /// EINVAL if it is not bound to a device, EOPNOTSUPP else.
    pub fn resolve_service(&self, id: u32) -> io::Result<()> {
        self.of(id, |inner| {
            let is_bound = inner.in_state(id, &[State::Bound])?.device.is_some();
            let code = if is_bound {
                libc::EOPNOTSUPP
            } else {
                libc::EINVAL
            };
            Err(errno(code))
        })
    }

    /// Writes an event of the identifier, behind those that wait, with a status and an argument of
    /// the program's.
    ///
    /// # Errors
    /// As [`Self::destroy_id`].
    pub fn write_event(
        &self,
        id: u32,
        kind: CmEventKind,
        status: i32,
        argument: u64,
    ) -> io::Result<()> {
        self.of(id, |inner| {
            inner.push(id, kind, status, CmParam::Argument(argument));
            Ok(())
        })
    }

    // ---- connections -------------------------------------------------------------------------

    /// Connects to the resolved peer, or asks for its datagram queue pair.
    ///
    /// # Errors
    /// EINVAL in the wrong state, or for too much private data.
    pub fn connect(&self, id: u32, param: &ConnectionParam) -> io::Result<()> {
        self.of(id, |inner| inner.connect(id, param))
    }

    /// Listens; at most `backlog` requests wait to be read as events (0: as many as possible).
    ///
    /// # Errors
    /// EADDRINUSE if another one listens there, EINVAL in the wrong state.
    pub fn listen(&self, id: u32, backlog: u32) -> io::Result<()> {
        self.of(id, |inner| inner.listen(id, backlog))
    }

    /// Says yes to a request, and gives the identifier its `uid`; or confirms a reply (`param`
    /// absent).
    ///
    /// # Errors
    /// EINVAL in the wrong state, or for too much private data.
    pub fn accept(
        &self,
        id: u32,
        uid: Option<u64>,
        param: Option<&ConnectionParam>,
    ) -> io::Result<()> {
        self.of(id, |inner| inner.accept(id, uid, param))
    }

    /// Says no to a request; `reason` 0 is "the program said so".
    ///
    /// # Errors
    /// EINVAL in the wrong state, for another reason than a program may give, or for too much
    /// private data.
    pub fn reject(&self, id: u32, reason: u8, private_data: &[u8]) -> io::Result<()> {
        self.of(id, |inner| inner.reject(id, reason, private_data))
    }

    /// Ends a connection.
    ///
    /// # Errors
    /// EINVAL if there never was one.
    pub fn disconnect(&self, id: u32) -> io::Result<()> {
        self.of(id, |inner| inner.disconnect(id))
    }

    /// Data came before the peer said that it is ready.
    ///
    /// # Errors
    /// EISCONN if that is known already, EINVAL in another state.
    pub fn notify_established(&self, id: u32) -> io::Result<()> {
        self.of(id, |inner| inner.notify_established(id))
    }

    /// What a queue pair has to be set to, to go to `state`.
    ///
    /// # Errors
    /// EINVAL if that is not known yet.
    pub fn qp_attributes(&self, id: u32, state: QpState) -> io::Result<CmQpAttributes> {
        self.of(id, |inner| inner.qp_attributes(id, state))
    }

    // ---- multicast ---------------------------------------------------------------------------

    /// Joins a multicast group; tells its address by an event. Returns the group's number.
    ///
    /// # Errors
    /// EINVAL if the identifier is not bound to a device, or not for datagrams.
    pub fn join(&self, id: u32, uid: u64, group: SocketAddr) -> io::Result<u32> {
        self.of(id, |inner| inner.join(id, uid, canonical(group)))
    }

    /// Leaves a group. Returns how many events of it the program got.
    ///
    /// # Errors
    /// ENOENT if there is none with this number.
    pub fn leave(&self, group: u32) -> io::Result<u32> {
        self.with(|inner| inner.leave(self.key, group))
    }
}

impl Inner {
    /// The program got an event.
    fn count(&mut self, event: &CmEvent) {
        if let Ok(of) = self.id(event.of) {
            of.events_reported += 1;
            if event.kind == CmEventKind::ConnectRequest {
                of.pending = of.pending.saturating_sub(1);
            }
        }
        if event.kind == CmEventKind::ConnectRequest
            && let Ok(requested) = self.id(event.id)
        {
            requested.listener = None;
        }
        if event.kind == CmEventKind::MulticastJoin
            && let Some(group) = self.groups.get_mut(&event.id)
        {
            group.events_reported += 1;
        }
    }
}

/// A thread of the program that waits for an event of a file.
#[derive(Debug)]
pub struct CmWait {
    file: CmFile,
    /// The file's, whatever becomes of the program's.
    held: Private<OwnedFd>,
    /// Readable once a process has ended that is served before this one.
    elder: Option<Arc<OwnedFd>>,
}

impl BlockingCall for CmWait {
    type Answer = CmEvent;

    fn step(&mut self, _is_ready: bool) -> Step<CmEvent> {
        let fd = self.held.as_raw_fd();
        // SAFETY: plain integers.
        let is_nonblocking = || unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK != 0;
        if inherited::has(self.file.key) && !inherited::take_over(Some(Duration::ZERO)) {
            // The parent is served.
            return match is_nonblocking() {
                true => Step::Done(Err(errno(libc::EAGAIN))),
                false => Step::Wait(inherited::waiting(&mut self.elder)),
            };
        }
        let popped = self.file.with(|inner| {
            let file = inner.files.get_mut(&self.file.key);
            let event = file.ok_or_else(|| errno(libc::EBADF))?.pop(fd);
            Ok(event.inspect(|event| inner.count(event)))
        });
        if let Some(result) = popped.transpose() {
            return Step::Done(result);
        }
        if is_nonblocking() {
            return Step::Done(Err(errno(libc::EAGAIN)));
        }
        Step::Wait(Waiting {
            fd,
            timeout_ns: None,
        })
    }
}
