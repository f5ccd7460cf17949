//! TCP sockets: bytes to and from memory that may be the program's.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use urxe_udp::Private;

/// Pieces of a system call, at most; Linux takes 1024.
pub(super) const PIECES_MAX: usize = 64;

/// A piece of memory.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Piece(libc::iovec);

impl Piece {
    /// `len` bytes at an address of the process.
    pub(super) const fn new(at: u64, len: usize) -> Self {
        Self(libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: len,
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.0.iov_len
    }
}

/// A connected socket, non-blocking.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: Private<OwnedFd>,
    /// Its own address, and the peer's.
    pub(crate) addresses: (SocketAddr, SocketAddr),
    /// What TCP puts in a segment, bytes.
    segment_len: usize,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Takes a connection over.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // A message is not to wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        let addresses = (stream.local_addr()?, stream.peer_addr()?);
        let mut mss: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: room for an int, of the length given.
        unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_MAXSEG,
                (&raw mut mss).cast(),
                &raw mut len,
            )
        };
        Ok(Self {
            fd: OwnedFd::from(stream).into(),
            addresses,
            segment_len: usize::try_from(mss).unwrap_or(0).max(SEGMENT_MIN),
        })
    }

    /// Bytes that TCP takes at a time: whole segments, as many as fit in the longest FPDU.
    pub(super) const fn batch_len(&self) -> usize {
        let segments = BATCH_MAX / self.segment_len;
        match segments {
            0 => self.segment_len,
            _ => segments * self.segment_len,
        }
    }

    /// Sends what is at `pieces`; how many bytes it took.
    ///
    /// # Errors
    /// EAGAIN without room, EFAULT if the first byte is not there, and those of a broken
    /// connection.
    ///
    /// # Safety
    /// The memory must be of a program that expects to be read, or ours.
    pub(super) unsafe fn send(&self, pieces: &[Piece]) -> io::Result<usize> {
        // SAFETY: all zeros is a valid header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = pieces.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the pieces live until the call returns; memory that is gone is an error.
        count(unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, flags) })
    }

    /// Reads to `pieces`; how many bytes there were, 0 at the end.
    ///
    /// # Errors
    /// EAGAIN if there are none, EFAULT if there is no room for the first, and those of a broken
    /// connection.
    ///
    /// # Safety
    /// The memory must be of a program that expects to be written to, or ours alone.
    pub(super) unsafe fn receive(&self, pieces: &mut [Piece]) -> io::Result<usize> {
        // SAFETY: all zeros is a valid header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr().cast();
        message.msg_iovlen = pieces.len() as _;
        // SAFETY: as above.
        count(unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
    }

    /// Ends the direction to the peer.
    pub(super) fn shutdown(&self) {
        // SAFETY: plain integers. It fails only when the connection is over.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_WR) };
    }
}

/// The least that TCP puts in a segment, whatever the kernel says (RFC 9293, 3.7.1).
const SEGMENT_MIN: usize = 536;
/// FPDUs have no more.
const BATCH_MAX: usize = 65_535;

fn count(status: isize) -> io::Result<usize> {
    usize::try_from(status).map_err(|_| io::Error::last_os_error())
}
