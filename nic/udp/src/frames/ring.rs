//! A ring of received frames: TPACKET_V2 of linux/if_packet.h. Any packet socket may have one.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

use super::filter::{self, Flow};
use super::leftovers;
use crate::inherited::PrivateMapping;
use crate::received::RecvMeta;
use crate::sockopt;

pub(super) const SOL_PACKET: c_int = 263;
const PACKET_RX_RING: c_int = 5;
const PACKET_VERSION: c_int = 10;
const PACKET_STATISTICS: c_int = 6;
pub(super) const PACKET_VNET_HDR: c_int = 15;
/// Linux 4.20.
const PACKET_IGNORE_OUTGOING: c_int = 23;
const TPACKET_V2: c_int = 1;

const BLOCK_BYTES: usize = 1 << 17;

/// Slots of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    slot_bytes: usize,
    blocks: usize,
}

impl Shape {
    /// Room for four packets of 4096 bytes with all their headers, what comes behind them, and the
    /// kernel's own: 336 of it.
    pub(super) const SHORT: Self = Self {
        slot_bytes: 18_720,
        blocks: 48,
    };
    /// For a whole batch: 96 of it.
    pub(super) const LONG: Self = Self {
        slot_bytes: 1 << 16,
        blocks: 48,
    };
    /// A packet of 4096 bytes with all its headers in each: [`Self::of_frames`].
    const FRAME_BYTES: usize = 4352;
    /// Together as much as the other two: 2880 of them.
    const FRAME_BLOCKS: usize = Self::SHORT.blocks + Self::LONG.blocks;

    /// Slots for single frames, of about so much memory, bytes.
    pub(crate) fn of_frames(bytes: usize) -> Self {
        Self {
            slot_bytes: Self::FRAME_BYTES,
            blocks: (bytes / BLOCK_BYTES).clamp(1, Self::FRAME_BLOCKS),
        }
    }

    const fn slots_per_block(self) -> usize {
        BLOCK_BYTES / self.slot_bytes
    }

    const fn slots(self) -> usize {
        self.slots_per_block() * self.blocks
    }

    /// Bytes of memory.
    pub(crate) const fn bytes(self) -> usize {
        BLOCK_BYTES * self.blocks
    }

    /// The longest IP packet that fits a slot behind tpacket2_hdr, sockaddr_ll, virtio_net_hdr and
    /// the Ethernet header, aligned.
    pub(super) const fn max_ip_bytes(self) -> u16 {
        (self.slot_bytes - 160) as u16
    }
}

/// Where in a slot, behind its header, `sll_ifindex` of `struct sockaddr_ll` is: the interface that
/// the frame came by.
const IFINDEX_AT: usize = size_of::<SlotHeader>() + 4;

/// tp_status: whose the slot is.
const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_USER: u32 = 1;
/// virtio_net_hdr.gso_type of linux/virtio_net.h: a batch of UDP datagrams (Linux 6.2). The highest
/// bit says ECN.
pub(super) const GSO_UDP_L4: u8 = 5;
const VNET_HEADER_BYTES: usize = 10;

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// `struct tpacket_req`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    block_bytes: u32,
    blocks: u32,
    slot_bytes: u32,
    slots: u32,
}

/// `struct tpacket2_hdr`.
#[repr(C)]
struct SlotHeader {
    status: AtomicU32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    sec: u32,
    nsec: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    padding: [u8; 4],
}

/// Whether the kernel tells how a batch in the ring is cut: since Linux 6.2.
pub(super) fn tells_segments() -> bool {
    // SAFETY: all zeros is a valid utsname.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    if unsafe { libc::uname(&raw mut name) } != 0 {
        return false;
    }
    let release: String = name
        .release
        .iter()
        .map(|&byte| byte as u8 as char)
        .take_while(|&byte| byte != '\0')
        .collect();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || {
        numbers
            .next()
            .and_then(|n| n.parse::<u32>().ok())
            .unwrap_or(0)
    };
    (next(), next()) >= (6, 2)
}

