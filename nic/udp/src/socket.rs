//! The socket: made, bound and set up once. Sending and receiving are in send.rs, receive.rs and
//! mmsg.rs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::{
    IPPROTO_IPV6, IPPROTO_UDP, IPV6_V6ONLY, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, c_int,
};

use crate::address::{RawAddress, canonical};
use crate::busy::BusyPoll;
use crate::capabilities::Capabilities;
use crate::frames::Frames;
use crate::held::Held;
use crate::inherited::Private;
use crate::link::{FrameKind, LinkEnd, Unreachable};
use crate::received::FrameHeader;
use crate::tap::Tap;
use crate::{buffer, busy, drops, ecn, gro, gso, multicast, pmtu, sockopt};

/// Accept UDP datagrams without a checksum over IPv6, too (<linux/udp.h>, Linux 3.16; RFC 6935).
/// RoCEv2 has its ICRC instead (IBTA A17.3.1.2): hardware and Linux rxe send none, and the kernel
/// would drop them.
const UDP_NO_CHECK6_RX: c_int = 102;

/// What a socket should be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Wanted receive buffer; see [`Socket::receive_buffer_bytes`] for what was got.
    pub receive_buffer_bytes: usize,
    /// Wanted send buffer; see [`Socket::send_buffer_bytes`].
    pub send_buffer_bytes: usize,
    /// Use GSO if the kernel has it.
    pub gso: bool,
    /// Use GRO if the kernel has it.
    pub gro: bool,
    /// Type of service of the datagrams. A [`Transmit`](crate::Transmit) with another one costs a
    /// control message.
    pub tos: u8,
    /// Ask for the type of service of received datagrams, a control message each.
    pub receive_tos: bool,
    /// Busy polling; None leaves the system's setting (net.core.busy_read).
    pub busy_poll: Option<BusyPoll>,
    /// Send and receive past the kernel's IP layer where that can be done: on an Ethernet with an
    /// IPv4 address, with CAP_NET_RAW, since Linux 6.2.
    pub frames: bool,
    /// Bytes of a stream whose memory the kernel keeps for a while after they were read, which
    /// spares its sender on the same host time: what fits a processor's own cache. 0 for none.
    pub held_bytes: usize,
    /// The interface by which datagrams to multicast groups leave; None leaves it to the routes,
    /// which a host need not have for them.
    pub multicast_ifindex: Option<u32>,
}

/// Frames of one send, at most: as many as other sockets have datagrams at least.
const FRAMES_PER_BATCH: usize = 64;

/// Nothing repeats what UC and UD lose while the receiver is away from its processor. This takes
/// 1,400 messages of 64 KiB: more than perftest sends unless told otherwise, which then waits for
/// each of them.
const RECEIVE_BUFFER_BYTES: usize = 48 << 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            send_buffer_bytes: 4 << 20,
            gso: true,
            gro: true,
            tos: 0,
            receive_tos: true,
            busy_poll: None,
            frames: false,
            held_bytes: 0,
            multicast_ifindex: None,
        }
    }
}

/// A non-blocking, unconnected UDP socket whose IP headers are known in advance: DF set, IPv4 ID 0
/// (k for the k-th segment, counted from 0, where a GSO batch is cut).
///
/// All methods take `&self`, so that threads can share it; two threads that send at once each send
/// whole batches.
#[derive(Debug)]
pub struct Socket {
    pub(crate) fd: Private<OwnedFd>,
    pub(crate) ipv6: bool,
    pub(crate) tos: u8,
    pub(crate) max_gso_segments: usize,
    /// Turned off for good by the first batch that the kernel refuses to cut.
    pub(crate) gso: AtomicBool,
    gro: bool,
    receive_tos: bool,
    local: SocketAddr,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
    pub(crate) tap: Option<Box<dyn Tap>>,
    pub(crate) frames: Option<Frames>,
    pub(crate) held: Held,
    /// Of one that has frames instead of UDP datagrams.
    pub(crate) link: Option<LinkEnd>,
}

