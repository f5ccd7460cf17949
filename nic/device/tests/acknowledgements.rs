//! A program that polls acknowledges as soon as nothing else comes.
mod support;

use support::{End, connect_both, post, post_recv};
use urxe_device::{Mtu, QpType, SendOp, SendTarget, WcStatus};

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
