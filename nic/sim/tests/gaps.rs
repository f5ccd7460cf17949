//! What an end says of packets that are missing, when they come before it has said so.

mod support;

use support::by_hand::{MTU, NOW, Pair};
use urxe_proto::PeerAbilities;
use urxe_wire::Header;

/// A message of eight packets from the left one.
fn sent(pair: &mut Pair) -> Vec<(Header, Vec<u8>)> {
    pair.receive();
    pair.send(8 * MTU);
    pair.sent(NOW)
}

fn bring(pair: &mut Pair, packets: &[(Header, Vec<u8>)], order: &[usize]) {
    for at in order {
        let (header, payload) = &packets[*at];
        pair.bring_right(NOW, *header, payload);
    }
}

#[test]
fn what_has_come_in_the_meantime_is_not_asked_for() {
    // One packet is late, or two are, behind the first and behind another one.
    for order in [[0, 2, 3, 4, 5, 6, 7, 1], [0, 2, 4, 5, 6, 7, 1, 3]] {
        let mut pair = Pair::of_our_kind();
        let packets = sent(&mut pair);
        bring(&mut pair, &packets, &order);
        assert_eq!(pair.answer(NOW), 1, "the acknowledgement");
        assert!(pair.sent(NOW).is_empty(), "nothing is sent again");
        assert_eq!(pair.left.stats().packet_seq_err, 0);
        assert_eq!(pair.received(), 1);
    }
}

#[test]
fn what_is_asked_for_is_what_is_missing_by_then() {
    let mut pair = Pair::of_our_kind();
    let packets = sent(&mut pair);
    bring(&mut pair, &packets, &[0, 2, 4, 5, 6, 7, 1]);
    pair.answer(NOW);
    let again = pair.sent(NOW);
    let psns: Vec<_> = again.iter().map(|(header, _)| header.bth.psn).collect();
    assert_eq!(psns, [packets[3].0.bth.psn]);
    bring(&mut pair, &again, &[0]);
    pair.answer(NOW);
    assert_eq!(pair.left.stats().packet_seq_err, 1);
    assert_eq!(pair.received(), 1);
}

#[test]
fn an_end_that_keeps_nothing_asks_for_what_it_has_dropped() {
    let mut pair = Pair::of_our_kind();
    pair.right.set_peer_abilities(PeerAbilities::empty());
    let packets = sent(&mut pair);
    bring(&mut pair, &packets, &[0, 2, 3, 1]);
    pair.answer(NOW);
    let again = pair.sent(NOW);
    let first = again.first().map(|(header, _)| header.bth.psn);
    assert_eq!(first, Some(packets[2].0.bth.psn), "not the one that came");
    let all: Vec<_> = (0..again.len()).collect();
    bring(&mut pair, &again, &all);
    pair.answer(NOW);
    assert_eq!(pair.received(), 1);
}
