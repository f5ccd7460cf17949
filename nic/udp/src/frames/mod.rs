//! Past the kernel's IP layer, where the process may (CAP_NET_RAW): datagrams, and batches of them,
//! leave as Ethernet frames and arrive in rings of memory (packet(7)) that are looked at without a
//! system call: one for what is short, up to 18 KiB, and one for whole batches. A 64 B ping-pong
//! takes about two thirds of the time so; see the README.
//!
//! The kernel goes on to have its say: what is longer, has IP options, may be fragmented or comes
//! another way takes the UDP socket, and a filter there drops just what the ring takes. Frames go
//! to neighbours only, at the link addresses that the kernel knows, and through the interface's
//! queueing discipline; and both ways only where routes and IPsec policies say nothing else
//! ([`reach`]).

pub(crate) mod filter;
mod leftovers;
pub(crate) mod neighbours;
mod net;
pub(crate) mod packet_socket;
mod reach;
pub(crate) mod ring;
mod rules;
mod sender;
mod xfrm;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::inherited::Private;
use crate::interfaces::interfaces;
use crate::received::RecvMeta;
use crate::sockopt;
use crate::transmit::Transmit;
use filter::Flow;
use reach::Reach;
use ring::{Ring, Shape};
use sender::Sender;

/// Looks after which the socket is read only now and then, if it brought nothing.
const LIVELY_LOOKS: u32 = 4096;
/// Then it is read once in so many looks.
const LOOKS_PER_READ: u32 = 256;
/// In so many reads errors are asked for, which costs half as much as one.
const READS_PER_ERROR: u32 = 16;

/// So many looks take about as long as one at a socket, and count as one.
pub(crate) const LOOKS_PER_ROUND: u32 = 8;

/// Where frames arrive.
#[derive(Debug)]
struct Rings {
    short: Ring,
    long: Ring,
}

/// One of [`Rings`].
#[derive(Clone, Copy)]
enum Which {
    Short,
    Long,
}

impl Rings {
    /// Where the frame is that came first.
    #[inline]
    fn first(&self) -> Option<Which> {
        // What is seen in a ring came after what is in the other one by then: so each is looked at
        // again behind the other.
        let came = |ring: &Ring| ring.has_next().then(|| ring.next_came_at());
        if let Some(short) = came(&self.short) {
            let is_second = came(&self.long).is_some_and(|long| long < short);
            return Some(if is_second { Which::Long } else { Which::Short });
        }
        let long = came(&self.long)?;
        let is_second = came(&self.short).is_some_and(|short| short <= long);
        Some(if is_second { Which::Short } else { Which::Long })
    }
}

/// Where frames leave from and arrive.
#[derive(Clone, Copy, Debug)]
struct Place {
    ifindex: u32,
    local: SocketAddrV4,
    prefix_bits: u8,
}

impl Place {
    fn look(&self) -> Reach {
        Reach::look(self.ifindex, *self.local.ip(), self.prefix_bits)
    }

    fn flow<'a>(&self, reach: &'a Reach, bytes: RangeInclusive<u16>) -> Flow<'a> {
        Flow {
            reach,
            ifindex: self.ifindex,
            local: self.local,
            bytes,
        }
    }
}

/// How long the IP packets are that each of the rings takes, and both.
fn lengths() -> [RangeInclusive<u16>; 3] {
    let [short, long] = [Shape::SHORT, Shape::LONG].map(Shape::max_ip_bytes);
    [0..=short, short + 1..=long, 0..=long]
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The packet sockets of the rings, in their order. Closed before the rings' memory goes, which
    /// ends them: see [`leftovers`].
    receivers: [Private<OwnedFd>; 2],
    rings: Mutex<Rings>,
    sender: Mutex<Sender>,
    /// The address, its interface and the length of its prefix.
    place: Place,
    /// What the filters go by. Held by the thread that changes them.
    reach: Mutex<Reach>,
    /// Whether any neighbour is reached.
    is_open: AtomicBool,
    /// Looks since the socket last brought something.
    looks: AtomicU32,
    /// How often the socket was read for nothing in the rings.
    reads: AtomicU32,
    /// What the socket counts as dropped and was not, so far: what the rings took.
    taken: AtomicU32,
}

