//! What forged packets do: the attacker does not see the connection, and guesses its numbers.

mod support;

use support::by_hand::{FIRST, LEFT, MTU, NOW, Pair, answer_of, request};
use urxe_proto::{PeerAbilities, QpState, QpType, WcStatus};
use urxe_wire::{Bth, Header, NakCode, Opcode, Operation, PartialPsn, Psn, Syndrome, Transport};

// ---- unreliable connections ------------------------------------------------------------------

/// The messages that do not arrive of a hundred behind a forged one whose PSN is so far ahead.
fn lost_behind(ahead: u32) -> usize {
    let mut pair = Pair::new(QpType::Uc);
    for _ in 0..10 {
        pair.exchange();
    }
    assert_eq!(pair.received(), 10);
    pair.receive();
    let psn = pair.right.query().rq_psn.add(ahead);
    let forged = request(Transport::Uc, Operation::SendOnly, psn);
    pair.bring_right(NOW, forged, &[9; 8]);
    pair.received();
    for _ in 0..100 {
        pair.exchange();
    }
    100 - pair.received()
}

#[test]
fn a_forged_message_silences_no_unreliable_connection() {
    // The specification has a connection take any PSN for the next one, so that the forged message
    // itself arrives.
    for ahead in [
        1024,
        5000,
        1 << 20,
        0x70_0000,
        0x7f_ffff,
        0x80_0000,
        0xc0_0000,
    ] {
        assert_eq!(lost_behind(ahead), 0, "{ahead:#x} ahead");
    }
    for ahead in [1, 30, 99] {
        assert_eq!(lost_behind(ahead), ahead as usize + 1, "{ahead} ahead");
    }
}

#[test]
fn a_forged_middle_packet_changes_nothing_of_uc() {
    for operation in [
        Operation::SendMiddle,
        Operation::SendLast,
        Operation::WriteLast,
    ] {
        for ahead in [1, 2, 100, 0x70_0000, 0x90_0000, 0x00ff_fffe] {
            let mut pair = Pair::new(QpType::Uc);
            pair.receive();
            pair.send(4 * MTU);
            for (number, (header, payload)) in pair.sent(NOW).into_iter().enumerate() {
                let psn = header.bth.psn.add(1).add(ahead);
                pair.bring_right(NOW, header, &payload);
                if number < 3 {
                    let forged = request(Transport::Uc, operation, psn);
                    pair.bring_right(NOW, forged, &[9; MTU]);
                }
            }
            assert_eq!(pair.received(), 1, "{operation:?}, {ahead:#x} ahead");
            assert!(pair.target()[..4 * MTU].iter().all(|byte| *byte == 1));
        }
    }
}

#[test]
fn copies_of_messages_are_not_executed_however_many_are_lost() {
    for missing in [0, 1, 100, 1000, 1024, 2000] {
        let mut pair = Pair::new(QpType::Uc);
        let mut sent = Vec::new();
        for number in 0..20 {
            // What the sender hands out here is lost.
            for _ in 0..if number == 10 { missing } else { 0 } {
                pair.send(8);
                pair.sent(NOW);
            }
            pair.receive();
            pair.send(8);
            for (header, payload) in pair.sent(NOW) {
                pair.bring_right(NOW, header, &payload);
                sent.push((header, payload));
            }
        }
        assert_eq!(pair.received(), 20);
        pair.receive();
        // Behind so many that are missing the sender may be one that a forged packet made this end
        // lose.
        let later = if missing < 1024 { 0 } else { 10 };
        for (header, payload) in &sent[later..] {
            pair.bring_right(NOW, *header, payload);
        }
        assert_eq!(pair.received(), 0, "{missing} lost");
    }
}

// ---- reliable connections --------------------------------------------------------------------

#[test]
fn what_is_kept_gives_way_to_what_comes_later() {
    let mut pair = Pair::of_our_kind();
    pair.receive();
    pair.receive();
    pair.send(8);
    pair.send(8);
    let sent = pair.sent(NOW);
    let [(first, _), (second, payload)] = &sent[..] else {
        panic!("{} packets", sent.len());
    };
    let forged = request(Transport::Rc, Operation::SendOnly, second.bth.psn);
    pair.bring_right(NOW, forged, &[9; 16]);
    pair.bring_right(NOW, *second, payload);
    pair.bring_right(NOW, *first, payload);
    assert_eq!(pair.received(), 2);
    assert!(pair.target()[..8].iter().all(|byte| *byte == 1));
    assert!(pair.target()[8..].iter().all(|byte| *byte == 0));
}

/// A forged packet that is kept makes the responder say that it has what was never sent, and that
/// all before it is missing.
#[test]
fn who_is_told_of_packets_that_it_never_sent_goes_on() {
    let mut pair = Pair::of_our_kind();
    let mut now = NOW;
    pair.exchange();
    assert!(pair.left.poll_completion().is_some());
    for turn in 0..15 {
        pair.receive();
        pair.send(8);
        let sent = pair.sent(now);
        // They come while the genuine packet is on its way, and ask for an answer.
        for ahead in [20, 150] {
            let psn = pair.right.query().rq_psn.add(ahead);
            let mut forged = request(Transport::Rc, Operation::WriteOnly, psn);
            forged.bth.ack_request = true;
            pair.bring_right(now, forged, &[]);
            assert_eq!(pair.answer(now), 1, "turn {turn}: what is missing");
        }
        assert_eq!(pair.left.state(), QpState::ReadyToSend, "turn {turn}");
        for (header, payload) in sent {
            pair.bring_right(now, header, &payload);
        }
        now = now.after(100_000);
        pair.answer(now);
        let status = pair.left.poll_completion().map(|c| c.status);
        assert_eq!(status, Some(WcStatus::Success), "turn {turn}");
    }
}

