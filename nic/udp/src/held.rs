//! The memory of a stream, which the kernel keeps for a while after it was read.
//!
//! On a host's own links the sender's kernel copies into pages that it gets back as soon as the
//! receiver is done with them. Their lines are then in the cache of the receiver's processor, and
//! to write them anew takes half as long again as to write lines that are in neither processor's
//! own cache. So a stream is read by looking (MSG_PEEK, SO_PEEK_OFF of socket(7)), and what was
//! looked at is let go as soon as as much again as fits that cache has come.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{CLOCK_MONOTONIC, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, SO_PEEK_OFF, SOL_SOCKET, c_int};

use crate::clock::now_ns;
use crate::error::errno;
use crate::{sockopt, uncancelled};

/// A datagram, or batch, as long as this is part of a stream.
const LONG_BYTES: usize = 32 << 10;
/// The kernel goes past all that are held to find the next.
const HELD_MAX: u32 = 64;
/// So many times what is held the receive buffer must have.
const ROOM: usize = 4;
/// Errors that a receive may tell of before it takes a datagram.
const ERRORS_MAX: u32 = 3;
/// So long without a long one ends a stream.
const PAUSE_NS: u64 = 50_000;

/// What a socket holds. One thread at a time receives.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// How much is held, at most; 0 where nothing ever is. A stream is known by twice as much.
    limit_bytes: usize,
    pause_ns: u64,
    /// What has come in long ones since a pause, and since this end sent a long one: where both
    /// ends send, the lines leave the cache without help.
    run_bytes: AtomicUsize,
    count: AtomicU32,
    bytes: AtomicUsize,
    /// When a receive first brought nothing long; 0 if the last one did.
    pause_start_ns: AtomicU64,
}

impl Held {
    /// Prepares a socket to hold so many bytes, unless that leaves too little room for what comes.
    pub(crate) fn prepare(fd: BorrowedFd<'_>, limit_bytes: usize, buffer_bytes: usize) -> Self {
        let can = limit_bytes > 0
            && buffer_bytes / limit_bytes >= ROOM
            && sockopt::set(fd, SOL_SOCKET, SO_PEEK_OFF, 0 as c_int).is_ok();
        Self {
            limit_bytes: if can { limit_bytes } else { 0 },
            pause_ns: PAUSE_NS,
            ..Self::default()
        }
    }

    /// Flags for the next receive.
    #[inline]
    pub(crate) fn flags(&self, fd: BorrowedFd<'_>) -> c_int {
        if self.run_bytes.load(Ordering::Relaxed) > 2 * self.limit_bytes {
            MSG_PEEK
        } else {
            if self.count.load(Ordering::Relaxed) > 0 {
                self.let_go(fd);
            }
            0
        }
    }

