//! What was received.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::slice::Chunks;

use libc::{c_void, iovec, msghdr};

use crate::address::RawAddress;
use crate::control::{self, ControlBuffer};
use crate::{ecn, gro};

/// What was received: `len` bytes, a datagram every `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// Its sender.
    pub source: SocketAddr,
    /// Bytes in the buffer.
    pub len: usize,
    /// Length of every datagram but the last, which may be shorter; `len` if there is only one.
    pub stride: usize,
    /// Type of service or traffic class; 0 where [`Options::receive_tos`](crate::Options) is off.
    /// The kernel merges only datagrams of the same one.
    pub tos: u8,
    /// Bytes did not fit the buffer and are gone.
    pub truncated: bool,
    /// There is more, which costs no system call. Otherwise that is not known.
    pub has_more: bool,
    /// The header of a frame, of sockets that [`Socket::bind_frames`](crate::Socket::bind_frames)
    /// made.
    pub frame: Option<FrameHeader>,
}

/// What the headers of a frame say beside the addresses of its ends and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The link address that it was sent from.
    pub source_mac: [u8; 6],
    /// The link address that it was sent to.
    pub destination_mac: [u8; 6],
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl RecvMeta {
    /// Number of datagrams.
    pub fn segments(&self) -> usize {
        self.len.div_ceil(self.stride.max(1))
    }
}

/// What the kernel writes beside the payload. The msghdr that points here is made anew for every
/// call: a handful of stores, and no pointer into itself to keep valid.
pub(crate) struct Envelope {
    pub(super) name: RawAddress,
    control: ControlBuffer,
}

impl Envelope {
    pub(crate) const fn empty() -> Self {
        Self {
            name: RawAddress::empty(),
            control: ControlBuffer::new(),
        }
    }

    /// A header that receives into `iov` and into this envelope. It points at both.
    #[inline]
    pub(crate) fn message(&mut self, iov: &mut iovec) -> msghdr {
        // SAFETY: all zeros is a valid msghdr.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut self.name).cast::<c_void>();
        message.msg_namelen = RawAddress::CAPACITY;
        message.msg_iov = iov;
        message.msg_iovlen = 1;
        message.msg_control = self.control.as_mut_ptr();
        message.msg_controllen = ControlBuffer::CAPACITY_BYTES as _;
        message
    }

    /// The kernel always names the sender of a datagram that came to an IPv4 or IPv6 socket.
    pub(super) fn source(&self) -> SocketAddr {
        self.name
            .to_socket_addr()
            .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    /// What the kernel says of a received message of `len` bytes.
    ///
    /// # Safety
    ///
    /// `message` must be this envelope's, as recvmsg left it.
    #[inline]
    pub(crate) unsafe fn meta(&self, message: &msghdr, len: usize) -> RecvMeta {
        let (mut stride, mut tos) = (len, 0);
        // SAFETY: the caller's promise.
        unsafe {
            control::for_each(message, |control| {
                if let Some(size) = gro::read(&control) {
                    stride = size;
                } else if let Some(value) = ecn::read(&control) {
                    tos = value;
                }
            });
        }
        RecvMeta {
            source: self.source(),
            len,
            stride,
            tos,
            // Without its control messages a batch cannot be told apart.
            truncated: message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
            has_more: false,
            frame: None,
        }
    }
}

/// Memory for one receive, to be used again and again.
pub struct RecvBuffer {
    pub(super) envelope: Envelope,
    pub(super) bytes: Box<[u8]>,
}

impl RecvBuffer {
    /// Takes the largest datagram and the largest GRO batch, both below 64 KiB.
    pub fn new() -> Self {
        Self::with_capacity(1 << 16)
    }

    /// Takes `capacity_bytes`; what is longer is cut off ([`RecvMeta::truncated`]).
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self {
            envelope: Envelope::empty(),
            bytes: vec![0; capacity_bytes].into_boxed_slice(),
        }
    }

    /// The datagrams of the last receive, as `meta` describes them. A datagram of no bytes is not
    /// seen.
    pub fn segments(&self, meta: &RecvMeta) -> Chunks<'_, u8> {
        segments(self.bytes(), meta)
    }

    /// The bytes of the last receive, and what stands behind them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Cuts what was received into datagrams.
pub(crate) fn segments<'a>(bytes: &'a [u8], meta: &RecvMeta) -> Chunks<'a, u8> {
    bytes[..meta.len].chunks(meta.stride.max(1))
}

impl Default for RecvBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecvBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuffer({} bytes)", self.bytes.len())
    }
}
