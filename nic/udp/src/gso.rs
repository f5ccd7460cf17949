//! Generic segmentation offload: one send, cut into datagrams as late as possible (udp(7)
//! UDP_SEGMENT, Linux 4.18).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{SOL_UDP, UDP_SEGMENT, c_int, iovec};

use crate::control::ControlWriter;
use crate::sockopt;

/// Most bytes of one [`Transmit`](crate::Transmit), all segments together: what an IPv4 packet of
/// 65535 bytes leaves beside its IP and UDP header, because the kernel builds the batch as one
/// packet (`__ip_append_data` of net/ipv4/ip_output.c).
pub const MAX_TRANSMIT_BYTES: usize = 65_535 - 20 - 8;

/// UDP_MAX_SEGMENTS of linux/udp.h: 64 from Linux 4.18 on, 128 from 6.9 on.
const FEW_SEGMENTS: usize = 64;
const MANY_SEGMENTS: usize = 128;

/// The most segments of one send; 0 without GSO.
pub(crate) fn probe(fd: BorrowedFd<'_>) -> usize {
    // The value 0, no segmentation, is what a socket has anyway.
    if sockopt::set(fd, SOL_UDP, UDP_SEGMENT, 0 as c_int).is_err() {
        return 0;
    }
    // Without a lock, as fork may copy one that another thread holds.
    const UNKNOWN: usize = 0;
    static MAX_SEGMENTS: AtomicUsize = AtomicUsize::new(UNKNOWN);
    let known = MAX_SEGMENTS.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let found = if accepts_many().unwrap_or(false) {
        MANY_SEGMENTS
    } else {
        FEW_SEGMENTS
    };
    MAX_SEGMENTS.store(found, Ordering::Relaxed);
    found
}

/// Whether the kernel takes more than 64 segments: a socket tells itself so, because the limit
/// cannot be read anywhere. Where the loopback device is down this fails, and the smaller number is
/// always right.
fn accepts_many() -> io::Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    sockopt::set(socket.as_fd(), SOL_UDP, UDP_SEGMENT, 1 as c_int)?;
    let myself: SocketAddr = socket.local_addr()?;
    Ok(socket.send_to(&[0; MANY_SEGMENTS], myself).is_ok())
}

/// Makes the kernel cut the message every `segment_size` bytes.
pub(crate) fn write(control: &mut ControlWriter<'_>, segment_size: u16) {
    control.push(SOL_UDP, UDP_SEGMENT, segment_size);
}

/// Cuts the pieces of a batch into segments without the kernel's help: each call fills `segment`
/// with the next one.
pub(crate) struct Segments<'a> {
    pieces: &'a [iovec],
    offset_bytes: usize,
    segment_size: usize,
}

impl<'a> Segments<'a> {
    pub(crate) fn new(pieces: &'a [iovec], segment_size: usize) -> Self {
        assert!(segment_size > 0, "segments need a length");
        Self {
            pieces,
            offset_bytes: 0,
            segment_size,
        }
    }

    /// Those behind so many bytes.
    pub(crate) fn behind(pieces: &'a [iovec], segment_size: usize, mut bytes: usize) -> Self {
        let mut segments = Self::new(pieces, segment_size);
        while let Some((first, rest)) = segments.pieces.split_first()
            && first.iov_len <= bytes
        {
            bytes -= first.iov_len;
            segments.pieces = rest;
        }
        segments.offset_bytes = bytes;
        segments
    }

    /// The next segment's length, or None at the end.
    pub(crate) fn next_into(&mut self, segment: &mut Vec<iovec>) -> Option<usize> {
        segment.clear();
        let mut room = self.segment_size;
        while room > 0
            && let Some((first, rest)) = self.pieces.split_first()
        {
            let left = first.iov_len - self.offset_bytes;
            let taken = left.min(room);
            if taken > 0 {
                segment.push(iovec {
                    iov_base: first
                        .iov_base
                        .cast::<u8>()
                        .wrapping_add(self.offset_bytes)
                        .cast(),
                    iov_len: taken,
                });
            }
            room -= taken;
            self.offset_bytes += taken;
            if taken == left {
                self.pieces = rest;
                self.offset_bytes = 0;
            }
        }
        let length = self.segment_size - room;
        (length > 0).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(lengths: &[usize], segment_size: usize) -> Vec<Vec<(usize, usize)>> {
        // Addresses are not touched: piece k starts at 1000 k.
        let pieces: Vec<iovec> = lengths
            .iter()
            .enumerate()
            .map(|(k, &iov_len)| iovec {
                iov_base: std::ptr::without_provenance_mut(1000 * k),
                iov_len,
            })
            .collect();
        let mut segments = Segments::new(&pieces, segment_size);
        let mut segment = Vec::new();
        let mut all = Vec::new();
        while let Some(length) = segments.next_into(&mut segment) {
            assert_eq!(
                length,
                segment.iter().map(|piece| piece.iov_len).sum::<usize>()
            );
            all.push(
                segment
                    .iter()
                    .map(|piece| (piece.iov_base.addr(), piece.iov_len))
                    .collect(),
            );
        }
        all
    }

    #[test]
    fn pieces_are_cut_across_their_borders() {
        assert_eq!(
            cut(&[10, 90, 25], 50),
            [
                vec![(0, 10), (1000, 40)],
                vec![(1040, 50)],
                vec![(2000, 25)]
            ]
        );
    }

    #[test]
    fn empty_pieces_vanish() {
        assert_eq!(
            cut(&[0, 4, 0, 0, 4, 0], 4),
            [vec![(1000, 4)], vec![(4000, 4)]]
        );
        assert!(cut(&[], 4).is_empty());
        assert!(cut(&[0, 0], 4).is_empty());
    }

    #[test]
    fn one_short_segment() {
        assert_eq!(cut(&[3], 100), [vec![(0, 3)]]);
    }
}
