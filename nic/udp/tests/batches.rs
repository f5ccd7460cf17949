//! Batches of datagrams: segmentation, and what becomes of them where the kernel has none.

mod support;

use std::os::fd::AsRawFd;
use support::{bind, destination, pattern, receive, receive_datagrams, transmit};
use urxe_udp::{Piece, RecvBatch, RecvBuffer, SendError, Sent, SentMany, Socket};

#[test]
fn a_batch_is_cut_and_its_last_segment_may_be_shorter() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (sender, receiver) = (bind(address), bind(address));
        let to = destination(&receiver);
        let bytes = pattern(10_300);
        // Pieces that end elsewhere than segments do.
        let iov: Vec<_> = bytes.chunks(777).map(Piece::new).collect();
        assert_eq!(
            sender.send(&transmit(&to, Some(1000), &iov)).unwrap(),
            Sent {
                bytes: 10_300,
                lost: None
            }
        );
        let datagrams = receive_datagrams(&receiver, 11);
        assert_eq!(datagrams, bytes.chunks(1000).collect::<Vec<_>>());
        assert!(
            sender.capabilities().gso && receiver.capabilities().gro,
            "{:?}",
            sender.capabilities()
        );
    }
}

#[test]
fn a_batch_arrives_in_one_receive() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    let bytes = pattern(64 + 20);
    sender
        .send(&transmit(&to, Some(64), &[Piece::new(&bytes)]))
        .unwrap();
    let meta = receive(&receiver, &mut RecvBuffer::new());
    assert_eq!((meta.len, meta.stride, meta.segments()), (84, 64, 2));
}

#[test]
fn a_batch_of_one_segment_is_a_datagram() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    for length in [999, 1000] {
        let bytes = pattern(length);
        sender
            .send(&transmit(&to, Some(1000), &[Piece::new(&bytes)]))
            .unwrap();
        let meta = receive(&receiver, &mut RecvBuffer::new());
        assert_eq!(
            (meta.len, meta.stride, meta.segments()),
            (length, length, 1)
        );
    }
}

#[test]
fn the_most_segments_are_accepted_and_more_are_sent_anyway() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    let most = sender.capabilities().max_gso_segments;
    assert!(most == 64 || most == 128, "{most}");
    for count in [most, most + 1, 150] {
        let bytes = pattern(10 * count);
        let sent = sender
            .send(&transmit(&to, Some(10), &[Piece::new(&bytes)]))
            .unwrap();
        assert_eq!(sent.bytes, bytes.len());
        assert_eq!(receive_datagrams(&receiver, count).concat(), bytes);
        assert!(sender.capabilities().gso);
    }
}

#[test]
fn largest_batch() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    let bytes = pattern(urxe_udp::MAX_TRANSMIT_BYTES + 1);
    let largest = &bytes[..urxe_udp::MAX_TRANSMIT_BYTES];
    sender
        .send(&transmit(&to, Some(4096), &[Piece::new(largest)]))
        .unwrap();
    assert_eq!(
        receive_datagrams(&receiver, largest.len().div_ceil(4096)).concat(),
        largest
    );
    let error = sender
        .send(&transmit(&to, Some(4096), &[Piece::new(&bytes)]))
        .unwrap_err();
    assert!(matches!(error, SendError::TooBig), "{error}");
}

/// A page that must not be touched, behind one that may.
struct Guarded(*mut libc::c_void);

const PAGE_BYTES: usize = 4096;

impl Guarded {
    fn new() -> Self {
        // SAFETY: new memory, that nothing else knows.
        unsafe {
            let (read_write, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let start = libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE_BYTES,
                read_write,
                flags,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(start.byte_add(PAGE_BYTES), PAGE_BYTES, libc::PROT_NONE),
                0
            );
            Self(start)
        }
    }

    /// The last `before` bytes of the good page and the first `after` of the bad one.
    fn piece(&self, before: usize, after: usize) -> Piece<'_> {
        // SAFETY: the memory is the test's own.
        unsafe { Piece::from_raw(self.0.cast::<u8>().add(PAGE_BYTES - before), before + after) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and pieces do not outlive it.
        unsafe { libc::munmap(self.0, 2 * PAGE_BYTES) };
    }
}

#[test]
fn memory_that_is_gone_is_a_fault_and_nothing_is_sent() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    let memory = Guarded::new();
    for (piece, segment_size) in [
        (memory.piece(0, 64), None),
        (memory.piece(30, 34), None),
        (memory.piece(3000, 1000), Some(1000)),
    ] {
        let iov = [Piece::new(b"header"), piece];
        let error = sender.send(&transmit(&to, segment_size, &iov)).unwrap_err();
        assert!(matches!(error, SendError::Fault), "{error}");
    }
    // No process's memory at all.
    // SAFETY: the first page is never mapped, and the kernel only reads.
    let nowhere = unsafe { Piece::from_raw(std::ptr::without_provenance(8), 8) };
    assert!(matches!(
        sender.send(&transmit(&to, None, &[nowhere])),
        Err(SendError::Fault)
    ));
    // The socket still works, and what arrives first is this.
    sender
        .send(&transmit(&to, None, &[memory.piece(64, 0)]))
        .unwrap();
    assert_eq!(receive(&receiver, &mut RecvBuffer::new()).len, 64);
    assert!(sender.capabilities().gso);
}

