//! Short datagrams as Ethernet frames between neighbours.
//!
//! The tests need root or user namespaces, iproute2, and Linux 6.2; otherwise they say SKIPPED.

mod support;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use support::ends::{Ends, TTL, send, send_as, ttls, with_frames};
use support::{
    Ipv4Packet, Pair, capture, destination, pattern, privileged, receive, receive_datagrams, skip,
    try_receive,
};
use urxe_udp::{
    Framing, Options, Piece, RecvBuffer, RecvMeta, Transmit, abandon_inherited, wait_readable,
};

/// Room of the rings, in frames: of up to 18,532 bytes, and of longer ones.
const SLOTS: usize = 336;
const LONG_SLOTS: usize = 96;

#[test]
fn a_frame_is_the_same_in_one_piece_and_in_several() {
    with_frames("a_frame_is_the_same_in_one_piece_and_in_several", |ends| {
        let mut buffer = RecvBuffer::new();
        // Up to 2,048 bytes they are copied; a batch of two, too.
        for (length, segment_size) in [
            (0, None),
            (64, None),
            (100, Some(64)),
            (2048, None),
            (2049, None),
        ] {
            let bytes = pattern(length);
            let (first, second) = bytes.split_at(length / 2);
            let in_pieces = Transmit {
                destination: &destination(&ends.right),
                segment_size,
                tos: 0x42,
                framing: Framing::Message,
                iov: &[Piece::new(first), Piece::new(second)],
                whole: None,
            };
            let whole = Transmit {
                whole: Some(&bytes),
                ..in_pieces
            };
            let [one, other] = [in_pieces, whole].map(|transmit| {
                assert_eq!(ends.left.send(&transmit).unwrap().lost, None);
                let meta = receive(&ends.right, &mut buffer);
                assert_eq!(&buffer.bytes()[..length], bytes);
                meta
            });
            assert_eq!(one, other);
            assert_eq!(one.stride, segment_size.map_or(length, usize::from));
        }
        assert_eq!(ends.left.frame_counts().0, 10);
    });
}

/// The kernel has a batch of up to 32,000 bytes in one piece of its memory, and a longer one in
/// pages.
#[test]
fn a_batch_arrives_whole_however_the_kernel_holds_it() {
    with_frames(
        "a_batch_arrives_whole_however_the_kernel_holds_it",
        |ends| {
            let mut buffer = RecvBuffer::new();
            for length in [4_200, 8_224, 31_999, 32_000, 32_001, 60_000] {
                let bytes = pattern(length);
                send(&ends.left, &ends.right, Some(4_112), &bytes);
                let meta = receive(&ends.right, &mut buffer);
                assert_eq!(&buffer.bytes()[..length], bytes);
                assert_eq!(meta.stride, 4_112);
            }
            assert_eq!(ends.left.frame_counts().0, 6);
        },
    );
}

#[test]
fn a_short_datagram_goes_as_a_frame() {
    with_frames("a_short_datagram_goes_as_a_frame", |ends| {
        let capture = capture(&ends.pair.right, "veth");
        let bytes = pattern(1000);
        send(&ends.left, &ends.right, None, &bytes);
        let mut buffer = RecvBuffer::new();
        let meta = receive(&ends.right, &mut buffer);
        let expected = RecvMeta {
            source: ends.left.local_address(),
            len: 1000,
            stride: 1000,
            tos: 0x42,
            truncated: false,
            has_more: false,
            frame: None,
        };
        assert_eq!(meta, expected);
        assert_eq!(&buffer.bytes()[..1000], bytes);
        let packets = capture.packets();
        let [packet] = packets[..] else {
            panic!("{packets:?}");
        };
        assert_ne!(packet.udp_checksum, 0, "the checksum is on");
        let frame = Ipv4Packet {
            id: 0,
            dont_fragment: true,
            tos: 0x42,
            total_bytes: 1028,
            ttl: TTL,
            ..packet
        };
        assert_eq!(packet, frame);
        let again = try_receive(&ends.right, &mut buffer, Duration::from_millis(50));
        assert_eq!(again, None, "the socket dropped it");
    });
}

#[test]
fn who_receives_a_frame_is_told_of_the_next() {
    with_frames("who_receives_a_frame_is_told_of_the_next", |ends| {
        (0..3).for_each(|_| send(&ends.left, &ends.right, None, &pattern(20)));
        std::thread::sleep(Duration::from_millis(50));
        let mut buffer = RecvBuffer::new();
        let told = [(); 3].map(|()| receive(&ends.right, &mut buffer).has_more);
        assert_eq!(told, [true, true, false]);
    });
}

