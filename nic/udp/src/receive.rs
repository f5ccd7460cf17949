//! Receiving: one datagram, or one GRO batch of them, with one system call and nothing set up anew.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::slice::Chunks;

use libc::{c_int, c_void, iovec, msghdr};

use crate::address::RawAddress;
use crate::control::{self, ControlBuffer};
use crate::error::errno;
use crate::socket::Socket;
use crate::{ecn, gro, uncancelled};

/// What was received: `len` bytes, a datagram every `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// Who sent it.
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
    /// There is more, which costs no system call. Otherwise nobody knows.
    pub has_more: bool,
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
    name: RawAddress,
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
    fn source(&self) -> SocketAddr {
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
        }
    }
}

/// Memory for one receive, to be used again and again.
pub struct RecvBuffer {
    envelope: Envelope,
    bytes: Box<[u8]>,
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

impl Socket {
    /// Receives a datagram, or a batch of them from one sender; None if there is nothing.
    ///
    /// # Errors
    ///
    /// What recvmsg(2) says, except EAGAIN (None) and EINTR (tried again): ENOMEM, or EBADF and its
    /// like for a program's fault.
    #[inline]
    pub fn receive(&self, buffer: &mut RecvBuffer) -> io::Result<Option<RecvMeta>> {
        let Some(frames) = &self.frames else {
            return self.receive_datagrams(buffer);
        };
        // First: what is longer, and came before, kept the sender from using the ring.
        if let Some(meta) = frames.receive(&mut buffer.bytes) {
            return Ok(Some(meta));
        }
        if !frames.is_socket_due() {
            return Ok(None);
        }
        let meta = self.receive_datagrams(buffer)?;
        if meta.is_some() {
            frames.note_socket();
        }
        Ok(meta)
    }

    #[inline]
    fn receive_datagrams(&self, buffer: &mut RecvBuffer) -> io::Result<Option<RecvMeta>> {
        let capabilities = self.capabilities();
        loop {
            let received = if capabilities.gro || capabilities.tos {
                self.receive_message(buffer)
            } else {
                self.receive_simple(buffer)
            };
            match received {
                Ok(meta) => {
                    if let Some(tap) = &self.tap {
                        tap.received(&meta, &buffer.bytes[..meta.len]);
                    }
                    return Ok(Some(meta));
                }
                Err(libc::EAGAIN) => return Ok(None),
                Err(libc::EINTR) => {}
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// One recvmsg; the error is its errno.
    #[inline]
    fn receive_message(&self, buffer: &mut RecvBuffer) -> Result<RecvMeta, c_int> {
        let bytes = &mut buffer.bytes;
        let mut iov = iovec {
            iov_base: bytes.as_mut_ptr().cast::<c_void>(),
            iov_len: bytes.len(),
        };
        let mut message = buffer.envelope.message(&mut iov);
        // SAFETY: the message points at the buffer's own memory with its true lengths.
        let received = unsafe { uncancelled::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
        match usize::try_from(received) {
            // SAFETY: recvmsg has just filled the message, which is the envelope's.
            Ok(length) => Ok(unsafe { buffer.envelope.meta(&message, length) }),
            Err(_) => Err(errno()),
        }
    }

    /// One recvfrom, which costs a fifth less but tells of one datagram's bytes and sender only.
    #[inline]
    fn receive_simple(&self, buffer: &mut RecvBuffer) -> Result<RecvMeta, c_int> {
        let bytes = &mut buffer.bytes;
        let name = &raw mut buffer.envelope.name;
        let mut name_bytes = RawAddress::CAPACITY;
        // SAFETY: pointers and lengths describe the buffer's own memory. With MSG_TRUNC the kernel
        // returns the datagram's length even where that is more than the buffer's (recv(2)).
        let received = unsafe {
            let (start, room) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
            let fd = self.fd.as_raw_fd();
            uncancelled::recvfrom(
                fd,
                start,
                room,
                libc::MSG_TRUNC,
                name.cast(),
                &raw mut name_bytes,
            )
        };
        let length = usize::try_from(received).map_err(|_| errno())?;
        let len = length.min(bytes.len());
        Ok(RecvMeta {
            source: buffer.envelope.source(),
            len,
            stride: len,
            tos: 0,
            truncated: length > len,
            has_more: false,
        })
    }
}