/// Makes the kernel refuse GSO with EINVAL: `udp_send_skb` wants sockets with checksums
/// (net/ipv4/udp.c).
fn refuse_gso(socket: &Socket) {
    let one: libc::c_int = 1;
    // SAFETY: pointer and length describe an int.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const one).cast(),
            4,
        )
    };
    assert_eq!(status, 0);
}

#[test]
fn without_gso_a_batch_is_sent_piecemeal() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    refuse_gso(&sender);
    assert!(sender.capabilities().gso);
    let bytes = pattern(10_300);
    let iov: Vec<_> = bytes.chunks(777).map(Piece::new).collect();
    for _ in 0..2 {
        // The first finds out, the second knows.
        assert_eq!(
            sender.send(&transmit(&to, Some(1000), &iov)).unwrap(),
            Sent {
                bytes: 10_300,
                lost: None
            }
        );
        assert_eq!(
            receive_datagrams(&receiver, 11),
            bytes.chunks(1000).collect::<Vec<_>>()
        );
        assert!(!sender.capabilities().gso);
    }
    let sent = sender
        .send_many(&[
            transmit(&to, Some(1000), &iov),
            transmit(&to, None, &iov[..1]),
        ])
        .unwrap();
    assert_eq!(
        sent,
        SentMany {
            transmits: 2,
            ..SentMany::default()
        }
    );
    assert_eq!(
        receive_datagrams(&receiver, 12).concat().len(),
        10_300 + 777
    );
}

#[test]
fn gso_refused_in_a_batch_of_transmits() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    refuse_gso(&sender);
    let bytes = pattern(2500);
    let iov = [Piece::new(&bytes)];
    let small = [Piece::new(b"small")];
    let transmits = [
        transmit(&to, None, &small),
        transmit(&to, Some(1000), &iov),
        transmit(&to, None, &small),
    ];
    let sent = sender.send_many(&transmits).unwrap();
    assert_eq!(
        sent,
        SentMany {
            transmits: 3,
            ..SentMany::default()
        }
    );
    let lengths: Vec<_> = receive_datagrams(&receiver, 5)
        .iter()
        .map(Vec::len)
        .collect();
    assert_eq!(lengths, [5, 1000, 1000, 500, 5]);
}

#[test]
fn many_transmits_go_to_many_destinations() {
    let sender = bind("127.0.0.1:0");
    let receivers: Vec<_> = (0..3).map(|_| bind("127.0.0.1:0")).collect();
    let destinations: Vec<_> = receivers.iter().map(destination).collect();
    let messages: Vec<_> = (0..50).map(|k| pattern(k + 1)).collect();
    let pieces: Vec<_> = messages
        .iter()
        .map(|message| [Piece::new(message)])
        .collect();
    let transmits: Vec<_> = pieces
        .iter()
        .zip(destinations.iter().cycle())
        .map(|(p, d)| transmit(d, None, p))
        .collect();
    let sent = sender.send_many(&transmits).unwrap();
    assert_eq!(
        sent,
        SentMany {
            transmits: 50,
            ..SentMany::default()
        }
    );
    for (k, receiver) in receivers.iter().enumerate() {
        let mut batch = RecvBatch::new(32, 2048);
        let count = receiver.receive_many(&mut batch).unwrap();
        let received: Vec<_> = batch
            .iter()
            .map(|(meta, mut segments)| {
                assert_eq!((meta.source, meta.segments()), (sender.local_address(), 1));
                segments.next().unwrap().to_vec()
            })
            .collect();
        assert_eq!(received.len(), count);
        assert_eq!(
            received,
            messages
                .iter()
                .skip(k)
                .step_by(3)
                .cloned()
                .collect::<Vec<_>>()
        );
        assert_eq!(receiver.receive_many(&mut batch).unwrap(), 0);
        assert_eq!(batch.iter().count(), 0);
    }
}

#[test]
fn a_fault_in_the_middle_is_reported_when_its_turn_comes() {
    let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = destination(&receiver);
    let memory = Guarded::new();
    let (good, bad) = ([memory.piece(8, 0)], [memory.piece(0, 8)]);
    let transmits = [
        transmit(&to, None, &good),
        transmit(&to, None, &bad),
        transmit(&to, None, &good),
    ];
    let sent = sender.send_many(&transmits).unwrap();
    assert_eq!(
        sent,
        SentMany {
            transmits: 1,
            ..SentMany::default()
        }
    );
    assert!(matches!(
        sender.send_many(&transmits[1..]),
        Err(SendError::Fault)
    ));
    assert_eq!(sender.send_many(&transmits[2..]).unwrap().transmits, 1);
    assert_eq!(sender.send_many(&[]).unwrap(), SentMany::default());
}
