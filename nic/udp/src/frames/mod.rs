//! Past the kernel's IP layer, where the process may (CAP_NET_RAW): datagrams, and batches of them, up to 18 KiB leave as Ethernet frames and arrive in a
//! ring of memory (packet(7)) that is looked at without a system call. A 64 B ping-pong takes about two thirds of the time
//! so; see the README.
//!
//! The kernel goes on to have its say: what is longer, has IP options, may be fragmented or comes another way takes the UDP
//! socket, and a filter there drops just what the ring takes. Frames go to neighbours only, at the link addresses that the kernel
//! knows, and through the interface's queueing discipline.

mod filter;
mod neighbours;
mod ring;
mod sender;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

use crate::interfaces::interfaces;
use crate::receive::RecvMeta;
use crate::{Transmit, sockopt};
use filter::Flow;
use ring::Ring;
use sender::Sender;

/// Looks after which the socket is read only now and then, if it brought nothing.
const LIVELY_LOOKS: u32 = 4096;
/// Then it is read once in so many looks.
const LOOKS_PER_READ: u32 = 64;

/// So many looks take about as long as one at a socket, and count as one.
const LOOKS_PER_ROUND: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Frames {
    ring: Mutex<Ring>,
    receiver: OwnedFd,
    sender: Mutex<Sender>,
    /// Looks since the socket last brought something.
    looks: AtomicU32,
    /// What the socket counts as dropped and was not, so far: what the ring took.
    taken: AtomicU32,
}

impl Frames {
    /// A way past the IP layer for the UDP socket `socket` that is bound to `local`, on the interface that has the
    /// address; None where there cannot be one.
    pub(crate) fn open(socket: BorrowedFd<'_>, local: SocketAddr) -> Option<Self> {
        let SocketAddr::V4(local) = local else {
            return None;
        };
        Self::try_open(socket, local).ok().flatten()
    }

    fn try_open(socket: BorrowedFd<'_>, local: SocketAddrV4) -> io::Result<Option<Self>> {
        if !ring::tells_segments() {
            return Ok(None);
        }
        let own = IpAddr::V4(*local.ip());
        let receiver = packet_socket()?;
        let all = interfaces()?;
        let Some((interface, address)) = all.iter().find_map(|interface| {
            let address = interface.addresses.iter().find(|a| a.ip == own)?;
            Some((interface, address))
        }) else {
            return Ok(None);
        };
        let Some(mac) = interface.mac.filter(|_| !interface.loopback) else {
            return Ok(None);
        };
        let flow = Flow {
            ifindex: interface.index,
            local,
            max_bytes: ring::MAX_IP_BYTES,
        };
        let ring = Ring::open(receiver.as_fd(), &flow)?;
        let sender = Sender::open(interface, mac, local, address.prefix_bits)?;
        // Last: from here on the socket has no more of what the ring takes.
        filter::attach(socket, &flow.rejects())?;
        Ok(Some(Self {
            ring: Mutex::new(ring),
            receiver,
            sender: Mutex::new(sender),
            looks: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }))
    }

    /// What becomes readable when the ring has something.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Whether the socket is to be read, as there is nothing in the ring.
    pub(crate) fn is_socket_due(&self) -> bool {
        let looks = self.looks.load(Ordering::Relaxed).saturating_add(1);
        // Wraps to where it is not lively.
        self.looks.store(
            if looks == u32::MAX {
                LIVELY_LOOKS
            } else {
                looks
            },
            Ordering::Relaxed,
        );
        if looks.is_multiple_of(LOOKS_PER_READ) {
            // A link that went down leaves an error, which wakes whoever waits until somebody asks for it.
            let _ = sockopt::get_int(self.receiver.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
            return true;
        }
        looks < LIVELY_LOOKS
    }

    /// Whether the last look was at the ring alone, as most are.
    pub(crate) fn is_quick(&self) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        looks >= LIVELY_LOOKS && !looks.is_multiple_of(LOOKS_PER_ROUND)
    }

    /// The socket brought something.
    pub(crate) fn note_socket(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// See [`Socket::abandon`](crate::Socket::abandon).
    pub(crate) fn abandon(&self) {
        lock(&self.ring).abandon();
        lock(&self.sender).abandon();
    }

    /// Datagrams dropped for want of room, of those that the socket, with its filter, dropped.
    pub(crate) fn receive_drops(&self, of_socket: u32) -> io::Result<u32> {
        let (all, dropped) = Ring::statistics(self.receiver.as_fd())?;
        let taken = all.wrapping_sub(dropped);
        let taken = self
            .taken
            .fetch_add(taken, Ordering::Relaxed)
            .wrapping_add(taken);
        let drops = of_socket.wrapping_sub(taken);
        // The ring is a moment ahead of the socket, and a firewall may be between them.
        Ok(if drops.cast_signed() < 0 { 0 } else { drops })
    }

    /// Frames sent and received so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (lock(&self.sender).sent(), lock(&self.ring).received())
    }

    /// Takes the next datagram, or batch of them, out of the ring.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> Option<RecvMeta> {
        lock(&self.ring).receive(bytes)
    }

    /// Sends a datagram, or a batch of them, to a neighbour, unless it is long. False: nothing was sent, the socket has to.
    pub(crate) fn send(&self, transmit: &Transmit<'_>, length: usize) -> bool {
        lock(&self.sender).send(transmit, length)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A packet socket that receives nothing yet.
fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain integers; a descriptor that is not negative is ours.
    unsafe {
        match libc::socket(libc::AF_PACKET, kind, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Binds a packet socket to an interface, for frames of `protocol` (ETH_P_*; 0: none).
fn bind(fd: BorrowedFd<'_>, ifindex: u32, protocol: u16) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as c_int;
    let bytes = std::mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`.
    let status = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