impl Socket {
    /// Makes a socket and binds it, exclusively: SO_REUSEADDR and SO_REUSEPORT stay off, so that a
    /// port is whose bind succeeds. An IPv6 link-local address needs its scope. The UDP checksum is
    /// left to the kernel (on for IPv4 and IPv6; usually computed by the device or, over veth and
    /// loopback, not at all), because GSO refuses sockets without it. ICMP errors are not asked for
    /// (IP_RECVERR stays off): an unconnected socket then never reports them.
    ///
    /// # Errors
    ///
    /// EADDRINUSE: the port is taken, try another. EADDRNOTAVAIL: no address of this host (or,
    /// IPv6, still tentative). EMFILE, ENFILE, ENOBUFS, EACCES as in socket(2) and bind(2).
    pub fn bind(address: SocketAddr, options: &Options) -> io::Result<Self> {
        Self::bind_with(address, options, |_| Ok(()))
    }

    /// Makes a socket that hears what is sent to a multicast group, and nothing else, by way of the
    /// interface `ifindex`. Any number of sockets, also of other processes, may do so for the same
    /// group and port: each gets every datagram, those sent by this host included.
    ///
    /// # Errors
    ///
    /// As [`Self::bind`]; EINVAL: not a multicast address; ENODEV: no such interface; ENOBUFS: too
    /// many groups (net.ipv4.igmp_max_memberships).
    pub fn bind_multicast(group: SocketAddr, ifindex: u32, options: &Options) -> io::Result<Self> {
        let socket = Self::bind_with(group, options, multicast::share_port)?;
        multicast::join(socket.as_fd(), socket.local.ip(), ifindex)?;
        Ok(socket)
    }

    /// Makes a socket whose datagrams are frames from and to the address `local`. Its port is what
    /// peers of the same kind are told. Any number of sockets may have the same address: each gets
    /// the frames that its selector chooses.
    ///
    /// # Errors
    ///
    /// EPERM: no CAP_NET_RAW. EADDRNOTAVAIL: the interface does not have the address, or no link
    /// address.
    pub fn bind_frames(local: SocketAddr, kind: &FrameKind, options: &Options) -> io::Result<Self> {
        let local = canonical(local);
        let (owned, link) = LinkEnd::open(local, kind, options.receive_buffer_bytes)?;
        let fd = owned.as_fd();
        let receive_buffer_bytes = link.receive_buffer_bytes();
        let send_buffer_bytes = buffer::set_send_buffer(fd, options.send_buffer_bytes)?;
        Ok(Self {
            ipv6: local.is_ipv6(),
            tos: 0,
            max_gso_segments: FRAMES_PER_BATCH,
            gso: AtomicBool::new(options.gso),
            gro: false,
            receive_tos: false,
            local,
            receive_buffer_bytes,
            send_buffer_bytes,
            tap: None,
            frames: None,
            held: Held::default(),
            link: Some(link),
            fd: owned,
        })
    }

    /// Of a socket with frames: waits until the kernel knows the link address of the host that has
    /// an address, at most so long. Others leave that to the kernel.
    ///
    /// # Errors
    ///
    /// Why frames cannot go there.
    pub fn resolve(&self, to: IpAddr, patience: Duration) -> Result<(), Unreachable> {
        match &self.link {
            Some(link) => link.resolve(to, patience),
            None => Ok(()),
        }
    }

    /// Of a socket with frames: the header of those of a traffic class to an address, if its way is
    /// known.
    pub fn frame_header(&self, to: IpAddr, traffic_class: u8) -> Option<FrameHeader> {
        self.link.as_ref()?.header(to, traffic_class)
    }

