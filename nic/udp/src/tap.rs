//! What may stand between a socket and the network: a recorder, say, or a network that is worse
//! than the real one.
//!
//! A socket without a tap pays one comparison per system call. With one, all bytes are copied
//! together before they are sent, so that the tap sees exactly what leaves.

use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;

use crate::error::SendError;
use crate::received::RecvMeta;
use crate::transmit::raw_pieces;
use crate::transmit::{Piece, Sent, Transmit};

/// Sees all datagrams of a socket, and sends for it.
pub trait Tap: fmt::Debug + Send + Sync {
    /// Sends `transmit`, whose bytes are `bytes` (one piece), in place of the socket: by
    /// [`Socket::duplicate`](crate::Socket::duplicate)s of it, which have no tap.
    ///
    /// # Errors
    ///
    /// As [`Socket::send`](crate::Socket::send).
    fn send(&self, transmit: &Transmit<'_>, bytes: &[u8]) -> Result<Sent, SendError>;

    /// What `meta` describes was received; the bytes are `bytes`.
    fn received(&self, meta: &RecvMeta, bytes: &[u8]);
}

/// The bytes of all pieces.
///
/// # Errors
///
/// [`SendError::Fault`] where there is no memory.
pub(crate) fn gather(pieces: &[Piece<'_>]) -> Result<Vec<u8>, SendError> {
    let length = pieces.iter().map(Piece::len).sum();
    let mut bytes: Vec<u8> = Vec::with_capacity(length);
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = raw_pieces(pieces);
    // The kernel copies within this process, since a piece may point at memory that is not there:
    // that is an error then, and no signal (process_vm_readv(2), Linux 3.2). SAFETY: the local
    // iovec describes the vector's spare room; the others are the kernel's to check.
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
            gather_by_file(remote, bytes)
        }
        // Cut short: memory is missing.
        _ => Err(SendError::Fault),
    }
}

/// The same where a sandbox forbids that system call: by way of a file in memory, into which it is
/// the kernel that writes.
#[cold]
fn gather_by_file(pieces: &[libc::iovec], mut bytes: Vec<u8>) -> Result<Vec<u8>, SendError> {
    let length: usize = pieces.iter().map(|piece| piece.iov_len).sum();
    let count = c_int::try_from(pieces.len()).unwrap_or(c_int::MAX);
    bytes.reserve(length);
    // SAFETY: the descriptor is new, and nothing else has it. What the pieces point at is the
    // kernel's to check, and it reads into the vector's spare room.
    unsafe {
        let raw = libc::memfd_create(c"urxe-tap".as_ptr(), libc::MFD_CLOEXEC);
        if raw < 0 {
            return Err(SendError::Fault);
        }
        let file = OwnedFd::from_raw_fd(raw);
        let written = libc::pwritev(file.as_raw_fd(), pieces.as_ptr(), count, 0);
        let read = libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), length, 0);
        if [written, read].map(usize::try_from) != [Ok(length); 2] {
            return Err(SendError::Fault);
        }
        bytes.set_len(length);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_gathered_in_order() {
        let pieces = [Piece::new(b"ab"), Piece::new(b""), Piece::new(b"cde")];
        assert_eq!(gather(&pieces).unwrap(), b"abcde");
        assert_eq!(
            gather_by_file(raw_pieces(&pieces), Vec::new()).unwrap(),
            b"abcde"
        );
        for gathered in [gather(&[]), gather_by_file(&[], Vec::new())] {
            assert_eq!(gathered.unwrap(), b"");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        // SAFETY: nothing is ever mapped at the first page.
        let nothing = unsafe { Piece::from_raw(std::ptr::without_provenance(8), 4) };
        let pieces = [Piece::new(b"ab"), nothing];
        for gathered in [
            gather(&pieces),
            gather_by_file(raw_pieces(&pieces), Vec::new()),
        ] {
            assert!(matches!(gathered, Err(SendError::Fault)));
        }
    }
}
