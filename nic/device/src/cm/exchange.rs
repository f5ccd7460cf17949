//! Setting up the connection of an iWARP device: a TCP connection, and MPA's request and reply on
//! it. Nothing here waits.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use urxe_iwarp::{Initiator, Offer, Outcome, Responder, SetupError, Terms};
use urxe_proto::Instant;
use urxe_udp::{Interest, Private};
use urxe_wire::Qpn;

/// A peer that does not listen is asked again for so long. A program that tells its peer by another
/// way that it is about to listen may get no processor for a while.
const GRACE_NS: u64 = 500_000_000;
/// From one attempt to the next.
const RETRY_NS: u64 = 20_000_000;

/// How far the TCP connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tcp {
    /// To be tried again then.
    Refused(Instant),
    Connecting,
    Connected,
}

#[derive(Debug)]
enum Side {
    Active(Initiator),
    Passive(Responder),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    stream: Private<TcpStream>,
    tcp: Tcp,
    side: Side,
    /// Bytes behind the peer's frame.
    rest: Vec<u8>,
    addresses: (SocketAddr, SocketAddr),
    retries_until: Instant,
    /// The identifier that it belongs to; while it has not asked for anything, the listener.
    pub(super) id: u32,
    /// The queue pair that is to have the connection.
    pub(super) qp: Qpn,
}

/// What became of an exchange.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing yet.
    Pending,
    /// It is set up.
    Established(Box<Established>),
    /// There is no connection.
    Failed(Failure),
}

