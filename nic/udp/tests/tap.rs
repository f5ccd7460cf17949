//! A tap sees every datagram of its socket, and what it does is what happens.

mod support;

use std::sync::{Arc, Mutex};

use support::{destination, pattern, receive};
use urxe_udp::{
    Framing, Options, Piece, RecvBatch, RecvBuffer, RecvMeta, SendError, Sent, Socket, Tap,
    Transmit,
};

/// What passed: which way, and the bytes.
type Seen = Arc<Mutex<Vec<(&'static str, Vec<u8>)>>>;

/// Keeps what passes, and lets half of every send out.
#[derive(Debug)]
struct Halving {
    wire: Socket,
    seen: Seen,
}

impl Tap for Halving {
    fn send(&self, transmit: &Transmit<'_>, bytes: &[u8]) -> Result<Sent, SendError> {
        self.seen.lock().unwrap().push(("out", bytes.to_vec()));
        let half = [Piece::new(&bytes[..bytes.len() / 2])];
        self.wire.send(&Transmit {
            iov: &half,
            ..*transmit
        })?;
        Ok(Sent {
            bytes: bytes.len(),
            lost: None,
        })
    }

    fn received(&self, _meta: &RecvMeta, bytes: &[u8]) {
        self.seen.lock().unwrap().push(("in", bytes.to_vec()));
    }
}

fn tapped() -> (Socket, Seen) {
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let seen = Seen::default();
    let tap = Halving {
        wire: socket.duplicate().unwrap(),
        seen: Arc::clone(&seen),
    };
    (socket.with_tap(Box::new(tap)), seen)
}

#[test]
fn it_sees_both_directions_and_sends_in_place_of_the_socket() {
    let ((near, near_seen), (far, far_seen)) = (tapped(), tapped());
    assert_eq!(
        near.local_address().port(),
        near.duplicate().unwrap().local_address().port()
    );
    let to = destination(&far);
    let (head, body) = (pattern(20), pattern(44));
    let iov = [Piece::new(&head), Piece::new(&body)];
    let transmit = Transmit {
        destination: &to,
        segment_size: None,
        tos: 0,
        framing: Framing::Never,
        whole: None,
        iov: &iov,
    };
    let all = [head.clone(), body.clone()].concat();
    assert_eq!(near.send(&transmit).unwrap().bytes, 64);
    let mut buffer = RecvBuffer::new();
    let meta = receive(&far, &mut buffer);
    assert_eq!((meta.len, meta.source), (32, near.local_address()));
    assert_eq!(*near_seen.lock().unwrap(), [("out", all.clone())]);
    assert_eq!(*far_seen.lock().unwrap(), [("in", all[..32].to_vec())]);
    // Several messages with one system call are no way around it.
    near.send_many(&[transmit, transmit]).unwrap();
    assert_eq!(near_seen.lock().unwrap().len(), 3);
    let mut batch = RecvBatch::new(4, 2048);
    let mut messages = 0;
    while messages < 2 {
        messages += far.receive_many(&mut batch).unwrap();
    }
    assert_eq!(
        far_seen
            .lock()
            .unwrap()
            .iter()
            .map(|(_, bytes)| bytes.len())
            .sum::<usize>(),
        96
    );
}
