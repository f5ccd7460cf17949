//! Programs that post many messages before they poll: messages wait for company, and no message waits for ever.
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{End, connect_both, fill, post, post_recv, wait_for};
use urxe_device::{Mtu, Qp, QpType, SendOp, SendTarget};

const BURST: usize = 64;
const LENGTH: usize = 64;
/// Longest time that a burst may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two ends, and more messages in flight than are sent one by one.
struct Stream {
    left: End,
    right: End,
    from: Qp,
    to: Qp,
}

impl Stream {
    fn new() -> Self {
        let (mut left, right) = (End::new(BURST * LENGTH), End::new(BURST * LENGTH));
        fill(&mut left.buffer);
        let (from, to) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
        connect_both(&left, &from, &right, &to, Mtu::B1024);
        Self {
            left,
            right,
            from,
            to,
        }
    }

    /// Posts a burst. Returns how many system calls it took.
    fn post(&self) -> u64 {
        self.post_pieces(BURST)
    }

    fn post_pieces(&self, count: usize) -> u64 {
        for i in 0..count {
            let sge = self.right.sge(i * LENGTH, LENGTH);
            post_recv(&self.to, i as u64, &[sge]);
        }
        let before = self.left.nic.stats().tx_batches;
        for i in 0..count {
            let sge = self.left.sge(i * LENGTH, LENGTH);
            post(
                &self.from,
                i as u64,
                SendOp::Send,
                &[sge],
                SendTarget::Connection,
            );
        }
        self.left.nic.stats().tx_batches - before
    }

    /// Takes all completions of a burst, polling both ends.
    fn finish(&self) {
        self.finish_pieces(BURST);
    }

    fn finish_pieces(&self, count: usize) {
        let (mut received, mut sent) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while received.len() < count || sent.len() < count {
            self.right.cq.poll(count, |c| received.push(c.wr_id));
            self.left.cq.poll(count, |c| sent.push(c.wr_id));
            assert!(start.elapsed() < PATIENCE, "{received:?} {sent:?}");
        }
        assert!(received.iter().copied().eq(0..count as u64));
        assert!(sent.iter().copied().eq(0..count as u64));
    }

    fn check(&mut self) {
        assert_eq!(self.left.buffer, self.right.buffer);
        self.right.buffer.fill(0);
    }
}

/// It polls for its messages, and for a while before, but in between it computes.
#[test]
fn pieces_soon_wait_for_no_poll_of_a_program_that_computes_after_each_message() {
    const PIECES: usize = 4;
    let stream = Stream::new();
    let messages = 20;
    let mut waited = 0;
    for _ in 0..messages {
        let start = Instant::now();
        // Not so long that the habit is forgotten, which takes 100 ms at first.
        while start.elapsed() < Duration::from_millis(20) {
            stream.post_pieces(PIECES);
            stream.finish_pieces(PIECES);
        }
        let before = stream.left.nic.stats().tx_packets;
        stream.post_pieces(PIECES);
        // Where the background thread is awake it sends them within this.
        std::thread::sleep(Duration::from_micros(300));
        let sent = stream.left.nic.stats().tx_packets - before;
        waited += u32::from(sent < PIECES as u64);
        std::thread::sleep(Duration::from_millis(10));
        stream.finish_pieces(PIECES);
    }
    assert!(waited <= messages / 2, "in {waited} of {messages} messages");
}

#[test]
fn messages_of_a_program_that_polls_share_system_calls() {
    let mut stream = Stream::new();
    // The background thread needs to see that the program polls; on a busy machine that takes a while.
    let is_shared = (0..2_000).any(|_| {
        let calls = stream.post();
        stream.finish();
        stream.check();
        calls <= 4
    });
    assert!(is_shared, "each of {BURST} messages left by itself");
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
        // Nobody polls the sender: `wait` would.
        let nic = Arc::clone(&stream.right.nic);
        let received = wait_for(&nic, &stream.right.cq, &[], BURST);
        assert_eq!(received.len(), BURST);
        stream.check();
        stream.left.wait(&[], BURST);
    }
}

/// Many connections between two ends, which nobody but the test's thread makes progress for.
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
        let op = SendOp::Write {
            va: self.right.va(0),
            rkey: self.right.key,
        };
        let sge = self.left.sge(0, self.message_bytes);
        for (from, _) in &self.pairs[which] {
            post(from, 0, op, &[sge], SendTarget::Connection);
        }
    }

    /// Until all that was sent is acknowledged.
    fn answer(&self) {
        (0..200).for_each(|_| _ = self.right.cq.poll(1, |_| ()));
    }
}

/// A round that sent all that many queue pairs have would leave their acknowledgements without room.
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

/// It posts for much longer than the background thread leaves a program alone that does not poll.
#[test]
fn messages_to_many_peers_share_system_calls() {
    const QPS: usize = 8;
    const BURST: usize = 1024;
    const POSTS: usize = QPS * BURST;
    let (mut left, right) = (End::new(LENGTH), End::new(LENGTH));
    left.cq = left.nic.create_cq(POSTS, None, 7).unwrap();
    let pairs: Vec<_> = (0..QPS)
        .map(|_| {
            let mut init = left.init(QpType::Rc);
            init.capacity.send_requests = BURST as u32;
            let (from, to) = (left.nic.create_qp(&init).unwrap(), right.qp(QpType::Rc));
            connect_both(&left, &from, &right, &to, Mtu::B1024);
            (from, to)
        })
        .collect();
    let op = SendOp::Write {
        va: right.va(0),
        rkey: right.key,
    };
    let sge = left.sge(0, LENGTH);
    let calls = || left.nic.stats().tx_batches;
    let mut bursts: Vec<_> = (0..11)
        .map(|_| {
            let before = calls();
            for (from, _) in &pairs {
                (0..BURST).for_each(|_| post(from, 0, op, &[sge], SendTarget::Connection));
            }
            let posted = calls() - before;
            let (mut done, start) = (0, Instant::now());
            while done < POSTS {
                done += left.cq.poll(16, |_| ());
                assert!(start.elapsed() < PATIENCE, "{done} of {POSTS} messages");
            }
            posted
        })
        .collect();
    bursts.sort_unstable();
    let usual = bursts[bursts.len() / 2];
    assert!(usual <= POSTS as u64 / 8, "{bursts:?} calls for {POSTS}");
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
            // However fast the machine is: only who posts for a while looks for what has come.
            std::thread::sleep(Duration::from_micros(10));
            many.write(post % qps..post % qps + 1);
        }
        assert!(heard() > 0, "{qps} queue pairs");
    }
}