    /// So many bytes are sent.
    #[inline]
    pub(crate) fn note_sent(&self, len: usize) {
        if len >= LONG_BYTES {
            self.run_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// A receive with `flags` brought so many bytes.
    #[inline]
    pub(crate) fn note(&self, fd: BorrowedFd<'_>, flags: c_int, len: usize) {
        if flags != 0 {
            self.hold(fd, len);
        } else if len >= LONG_BYTES && self.limit_bytes > 0 {
            self.run_bytes.fetch_add(len, Ordering::Relaxed);
            self.pause_start_ns.store(0, Ordering::Relaxed);
        }
    }

    fn hold(&self, fd: BorrowedFd<'_>, len: usize) {
        let mut count = self.count.load(Ordering::Relaxed) + 1;
        let mut bytes = self.bytes.load(Ordering::Relaxed) + len;
        while bytes > self.limit_bytes || count > HELD_MAX {
            let Some(len) = discard(fd) else {
                (count, bytes) = (0, 0);
                break;
            };
            count -= 1;
            bytes = bytes.saturating_sub(len);
        }
        self.count.store(count, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        if len >= LONG_BYTES {
            self.pause_start_ns.store(0, Ordering::Relaxed);
        } else {
            // What is short goes on with the stream of another; alone it would be looked for twice.
            self.pause(fd);
        }
    }

    /// A receive brought nothing.
    #[inline]
    pub(crate) fn note_nothing(&self, fd: BorrowedFd<'_>) {
        if self.run_bytes.load(Ordering::Relaxed) > 0 {
            self.pause(fd);
        }
    }

    fn pause(&self, fd: BorrowedFd<'_>) {
        let now_ns = now_ns(CLOCK_MONOTONIC);
        let start_ns = self.pause_start_ns.load(Ordering::Relaxed);
        if start_ns == 0 {
            self.pause_start_ns.store(now_ns, Ordering::Relaxed);
        } else if now_ns.saturating_sub(start_ns) >= self.pause_ns {
            self.run_bytes.store(0, Ordering::Relaxed);
            self.let_go(fd);
        }
    }

    /// Lets all go.
    #[cold]
    fn let_go(&self, fd: BorrowedFd<'_>) {
        for _ in 0..self.count.load(Ordering::Relaxed) {
            if discard(fd).is_none() {
                break;
            }
        }
        self.count.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// Takes the first datagram off the queue, and returns its length; None if there is none.
fn discard(fd: BorrowedFd<'_>) -> Option<usize> {
    // A receive may tell of an error instead, once: that the link went down, say.
    (0..=ERRORS_MAX).find_map(|_| {
        let mut nothing = 0_u8;
        // SAFETY: no byte is written.
        let len = unsafe {
            uncancelled::recvfrom(
                fd.as_raw_fd(),
                (&raw mut nothing).cast(),
                0,
                MSG_TRUNC | MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(len) {
            Ok(len) => Some(Some(len)),
            Err(_) if errno() == libc::EAGAIN => Some(None),
            Err(_) => None,
        }
    })?
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use crate::{
        Destination, Framing, Options, Piece, RecvBuffer, Socket, Transmit, wait_readable,
    };

    const LIMIT_BYTES: usize = 256 << 10;
    const LONG: usize = 40_000;

    fn ends() -> (Socket, Socket) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = Options {
            held_bytes: LIMIT_BYTES,
            ..Options::default()
        };
        let bind = || {
            let mut socket = Socket::bind(any, &options).unwrap();
            // The machine may be busy.
            socket.held.pause_ns = u64::MAX;
            socket
        };
        (bind(), bind())
    }

    fn send(ends: &(Socket, Socket), number: u8, len: usize) {
        ends.0
            .send(&Transmit {
                destination: &Destination::new(ends.1.local_address()),
                segment_size: None,
                tos: 0,
                framing: Framing::Never,
                whole: None,
                iov: &[Piece::new(&vec![number; len])],
            })
            .unwrap();
    }

    /// The next datagram: its first byte and its length.
    fn next(socket: &Socket, buffer: &mut RecvBuffer) -> (u8, usize) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(meta) = socket.receive(buffer).unwrap() {
                assert!(!meta.truncated && meta.stride == meta.len);
                return (buffer.bytes()[0], meta.len);
            }
            assert!(Instant::now() < end, "lost");
        }
    }

    fn held(socket: &Socket) -> (u32, usize) {
        let held = &socket.held;
        let (count, bytes) = (&held.count, &held.bytes);
        (count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    fn is_readable(socket: &Socket) -> bool {
        let mut poll = libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(socket),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which is ours.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }

    /// A stream of long datagrams, of which `more` are in the queue. Returns the next number.
    fn begin_stream(ends: &(Socket, Socket), buffer: &mut RecvBuffer, more: u8) -> u8 {
        let first_held = u8::try_from(2 * LIMIT_BYTES / LONG + 1).unwrap();
        (0..more).for_each(|number| send(ends, number, LONG));
        for number in 0..first_held {
            send(ends, number + more, LONG);
            assert_eq!(next(&ends.1, buffer), (number, LONG));
            assert_eq!(held(&ends.1), (0, 0));
        }
        first_held
    }

    #[test]
    fn a_stream_is_read_in_order_and_once_while_its_memory_is_held() {
        let (ends, mut buffer) = (ends(), RecvBuffer::new());
        let first = begin_stream(&ends, &mut buffer, 4);
        let length = |number: u8| {
            let is_short = number >= first + 4 && number % 10 == 3;
            if is_short { 100 } else { LONG }
        };
        for number in first..200 {
            send(&ends, number + 4, length(number + 4));
            assert_eq!(next(&ends.1, &mut buffer), (number, length(number)));
            let (count, bytes) = held(&ends.1);
            assert!(bytes <= LIMIT_BYTES, "{count} hold {bytes}");
            let as_many = usize::from(number - first + 1).min(LIMIT_BYTES / LONG);
            assert!(count as usize >= as_many, "{count} at {number}");
        }
        assert_eq!(ends.1.receive_drops().unwrap(), 0);
    }

    #[test]
    fn after_a_pause_nothing_is_held_and_threads_may_sleep() {
        let (mut ends, mut buffer) = (ends(), RecvBuffer::new());
        let first = begin_stream(&ends, &mut buffer, 2);
        (first..first + 2).for_each(|number| assert_eq!(next(&ends.1, &mut buffer).0, number));
        assert_eq!(held(&ends.1), (2, 2 * LONG));
        assert!(is_readable(&ends.1), "the kernel has what is held");
        assert!(ends.1.receive(&mut buffer).unwrap().is_none());
        assert_eq!(held(&ends.1).0, 2, "until the pause is long enough");
        ends.1.held.pause_ns = 1_000_000;
        let end = Instant::now() + Duration::from_secs(20);
        while held(&ends.1).0 > 0 {
            assert!(ends.1.receive(&mut buffer).unwrap().is_none());
            assert!(Instant::now() < end);
        }
        assert!(!is_readable(&ends.1));
        send(&ends, 9, LONG);
        wait_readable(ends.1.readable_fds(), 20_000_000_000);
        assert_eq!(next(&ends.1, &mut buffer), (9, LONG));
        assert_eq!(held(&ends.1), (0, 0), "a stream begins anew");
    }

    #[test]
    fn short_messages_behind_a_stream_are_read_as_ever() {
        let (mut ends, mut buffer) = (ends(), RecvBuffer::new());
        let first = begin_stream(&ends, &mut buffer, 2);
        (first..first + 2).for_each(|number| assert_eq!(next(&ends.1, &mut buffer).0, number));
        // As long as none of the receives is a vain one.
        send(&ends, 0, 100);
        assert_eq!(next(&ends.1, &mut buffer), (0, 100));
        assert_eq!(held(&ends.1).0, 3);
        ends.1.held.pause_ns = 0;
        (1..3).for_each(|number| send(&ends, number, 100));
        assert_eq!(next(&ends.1, &mut buffer), (1, 100));
        assert_eq!(held(&ends.1), (0, 0));
        assert_eq!(next(&ends.1, &mut buffer), (2, 100));
        assert_eq!(held(&ends.1), (0, 0));
    }

    #[test]
    fn streams_both_ways_are_not_held() {
        let (ends, mut buffer) = (ends(), RecvBuffer::new());
        let first = begin_stream(&ends, &mut buffer, 2);
        assert_eq!(next(&ends.1, &mut buffer).0, first);
        assert_eq!(held(&ends.1), (1, LONG));
        let (near, far) = ends;
        let mut ends = (far, near);
        for number in 0..40 {
            send(&ends, number, LONG);
            ends = (ends.1, ends.0);
            if number > 0 {
                send(&ends, number, LONG);
            }
            let expected = if number == 0 { first + 1 } else { number };
            assert_eq!(next(&ends.1, &mut buffer).0, expected);
            assert_eq!(held(&ends.1), (0, 0));
            ends = (ends.1, ends.0);
            assert_eq!(next(&ends.1, &mut buffer).0, number);
            assert_eq!(held(&ends.1), (0, 0));
        }
    }

    #[test]
    fn nothing_is_held_where_the_buffer_has_no_room_for_it() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let limit_bytes = |receive_buffer_bytes| {
            let options = Options {
                receive_buffer_bytes,
                held_bytes: LIMIT_BYTES,
                ..Options::default()
            };
            Socket::bind(any, &options).unwrap().held.limit_bytes
        };
        // The kernel doubles what is asked for.
        assert_eq!(limit_bytes(LIMIT_BYTES * 2), LIMIT_BYTES);
        assert_eq!(limit_bytes(LIMIT_BYTES * 2 - 4096), 0);
    }
}
