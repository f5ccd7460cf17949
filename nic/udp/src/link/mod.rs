//! Datagrams that are frames: behind the Ethernet header stands one of the layout of IPv6, whose
//! "next header" says what follows, and no UDP. RoCE v1 is such a protocol. For processes with
//! CAP_NET_RAW (packet(7)).
//!
//! There are no ports. Which of a host's sockets a frame is for, a word of its payload tells
//! ([`Selector`]). A sender's port, which peers of the same kind know each other by, is in the flow
//! label, which nothing else looks at: the reverse of what RoCEv2 makes of a flow label, whose
//! packets have the UDP source port for it.
//!
//! Frames go to neighbours only, and to the host itself ([`hops`]). They arrive in a ring of
//! memory, which is looked at without a system call; those that are alike are taken as one batch.

mod batch;
mod filter;
mod header;
mod hops;

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, sockaddr_ll};

use crate::error::{SendError, errno, settle};
use crate::frames::LOOKS_PER_ROUND;
use crate::frames::filter::attach;
use crate::frames::packet_socket::{bind, packet_socket};
use crate::frames::ring::{Ring, Shape};
use crate::gso::Segments;
use crate::inherited::Private;
use crate::received::{FrameHeader, RecvMeta};
use crate::transmit::{Sent, Transmit, raw_pieces};
use crate::uncancelled;
use batch::{Batch, split};
use header::{Ends, HEADER_BYTES, Kind};
use hops::{Hop, Hops};

pub use hops::Unreachable;

/// Frames of one system call, at most; their headers live on the stack.
const BATCH: usize = 64;
/// Frames of other hosts or interfaces that a receive passes over, at most.
const STRAYS: usize = 64;
/// How often to look whether a neighbour has answered.
const LOOK: Duration = Duration::from_millis(2);

/// Chooses among the frames for an address: the 32-bit word so many bytes into the payload, with
/// what the mask leaves of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Where the word is.
    pub offset_bytes: u32,
    /// The bits that count.
    pub mask: u32,
    /// What they have to be.
    pub value: u32,
}

/// What frames are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKind {
    /// The type in the Ethernet header.
    pub ether_type: u16,
    /// What the header behind that says of what follows.
    pub next_header: u8,
    /// Index of the interface.
    pub ifindex: u32,
    /// Which frames are for the socket.
    pub selector: Selector,
}

/// Whether the process may have sockets for frames.
///
/// # Errors
///
/// EPERM without CAP_NET_RAW in the network namespace's user namespace.
pub fn check_frames() -> io::Result<()> {
    packet_socket().map(drop)
}

/// See the module. Clones share what they know of neighbours.
#[derive(Clone, Debug)]
pub(crate) struct LinkEnd {
    kind: Kind,
    local: SocketAddr,
    hops: Arc<Mutex<Hops>>,
    inbox: Arc<Inbox>,
}

/// Where frames arrive.
#[derive(Debug)]
struct Inbox {
    ring: Mutex<Ring>,
    /// Bytes of memory that it has.
    bytes: usize,
    /// Looks at it that found nothing.
    looks: AtomicU32,
    /// Frames that it had no room for.
    drops: AtomicU32,
}

impl LinkEnd {
    /// A socket for frames from and to the address `local`, which an interface has, with about so
    /// much memory for those that arrive.
    pub(crate) fn open(
        local: SocketAddr,
        frames: &FrameKind,
        receive_buffer_bytes: usize,
    ) -> io::Result<(Private<OwnedFd>, Self)> {
        let kind = Kind {
            ether_type: frames.ether_type,
            next_header: frames.next_header,
        };
        let hops = Hops::look(local, frames.ifindex)?;
        let socket = packet_socket()?;
        let program = filter::program(kind, local.ip(), frames.selector);
        attach(socket.as_fd(), &program)?;
        let shape = Shape::of_frames(receive_buffer_bytes);
        let inbox = Inbox {
            ring: Mutex::new(Ring::of(socket.as_fd(), shape)?),
            bytes: shape.bytes(),
            looks: AtomicU32::new(0),
            drops: AtomicU32::new(0),
        };
        // Of all interfaces: what the host sends to itself comes by another one.
        bind(socket.as_fd(), 0, kind.ether_type)?;
        let end = Self {
            kind,
            local,
            hops: Arc::new(Mutex::new(hops)),
            inbox: Arc::new(inbox),
        };
        Ok((socket, end))
    }

