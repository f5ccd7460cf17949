//! The background thread leaves a program that polls to itself.
mod support;

use std::time::{Duration, Instant};

use support::{End, background_sleeps, connect_both, post, post_recv};
use urxe_device::{Mtu, QpType, SendOp, SendTarget};

#[test]
fn a_program_that_goes_on_polling_is_looked_at_ever_less_often() {
    let end = End::new(128);
    let (from, to) = (end.qp(QpType::Rc), end.qp(QpType::Rc));
    connect_both(&end, &from, &end, &to, Mtu::B1024);
    let exchange_for = |time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time {
            post_recv(&to, 1, &[end.sge(0, 64)]);
            post(
                &from,
                1,
                SendOp::Send,
                &[end.sge(64, 64)],
                SendTarget::Connection,
            );
            let mut completed = 0;
            while completed < 2 {
                completed += end.cq.poll(2, |_| ());
                assert!(start.elapsed() < 10 * time);
            }
        }
    };
    // On a busy machine the thread takes over now and then, and is woken by each packet.
    let looks = (0..10).map(|_| {
        exchange_for(Duration::from_millis(100));
        let before = background_sleeps();
        assert!(before > 0, "there is a thread");
        exchange_for(Duration::from_millis(400));
        background_sleeps() - before
    });
    let tried: Vec<u64> = looks
        .take_while(|looks| !(2..300).contains(looks))
        .collect();
    assert!(tried.len() < 10, "{tried:?} times in 400 ms");
}