#[test]
fn a_missing_packet_is_resent_though_forged_ones_are_kept() {
    let mut pair = Pair::of_our_kind();
    pair.exchange();
    for _ in 0..3 {
        pair.receive();
        pair.send(8);
    }
    let sent = pair.sent(NOW);
    let beyond = sent[2].0.bth.psn.add(100);
    let mut forged = request(Transport::Rc, Operation::SendOnly, beyond);
    forged.bth.ack_request = true;
    pair.bring_right(NOW, forged, &[9; 8]);
    // The first of the three is lost.
    for (header, payload) in &sent[1..] {
        pair.bring_right(NOW, *header, payload);
    }
    assert!(pair.answer(NOW) > 0);
    let again = pair.sent(NOW);
    let psns: Vec<_> = again.iter().map(|(header, _)| header.bth.psn).collect();
    assert_eq!(psns, [sent[0].0.bth.psn], "at once, and no more");
}

/// Answers about packets that were never sent: of all kinds, by the thousand.
#[test]
fn an_answer_to_what_was_never_sent_ends_nothing() {
    let mut pair = Pair::of_our_kind();
    pair.exchange();
    pair.receive();
    pair.send(8);
    let sent = pair.sent(NOW);
    // The word that the next one is missing says that the first has arrived, as an acknowledgement
    // does.
    let next = sent[0].0.bth.psn.add(2);
    let syndromes = [
        Syndrome::Ack { credits: 31 },
        Syndrome::RnrNak { timer: 1 },
        Syndrome::Nak(NakCode::PsnSequenceError),
        Syndrome::Nak(NakCode::InvalidRequest),
        Syndrome::Nak(NakCode::RemoteAccessError),
    ];
    for step in 0..0x0f_ffff / 97 {
        for syndrome in syndromes {
            pair.bring_left(NOW, answer_of(next.add(97 * step), syndrome));
        }
    }
    let statuses = |pair: &mut Pair| -> Vec<_> {
        let next = || pair.left.poll_completion();
        std::iter::from_fn(next).map(|c| c.status).collect()
    };
    assert_eq!(
        statuses(&mut pair),
        [WcStatus::Success],
        "the first message"
    );
    for (header, payload) in sent {
        pair.bring_right(NOW, header, &payload);
    }
    pair.answer(NOW);
    assert_eq!(statuses(&mut pair), [WcStatus::Success]);
    assert_eq!(pair.left.state(), QpState::ReadyToSend);
}

/// A request that has an acknowledgement in its header: whether it completes what the left one has
/// in flight.
fn acknowledges(pair: &mut Pair, psn: Psn, acknowledged: Psn) -> bool {
    let opcode = Opcode::new(Transport::Rc, Operation::WriteOnly);
    let mut header = Header::new(Bth {
        acknowledges: Some(PartialPsn::of(acknowledged)),
        ..Bth::new(opcode, LEFT, psn)
    });
    header.reth = Some(urxe_wire::Reth {
        va: 0,
        rkey: 0,
        len: 0,
    });
    pair.bring_left(NOW, header);
    pair.left.poll_completion().is_some()
}

#[test]
fn a_header_acknowledges_only_what_is_near_and_in_flight() {
    let begin = |abilities: PeerAbilities| {
        let mut pair = Pair::of_our_kind();
        pair.left.set_peer_abilities(abilities);
        pair.send(8);
        let [(header, _)] = &pair.sent(NOW)[..] else {
            panic!("one packet");
        };
        (header.bth.psn, pair)
    };
    // Those about the next request are believed: 192 before it and 192 behind it.
    for distance in [0, 1, 192] {
        for psn in [FIRST.add(distance), FIRST.sub(distance)] {
            let (sent, mut pair) = begin(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS);
            assert!(acknowledges(&mut pair, psn, sent), "{psn:?}");
        }
    }
    for distance in [193, 1000, 1 << 20, 0x7f_ffff] {
        for psn in [FIRST.add(distance), FIRST.sub(distance)] {
            let (sent, mut pair) = begin(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS);
            assert!(!acknowledges(&mut pair, psn, sent), "{psn:?}");
        }
    }
    // Of what is acknowledged, nothing but what is in flight is believed, of 22 bits.
    let (sent, mut pair) = begin(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS);
    for wrong in (1..1 << 22).step_by(991) {
        assert!(
            !acknowledges(&mut pair, FIRST, sent.add(wrong)),
            "{wrong:#x}"
        );
    }
    assert_eq!(pair.left.state(), QpState::ReadyToSend);
    // To any other device those bits mean nothing.
    let (sent, mut pair) = begin(PeerAbilities::empty());
    assert!(!acknowledges(&mut pair, FIRST, sent));
}
