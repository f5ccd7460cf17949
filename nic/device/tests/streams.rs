//! Programs that post many messages before they poll: messages wait for company, and no message
//! waits for ever.
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{End, Peer, TIMEOUT, connect_both, fill, post, wait_for};
use urxe_device::{Mtu, Qp, QpType, SendOp};

const BURST: usize = 64;
const LENGTH: usize = 64;
/// Longest time that a burst may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two ends, and more messages in flight than are sent one by one.
struct Stream {
    left: Peer,
    right: Peer,
}

impl Stream {
    fn new() -> Self {
        let ends = [(); 2].map(|()| End::new(BURST * LENGTH));
        let (mut left, right) = Peer::pair(ends, Mtu::B1024, TIMEOUT);
        fill(&mut left.buffer);
        Self { left, right }
    }

    /// Posts a burst.
    fn post(&self) {
        for i in 0..BURST {
            let sge = self.right.sge(i * LENGTH, LENGTH);
            self.right.post_recv(i as u64, &[sge]);
        }
        for i in 0..BURST {
            let sge = self.left.sge(i * LENGTH, LENGTH);
            self.left.post(i as u64, SendOp::Send, &[sge]);
        }
    }

    /// Takes all completions of a burst, polling both ends.
    fn finish(&self) {
        let (mut received, mut sent) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while received.len() < BURST || sent.len() < BURST {
            self.right.cq.poll(BURST, |c| received.push(c.wr_id));
            self.left.cq.poll(BURST, |c| sent.push(c.wr_id));
            assert!(start.elapsed() < PATIENCE, "{received:?} {sent:?}");
        }
        assert!(received.iter().copied().eq(0..BURST as u64));
        assert!(sent.iter().copied().eq(0..BURST as u64));
    }

    fn check(&mut self) {
        assert_eq!(self.left.buffer, self.right.buffer);
        self.right.buffer.fill(0);
    }
}

#[test]
fn what_waits_for_company_leaves_without_a_poll() {
    let mut stream = Stream::new();
    for _ in 0..20 {
        for _ in 0..50 {
            stream.post();
            stream.finish();
            stream.check();
        }
        stream.post();
        // No thread polls the sender: `wait` would.
        let nic = Arc::clone(&stream.right.nic);
        let received = wait_for(&nic, &stream.right.cq, &[], BURST);
        assert_eq!(received.len(), BURST);
        stream.check();
        stream.left.end.wait(&[], BURST);
    }
}

/// Many connections between two ends, which only the test's thread makes progress for.
struct Many {
    left: End,
    right: End,
    pairs: Vec<(Qp, Qp)>,
    message_bytes: usize,
}

impl Many {
    fn new(count: usize, message_bytes: usize) -> Self {
        let (left, right) = (End::new(message_bytes), End::new(message_bytes));
        let pairs = (0..count)
            .map(|_| {
                let (from, to) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
                connect_both(&left, &from, &right, &to, Mtu::B1024);
                (from, to)
            })
            .collect();
        left.nic.close();
        right.nic.close();
        Self {
            left,
            right,
            pairs,
            message_bytes,
        }
    }

    /// Posts a message on some connections.
    fn write(&self, which: std::ops::Range<usize>) {
        let op = self.right.write_op(0);
        let sge = self.left.sge(0, self.message_bytes);
        for (from, _) in &self.pairs[which] {
            post(from, 0, op, &[sge]);
        }
    }

    /// Until all that was sent is acknowledged.
    fn answer(&self) {
        (0..200).for_each(|_| _ = self.right.cq.poll(1, |_| ()));
    }
}

/// A round that sent all that many queue pairs have would leave their acknowledgements without
/// room.
#[test]
fn a_round_looks_for_packets_before_it_has_sent_everything() {
    const QPS: usize = 24;
    /// What a round may send: the limit, and a turn of one queue pair.
    const ROUND_MAX: u64 = 256 + 128;
    let many = Many::new(QPS, 1 << 20);
    many.write(0..QPS);
    let sent = || many.left.nic.stats().tx_packets;
    let start = Instant::now();
    let (mut done, mut most) = (0, 0);
    while done < QPS {
        // All acknowledgements are there before the next round.
        many.answer();
        let before = sent();
        done += many.left.cq.poll(QPS, |_| ());
        most = most.max(sent() - before);
        assert!(start.elapsed() < PATIENCE, "{done} of {QPS} messages");
    }
    assert!(most > 128, "rounds were short: {most} packets");
    assert!(most <= ROUND_MAX, "{most} packets in one round");
}

#[test]
fn who_posts_much_and_does_not_poll_still_hears() {
    for (qps, message_bytes, posts) in [(32, 64 * 1024, 32), (2, 8, 16)] {
        let many = Many::new(qps, message_bytes);
        let heard = || many.left.nic.stats().rx_packets;
        many.write(0..1);
        many.answer();
        assert_eq!(heard(), 0);
        for post in 1..posts {
            // However fast the machine is: only a program that posts for a while looks for what has
            // come.
            std::thread::sleep(Duration::from_micros(10));
            many.write(post % qps..post % qps + 1);
        }
        assert!(heard() > 0, "{qps} queue pairs");
    }
}
