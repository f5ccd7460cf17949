//! What may stand between a socket and the network: a recorder, say, or a network that is worse than the real one.
//!
//! A socket without a tap pays one comparison per system call. With one, all bytes are copied together before they are
//! sent, so that the tap sees exactly what leaves.

use std::fmt;

use crate::send::raw_pieces;
use crate::{Piece, RecvMeta, SendError, Sent, Socket, Transmit};

/// Sees all datagrams of a socket, and sends for it.
pub trait Tap: fmt::Debug + Send + Sync {
    /// Sends `transmit`, whose bytes are `bytes` (one piece), in place of the socket: by
    /// [`Socket::duplicate`]s of it, which have no tap.
    ///
    /// # Errors
    ///
    /// As [`Socket::send`].
    fn send(&self, transmit: &Transmit<'_>, bytes: &[u8]) -> Result<Sent, SendError>;

    /// What `meta` describes was received; the bytes are `bytes`.
    fn received(&self, meta: &RecvMeta, bytes: &[u8]);
}

impl Socket {
    /// Lets `tap` stand between the socket and the network.
    #[must_use]
    pub fn with_tap(mut self, tap: Box<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Gathers the bytes for the tap.
    #[cold]
    pub(crate) fn send_tapped(
        &self,
        tap: &dyn Tap,
        transmit: &Transmit<'_>,
    ) -> Result<Sent, SendError> {
        let bytes = gather(transmit.iov)?;
        let piece = [Piece::new(&bytes)];
        let gathered = Transmit {
            iov: &piece,
            ..*transmit
        };
        tap.send(&gathered, &bytes)
    }
}

/// The bytes of all pieces.
///
/// # Errors
///
/// [`SendError::Fault`] where there is no memory.
fn gather(pieces: &[Piece<'_>]) -> Result<Vec<u8>, SendError> {
    let length = pieces.iter().map(Piece::len).sum();
    let mut bytes: Vec<u8> = Vec::with_capacity(length);
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = raw_pieces(pieces);
    // The kernel copies within this process, since a piece may point at memory that is not there: that is an error
    // then, and no signal (process_vm_readv(2), Linux 3.2).
    // SAFETY: the local iovec describes the vector's spare room; the others are the kernel's to check.
    let copied = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const local,
            1,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    match usize::try_from(copied) {
        Ok(copied) if copied == length => {
            // SAFETY: the kernel has just written so many bytes.
            unsafe { bytes.set_len(length) };
            Ok(bytes)
        }
        Err(_) if matches!(crate::error::errno(), libc::ENOSYS | libc::EPERM) => {
            Ok(gather_here(remote, bytes))
        }
        // Cut short: memory is missing.
        _ => Err(SendError::Fault),
    }
}

/// The same without the kernel's help, where a sandbox forbids the system call; memory that is missing is a crash.
#[cold]
fn gather_here(pieces: &[libc::iovec], mut bytes: Vec<u8>) -> Vec<u8> {
    for piece in pieces {
        // SAFETY: the piece's maker says that the memory is the caller's to give away (Piece::from_raw).
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_gathered_in_order() {
        let pieces = [Piece::new(b"ab"), Piece::new(b""), Piece::new(b"cde")];
        assert_eq!(gather(&pieces).unwrap(), b"abcde");
        assert_eq!(
            gather_here(raw_pieces(&pieces), Vec::new()),
            gather(&pieces).unwrap()
        );
        assert_eq!(gather(&[]).unwrap(), b"");
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        // SAFETY: nothing is ever mapped at the first page.
        let nothing = unsafe { Piece::from_raw(std::ptr::without_provenance(8), 4) };
        let pieces = [Piece::new(b"ab"), nothing];
        assert!(matches!(gather(&pieces), Err(SendError::Fault)));
    }
}