    /// Bytes of memory for frames that arrive.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.inbox.bytes
    }

    /// Whether the last look, which found nothing, is not to count, as so many are as quick as one
    /// at a socket.
    pub(crate) fn is_quick(&self) -> bool {
        let looks = self.inbox.looks.load(Ordering::Relaxed);
        !looks.is_multiple_of(LOOKS_PER_ROUND)
    }

    /// Frames that there was no room for, so far.
    pub(crate) fn receive_drops(&self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        let (_, dropped) = Ring::statistics(fd)?;
        let before = self.inbox.drops.fetch_add(dropped, Ordering::Relaxed);
        Ok(before.wrapping_add(dropped))
    }

    fn hops(&self) -> MutexGuard<'_, Hops> {
        self.hops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses or routes may have changed.
    pub(crate) fn follow(&self) {
        let mut hops = self.hops();
        // Without the address nothing comes and goes until the socket is closed.
        if let Ok(now) = Hops::look(self.local, hops.ifindex()) {
            *hops = now;
        }
    }

    /// Waits until the kernel knows the neighbour's link address.
    pub(crate) fn resolve(&self, to: IpAddr, patience: Duration) -> Result<(), Unreachable> {
        let end = Instant::now() + patience;
        loop {
            let found = self.hops().find(to).map(drop);
            if found != Err(Unreachable::NoAnswer) || Instant::now() >= end {
                return found;
            }
            thread::sleep(LOOK);
        }
    }

    /// The header of frames of a traffic class to an address.
    pub(crate) fn header(&self, to: IpAddr, traffic_class: u8) -> Option<FrameHeader> {
        let hop = self.hops().find(to).ok()?;
        let raw = self.kind.emit(&self.ends(&hop, to), traffic_class, 0);
        self.kind.parse(&raw, 0).map(|(header, ..)| header)
    }

    fn ends(&self, hop: &Hop, to: IpAddr) -> Ends {
        Ends {
            from_mac: hop.from_mac,
            to_mac: hop.to_mac,
            from: self.local,
            to,
        }
    }

    /// Sends a frame for each segment.
    pub(crate) fn send(
        &self,
        fd: BorrowedFd<'_>,
        transmit: &Transmit<'_>,
        length: usize,
    ) -> Result<Sent, SendError> {
        let to = transmit.destination.address().ip();
        let Ok(hop) = self.hops().find(to) else {
            return Ok(Sent {
                bytes: length,
                lost: Some(libc::EHOSTUNREACH),
            });
        };
        let size = transmit
            .segment_size
            .map_or(length, usize::from)
            .clamp(1, length.max(1));
        let ends = self.ends(&hop, to);
        let header = |bytes| self.kind.emit(&ends, transmit.tos, bytes);
        let headers = Headers {
            full: header(size),
            last: header(length - (length.div_ceil(size).max(1) - 1) * size),
            size,
            to: link_address(&hop, self.kind),
        };
        let mut segments = Segments::new(raw_pieces(transmit.iov), size);
        let mut sent = Sent::default();
        while sent.bytes < length {
            let bytes = match headers.send(fd, &mut segments, length - sent.bytes) {
                Ok(bytes) => bytes,
                Err(libc::EINTR) => 0,
                Err(errno) => match settle(errno, length - sent.bytes) {
                    Err(SendError::WouldBlock) if sent.bytes > 0 => return Ok(sent),
                    Err(error) => return Err(error),
                    Ok(rest) => {
                        sent.lost = rest.lost;
                        rest.bytes
                    }
                },
            };
            sent.bytes += bytes;
            segments = Segments::behind(raw_pieces(transmit.iov), size, sent.bytes);
        }
        Ok(sent)
    }

    /// Takes the payload of the next frame into `bytes`, and of those behind it that are of the
    /// same batch; `None` if there is none.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> Option<RecvMeta> {
        let ring = &mut *self
            .inbox
            .ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for _ in 0..STRAYS {
            let Some((frame, ifindex)) = ring.peek() else {
                break;
            };
            let found = split(frame).and_then(|(header, payload)| {
                let (route, source, _) = self.kind.parse(header, self.scope())?;
                Some((Batch::begin(header, payload, bytes), route, source))
            });
            ring.pass();
            let Some((mut batch, route, source)) = found else {
                continue;
            };
            if !self.hops().may_come(ifindex, source.ip()) {
                continue;
            }
            while let Some((frame, by)) = ring.peek()
                && by == ifindex
                && split(frame).is_some_and(|(header, payload)| batch.add(header, payload, bytes))
            {
                ring.pass();
            }
            return Some(RecvMeta {
                source,
                len: batch.len,
                stride: batch.stride,
                // No router marks these, and a class that a program chose is no mark.
                tos: 0,
                truncated: batch.is_cut,
                has_more: ring.has_next(),
                frame: Some(route),
            });
        }
        self.inbox.looks.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn scope(&self) -> u32 {
        match self.local {
            SocketAddr::V6(local) => local.scope_id(),
            SocketAddr::V4(_) => 0,
        }
    }
}

