//! Where a device is told to expect the next message.

mod support;

use support::bench::Bench;
use urxe_proto::SendOp;
use urxe_sim::ConnectOptions;

#[test]
fn the_next_message_is_expected_to_be_as_long_as_the_last() {
    let mut bench = Bench::new(1, ConnectOptions::default());
    let rooms = [10_000, 10_001, 10_002];
    for (wr_id, room) in (0..).zip(rooms) {
        bench.post_recv(wr_id, room);
    }
    let mut send = |len: usize| {
        bench.post_send(0, SendOp::Send, 0, len);
        bench.wait_send();
        let expected = bench.world.host(bench.b.host).memory.expected();
        expected.map(|(sge, bytes)| (sge.len as usize, bytes as usize))
    };
    assert_eq!(send(100), Some((rooms[1], 100)));
    let last = Some((rooms[2], 9_000));
    assert_eq!(send(9_000), last);
    assert_eq!(send(64), last, "no receive is left to say anything about");
}