    fn bind_with(
        address: SocketAddr,
        options: &Options,
        prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let address = canonical(address);
        let ipv6 = address.is_ipv6();
        let owned = open(ipv6)?;
        let fd = owned.as_fd();
        prepare(fd)?;
        if ipv6 {
            sockopt::set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1 as c_int)?;
            sockopt::set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1 as c_int)?;
        }
        pmtu::forbid_fragments(fd, ipv6)?;
        if options.tos != 0 {
            ecn::set_default(fd, ipv6, options.tos)?;
        }
        let receive_buffer_bytes = buffer::set_receive_buffer(fd, options.receive_buffer_bytes)?;
        let send_buffer_bytes = buffer::set_send_buffer(fd, options.send_buffer_bytes)?;
        if let Some(busy_poll) = options.busy_poll {
            busy::set(fd, busy_poll)?;
        }
        if let Some(ifindex) = options.multicast_ifindex {
            multicast::send_by(fd, ipv6, ifindex)?;
        }
        let max_gso_segments = if options.gso { gso::probe(fd) } else { 0 };
        // Before bind, so that not even the first datagram comes without.
        let gro = options.gro && gro::enable(fd);
        let receive_tos = options.receive_tos && ecn::enable_receive(fd, ipv6);
        let held = Held::prepare(fd, options.held_bytes, receive_buffer_bytes);
        sockopt::bind_fd(fd, address)?;
        let local = local_address(fd)?;
        let frames = if options.frames {
            Frames::open(fd, local)
        } else {
            None
        };
        Ok(Self {
            ipv6,
            tos: options.tos,
            max_gso_segments: if max_gso_segments == 0 {
                64
            } else {
                max_gso_segments
            },
            gso: AtomicBool::new(max_gso_segments > 0),
            gro,
            receive_tos,
            local,
            receive_buffer_bytes,
            send_buffer_bytes,
            tap: None,
            frames,
            held,
            link: None,
            fd: owned.into(),
        })
    }

    /// The same socket of the kernel under another descriptor, without the tap. The address stays
    /// bound until both are gone.
    ///
    /// # Errors
    ///
    /// EMFILE.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?.into(),
            gso: AtomicBool::new(self.gso.load(Ordering::Relaxed)),
            tap: None,
            frames: None,
            held: Held::default(),
            link: self.link.clone(),
            ..*self
        })
    }

    /// The address that the socket is bound to, with the port that the kernel chose if 0 was asked
    /// for.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Whether [`Self::bind_frames`] made it.
    pub fn has_frames_only(&self) -> bool {
        self.link.is_some()
    }

    /// What the socket can do now.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: self.gso.load(Ordering::Relaxed),
            max_gso_segments: self.max_gso_segments,
            gro: self.gro,
            tos: self.receive_tos,
            frames: self.frames.is_some(),
        }
    }

    /// Bytes of the receive buffer, in the kernel's accounting: twice what was granted, and a small
    /// datagram costs it 768 bytes or more.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Bytes of the send buffer, in the kernel's accounting.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// Whether a receive that brings nothing usually costs no system call now; see
    /// [`Options::frames`].
    pub fn is_quick(&self) -> bool {
        let is_quick = self.frames.as_ref().map(Frames::is_quick);
        is_quick.unwrap_or_else(|| self.link.as_ref().is_some_and(LinkEnd::is_quick))
    }

    /// Frames sent and received so far: a datagram or a batch each, instead of a system call.
    pub fn frame_counts(&self) -> (u64, u64) {
        self.frames.as_ref().map_or((0, 0), Frames::counts)
    }

    /// Routes, addresses or IPsec policies may have changed, which [`Changes`](crate::Changes)
    /// tells: lets past the IP layer only what these let go the same way.
    pub fn follow(&self) {
        if let Some(frames) = &self.frames {
            frames.follow(self.fd.as_fd());
        }
        if let Some(link) = &self.link {
            link.follow();
        }
    }

    /// Forgets errors that no receive tells of: a link that went down leaves one, which wakes the
    /// threads that wait for [`Self::readable_fds`] until this is called, or until some of the next
    /// receives do it.
    pub fn forget_errors(&self) {
        if let Some(frames) = &self.frames {
            frames.forget_errors();
        }
    }

    /// The descriptors that become readable when something has come.
    pub fn readable_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let frames = self.frames.iter().flat_map(Frames::fds);
        std::iter::once(self.fd.as_fd()).chain(frames)
    }

    /// Datagrams dropped so far because the receive buffer was full.
    pub fn receive_drops(&self) -> io::Result<u32> {
        if let Some(link) = &self.link {
            return link.receive_drops(self.fd.as_fd());
        }
        let drops = drops::receive_drops(self.fd.as_fd())?;
        match &self.frames {
            Some(frames) => frames.receive_drops(drops),
            None => Ok(drops),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn open(ipv6: bool) -> io::Result<OwnedFd> {
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: plain integers; a descriptor that is not negative is ours.
    unsafe {
        match libc::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    let mut length = RawAddress::CAPACITY;
    // SAFETY: the kernel writes at most `length` bytes into `raw`.
    let status =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &raw mut length) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    raw.to_socket_addr()
        .ok_or_else(|| io::Error::other("getsockname: neither an IPv4 nor an IPv6 address"))
}