impl Frames {
    /// A way past the IP layer for the UDP socket `socket` that is bound to `local`, on the
    /// interface that has the address; None where there cannot be one.
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
        let place = Place {
            ifindex: interface.index,
            local,
            prefix_bits: address.prefix_bits,
        };
        let reach = place.look();
        let [short, long, all] = lengths();
        let receivers = [
            packet_socket::packet_socket()?,
            packet_socket::packet_socket()?,
        ];
        let [short_fd, long_fd] = &receivers;
        // The kernel gives a frame to the socket that was bound last first: what is short is in a
        // hurry.
        let long_ring = Ring::open(long_fd.as_fd(), Shape::LONG, &place.flow(&reach, long))?;
        let short_ring = Ring::open(short_fd.as_fd(), Shape::SHORT, &place.flow(&reach, short))?;
        let sender = Sender::open(interface, mac, local, reach.clone())?;
        // Last: from here on the socket has no more of what the rings take.
        filter::attach(socket, &place.flow(&reach, all).rejects())?;
        Ok(Some(Self {
            receivers,
            rings: Mutex::new(Rings {
                short: short_ring,
                long: long_ring,
            }),
            sender: Mutex::new(sender),
            place,
            is_open: AtomicBool::new(reach.is_open()),
            reach: Mutex::new(reach),
            looks: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }))
    }

    /// What becomes readable when there is a frame.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers.iter().map(|fd| fd.as_fd())
    }

    /// A link that went down leaves an error in a packet socket, which wakes the threads that wait
    /// until one asks for it.
    pub(crate) fn forget_errors(&self) {
        for fd in self.fds() {
            let _ = sockopt::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR);
        }
    }

    /// Looks at routes and policies, and lets only those be reached past the IP layer that they say
    /// nothing else of.
    pub(crate) fn follow(&self, socket: BorrowedFd<'_>) {
        let mut reach = lock(&self.reach);
        let mut now = self.place.look();
        let all = interfaces().unwrap_or_default();
        match all.iter().find(|one| one.index == self.place.ifindex) {
            Some(interface) => lock(&self.sender).follow(now.clone(), interface),
            None => now = now.closed(),
        }
        self.change_reach(&mut reach, now, socket);
    }

    fn change_reach(&self, reach: &mut Reach, now: Reach, socket: BorrowedFd<'_>) {
        if *reach == now {
            return;
        }
        self.is_open.store(now.is_open(), Ordering::Relaxed);
        // In between what the socket drops is lost, lest anything arrive twice.
        let nobody = now.clone().closed();
        let [short, long, all] = lengths();
        let rings = |reach: &Reach| {
            for (fd, bytes) in self.fds().zip([&short, &long]) {
                filter::attach(fd, &self.place.flow(reach, bytes.clone()).accepts())?;
            }
            Ok(())
        };
        let attached: io::Result<()> = rings(&nobody)
            .and_then(|()| filter::attach(socket, &self.place.flow(&now, all).rejects()))
            .and_then(|()| rings(&now));
        // It fails for want of memory alone. Then the next news is a chance.
        *reach = if attached.is_ok() { now } else { nobody };
    }

    /// Whether the socket is to be read, as there is nothing in the rings.
    pub(crate) fn is_socket_due(&self) -> bool {
        if !self.is_open.load(Ordering::Relaxed) {
            return true;
        }
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
        let is_due = looks < LIVELY_LOOKS || looks.is_multiple_of(LOOKS_PER_READ);
        if is_due {
            let reads = self.reads.load(Ordering::Relaxed).wrapping_add(1);
            self.reads.store(reads, Ordering::Relaxed);
            if reads.is_multiple_of(READS_PER_ERROR) {
                self.forget_errors();
            }
        }
        is_due
    }

    /// Whether the last look was at memory alone, as most are.
    pub(crate) fn is_quick(&self) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let is_open = self.is_open.load(Ordering::Relaxed);
        is_open && looks >= LIVELY_LOOKS && !looks.is_multiple_of(LOOKS_PER_ROUND)
    }

    /// The socket brought something.
    pub(crate) fn note_socket(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    /// Datagrams dropped for want of room, of those that the socket, with its filter, dropped.
    pub(crate) fn receive_drops(&self, of_socket: u32) -> io::Result<u32> {
        let mut taken = 0;
        for fd in self.fds() {
            let (all, dropped) = Ring::statistics(fd)?;
            taken += all.wrapping_sub(dropped);
        }
        let taken = self
            .taken
            .fetch_add(taken, Ordering::Relaxed)
            .wrapping_add(taken);
        let drops = of_socket.wrapping_sub(taken);
        // The rings are a moment ahead of the socket, and a firewall may be between them.
        Ok(if drops.cast_signed() < 0 { 0 } else { drops })
    }

    /// Frames sent and received so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let rings = lock(&self.rings);
        let received = rings.short.received() + rings.long.received();
        (lock(&self.sender).sent(), received)
    }

    /// Takes the next datagram, or batch of them, into `bytes`.
    #[inline]
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> Option<RecvMeta> {
        let mut rings = lock(&self.rings);
        let meta = match rings.first()? {
            Which::Short => rings.short.receive(bytes),
            Which::Long => rings.long.receive(bytes),
        }?;
        let has_more = rings.first().is_some();
        Some(RecvMeta { has_more, ..meta })
    }

    /// Sends a datagram, or a batch of them, to a neighbour, unless it is long. False: nothing was
    /// sent, the socket has to.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        transmit: &Transmit<'_>,
        length: usize,
    ) -> bool {
        let mut sender = lock(&self.sender);
        let is_sent = sender.send(transmit, length);
        if let Some(now) = sender.changed_reach() {
            drop(sender);
            self.change_reach(&mut lock(&self.reach), now, socket);
        }
        is_sent
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
