//! Receiving: one datagram, or one GRO batch of them, with one system call and nothing set up anew.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, iovec};

use crate::address::RawAddress;
use crate::error::errno;
use crate::received::{RecvBuffer, RecvMeta};
use crate::socket::Socket;
use crate::uncancelled;

impl Socket {
    /// Receives a datagram, or a batch of them from one sender; None if there is nothing.
    ///
    /// # Errors
    ///
    /// What recvmsg(2) says, except EAGAIN (None) and EINTR (tried again): ENOMEM, or EBADF and its
    /// like for a program's fault.
    #[inline]
    pub fn receive(&self, buffer: &mut RecvBuffer) -> io::Result<Option<RecvMeta>> {
        if let Some(link) = &self.link {
            let meta = link.receive(&mut buffer.bytes);
            if let (Some(meta), Some(tap)) = (&meta, &self.tap) {
                tap.received(meta, &buffer.bytes[..meta.len]);
            }
            return Ok(meta);
        }
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
            let flags = self.held.flags(self.fd.as_fd());
            let received = if capabilities.gro || capabilities.tos {
                self.receive_message(buffer, flags)
            } else {
                self.receive_simple(buffer, flags)
            };
            match received {
                Ok(meta) => {
                    self.held.note(self.fd.as_fd(), flags, meta.len);
                    if let Some(tap) = &self.tap {
                        tap.received(&meta, &buffer.bytes[..meta.len]);
                    }
                    return Ok(Some(meta));
                }
                Err(libc::EAGAIN) => {
                    self.held.note_nothing(self.fd.as_fd());
                    return Ok(None);
                }
                Err(libc::EINTR) => {}
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// One recvmsg; the error is its errno.
    #[inline]
    fn receive_message(&self, buffer: &mut RecvBuffer, flags: c_int) -> Result<RecvMeta, c_int> {
        let bytes = &mut buffer.bytes;
        let mut iov = iovec {
            iov_base: bytes.as_mut_ptr().cast::<c_void>(),
            iov_len: bytes.len(),
        };
        let mut message = buffer.envelope.message(&mut iov);
        // SAFETY: the message points at the buffer's own memory with its true lengths.
        let received =
            unsafe { uncancelled::recvmsg(self.fd.as_raw_fd(), &raw mut message, flags) };
        match usize::try_from(received) {
            // SAFETY: recvmsg has just filled the message, which is the envelope's.
            Ok(length) => Ok(unsafe { buffer.envelope.meta(&message, length) }),
            Err(_) => Err(errno()),
        }
    }

    /// One recvfrom, which costs a fifth less but tells of one datagram's bytes and sender only.
    #[inline]
    fn receive_simple(&self, buffer: &mut RecvBuffer, flags: c_int) -> Result<RecvMeta, c_int> {
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
                libc::MSG_TRUNC | flags,
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
            frame: None,
        })
    }
}
