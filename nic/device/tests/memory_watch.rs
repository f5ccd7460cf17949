//! Programs that poll until what they sent has arrived, and then look at their memory for what a
//! peer writes.
mod support;

use std::time::{Duration, Instant};

use support::{End, connect_both, post};
use urxe_device::{Mtu, QpType, WcStatus};

/// Takes longer than the background thread goes without a look at what a program does that polls.
const LONG: usize = 4 << 20;
const SHORT: usize = 64;
const EXCHANGES: u8 = 100;

/// Without a word of the program the thread, which is on its guard, finds the reply by its next
/// look: after 0.2 ms.
#[test]
#[ignore = "quiet: it measures how soon a thread that the kernel wakes has seen a reply, in microseconds"]
fn a_reply_is_seen_at_once_after_long_polling() {
    let (left, mut right) = (End::new(LONG), End::new(LONG));
    let (to_right, to_left) = (left.qp(QpType::Rc), right.qp(QpType::Rc));
    connect_both(&left, &to_right, &right, &to_left, Mtu::B4096);
    let write = |qp, from: &End, to: &End, len| {
        post(qp, 0, to.write_op(0), &[from.sge(0, len)]);
    };
    let mut took: Vec<_> = (1..=EXCHANGES)
        .map(|turn| {
            write(&to_right, &left, &right, LONG);
            while left.cq.poll(1, |completion| {
                assert_eq!(completion.status, WcStatus::Success)
            }) == 0
            {}
            right.buffer[SHORT - 1] = turn;
            let start = Instant::now();
            write(&to_left, &right, &left, SHORT);
            // SAFETY: a byte that is there; the device writes it.
            while unsafe { std::ptr::from_ref(&left.buffer[SHORT - 1]).read_volatile() } != turn {
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "nothing in a minute"
                );
                std::hint::spin_loop();
            }
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    let median = took[took.len() / 2];
    println!("{median:?}, at most {:?}", took.last());
    assert!(median < Duration::from_micros(100), "{median:?}");
}
