//! Several messages with one system call: sendmmsg(2) and recvmmsg(2), Linux 3.0 and 2.6.33.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;
use std::slice::Chunks;
use std::sync::atomic::Ordering;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr};

use crate::control::ControlBuffer;
use crate::error::SendError;
use crate::error::errno;
use crate::received::RecvMeta;
use crate::received::{Envelope, segments};
use crate::socket::Socket;
use crate::transmit::raw_pieces;
use crate::transmit::{Piece, Transmit};
use crate::uncancelled;

/// Messages per system call. More would not make a message cheaper, and their headers live on the
/// stack.
const BATCH: usize = 16;

/// What became of several sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentMany {
    /// Transmits that were dealt with, in order: sent or lost.
    pub transmits: usize,
    /// Bytes of the transmit after these that were already sent, as [`Sent::bytes`](crate::Sent)
    /// describes; 0 with GSO.
    pub partial_bytes: usize,
    /// How many of the transmits were lost (in part, without GSO).
    pub lost: usize,
}

impl Socket {
    /// Sends several transmits, to one destination or to several. One alone is better sent with
    /// [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// That of the first transmit. If a later one fails, those before it are reported, and a call
    /// with the rest reports the error.
    pub fn send_many(&self, transmits: &[Transmit<'_>]) -> Result<SentMany, SendError> {
        let mut total = SentMany::default();
        while total.transmits < transmits.len() {
            let rest = &transmits[total.transmits..];
            if self.gso.load(Ordering::Relaxed) && self.tap.is_none() && rest.len() > 1 {
                let sent = self.send_batch(&rest[..rest.len().min(BATCH)]);
                total.transmits += sent;
                if sent > 0 {
                    continue;
                }
            }
            // The first one failed, and sendmmsg does not apply our policy: it gets its own call.
            match self.send(&rest[0]) {
                Ok(sent) => {
                    total.lost += usize::from(sent.lost.is_some());
                    if sent.bytes < rest[0].iov.iter().map(Piece::len).sum() {
                        total.partial_bytes = sent.bytes;
                        return Ok(total);
                    }
                    total.transmits += 1;
                }
                Err(_) if total.transmits > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// One sendmmsg; returns how many were sent.
    fn send_batch(&self, transmits: &[Transmit<'_>]) -> usize {
        let mut controls = [const { ControlBuffer::new() }; BATCH];
        let mut messages = [const { MaybeUninit::<mmsghdr>::uninit() }; BATCH];
        let count = transmits.len().min(BATCH);
        for ((transmit, control), message) in transmits.iter().zip(&mut controls).zip(&mut messages)
        {
            let length: usize = transmit.iov.iter().map(Piece::len).sum();
            let segment_size = transmit
                .segment_size
                .filter(|&size| length > usize::from(size));
            let msg_hdr = self.message(transmit, raw_pieces(transmit.iov), segment_size, control);
            message.write(mmsghdr {
                msg_hdr,
                msg_len: 0,
            });
        }
        // SAFETY: the first `count` messages were written, and what they point at lives here or in
        // `transmits`.
        let sent = unsafe {
            uncancelled::sendmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr().cast::<mmsghdr>(),
                count as c_uint,
                0,
            )
        };
        usize::try_from(sent).unwrap_or(0)
    }

    /// Receives up to [`RecvBatch::capacity`] messages (datagrams or GRO batches) and returns how
    /// many; 0 if there is nothing.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_many(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.filled = 0;
        let count = batch.envelopes.len();
        for (((message, iov), envelope), chunk) in batch
            .messages
            .iter_mut()
            .zip(&mut batch.iovs)
            .zip(&mut batch.envelopes)
            .zip(batch.bytes.chunks_exact_mut(batch.each_bytes))
        {
            *iov = iovec {
                iov_base: chunk.as_mut_ptr().cast::<c_void>(),
                iov_len: chunk.len(),
            };
            *message = mmsghdr {
                msg_hdr: envelope.message(iov),
                msg_len: 0,
            };
        }
        loop {
            // SAFETY: every message points at its own part of the batch's memory, with true
            // lengths.
            let received = unsafe {
                uncancelled::recvmmsg(
                    self.fd.as_raw_fd(),
                    batch.messages.as_mut_ptr(),
                    count as c_uint,
                    0,
                )
            };
            if let Ok(received) = usize::try_from(received) {
                batch.filled = received;
                if let Some(tap) = &self.tap {
                    for (meta, bytes) in batch.messages() {
                        tap.received(&meta, bytes);
                    }
                }
                return Ok(received);
            }
            match errno() {
                libc::EAGAIN => return Ok(0),
                libc::EINTR => {}
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

/// Memory for several receives with one system call.
pub struct RecvBatch {
    messages: Box<[mmsghdr]>,
    iovs: Box<[iovec]>,
    envelopes: Box<[Envelope]>,
    bytes: Box<[u8]>,
    each_bytes: usize,
    filled: usize,
}

// SAFETY: the pointers in messages and iovs are made anew by every receive and followed by the
// kernel alone, during the call.
unsafe impl Send for RecvBatch {}
// SAFETY: as above; a shared reference reads lengths and flags only.
unsafe impl Sync for RecvBatch {}

impl RecvBatch {
    /// Room for `count` messages of `each_bytes` bytes. With GRO on, a message may be 64 KiB long.
    ///
    /// # Panics
    ///
    /// If one of them is 0.
    pub fn new(count: usize, each_bytes: usize) -> Self {
        assert!(count > 0 && each_bytes > 0, "a batch needs room");
        // SAFETY: all zeros is a valid mmsghdr.
        let message = || unsafe { std::mem::zeroed::<mmsghdr>() };
        Self {
            messages: (0..count).map(|_| message()).collect(),
            iovs: vec![
                iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0
                };
                count
            ]
            .into_boxed_slice(),
            envelopes: (0..count).map(|_| Envelope::empty()).collect(),
            bytes: vec![0; count * each_bytes].into_boxed_slice(),
            each_bytes,
            filled: 0,
        }
    }

    /// How many messages fit.
    pub fn capacity(&self) -> usize {
        self.envelopes.len()
    }

    /// The messages of the last receive.
    pub fn iter(&self) -> impl Iterator<Item = (RecvMeta, Chunks<'_, u8>)> {
        self.messages()
            .map(|(meta, bytes)| (meta, segments(bytes, &meta)))
    }

    /// The messages of the last receive, uncut.
    fn messages(&self) -> impl Iterator<Item = (RecvMeta, &[u8])> {
        self.messages[..self.filled]
            .iter()
            .zip(&self.envelopes)
            .zip(self.bytes.chunks_exact(self.each_bytes))
            .map(|((message, envelope), bytes)| {
                // SAFETY: the kernel filled the first `filled` messages, each with its envelope.
                let meta = unsafe { envelope.meta(&message.msg_hdr, message.msg_len as usize) };
                (meta, &bytes[..meta.len])
            })
    }
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RecvBatch({} messages of {} bytes)",
            self.capacity(),
            self.each_bytes
        )
    }
}

// The count is passed as an unsigned int, the kernel's limit is UIO_MAXIOV.
const _: () = assert!(BATCH <= c_int::MAX as usize && BATCH <= 1024);