#[test]
fn a_short_batch_goes_as_one_frame() {
    with_frames("a_short_batch_goes_as_one_frame", |ends| {
        let capture = capture(&ends.pair.right, "veth");
        let bytes = pattern(330);
        send(&ends.left, &ends.right, Some(100), &bytes);
        let mut buffer = RecvBuffer::new();
        let meta = receive(&ends.right, &mut buffer);
        assert_eq!((meta.len, meta.stride, meta.segments()), (330, 100, 4));
        assert_eq!(&buffer.bytes()[..330], bytes);
        assert_eq!(ttls(&capture.packets()), [TTL]);
        // Of a stream two full packets and what comes behind them do, too; of messages what fits
        // the rings.
        let cases = [
            (4000, 8100, Framing::Message, TTL),
            (1000, 6000, Framing::Message, TTL),
            (4120, 18_532, Framing::Message, TTL),
            (4000, 8100, Framing::Stream, TTL),
            (5000, 9156, Framing::Stream, TTL),
            (1000, 6000, Framing::Stream, 64),
            (5000, 9157, Framing::Stream, 64),
            (5000, 18_533, Framing::Message, TTL),
            (4112, 61_680, Framing::Message, TTL),
            (1040, 64_480, Framing::Message, TTL),
            (8000, 65_348, Framing::Message, TTL),
            (8000, 65_349, Framing::Message, 64),
        ];
        for (segment_size, length, framing, ttl) in cases {
            // So long does the socket carry all behind what it carried.
            std::thread::sleep(Duration::from_millis(30));
            send_as(
                &ends.left,
                &ends.right,
                Some(segment_size),
                &pattern(length),
                framing,
            );
            let meta = receive(&ends.right, &mut buffer);
            assert_eq!((meta.len, meta.stride), (length, segment_size.into()));
            assert_eq!(&buffer.bytes()[..length], pattern(length));
            assert_eq!(ttls(&capture.packets()), [ttl]);
        }
    });
}

/// A token bucket of one packet cuts the batch; what it makes of it must be right in all headers
/// and in the checksum, which a plain socket looks at.
#[test]
fn a_batch_that_the_link_cuts_arrives_whole() {
    let test = "a_batch_that_the_link_cuts_arrives_whole";
    privileged(test, || {
        let (pair, middle) = Pair::bridged(1500);
        let ends = Ends::new(pair);
        if !ends.left.capabilities().frames {
            return skip(test, "no frames before Linux 6.2");
        }
        middle.command("tc qdisc add dev port2 root tbf rate 1gbit burst 1500 limit 1000000");
        let capture = capture(&ends.pair.right, "veth");
        let plain = ends.pair.right.bind("10.9.0.2:0");
        for (count, length) in [(4, 3_300), (19, 18_500), (60, 59_001)] {
            let bytes = pattern(length);
            for to in [&ends.right, &plain] {
                send(&ends.left, to, Some(1000), &bytes);
                let received = receive_datagrams(to, count);
                assert_eq!(received, bytes.chunks(1000).collect::<Vec<_>>());
                let packets = capture.packets();
                let ids: Vec<_> = packets.iter().map(|packet| packet.id).collect();
                assert_eq!(ids, (0..count as u16).collect::<Vec<_>>());
                assert_eq!(ttls(&packets), vec![TTL; count]);
            }
        }
    });
}

#[test]
fn nothing_overtakes_a_long_batch() {
    with_frames("nothing_overtakes_a_long_batch", |ends| {
        let capture = capture(&ends.pair.right, "veth");
        send(&ends.left, &ends.right, None, &[0; 10]);
        let (stream, long) = (Framing::Stream, pattern(20_000));
        let start = Instant::now();
        send_as(&ends.left, &ends.right, Some(8000), &long, stream);
        send(&ends.left, &ends.right, None, &[1; 20]);
        // Where this thread was kept from its processor in between, the long batch may be old
        // enough.
        let is_old = start.elapsed() > Duration::from_millis(15);
        let lengths: Vec<_> = receive_datagrams(&ends.right, 5)
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(lengths, [10, 8000, 8000, 4000, 20]);
        let seen = ttls(&capture.packets());
        assert_eq!(seen[..2], [TTL, 64]);
        assert!(seen[2] == 64 || is_old, "{seen:?}");
        // Later they go as frames again.
        std::thread::sleep(Duration::from_millis(50));
        send(&ends.left, &ends.right, None, &[1; 20]);
        receive_datagrams(&ends.right, 1);
        assert_eq!(ttls(&capture.packets()), [TTL]);
    });
}

