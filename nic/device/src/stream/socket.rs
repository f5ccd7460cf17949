//! TCP sockets: bytes to and from memory that may be the program's.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use urxe_udp::Private;

use super::constants::{
    BATCH_MAX, KEEPALIVE_IDLE_S, KEEPALIVE_PROBE_S, KEEPALIVE_PROBES, SEGMENT_MIN,
};
use super::presence::Heard;

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
        keep_alive(&stream)?;
        let mut mss: libc::c_int = 0;
        ask(&stream, libc::TCP_MAXSEG, &mut mss);
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

    /// Bytes that the peer has not acknowledged, and those that were not sent yet.
    pub(super) fn unacknowledged(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: room for an int.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// What TCP knows of the peer, if that has not acknowledged everything.
    pub(super) fn owing(&self) -> Option<Heard> {
        (self.unacknowledged() > 0).then(|| self.heard())
    }

    /// What TCP knows of the peer.
    fn heard(&self) -> Heard {
        // SAFETY: all zeros is a valid structure.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        ask(&*self.fd, libc::TCP_INFO, &mut info);
        Heard {
            silent_ns: u64::from(info.tcpi_last_ack_recv) * 1_000_000,
            unanswered: info.tcpi_retransmits.max(info.tcpi_probes),
        }
    }

    /// Ends the direction to the peer.
    pub(super) fn shutdown(&self) {
        // SAFETY: plain integers. It fails only when the connection is over.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_WR) };
    }
}

/// Has the kernel probe the peer of an idle connection.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    for (level, name, value) in [
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_PROBE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    ] {
        let len = size_of_val(&value) as libc::socklen_t;
        let fd = stream.as_raw_fd();
        // SAFETY: an int, of the length given.
        let status = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// An option of TCP; `value` stays as it is if there is none.
fn ask<T>(socket: &impl AsRawFd, name: libc::c_int, value: &mut T) {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: room for so many bytes, of a type whose bytes may be anything.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    };
}

fn count(status: isize) -> io::Result<usize> {
    usize::try_from(status).map_err(|_| io::Error::last_os_error())
}
