//! The ring of received frames: TPACKET_V2 of linux/if_packet.h.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

use super::filter::{self, Flow};
use crate::receive::RecvMeta;
use crate::sockopt;

pub(super) const SOL_PACKET: c_int = 263;
const PACKET_RX_RING: c_int = 5;
const PACKET_VERSION: c_int = 10;
const PACKET_STATISTICS: c_int = 6;
pub(super) const PACKET_VNET_HDR: c_int = 15;
/// Linux 4.20.
const PACKET_IGNORE_OUTGOING: c_int = 23;
const TPACKET_V2: c_int = 1;

/// Room for four packets of 4096 bytes with all their headers, what comes behind them, and the kernel's own.
const SLOT_BYTES: usize = 18_720;
const BLOCK_BYTES: usize = 1 << 17;
const SLOTS_PER_BLOCK: usize = BLOCK_BYTES / SLOT_BYTES;
const BLOCKS: usize = 48;
const SLOTS: usize = SLOTS_PER_BLOCK * BLOCKS;
/// The longest IP packet that fits a slot behind tpacket2_hdr, sockaddr_ll, virtio_net_hdr and the Ethernet header, aligned.
pub(super) const MAX_IP_BYTES: u16 = 18_560;

/// tp_status: the slot is the program's.
const TP_STATUS_USER: u32 = 1;
/// virtio_net_hdr.gso_type of linux/virtio_net.h: a batch of UDP datagrams (Linux 6.2). The highest bit says ECN.
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

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    next: usize,
    received: u64,
}

// SAFETY: the memory is the ring's alone, and the kernel's.
unsafe impl Send for Ring {}

impl Ring {
    /// Lets a packet socket receive a flow's frames in a ring.
    pub(super) fn open(fd: BorrowedFd<'_>, flow: &Flow) -> io::Result<Self> {
        filter::attach(fd, &flow.accepts())?;
        sockopt::set(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2)?;
        sockopt::set(fd, SOL_PACKET, PACKET_VNET_HDR, 1 as c_int)?;
        sockopt::set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1 as c_int)?;
        let request = Request {
            block_bytes: BLOCK_BYTES as u32,
            blocks: BLOCKS as u32,
            slot_bytes: SLOT_BYTES as u32,
            slots: SLOTS as u32,
        };
        sockopt::set(fd, SOL_PACKET, PACKET_RX_RING, request)?;
        let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, BLOCKS * BLOCK_BYTES);
        // SAFETY: a new mapping.
        let memory = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            let fd = fd.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        let ring = Self {
            memory,
            next: 0,
            received: 0,
        };
        super::bind(fd, flow.ifindex, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    /// Puts memory in which nothing arrives in the ring's place.
    pub(super) fn abandon(&mut self) {
        let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, BLOCKS * BLOCK_BYTES);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: it replaces this ring's own mapping. If there is no memory that mapping stays, and the child would take
        // packets of its parent, as from any other descriptor.
        unsafe { libc::mmap(self.memory.as_ptr().cast(), bytes, protection, flags, -1, 0) };
    }

    /// Frames for the ring since this was last asked: all, and those that it had no room for.
    pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
        let mut value = MaybeUninit::uninit();
        let [all, dropped] = sockopt::get_ints::<2>(fd, SOL_PACKET, PACKET_STATISTICS, &mut value)?;
        Ok((all.cast_unsigned(), dropped.cast_unsigned()))
    }

    /// Frames taken so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    fn slot(&self) -> NonNull<SlotHeader> {
        let (block, index) = (self.next / SLOTS_PER_BLOCK, self.next % SLOTS_PER_BLOCK);
        // SAFETY: within the mapping; slots are aligned to 16 bytes.
        unsafe {
            self.memory
                .add(block * BLOCK_BYTES + index * SLOT_BYTES)
                .cast()
        }
    }

    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, and atomic for both sides.
        unsafe { &(*self.slot().as_ptr()).status }
    }

    #[inline]
    fn has_next(&self) -> bool {
        self.status().load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// Takes the next datagram, or batch of them, into `bytes`.
    #[inline]
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> Option<RecvMeta> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: the slot is ours until the status says otherwise.
        let meta = unsafe { take(self.slot(), bytes) };
        self.status().store(0, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        self.received += 1;
        let has_more = self.has_next();
        meta.map(|meta| RecvMeta { has_more, ..meta })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCKS * BLOCK_BYTES) };
    }
}

/// Copies the UDP payload of a frame.
///
/// # Safety
///
/// The slot must be the program's.
unsafe fn take(slot: NonNull<SlotHeader>, bytes: &mut [u8]) -> Option<RecvMeta> {
    // SAFETY: the kernel has filled the slot; what it says is checked against its size.
    let (frame, mac) = unsafe {
        let header = &*slot.as_ptr();
        let (mac, len) = (usize::from(header.mac), header.snaplen as usize);
        if mac < VNET_HEADER_BYTES || mac + len > SLOT_BYTES {
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
    bytes.get_mut(..len)?.copy_from_slice(payload);
    Some(RecvMeta {
        source: SocketAddr::from((source, field(IP_BYTES))),
        len,
        stride,
        tos: ip[1],
        truncated: false,
        has_more: false,
    })
}
