//! What is to be sent.

use std::marker::PhantomData;

use libc::{c_int, c_void, iovec};

use crate::address::Destination;

/// Memory to be sent. The kernel gathers a datagram from several, so that headers and payload need
/// not stand together.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Piece<'a> {
    raw: iovec,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Piece<'a> {
    /// Memory that Rust knows.
    pub fn new(memory: &'a [u8]) -> Self {
        Self {
            raw: iovec {
                iov_base: memory.as_ptr().cast_mut().cast::<c_void>(),
                iov_len: memory.len(),
            },
            memory: PhantomData,
        }
    }

    /// Any memory. It need not exist: where it is not mapped or not readable,
    /// [`Socket::send`](crate::Socket::send) returns [`SendError::Fault`](crate::SendError::Fault).
    ///
    /// # Safety
    ///
    /// What is there when the send happens goes out on the network, so it must be the caller's to
    /// give away. It may change meanwhile (the kernel copies it, and sends one state or another of
    /// every byte), but no `&mut` to it may be in use.
    pub unsafe fn from_raw(address: *const u8, length_bytes: usize) -> Self {
        Self {
            raw: iovec {
                iov_base: address.cast_mut().cast::<c_void>(),
                iov_len: length_bytes,
            },
            memory: PhantomData,
        }
    }

    /// Where it is.
    pub fn address(&self) -> *const u8 {
        self.raw.iov_base.cast_const().cast()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.raw.iov_len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What may go as a frame ([`Options::frames`](crate::Options)). The peer has room for a few
/// hundred of them only, and for 96 of those longer than 18 KiB, and one may pass, or be passed by,
/// what takes the socket. For protocols that make up for loss and disorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Nothing: it takes the socket.
    #[default]
    Never,
    /// A part of a stream, if it is short: two full packets and one behind them, or a few KiB of
    /// shorter ones. Where the link cuts batches into packets, a stream of longer ones would fill
    /// the peer's room.
    Stream,
    /// A message: any batch.
    Message,
}

/// One send.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Where to.
    pub destination: &'a Destination,
    /// Cut the bytes into datagrams of this length, the last one possibly shorter, at most
    /// [`max_gso_segments`](crate::Capabilities) of them with one system call. None: all of it is
    /// one datagram. Not 0.
    pub segment_size: Option<u16>,
    /// Type of service or traffic class; ECN is its lower two bits. Free where it is the socket's
    /// own ([`Options`](crate::Options)).
    pub tos: u8,
    /// Whether it may go as a frame.
    pub framing: Framing,
    /// The bytes, at most [`MAX_TRANSMIT_BYTES`](crate::MAX_TRANSMIT_BYTES) and 1024 pieces
    /// (UIO_MAXIOV of linux/uio.h).
    pub iov: &'a [Piece<'a>],
    /// The same bytes, if they stand in one place and may be read here: a short frame is then
    /// copied behind its headers, so that the kernel gets one piece.
    pub whole: Option<&'a [u8]>,
}

/// What became of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes that were dealt with, in order: sent or lost. Less than asked for only without GSO,
    /// where the send buffer filled up between two segments; what follows can be sent later.
    pub bytes: usize,
    /// The errno of a datagram that the kernel refused in a way that counts as loss; see
    /// [`SendError`](crate::SendError).
    pub lost: Option<c_int>,
}

/// The pieces as the kernel wants them.
pub(crate) fn raw_pieces<'a>(pieces: &'a [Piece<'_>]) -> &'a [iovec] {
    // SAFETY: Piece is a transparent wrapper of iovec.
    unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast::<iovec>(), pieces.len()) }
}

// SAFETY: a Piece is a pointer and a length that only the kernel follows, and reading is all that
// it does.
unsafe impl Send for Piece<'_> {}

// SAFETY: as above.
unsafe impl Sync for Piece<'_> {}