#[test]
fn what_is_short_and_what_is_long_arrive_in_order() {
    with_frames("what_is_short_and_what_is_long_arrive_in_order", |ends| {
        // More of both than there is room, so that each place is used again.
        let length = |k: usize| [10, 20_000, 30_000, 11, 12, 40_000][k % 6] + k;
        let mut buffer = RecvBuffer::new();
        for first in (0..6 * LONG_SLOTS).step_by(30) {
            for k in first..first + 30 {
                send(&ends.left, &ends.right, Some(8_000), &pattern(length(k)));
            }
            for k in first..first + 30 {
                let meta = receive(&ends.right, &mut buffer);
                assert_eq!(meta.len, length(k));
                assert_eq!(&buffer.bytes()[..meta.len], pattern(meta.len));
            }
        }
        assert_eq!(ends.right.receive_drops().unwrap(), 0);
        let sent = ends.left.frame_counts().0;
        assert_eq!(ends.right.frame_counts().1, sent);
    });
}

#[test]
fn a_frame_that_does_not_fit_the_buffer_is_marked() {
    with_frames("a_frame_that_does_not_fit_the_buffer_is_marked", |ends| {
        for (room, length, segment_size) in [
            (60, 60, None),
            (60, 61, None),
            (21_000, 30_000, Some(8_000)),
        ] {
            let mut buffer = RecvBuffer::with_capacity(room);
            let bytes = pattern(length);
            send(&ends.left, &ends.right, segment_size, &bytes);
            let meta = receive(&ends.right, &mut buffer);
            let stride = segment_size.map_or(meta.len, usize::from);
            assert_eq!(
                (meta.truncated, meta.len, meta.stride),
                (length > room, length.min(room), stride)
            );
            assert_eq!(buffer.bytes()[..meta.len], bytes[..meta.len]);
        }
        assert_eq!(ends.right.frame_counts().1, 3);
        assert_eq!(ends.right.receive(&mut RecvBuffer::new()).unwrap(), None);
    });
}

/// Where nothing makes up for loss and disorder: the ring is full long before the socket is.
#[test]
fn what_may_not_be_a_frame_arrives_in_order_when_read_late() {
    let test = "what_may_not_be_a_frame_arrives_in_order_when_read_late";
    with_frames(test, |ends| {
        let count = 2 * SLOTS as u32;
        for k in 0..count {
            let bytes = k.to_be_bytes();
            send_as(&ends.left, &ends.right, None, &bytes, Framing::Never);
            // Frames among them change nothing.
            if k % 100 == 0 {
                send(&ends.left, &ends.right, None, &[0; 9]);
            }
        }
        let received = receive_datagrams(&ends.right, (count + count.div_ceil(100)) as usize);
        let kept = received.into_iter().filter(|bytes| bytes.len() == 4);
        let expected: Vec<_> = (0..count).map(|k| k.to_be_bytes().to_vec()).collect();
        assert_eq!(kept.collect::<Vec<_>>(), expected);
    });
}

#[test]
fn what_others_send_comes_by_the_socket() {
    with_frames("what_others_send_comes_by_the_socket", |ends| {
        let other = ends.pair.left.bind("10.9.0.1:0");
        send(&other, &ends.right, None, &[7; 99]);
        let mut buffer = RecvBuffer::new();
        let meta = receive(&ends.right, &mut buffer);
        assert_eq!((meta.source, meta.len), (other.local_address(), 99));
    });
}

#[test]
fn whoever_waits_is_woken_by_a_frame() {
    with_frames("whoever_waits_is_woken_by_a_frame", |ends| {
        for length in [99, 30_000] {
            let start = Instant::now();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    send(&ends.left, &ends.right, Some(8000), &pattern(length));
                });
                wait_readable(ends.right.readable_fds(), 5_000_000_000);
            });
            assert!(start.elapsed() < Duration::from_secs(4));
            let meta = ends.right.receive(&mut RecvBuffer::new()).unwrap();
            assert_eq!(meta.map(|meta| meta.len), Some(length));
        }
        assert_eq!(ends.right.frame_counts().1, 2);
    });
}

#[test]
fn a_full_ring_is_counted_and_what_took_it_is_not() {
    with_frames("a_full_ring_is_counted_and_what_took_it_is_not", |ends| {
        assert_eq!(ends.right.receive_drops().unwrap(), 0);
        (0..SLOTS + 10).for_each(|_| send(&ends.left, &ends.right, None, &[7; 99]));
        assert_eq!(receive_datagrams(&ends.right, SLOTS).len(), SLOTS);
        assert_eq!(ends.right.receive_drops().unwrap(), 10);
        (0..SLOTS).for_each(|_| send(&ends.left, &ends.right, None, &[7; 99]));
        receive_datagrams(&ends.right, SLOTS);
        assert_eq!(ends.right.receive_drops().unwrap(), 10);
    });
}