/// The memory that the kernel and a ring share.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    /// Until it is unmapped.
    private: Option<PrivateMapping>,
    /// Unmaps it; taken when that is done in the background.
    unmaps: Option<Unmaps>,
}

/// Unmaps memory when it is dropped. For the last that is left of a packet socket that takes its
/// time.
#[derive(Debug)]
struct Unmaps {
    start: usize,
    bytes: usize,
}

impl Drop for Unmaps {
    fn drop(&mut self) {
        // SAFETY: the mapping of `Mapping::new`, which is used no more.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
    }
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let memory = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            let fd = fd.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        let unmaps = Some(Unmaps {
            start: start.as_ptr() as usize,
            bytes,
        });
        let private = PrivateMapping::new(start.as_ptr() as usize, bytes);
        if private.is_none() {
            drop(unmaps);
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Ok(Self {
            start,
            private,
            unmaps,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First: the address may be another mapping's once it is unmapped.
        drop(self.private.take());
        let unmaps = self.unmaps.take();
        leftovers::in_background(move || drop(unmaps));
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    shape: Shape,
    mapping: Mapping,
    /// Index of the next slot, and where that is.
    next: usize,
    slot: NonNull<SlotHeader>,
    received: u64,
}

// SAFETY: the slot is memory of the mapping, and the ring's alone.
unsafe impl Send for Ring {}

impl Ring {
    /// Lets a packet socket receive a flow's frames in a ring.
    pub(super) fn open(fd: BorrowedFd<'_>, shape: Shape, flow: &Flow<'_>) -> io::Result<Self> {
        filter::attach(fd, &flow.accepts())?;
        sockopt::set(fd, SOL_PACKET, PACKET_VNET_HDR, 1 as c_int)?;
        sockopt::set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1 as c_int)?;
        let ring = Self::of(fd, shape)?;
        super::packet_socket::bind(fd, flow.ifindex, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    /// Gives a packet socket a ring, before it is bound.
    pub(crate) fn of(fd: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        sockopt::set(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2)?;
        let request = Request {
            block_bytes: BLOCK_BYTES as u32,
            blocks: shape.blocks as u32,
            slot_bytes: shape.slot_bytes as u32,
            slots: shape.slots() as u32,
        };
        sockopt::set(fd, SOL_PACKET, PACKET_RX_RING, request)?;
        let mapping = Mapping::new(fd, shape.bytes())?;
        Ok(Self {
            shape,
            slot: mapping.start.cast(),
            mapping,
            next: 0,
            received: 0,
        })
    }

    /// Frames for the ring since this was last asked: all, and those that it had no room for.
    pub(crate) fn statistics(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
        let mut value = MaybeUninit::uninit();
        let [all, dropped] = sockopt::get_ints::<2>(fd, SOL_PACKET, PACKET_STATISTICS, &mut value)?;
        Ok((all.cast_unsigned(), dropped.cast_unsigned()))
    }

    /// Frames taken so far.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        // SAFETY: within the mapping, and atomic for both sides.
        let status = unsafe { &self.slot.as_ref().status };
        status.load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// When the kernel put the next frame there, by the same clock in all rings; only if there is
    /// one.
    pub(super) fn next_came_at(&self) -> (u32, u32) {
        // SAFETY: within the mapping; the kernel wrote it before the status.
        let header = unsafe { self.slot.as_ref() };
        (header.sec, header.nsec)
    }

    /// The next frame, from its Ethernet header on, and the interface that it came by. It stays the
    /// next.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(&[u8], u32)> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: the slot is the program's until it is given back, which takes this ring as a
        // whole. The kernel has filled it; what it says is checked against its size.
        unsafe {
            let header = self.slot.as_ref();
            let (mac, len) = (usize::from(header.mac), header.snaplen as usize);
            let start = self.slot.as_ptr().cast::<u8>();
            let frame = if mac + len <= self.shape.slot_bytes {
                std::slice::from_raw_parts(start.add(mac), len)
            } else {
                &[]
            };
            Some((frame, start.add(IFINDEX_AT).cast::<u32>().read()))
        }
    }

    /// Gives the slot of the next frame back, which is there and was looked at.
    #[inline]
    pub(crate) fn pass(&mut self) {
        let slot = self.slot;
        let per_block = self.shape.slots_per_block();
        self.next = (self.next + 1) % self.shape.slots();
        let (block, index) = (self.next / per_block, self.next % per_block);
        let at = block * BLOCK_BYTES + index * self.shape.slot_bytes;
        // SAFETY: within the mapping; slots are aligned to 16 bytes.
        self.slot = unsafe { self.mapping.start.add(at).cast() };
        self.received += 1;
        // SAFETY: within the mapping, atomic for both sides, and nothing of the slot is used any
        // more.
        unsafe { slot.as_ref() }
            .status
            .store(TP_STATUS_KERNEL, Ordering::Release);
    }

    /// Takes the next datagram, or batch of them, into `bytes`.
    #[inline]
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> Option<RecvMeta> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: the slot is the program's until its status says otherwise.
        let meta = unsafe { read(self.slot, self.shape.slot_bytes) }.map(|(meta, payload)| {
            let len = payload.len().min(bytes.len());
            bytes[..len].copy_from_slice(&payload[..len]);
            RecvMeta {
                len,
                stride: meta.stride.min(len),
                truncated: len < payload.len(),
                ..meta
            }
        });
        self.pass();
        meta
    }
}

/// Whether the checksum of an IPv4 header without options is right, as the kernel demands of what
/// it takes. That of UDP need not be: the ICRC covers what it does.
#[inline]
fn is_header_whole(header: &[u8; IP_BYTES]) -> bool {
    let (words, _) = header.as_chunks();
    let sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    // The sum of 16-bit words is the same in any order of bytes (RFC 1071).
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// What a frame is, and its UDP payload.
///
/// # Safety
///
/// The slot must be the program's, of that many bytes, and stay so as long as the payload is used.
#[inline]
unsafe fn read<'a>(slot: NonNull<SlotHeader>, slot_bytes: usize) -> Option<(RecvMeta, &'a [u8])> {
    // SAFETY: the kernel has filled the slot; what it says is checked against its size.
    let (frame, mac) = unsafe {
        let header = &*slot.as_ptr();
        let (mac, len) = (usize::from(header.mac), header.snaplen as usize);
        if mac < VNET_HEADER_BYTES || mac + len > slot_bytes {
            return None;
        }
        let start = slot.as_ptr().cast::<u8>();
        (std::slice::from_raw_parts(start, mac + len), mac)
    };
    let (before, frame) = frame.split_at(mac);
    let vnet = &before[mac - VNET_HEADER_BYTES..];
    let ip = frame.get(ETHERNET_BYTES..)?;
    if ip.len() < IP_BYTES + UDP_BYTES {
        return None;
    }
    if !is_header_whole(ip.first_chunk()?) {
        return None;
    }
    let field = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let end = usize::from(field(2)).min(ip.len());
    // By the UDP header, as the kernel goes; of a batch it tells all.
    let udp_bytes = usize::from(field(IP_BYTES + 4));
    let payload = ip.get(IP_BYTES + UDP_BYTES..end.min(IP_BYTES + udp_bytes))?;
    let source = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
    let len = payload.len();
    let stride = if vnet[1] & 0x7f == GSO_UDP_L4 {
        usize::from(u16::from_ne_bytes([vnet[4], vnet[5]]))
    } else {
        len
    };
    let meta = RecvMeta {
        source: SocketAddr::from((source, field(IP_BYTES))),
        len,
        stride,
        tos: ip[1],
        truncated: false,
        has_more: false,
        frame: None,
    };
    Some((meta, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_a_wrong_bit_is_not_whole() {
        // RFC 1071's usual example.
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert!(is_header_whole(&header));
        for bit in 0..160 {
            let mut wrong = header;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_header_whole(&wrong), "{bit}");
        }
        // Sums that fold more than once.
        let mut full = [0xff; IP_BYTES];
        full[10..12].copy_from_slice(&[0, 0]);
        assert!(is_header_whole(&full));
        full[11] = 1;
        assert!(!is_header_whole(&full));
    }
}