/// What stands before the segments of a send.
struct Headers {
    full: [u8; HEADER_BYTES],
    last: [u8; HEADER_BYTES],
    size: usize,
    to: sockaddr_ll,
}

impl Headers {
    /// Sends as many of the next segments, which have so many bytes, as one system call takes.
    /// Returns how many bytes left; the error is the errno of the first.
    fn send(
        &self,
        fd: BorrowedFd<'_>,
        segments: &mut Segments<'_>,
        left: usize,
    ) -> Result<usize, c_int> {
        let mut pieces = Vec::with_capacity(4 * BATCH);
        let (mut starts, mut segment) = ([0; BATCH + 1], Vec::new());
        let mut count = 0;
        let mut planned = 0;
        while count < BATCH
            && let Some(length) = segments.next_into(&mut segment)
        {
            planned += length;
            let header = if planned == left {
                &self.last
            } else {
                &self.full
            };
            pieces.push(iovec {
                iov_base: header.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: HEADER_BYTES,
            });
            pieces.extend_from_slice(&segment);
            count += 1;
            starts[count] = pieces.len();
        }
        let mut messages = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH];
        for (message, bounds) in messages.iter_mut().zip(starts.windows(2)).take(count) {
            // SAFETY: all zeros is a valid msghdr.
            let mut msg_hdr: msghdr = unsafe { std::mem::zeroed() };
            msg_hdr.msg_name = (&raw const self.to).cast_mut().cast();
            msg_hdr.msg_namelen = size_of::<sockaddr_ll>() as u32;
            let of_message = &mut pieces[bounds[0]..bounds[1]];
            msg_hdr.msg_iov = of_message.as_mut_ptr();
            msg_hdr.msg_iovlen = of_message.len() as _;
            message.write(mmsghdr {
                msg_hdr,
                msg_len: 0,
            });
        }
        // SAFETY: the first `count` messages were written; what they point at lives here, or is the
        // kernel's to check (`Piece::from_raw`).
        let sent = unsafe {
            let messages = messages.as_mut_ptr().cast::<mmsghdr>();
            uncancelled::sendmmsg(fd.as_raw_fd(), messages, count as c_uint, 0)
        };
        match usize::try_from(sent) {
            Ok(sent) => Ok((sent * self.size).min(left)),
            Err(_) => Err(errno()),
        }
    }
}

fn link_address(hop: &Hop, kind: Kind) -> sockaddr_ll {
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut to: sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as libc::sa_family_t;
    to.sll_protocol = kind.ether_type.to_be();
    to.sll_ifindex = hop.ifindex as c_int;
    to.sll_halen = hop.to_mac.len() as u8;
    to.sll_addr[..6].copy_from_slice(&hop.to_mac);
    to
}
