//! When a device acknowledges: for a program that polls, and for one that looks at its memory alone.
mod support;

use std::time::{Duration, Instant};

use support::{End, connect_both, post, post_recv, post_unsignaled};
use urxe_device::{Mtu, Qp, QpType, SendOp, SendTarget, WcStatus};

const LENGTH: usize = 64;

/// Polls once. How many completions there were.
fn poll(end: &End) -> usize {
    end.cq.poll(16, |completion| {
        assert_eq!(completion.status, WcStatus::Success)
    })
}

/// Late acknowledgements would be hard to tell from those of a busy machine; here nobody but the polls below moves anything.
#[test]
fn the_first_poll_in_vain_sends_what_is_owed() {
    let (left, right) = (End::new(LENGTH), End::new(LENGTH));
    let (from, to) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
    connect_both(&left, &from, &right, &to, Mtu::B1024);
    for end in [&left, &right] {
        end.nic.close();
    }
    for _ in 0..100 {
        post_recv(&to, 0, &[right.sge(0, LENGTH)]);
        let sge = left.sge(0, LENGTH);
        post(&from, 0, SendOp::Send, &[sge], SendTarget::Connection);
        assert_eq!(poll(&right), 1, "loopback delivers at once");
        assert_eq!(poll(&right), 0);
        assert_eq!(poll(&left), 1, "the acknowledgement has come");
    }
}

/// Looks at the last byte of a buffer until it is `expected`, as programs do that wait for a WRITE.
fn watch(end: &End, expected: u8) {
    let last = end.buffer.last().unwrap();
    let start = Instant::now();
    // SAFETY: a byte that is there; the device writes it.
    while unsafe { std::ptr::from_ref(last).read_volatile() } != expected {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing in 20 s");
        std::hint::spin_loop();
    }
}

/// A peer that gets the acknowledgement first stops polling, and sees the reply late.
#[test]
fn the_acknowledgement_of_a_long_write_travels_with_the_reply() {
    const EXCHANGES: u8 = 200;
    /// Each time that this thread is kept from its processor, the acknowledgement rightly goes first.
    const TOGETHER_MIN: usize = 10;
    const TWO_PACKETS: usize = 2048;
    let (mut left, mut right) = (End::new(TWO_PACKETS), End::new(TWO_PACKETS));
    let (to_right, to_left) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
    connect_both(&left, &to_right, &right, &to_left, Mtu::B1024);
    // From the end of the buffer to the start of the other's: a reply that comes late changes nothing of what is sent.
    let write = |from: &mut End, qp, to: &End, len, turn| {
        *from.buffer.last_mut().unwrap() = turn;
        let (va, rkey, sge) = (to.va(0), to.key, from.sge(TWO_PACKETS - len, len));
        post(
            qp,
            0,
            SendOp::Write { va, rkey },
            &[sge],
            SendTarget::Connection,
        );
    };
    let mut together = 0;
    for turn in 1..=EXCHANGES {
        let before = right.nic.stats().tx_batches;
        write(&mut left, &to_right, &right, TWO_PACKETS, turn);
        watch(&right, turn);
        write(&mut right, &to_left, &left, LENGTH, turn);
        while poll(&left) == 0 {}
        let batches = right.nic.stats().tx_batches - before;
        together += usize::from(batches == 1);
    }
    assert!(together >= TOGETHER_MIN, "{together} of {EXCHANGES}");
}

/// Messages to and fro, of which nobody wants completions, and of which each end receives one at a time.
fn play(ends: [(&End, &Qp); 2], messages: usize) {
    for _ in 0..messages {
        for (from, to) in [(0, 1), (1, 0)] {
            let ((sender, qp), (receiver, its_qp)) = (ends[from], ends[to]);
            post_recv(its_qp, 0, &[receiver.sge(0, LENGTH)]);
            post_unsignaled(qp, SendOp::Send, &[sender.sge(0, LENGTH)]);
            let start = Instant::now();
            while poll(receiver) == 0 {
                assert!(start.elapsed() < Duration::from_secs(20), "nothing in 20 s");
            }
        }
    }
}

#[test]
fn messages_without_completions_have_an_acknowledgement_in_several() {
    const MESSAGES: usize = 1000;
    let (left, right) = (End::new(LENGTH), End::new(LENGTH));
    let (to_right, to_left) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
    connect_both(&left, &to_right, &right, &to_left, Mtu::B1024);
    // While a background thread is at work, everything is acknowledged at once.
    for end in [&left, &right] {
        end.nic.close();
    }
    play([(&left, &to_right), (&right, &to_left)], MESSAGES);
    for end in [&left, &right] {
        let packets = end.nic.stats().tx_packets;
        println!("{packets} packets");
        // One in 32 as it is, and more when this thread is kept from its processor.
        assert!(packets < 3 * MESSAGES as u64 / 2, "{packets}");
    }
}

/// It owes an acknowledgement then that nobody asked for, which its background thread has to send before the peer sends again.
#[test]
fn who_stops_polling_acknowledges_in_time() {
    const TURNS: usize = 100;
    /// Of as many as there are turns at each end: when the thread is kept from its processor, it is late.
    const LATE_MAX: u64 = 15;
    let (left, right) = (End::new(LENGTH), End::new(LENGTH));
    // New ones each time: with those that were late once the other is less patient.
    let connections: Vec<(Qp, Qp)> = (0..TURNS)
        .map(|_| {
            let (to_right, to_left) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
            connect_both(&left, &to_right, &right, &to_left, Mtu::B1024);
            play([(&left, &to_right), (&right, &to_left)], 20);
            std::thread::sleep(Duration::from_millis(5));
            (to_right, to_left)
        })
        .collect();
    let stats = [&left, &right].map(|end| end.nic.qp_stats());
    let late: u64 = stats.iter().flatten().map(|(_, stats)| stats.probes).sum();
    println!("{late} late");
    assert!(late <= LATE_MAX, "{late} of {}", 2 * connections.len());
}
