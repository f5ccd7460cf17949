//! Sending frames: the headers that the kernel would write, and the datagrams behind them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{CLOCK_MONOTONIC_COARSE, c_int, c_void, iovec, msghdr};

use super::leftovers;
use super::neighbours::{ethernet_address, goes_as_it_is};
use super::reach::{Reach, TTL};
use super::ring::{GSO_UDP_L4, PACKET_VNET_HDR, SOL_PACKET, Shape};
use crate::clock::now_ns;
use crate::inherited::Private;
use crate::interfaces::Interface;
use crate::transmit::raw_pieces;
use crate::transmit::{Framing, Transmit};
use crate::{buffer, sockopt, uncancelled};

const VNET_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// What stands before a datagram: `struct virtio_net_hdr`, Ethernet, IPv4 without options, UDP.
const HEADERS_BYTES: usize = VNET_BYTES + ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
/// What is longer the other end would not take out of its ring.
const PAYLOAD_MAX: usize = Shape::LONG.max_ip_bytes() as usize - IP_BYTES - UDP_BYTES;
/// Of a stream, batches up to two full packets and an acknowledgement go as frames: that much is a
/// message, too. Longer ones gain little, and may fill the peer's ring, ...
const FULL_PACKETS: usize = 3;
const STREAM_MAX_BYTES: usize = 9156;
/// ... unless it is no longer than this: messages of a few bytes.
const MANY_MAX_BYTES: usize = 4096;
/// Frames are copied into one piece up to this payload.
const WHOLE_MAX: usize = 2048;
/// virtio_net_hdr.flags: the checksum is for the interface to make.
const NEEDS_CSUM: u8 = 1;
/// A link address is asked for again after this long, nanoseconds.
const KNOWN_NS: u64 = 1_000_000_000;
/// One that the kernel does not have yet, sooner: it asks for it when the socket sends.
const UNKNOWN_NS: u64 = 10_000_000;
/// Room for what waits on a slow link.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Neighbours remembered.
const NEIGHBOURS_MAX: usize = 256;
/// A batch is copied into one piece of the kernel's memory up to this payload: with what the kernel
/// puts behind it, 32 KiB. Longer pieces it has to look for where memory is scattered.
const IN_ONE_PIECE_MAX: usize = 32_000;

/// So long after a long batch, which takes the socket, short ones to the same neighbour do, too:
/// they would overtake it in the ring, if no thread read the socket meanwhile.
const AFTER_LONG_NS: u64 = 20_000_000;

#[derive(Debug)]
struct Neighbour {
    ip: Ipv4Addr,
    address: Option<[u8; 6]>,
    until_ns: u64,
    /// When the last long batch is as old as that.
    socket_until_ns: u64,
}

#[derive(Debug)]
pub(super) struct Sender {
    fd: Outlet,
    /// For questions about neighbours, which a packet socket does not answer.
    questions: OwnedFd,
    interface: String,
    mtu_bytes: usize,
    mac: [u8; 6],
    local: SocketAddrV4,
    /// The neighbours that the tables say may be reached.
    reach: Reach,
    /// Those of them of which the kernel has turned out to have another opinion: see
    /// [`goes_as_it_is`].
    refused: Vec<Ipv4Addr>,
    /// Those are others than before.
    has_news: bool,
    neighbours: Vec<Neighbour>,
    pieces: Vec<iovec>,
    /// Room for a frame in one piece.
    frame: Box<[u8; HEADERS_BYTES + WHOLE_MAX]>,
    sent: u64,
}

// SAFETY: the pieces are of the send that is going on.
unsafe impl Send for Sender {}

/// The packet socket to send by, which is closed in the background.
#[derive(Debug)]
struct Outlet(Option<Private<OwnedFd>>);

impl Outlet {
    /// Its number; -1 only while it is dropped.
    #[inline]
    fn number(&self) -> RawFd {
        self.0.as_ref().map_or(-1, |fd| fd.as_raw_fd())
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            leftovers::close(socket);
        }
    }
}