#[test]
fn a_link_that_was_down_wakes_nobody_once_it_is_up() {
    with_frames("a_link_that_was_down_wakes_nobody_once_it_is_up", |ends| {
        ends.pair.left.command("ip link set veth down");
        ends.pair.left.command("ip link set veth up");
        let mut buffer = RecvBuffer::new();
        // What could still come, as the link went down, has come.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(ends.left.receive(&mut buffer).unwrap(), None);
        let is_woken = || {
            let entry = |fd: BorrowedFd<'_>| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut entries: Vec<_> = ends.left.readable_fds().map(entry).collect();
            // SAFETY: the entries live until the call returns.
            unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, 20) > 0 }
        };
        assert!(is_woken(), "there is an error");
        ends.left.forget_errors();
        assert!(!is_woken());
        // A program that polls gets rid of it, too, soon where the socket is read each time, ...
        for receives in [20, 10_000] {
            ends.pair.left.command("ip link set veth down");
            ends.pair.left.command("ip link set veth up");
            std::thread::sleep(Duration::from_millis(20));
            assert!(is_woken());
            for _ in 0..receives {
                assert_eq!(ends.left.receive(&mut buffer).unwrap(), None);
            }
            assert!(!is_woken(), "after {receives}");
            // ... and where it is read seldom, as after so many.
            (0..5_000).for_each(|_| assert_eq!(ends.left.receive(&mut buffer).unwrap(), None));
        }
        for (from, to) in [(&ends.left, &ends.right), (&ends.right, &ends.left)] {
            let start = Instant::now();
            while try_receive(to, &mut buffer, Duration::from_millis(100)).is_none() {
                assert!(start.elapsed() < Duration::from_secs(60));
                send(from, to, None, &[7; 99]);
            }
        }
    });
}

#[test]
fn the_child_of_a_fork_neither_takes_nor_sends_frames() {
    with_frames(
        "the_child_of_a_fork_neither_takes_nor_sends_frames",
        |ends| {
            let capture = capture(&ends.pair.right, "veth");
            send(&ends.left, &ends.right, None, &[7; 99]);
            // SAFETY: the child calls nothing that another thread may have locked.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    abandon_inherited();
                    let mut buffer = RecvBuffer::new();
                    let has_received = ends
                        .right
                        .receive(&mut buffer)
                        .is_ok_and(|got| got.is_some());
                    let transmit = Transmit {
                        destination: &destination(&ends.right),
                        segment_size: None,
                        tos: 0,
                        framing: Framing::Message,
                        whole: None,
                        iov: &[Piece::new(&[7; 99])],
                    };
                    let has_sent = ends.left.send(&transmit).is_ok();
                    libc::_exit(i32::from(has_received || has_sent));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0, "the child received or sent");
            }
            let mut buffer = RecvBuffer::new();
            let meta = try_receive(&ends.right, &mut buffer, Duration::from_secs(10));
            assert!(meta.is_some(), "what is the parent's was not taken");
            assert_eq!(ttls(&capture.packets()), [TTL]);
        },
    );
}

#[test]
fn all_descriptors_are_there_to_wait_for() {
    with_frames("all_descriptors_are_there_to_wait_for", |ends| {
        let fds: Vec<_> = ends.left.readable_fds().map(|fd| fd.as_raw_fd()).collect();
        assert_eq!(fds.len(), 3);
        let plain = ends.pair.left.bind("10.9.0.1:0");
        assert!(!plain.capabilities().frames);
        assert_eq!(plain.readable_fds().count(), 1);
    });
}

/// What tells the file behind a descriptor from any other.
fn inode(fd: i32) -> Option<u64> {
    // SAFETY: all zeros is a valid stat, and the kernel fills it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut status) == 0).then_some(status.st_ino)
    }
}

#[test]
fn a_socket_that_ended_has_no_descriptors() {
    with_frames("a_socket_that_ended_has_no_descriptors", |ends| {
        let options = Options {
            frames: true,
            ..Options::default()
        };
        for port in 4800..4810 {
            let socket = ends
                .pair
                .left
                .bind_with(&format!("10.9.0.1:{port}"), &options);
            let fds: Vec<_> = socket.readable_fds().map(|fd| fd.as_raw_fd()).collect();
            let files: Vec<_> = fds.iter().map(|fd| inode(*fd)).collect();
            assert!(fds.len() == 3 && files.iter().all(Option::is_some));
            drop(socket);
            for (fd, file) in fds.iter().zip(&files) {
                assert_ne!(inode(*fd), *file);
            }
        }
    });
}

#[test]
#[ignore = "quiet: it measures that the end of a socket waits for no grace period of the kernel, 10 ms"]
fn the_end_of_a_socket_is_not_waited_for() {
    with_frames("the_end_of_a_socket_is_not_waited_for", |ends| {
        let options = Options {
            frames: true,
            ..Options::default()
        };
        let longest = (4800..4810).map(|port| {
            let address = format!("10.9.0.1:{port}");
            let socket = ends.pair.left.bind_with(&address, &options);
            let start = Instant::now();
            drop(socket);
            start.elapsed()
        });
        let longest = longest.max().unwrap();
        assert!(longest < Duration::from_millis(5), "{longest:?}");
    });
}