/// A connection that both ends want.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) stream: TcpStream,
    pub(super) terms: Terms,
    /// What has come behind the peer's frame.
    pub(super) rest: Vec<u8>,
    /// Of the reply.
    pub(super) private_data: Vec<u8>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// TCP says why.
    Tcp(io::Error),
    /// MPA says why, with the private data of a rejection.
    Mpa(SetupError, Vec<u8>),
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Exchange {
    /// Begins to connect.
    ///
    /// # Errors
    /// EINVAL for too much private data, and what the operating system says.
    pub(super) fn connect(
        (source, destination): (SocketAddr, SocketAddr),
        offer: Offer,
        private_data: &[u8],
        (id, qp): (u32, Qpn),
        now: Instant,
    ) -> io::Result<Self> {
        let initiator = Initiator::new(now, offer, private_data)
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(Self {
            stream: dial(source, destination)?.into(),
            tcp: Tcp::Connecting,
            side: Side::Active(initiator),
            rest: Vec::new(),
            addresses: (source, destination),
            retries_until: now.after(GRACE_NS),
            id,
            qp,
        })
    }

    /// Takes a connection to a listener in.
    ///
    /// # Errors
    /// When it is over already.
    pub(super) fn accepted(stream: TcpStream, listener: u32, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let addresses = (stream.local_addr()?, stream.peer_addr()?);
        Ok(Self {
            stream: stream.into(),
            tcp: Tcp::Connected,
            side: Side::Passive(Responder::new(now)),
            rest: Vec::new(),
            addresses,
            retries_until: now,
            id: listener,
            qp: Qpn::new(0),
        })
    }

    /// Its own address, and the peer's.
    pub(super) const fn addresses(&self) -> (SocketAddr, SocketAddr) {
        self.addresses
    }

    /// What a peer asks for, if it does: its side.
    pub(super) const fn responder(&mut self) -> Option<&mut Responder> {
        match &mut self.side {
            Side::Passive(responder) => Some(responder),
            Side::Active(_) => None,
        }
    }

    fn outcome(&self) -> Outcome {
        match &self.side {
            Side::Active(initiator) => initiator.outcome(),
            Side::Passive(responder) => responder.outcome(),
        }
    }

    fn output(&self) -> &[u8] {
        match &self.side {
            Side::Active(initiator) => initiator.output(),
            Side::Passive(responder) => responder.output(),
        }
    }

    /// Whether it reads: not what is behind a request.
    fn reads(&self) -> bool {
        !matches!(&self.side, Side::Passive(responder) if responder.request().is_some())
    }

    /// What to wait for.
    pub(super) fn interest(&self) -> Interest {
        match (self.tcp, self.output().is_empty(), self.reads()) {
            (Tcp::Refused(_), ..) => Interest::NONE,
            (Tcp::Connecting, ..) | (Tcp::Connected, false, false) => Interest::WRITE,
            (Tcp::Connected, false, true) => Interest::READ_WRITE,
            (Tcp::Connected, true, true) => Interest::READ,
            (Tcp::Connected, true, false) => Interest::NONE,
        }
    }

    /// Whether its socket is of no use any more, and there is another one later.
    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.tcp, Tcp::Refused(_))
    }

    /// When it is to be looked at, whatever comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let frame = match &self.side {
            Side::Active(initiator) => initiator.poll_timeout(),
            Side::Passive(responder) => responder.poll_timeout(),
        };
        match self.tcp {
            Tcp::Refused(at) => Some(frame.map_or(at, |frame| frame.min(at))),
            _ => frame,
        }
    }

    /// Does what can be done now. Whether the socket is another one than before, and what became of
    /// it.
    pub(super) fn advance(&mut self, now: Instant) -> (bool, Progress) {
        let mut is_new = false;
        if let Tcp::Refused(at) = self.tcp
            && at <= now
        {
            match dial(self.addresses.0, self.addresses.1) {
                Ok(stream) => {
                    self.stream = stream.into();
                    self.tcp = Tcp::Connecting;
                    is_new = true;
                }
                Err(error) => return (false, Progress::Failed(Failure::Tcp(error))),
            }
        }
        let progress = self
            .exchange(now)
            .unwrap_or_else(|error| Progress::Failed(Failure::Tcp(error)));
        (is_new, progress)
    }

    fn exchange(&mut self, now: Instant) -> io::Result<Progress> {
        if self.tcp == Tcp::Connecting {
            self.follow_connecting(now)?;
        }
        if self.tcp == Tcp::Connected {
            // First what has come: a peer that rejects may reset the connection behind its reason.
            self.read()?;
            if let Outcome::Failed(_) = self.outcome() {
                // The reason counts, whether or not the peer still takes something.
                let _ = self.write();
            } else if let Some(error) = self.stream.take_error()? {
                return Err(error);
            } else {
                self.write()?;
            }
        }
        let mut private_data = Vec::new();
        match &mut self.side {
            Side::Active(initiator) => {
                initiator.handle_timeout(now);
                private_data.extend_from_slice(initiator.private_data());
            }
            Side::Passive(responder) => responder.handle_timeout(now),
        }
        Ok(match self.outcome() {
            Outcome::Established(terms) if self.output().is_empty() => {
                Progress::Established(Box::new(Established {
                    stream: self.stream.try_clone()?,
                    terms,
                    rest: std::mem::take(&mut self.rest),
                    private_data,
                }))
            }
            Outcome::Pending | Outcome::Established(_) => Progress::Pending,
            // What is to be sent of it was: no more than the buffer of the socket holds.
            Outcome::Failed(error) => Progress::Failed(Failure::Mpa(error, private_data)),
        })
    }

    /// Looks whether TCP has connected, or been refused.
    fn follow_connecting(&mut self, now: Instant) -> io::Result<()> {
        match self.stream.take_error()? {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if now >= self.retries_until {
                    return Err(error);
                }
                self.tcp = Tcp::Refused(now.after(RETRY_NS));
            }
            Some(error) => return Err(error),
            None => {
                if self.stream.peer_addr().is_ok() {
                    self.addresses.0 = self.stream.local_addr()?;
                    self.stream.set_nodelay(true)?;
                    self.tcp = Tcp::Connected;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        loop {
            let output = self.output();
            if output.is_empty() {
                return Ok(());
            }
            match (&*self.stream).write(output) {
                Ok(len) => match &mut self.side {
                    Side::Active(initiator) => initiator.handle_sent(len),
                    Side::Passive(responder) => responder.handle_sent(len),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the peer's frame is there, and little more.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            if !self.reads() || self.outcome() != Outcome::Pending {
                return Ok(());
            }
            match (&*self.stream).read(&mut buffer) {
                Ok(0) => match &mut self.side {
                    Side::Active(initiator) => initiator.handle_end(),
                    Side::Passive(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                },
                Ok(len) => {
                    let taken = match &mut self.side {
                        Side::Active(initiator) => initiator.handle_bytes(&buffer[..len]),
                        Side::Passive(responder) => responder.handle_bytes(&buffer[..len]),
                    };
                    self.rest.extend_from_slice(&buffer[taken..len]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Begins a TCP connection. A source port that is taken is replaced by any.
fn dial(source: SocketAddr, destination: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::from(socket(destination)?);
    let fd = stream.as_raw_fd();
    let bind = |from| {
        with_address(from, |at, len| {
            // SAFETY: an address of that length.
            unsafe { libc::bind(fd, at, len) }
        })
    };
    reuse_address(fd)?;
    if let Err(error) = bind(source) {
        if error.raw_os_error() != Some(libc::EADDRINUSE) {
            return Err(error);
        }
        bind(SocketAddr::new(source.ip(), 0))?;
    }
    let connected = with_address(destination, |at, len| {
        // SAFETY: an address of that length.
        unsafe { libc::connect(fd, at, len) }
    });
    match connected {
        // Told once more by the socket, which is asked.
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(stream),
        Err(error) => Err(error),
        Ok(()) => Ok(stream),
    }
}

/// A TCP socket that is bound to an address, of which port 0 stands for any that is free,
/// non-blocking. It does not listen yet. A port that the kernel has chosen is for this socket
/// alone.
pub(super) fn bound(source: SocketAddr, is_v6_only: bool) -> io::Result<TcpListener> {
    let socket = TcpListener::from(socket(source)?);
    let fd = socket.as_raw_fd();
    if source.port() != 0 {
        reuse_address(fd)?;
    }
    if source.is_ipv6() {
        set(fd, (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), is_v6_only)?;
    }
    with_address(source, |at, len| {
        // SAFETY: an address of that length.
        unsafe { libc::bind(fd, at, len) }
    })?;
    Ok(socket)
}

/// Begins to listen. Once the socket is closed, another may listen on its port at once.
pub(super) fn listen(socket: &TcpListener, backlog: libc::c_int) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    reuse_address(fd)?;
    // SAFETY: plain integers.
    match unsafe { libc::listen(fd, backlog) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A TCP socket for addresses like this one, non-blocking.
fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers; a descriptor that is not negative is ours.
    unsafe {
        match libc::socket(family, kind, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Lets a port be used that a connection used which ended a short while ago.
fn reuse_address(fd: RawFd) -> io::Result<()> {
    set(fd, (libc::SOL_SOCKET, libc::SO_REUSEADDR), true)
}

fn set(fd: RawFd, (level, name): (libc::c_int, libc::c_int), value: bool) -> io::Result<()> {
    let value = libc::c_int::from(value);
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: an int, of the length given.
    match unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An IPv4 address that is written as an IPv6 one is an IPv4 address.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        _ => address,
    }
}

/// Calls `call` with an address as C has it.
fn with_address(
    address: SocketAddr,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> libc::c_int,
) -> io::Result<()> {
    let status = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all zeros is a valid address.
            let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            call(
                (&raw const raw).cast(),
                size_of_val(&raw) as libc::socklen_t,
            )
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            call(
                (&raw const raw).cast(),
                size_of_val(&raw) as libc::socklen_t,
            )
        }
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