impl Sender {
    pub(super) fn open(
        interface: &Interface,
        mac: [u8; 6],
        local: SocketAddrV4,
        reach: Reach,
    ) -> io::Result<Self> {
        let fd = super::packet_socket::packet_socket()?;
        sockopt::set(fd.as_fd(), SOL_PACKET, PACKET_VNET_HDR, 1 as c_int)?;
        buffer::set_send_buffer(fd.as_fd(), SEND_BUFFER_BYTES)?;
        // It is to receive nothing.
        super::packet_socket::bind(fd.as_fd(), interface.index, 0)?;
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        let questions = unsafe {
            match libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        crate::sockopt::bind_fd(questions.as_fd(), SocketAddr::from((*local.ip(), 0)))?;
        Ok(Self {
            fd: Outlet(Some(fd)),
            questions,
            interface: interface.name.clone(),
            mtu_bytes: interface.mtu_bytes as usize,
            mac,
            local,
            reach,
            refused: Vec::new(),
            has_news: false,
            neighbours: Vec::new(),
            pieces: Vec::with_capacity(64),
            frame: Box::new([0; _]),
            sent: 0,
        })
    }

    /// The neighbours that the tables say may be reached now, and what the interface is.
    pub(super) fn follow(&mut self, reach: Reach, interface: &Interface) {
        self.reach = reach;
        self.refused.clear();
        self.has_news = false;
        self.neighbours.clear();
        self.mtu_bytes = interface.mtu_bytes as usize;
        self.mac = interface.mac.unwrap_or(self.mac);
    }

    /// The neighbours that may be reached, if that has changed since this was last asked.
    pub(super) fn changed_reach(&mut self) -> Option<Reach> {
        let has_news = std::mem::take(&mut self.has_news);
        has_news.then(|| self.reach.clone().without(&self.refused))
    }

    /// Frames sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The link address of a neighbour, if frames may go to it.
    #[cold]
    fn look_for(&mut self, to: SocketAddrV4) -> Option<[u8; 6]> {
        let ip = *to.ip();
        if !self.reach.contains(ip) {
            return None;
        }
        let is_refused = !goes_as_it_is(self.questions.as_fd(), to, self.mtu_bytes);
        if self.refused.contains(&ip) != is_refused {
            self.refused.retain(|known| *known != ip);
            self.refused.extend(is_refused.then_some(ip));
            self.has_news = true;
        }
        if is_refused {
            return None;
        }
        ethernet_address(self.questions.as_fd(), &self.interface, ip)
    }

    /// Where the neighbour is remembered, until the next is.
    fn find(&mut self, to: SocketAddrV4, now: u64) -> usize {
        let ip = *to.ip();
        let at = self.neighbours.iter().position(|known| known.ip == ip);
        if let Some(at) = at
            && now < self.neighbours[at].until_ns
        {
            return at;
        }
        let address = self.look_for(to);
        if at.is_none() && self.neighbours.len() == NEIGHBOURS_MAX {
            self.neighbours.clear();
        }
        let at = at.unwrap_or_else(|| {
            self.neighbours.push(Neighbour {
                ip,
                address: None,
                until_ns: 0,
                socket_until_ns: 0,
            });
            self.neighbours.len() - 1
        });
        let neighbour = &mut self.neighbours[at];
        neighbour.address = address;
        neighbour.until_ns = now + address.map_or(UNKNOWN_NS, |_| KNOWN_NS);
        at
    }

    /// Sends a datagram, or a short batch. False: nothing was sent.
    #[inline]
    pub(super) fn send(&mut self, transmit: &Transmit<'_>, length: usize) -> bool {
        let segment = transmit
            .segment_size
            .map_or(length, usize::from)
            .min(length);
        let SocketAddr::V4(to) = transmit.destination.address() else {
            return false;
        };
        let fits = segment + IP_BYTES + UDP_BYTES <= self.mtu_bytes;
        let now = now_ns(CLOCK_MONOTONIC_COARSE);
        let at = self.find(to, now);
        let neighbour = &mut self.neighbours[at];
        let is_long_stream = || {
            length > STREAM_MAX_BYTES
                || length > MANY_MAX_BYTES && length.div_ceil(segment) > FULL_PACKETS
        };
        let is_long =
            length > PAYLOAD_MAX || transmit.framing == Framing::Stream && is_long_stream();
        if is_long {
            neighbour.socket_until_ns = now + AFTER_LONG_NS;
            return false;
        }
        if now < neighbour.socket_until_ns {
            return false;
        }
        // Should this one take the socket after all, the next have to.
        neighbour.socket_until_ns = now + AFTER_LONG_NS;
        let Some(address) = neighbour.address.filter(|_| fits) else {
            return false;
        };
        let headers = self.headers(address, to, transmit.tos, length, segment);
        let is_sent = match transmit.whole {
            Some(whole) if length <= WHOLE_MAX => self.send_whole(&headers, whole),
            _ => self.send_pieces(headers, raw_pieces(transmit.iov)),
        };
        if is_sent {
            self.sent += 1;
            self.neighbours[at].socket_until_ns = 0;
        }
        is_sent
    }

    /// Hands the kernel one piece, copied together here: it has no list to copy and to go through,
    /// which takes longer than the copy.
    fn send_whole(&mut self, headers: &[u8; HEADERS_BYTES], whole: &[u8]) -> bool {
        let bytes = HEADERS_BYTES + whole.len();
        self.frame[..HEADERS_BYTES].copy_from_slice(headers);
        self.frame[HEADERS_BYTES..bytes].copy_from_slice(whole);
        let fd = self.fd.number();
        // SAFETY: the frame is that long.
        unsafe { uncancelled::send(fd, self.frame.as_ptr().cast::<c_void>(), bytes, 0) >= 0 }
    }

    fn send_pieces(&mut self, mut headers: [u8; HEADERS_BYTES], pieces: &[iovec]) -> bool {
        self.pieces.clear();
        self.pieces.push(iovec {
            iov_base: headers.as_mut_ptr().cast::<c_void>(),
            iov_len: HEADERS_BYTES,
        });
        self.pieces.extend_from_slice(pieces);
        // SAFETY: all zeros is a valid msghdr.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len() as _;
        // SAFETY: the message points at the headers and the pieces; what those point at is the
        // kernel's to check.
        unsafe { uncancelled::sendmsg(self.fd.number(), &raw const message, 0) >= 0 }
    }

    /// What stands before `length` bytes that are cut every `segment`.
    #[inline]
    fn headers(
        &self,
        to_mac: [u8; 6],
        to: SocketAddrV4,
        tos: u8,
        length: usize,
        segment: usize,
    ) -> [u8; HEADERS_BYTES] {
        let mut out = [0; HEADERS_BYTES];
        let from = self.local;
        let udp_bytes = (length + UDP_BYTES) as u16;
        let vnet = &mut out[..VNET_BYTES];
        vnet[0] = NEEDS_CSUM;
        vnet[6..8].copy_from_slice(&((ETHERNET_BYTES + IP_BYTES) as u16).to_ne_bytes());
        vnet[8..10].copy_from_slice(&6u16.to_ne_bytes());
        if segment < length {
            vnet[1] = GSO_UDP_L4;
            // How much of it the kernel puts in one piece of memory.
            let in_one_piece = if length > IN_ONE_PIECE_MAX { 0 } else { length };
            let hdr_len = (ETHERNET_BYTES + IP_BYTES + UDP_BYTES + in_one_piece) as u16;
            vnet[2..4].copy_from_slice(&hdr_len.to_ne_bytes());
            vnet[4..6].copy_from_slice(&(segment as u16).to_ne_bytes());
        }
        let ethernet = &mut out[VNET_BYTES..];
        ethernet[..6].copy_from_slice(&to_mac);
        ethernet[6..12].copy_from_slice(&self.mac);
        ethernet[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
        let ip = &mut ethernet[ETHERNET_BYTES..];
        ip[0] = 0x45;
        ip[1] = tos;
        ip[2..4].copy_from_slice(&(udp_bytes + IP_BYTES as u16).to_be_bytes());
        // ID 0, don't fragment.
        ip[6] = 0x40;
        ip[8] = TTL;
        ip[9] = libc::IPPROTO_UDP as u8;
        ip[12..16].copy_from_slice(&from.ip().octets());
        ip[16..20].copy_from_slice(&to.ip().octets());
        let check = !sum(&ip[..IP_BYTES]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        // RFC 768: that of the pseudo header, to which the interface adds the rest, or nothing
        // does.
        let addresses =
            u32::from(sum(&ip[12..20])) + u32::from(udp_bytes) + libc::IPPROTO_UDP as u32;
        let udp = &mut ip[IP_BYTES..];
        udp[..2].copy_from_slice(&from.port().to_be_bytes());
        udp[2..4].copy_from_slice(&to.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        udp[6..8].copy_from_slice(&fold(addresses).to_be_bytes());
        out
    }
}

/// The one's complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks_exact(2);
    fold(
        pairs
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum(),
    )
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}
