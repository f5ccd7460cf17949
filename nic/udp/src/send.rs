//! Sending: one datagram, or one GSO batch of them, to one destination.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use libc::{c_int, iovec, msghdr};

use crate::control::{ControlBuffer, ControlWriter};
use crate::error::SendError;
use crate::error::{errno, settle};
use crate::gso::Segments;
use crate::socket::Socket;
use crate::transmit::{Framing, Piece, Sent, Transmit, raw_pieces};
use crate::{ecn, gso, uncancelled};

impl Socket {
    /// Sends a datagram, or a batch of them.
    ///
    /// # Errors
    ///
    /// See [`SendError`] for the policy. Nothing was sent, except that without GSO the segments
    /// before the one that failed with [`SendError::Fault`] were.
    ///
    /// # Panics
    ///
    /// If `segment_size` is 0.
    pub fn send(&self, transmit: &Transmit<'_>) -> Result<Sent, SendError> {
        if let Some(tap) = &self.tap {
            return self.send_tapped(tap.as_ref(), transmit);
        }
        let length: usize = transmit.iov.iter().map(Piece::len).sum();
        if let Some(link) = &self.link {
            return link.send(self.fd.as_fd(), transmit, length);
        }
        self.held.note_sent(length);
        if transmit.framing != Framing::Never
            && let Some(frames) = &self.frames
            && frames.send(self.fd.as_fd(), transmit, length)
        {
            return Ok(Sent {
                bytes: length,
                lost: None,
            });
        }
        let segment_size = transmit
            .segment_size
            .filter(|&size| length > usize::from(size));
        if segment_size.is_some() && !self.gso.load(Ordering::Relaxed) {
            return self.send_segments(transmit);
        }
        match self.send_message(transmit, raw_pieces(transmit.iov), segment_size) {
            Ok(()) => Ok(Sent {
                bytes: length,
                lost: None,
            }),

            Err(errno) => match (errno, segment_size) {
                (libc::EIO | libc::EINVAL, Some(size)) => {
                    self.send_refused_batch(transmit, length.div_ceil(usize::from(size)))
                }
                _ => settle(errno, length),
            },
        }
    }

    /// A batch was refused. EIO and EINVAL can mean that something on the path cannot do GSO (no
    /// checksum offload before Linux 6.11, IPsec), but also that the segments are too many or
    /// exceed the MTU (EINVAL before Linux 6.14), or a fault that has nothing to do with it; only
    /// if a batch of permitted size passes one by one was it GSO.
    #[cold]
    fn send_refused_batch(
        &self,
        transmit: &Transmit<'_>,
        segments: usize,
    ) -> Result<Sent, SendError> {
        let sent = self.send_segments(transmit)?;
        if sent.lost.is_none() && segments <= self.max_gso_segments {
            self.gso.store(false, Ordering::Relaxed);
        }
        Ok(sent)
    }

    /// Sends a batch one segment at a time.
    fn send_segments(&self, transmit: &Transmit<'_>) -> Result<Sent, SendError> {
        let size = usize::from(transmit.segment_size.unwrap_or(u16::MAX));
        let mut segments = Segments::new(raw_pieces(transmit.iov), size);
        let mut segment = Vec::with_capacity(transmit.iov.len().min(8));
        let mut sent = Sent::default();
        while let Some(length) = segments.next_into(&mut segment) {
            let outcome = match self.send_message(transmit, &segment, None) {
                Ok(()) => Ok(Sent {
                    bytes: length,
                    lost: None,
                }),
                Err(errno) => settle(errno, length),
            };
            match outcome {
                Ok(one) => {
                    sent.bytes += one.bytes;
                    sent.lost = sent.lost.or(one.lost);
                }
                Err(SendError::WouldBlock) if sent.bytes > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// One system call; the error is its errno.
    #[inline]
    fn send_message(
        &self,
        transmit: &Transmit<'_>,
        iov: &[iovec],
        segment_size: Option<u16>,
    ) -> Result<(), c_int> {
        if let ([piece], None, true) = (iov, segment_size, transmit.tos == self.tos) {
            return self.send_simple(transmit, piece);
        }
        let mut control = ControlBuffer::new();
        let message = self.message(transmit, iov, segment_size, &mut control);
        // SAFETY: the message points at the destination, the iovecs and the control buffer, which
        // live here; what the iovecs point at is the kernel's to check (Piece::from_raw).
        retry(|| unsafe { uncancelled::sendmsg(self.fd.as_raw_fd(), &raw const message, 0) })
    }

    /// One piece without control messages: there is less for the kernel to copy and check.
    #[inline]
    fn send_simple(&self, transmit: &Transmit<'_>, piece: &iovec) -> Result<(), c_int> {
        let (to, to_bytes) = (transmit.destination.as_ptr(), transmit.destination.length());
        // SAFETY: as for sendmsg.
        retry(|| unsafe {
            let (start, length) = (piece.iov_base, piece.iov_len);
            uncancelled::sendto(self.fd.as_raw_fd(), start, length, 0, to.cast(), to_bytes)
        })
    }

    /// The kernel's form of a transmit. It points at its arguments.
    #[inline]
    pub(crate) fn message(
        &self,
        transmit: &Transmit<'_>,
        iov: &[iovec],
        segment_size: Option<u16>,
        control: &mut ControlBuffer,
    ) -> msghdr {
        // SAFETY: all zeros is a valid msghdr.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        // sendmsg writes to neither.
        message.msg_name = transmit.destination.as_ptr().cast_mut();
        message.msg_namelen = transmit.destination.length();
        message.msg_iov = iov.as_ptr().cast_mut();
        message.msg_iovlen = iov.len() as _;
        let mut writer = ControlWriter::new(control);
        if let Some(size) = segment_size {
            gso::write(&mut writer, size);
        }
        if transmit.tos != self.tos {
            ecn::write(&mut writer, self.ipv6, transmit.tos);
        }
        writer.attach(&mut message);
        message
    }
}

/// Repeats a send that a signal interrupts.
#[inline]
fn retry(mut send: impl FnMut() -> isize) -> Result<(), c_int> {
    loop {
        if send() >= 0 {
            return Ok(());
        }
        match errno() {
            libc::EINTR => {}
            errno => return Err(errno),
        }
    }
}
