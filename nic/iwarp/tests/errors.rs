//! What ends a connection: each with its TERMINATE, its completions and its event, and nothing
//! written where it must not be.

mod support;

use support::forge::{bare, read, terminate_of, untagged, write};
use support::victim::{Keys, LEN, atomic, prepared, send, sent, written};
use support::{Pair, TERMS};
use urxe_iwarp::{FirstFrame, Terms};
use urxe_iwarp_wire::{
    DdpHeader, Fault, MAX_DDP_HEADER_LEN, Marking, Opcode, Queue, Tagged, Untagged, fpdu,
};
use urxe_proto::{QpEvent, QpState, WcStatus};
use urxe_sim::Rights;

/// Hands `bytes` to host 1 as from the peer, and checks how the connection ends.
fn assert_refused(what: &str, bytes: impl Fn(&Keys) -> Vec<u8>, expected: (Fault, bool, bool)) {
    for seed in 0..6 {
        let (mut pair, keys) = prepared(seed);
        let bytes = bytes(&keys);
        pair.inject(0, &bytes);
        pair.run();
        let host = &pair.hosts[1];
        assert_eq!(terminate_of(&pair), Some(expected), "{what}, seed {seed}");
        assert_eq!(host.qp.state(), QpState::Error, "{what}");
        assert_eq!(host.qp.stats().terminates_sent, 1, "{what}");
        assert!(host.is_closed && pair.hosts[0].is_closed, "{what}");
        assert_eq!(pair.hosts[0].qp.stats().terminates_received, 1, "{what}");
        for key in [keys.read_only, keys.of_other_pd] {
            assert!(
                host.memory.0.bytes(key).iter().all(|byte| *byte == 0),
                "{what}"
            );
        }
        let ids: Vec<_> = host.completions.iter().map(|done| done.wr_id).collect();
        assert_eq!(ids, [1, 2], "{what}: every receive completes");
    }
}

/// What a TERMINATE has no headers with: where it cannot be known that they are headers.
const BARE: [Fault; 4] = [
    Fault::OperationVersion,
    Fault::OperationUnexpectedOpcode,
    Fault::TaggedVersion,
    Fault::UntaggedVersion,
];

/// The same of what must leave all memory alone.
fn assert_untouched(what: &str, bytes: impl Fn(&Keys) -> Vec<u8>, fault: Fault, rdmap: bool) {
    assert_refused(what, &bytes, (fault, !BARE.contains(&fault), rdmap));
    let (mut pair, keys) = prepared(0);
    let bytes = bytes(&keys);
    pair.inject(0, &bytes);
    pair.run();
    let host = &pair.hosts[1];
    assert!(
        host.memory.0.bytes(keys.all).iter().all(|byte| *byte == 0),
        "{what}"
    );
}

#[test]
fn writes_outside_of_what_the_peer_may_write_write_nothing() {
    type Of = fn(&Keys) -> Tagged;
    let cases: [(&str, Of, Fault); 6] = [
        ("no such key", |_| write(9, 0), Fault::TaggedInvalidStag),
        (
            "beyond the end",
            |keys| write(keys.all, keys.va + LEN as u64 - 7),
            Fault::TaggedBounds,
        ),
        (
            "before the beginning",
            |keys| write(keys.all, keys.va - 1),
            Fault::TaggedBounds,
        ),
        (
            "around the end of addresses",
            |keys| write(keys.all, u64::MAX - 3),
            Fault::TaggedOffsetWrap,
        ),
        (
            "no right",
            |keys| write(keys.read_only, keys.va + 8192),
            Fault::ProtectionAccess,
        ),
        (
            "of another domain",
            |keys| write(keys.of_other_pd, keys.va + 16384),
            Fault::TaggedNotAssociated,
        ),
    ];
    for (what, header, fault) in cases {
        assert_untouched(what, |keys| written(header(keys), &[1; 8]), fault, false);
    }
}

#[test]
fn reads_and_atomics_of_what_the_peer_may_not_read_say_so() {
    type Of = fn(&Keys) -> Vec<u8>;
    let cases: [(&str, Of, Fault); 8] = [
        ("no key", |_| read(9, 0, 8), Fault::ProtectionInvalidStag),
        (
            "beyond",
            |keys| read(keys.all, keys.va, 4097),
            Fault::ProtectionBounds,
        ),
        (
            "wrap",
            |keys| read(keys.all, u64::MAX - 1, 4),
            Fault::ProtectionOffsetWrap,
        ),
        (
            "other domain",
            |keys| read(keys.of_other_pd, keys.va + 16384, 8),
            Fault::ProtectionNotAssociated,
        ),
        ("no key", |_| atomic(9, 0), Fault::ProtectionInvalidStag),
        (
            "misaligned",
            |keys| atomic(keys.all, keys.va + 4),
            Fault::ProtectionUnspecified,
        ),
        (
            "no right",
            |keys| atomic(keys.read_only, keys.va + 8192),
            Fault::ProtectionAccess,
        ),
        (
            "beyond",
            |keys| atomic(keys.all, keys.va + 4096),
            Fault::ProtectionBounds,
        ),
    ];
    for (what, bytes, fault) in cases {
        assert_untouched(what, bytes, fault, true);
    }
}

#[test]
fn headers_that_make_no_sense_end_the_connection() {
    let raw = |first: u8, control: u8| {
        move |keys: &Keys| {
            let mut ulpdu = written(write(keys.all, keys.va), &[1; 8])[2..24].to_vec();
            (ulpdu[0], ulpdu[1]) = (first, control);
            bare(&ulpdu)
        }
    };
    let plain = |header: Untagged| move |_: &Keys| sent(header, &[1; 8]);
    assert_untouched("DDP version", raw(0xc2, 0x40), Fault::TaggedVersion, false);
    assert_untouched(
        "DDP version",
        raw(0x42, 0x43),
        Fault::UntaggedVersion,
        false,
    );
    assert_untouched(
        "RDMAP version",
        raw(0xc1, 0x80),
        Fault::OperationVersion,
        false,
    );
    let unexpected = Fault::OperationUnexpectedOpcode;
    assert_untouched("opcode", raw(0xc1, 0x4f), unexpected, false);
    assert_untouched("tagged SEND", raw(0xc1, 0x43), unexpected, false);
    assert_untouched("unasked response", raw(0xc1, 0x42), unexpected, false);
    let untagged_write = Untagged {
        control: Opcode::Write.emit(),
        ..send(1)
    };
    assert_untouched("untagged WRITE", plain(untagged_write), unexpected, false);
    let response = untagged(Opcode::AtomicResponse, Queue::AtomicResponse, 1);
    let unasked = move |_: &Keys| sent(response, &[0; 12]);
    assert_untouched("unasked atomic response", unasked, unexpected, false);
    let of_queue = |queue| Untagged { queue, ..send(1) };
    assert_untouched("queue", plain(of_queue(9)), Fault::UntaggedQueue, false);
    assert_untouched("queue", plain(of_queue(1)), Fault::UntaggedQueue, false);
    assert_untouched("MSN", plain(send(2)), Fault::UntaggedMsnRange, false);
    assert_untouched("MSN", plain(send(0)), Fault::UntaggedMsnRange, false);
    let offset = Untagged {
        offset: 4,
        ..send(1)
    };
    assert_untouched("offset", plain(offset), Fault::UntaggedOffset, false);
    let long = move |_: &Keys| sent(untagged(Opcode::ReadRequest, Queue::Request, 1), &[0; 29]);
    assert_untouched("long READ request", long, Fault::UntaggedTooLong, false);
    let short = move |_: &Keys| sent(untagged(Opcode::ReadRequest, Queue::Request, 1), &[0; 27]);
    let fault = Fault::OperationUnspecified;
    assert_untouched("short READ request", short, fault, false);
    let cut = |_: &Keys| bare(&[0x41, 0x43, 0, 0, 0]);
    assert_refused("cut header", cut, (Fault::DdpCatastrophic, false, false));
}

#[test]
fn sends_that_do_not_fit_end_the_connection() {
    let long = |_: &Keys| sent(send(1), &[1; 101]);
    assert_untouched("too long", long, Fault::UntaggedTooLong, false);
    let (mut pair, _) = prepared(1);
    pair.inject(0, &long(&prepared(1).1));
    pair.run();
    let statuses: Vec<_> = pair.hosts[1]
        .completions
        .iter()
        .map(|done| done.status)
        .collect();
    assert_eq!(statuses, [WcStatus::LocalLength, WcStatus::WrFlush]);

    let first = Untagged {
        is_last: false,
        ..send(1)
    };
    let second =
        |header: Untagged| move |_: &Keys| [sent(first, &[0; 60]), sent(header, &[0; 60])].concat();
    let behind = Untagged {
        offset: 60,
        ..send(1)
    };
    assert_untouched(
        "too long together",
        second(behind),
        Fault::UntaggedTooLong,
        false,
    );
    let gap = Untagged {
        offset: 61,
        ..behind
    };
    assert_untouched("a gap", second(gap), Fault::UntaggedOffset, false);
    let other = Untagged {
        control: Opcode::SendSolicited.emit(),
        ..behind
    };
    let fault = Fault::OperationUnexpectedOpcode;
    assert_untouched("another opcode", second(other), fault, false);
}

#[test]
fn more_reads_than_are_answered_at_a_time_end_the_connection() {
    let (mut pair, keys) = prepared(0);
    let many: Vec<_> = (1..7)
        .flat_map(|msn| {
            let mut one = read(keys.all, keys.va, 4096)[2..48].to_vec();
            one[13] = msn;
            bare(&one)
        })
        .collect();
    let host = &mut pair.hosts[1];
    host.qp.handle_bytes(&many, None, &mut host.memory);
    pair.run();
    assert_eq!(
        terminate_of(&pair),
        Some((Fault::UntaggedNoBuffer, true, true))
    );
}

#[test]
fn a_wrong_crc_is_noticed_wherever_it_is_and_nothing_completes() {
    let (_, keys) = prepared(0);
    let good = [
        sent(send(1), &[5; 90]),
        written(write(keys.all, keys.va), &[6; 1000]),
    ];
    for fpdu in good {
        // Not the length: with another one the end is elsewhere.
        for bit in (16..fpdu.len() * 8).step_by(37) {
            for seed in 0..2 {
                let (mut pair, _) = prepared(seed);
                let mut bad = fpdu.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                pair.inject(0, &bad);
                pair.run();
                let host = &pair.hosts[1];
                assert_eq!(host.qp.state(), QpState::Error, "bit {bit}");
                let mut completions = host.completions.iter();
                assert!(
                    completions.all(|done| done.status != WcStatus::Success),
                    "bit {bit}"
                );
                for key in [keys.read_only, keys.of_other_pd] {
                    assert!(host.memory.0.bytes(key).iter().all(|byte| *byte == 0));
                }
            }
        }
        // What is there as a whole is checked before anything is placed.
        let (mut pair, keys) = prepared(0);
        let mut bad = fpdu.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        let host = &mut pair.hosts[1];
        host.qp.handle_bytes(&bad, None, &mut host.memory);
        assert_eq!(host.qp.stats().crc_errors, 1);
        assert!(host.memory.0.bytes(keys.all).iter().all(|byte| *byte == 0));
        pair.run();
        assert_eq!(terminate_of(&pair), Some((Fault::MpaCrc, false, false)));
        assert!(pair.hosts[1].events.contains(&QpEvent::Fatal));
    }
}

#[test]
fn markers_that_point_elsewhere_end_the_connection() {
    let marked = Terms {
        receives_markers: true,
        first: FirstFrame::Await,
        ..TERMS
    };
    for bit in 0..16 {
        let mut pair = Pair::new(bit, [TERMS, marked], 1460);
        let key = pair.hosts[1].register(Rights::ALL, vec![0; 700]);
        let header = DdpHeader::Tagged(write(key, pair.hosts[1].memory.0.va(key, 0)));
        let mut raw = [0; MAX_DDP_HEADER_LEN];
        let len = header.emit(&mut raw);
        let mut bytes = Vec::new();
        let ulpdu = [&raw[..len], &[1; 700]];
        fpdu::emit_marked(&mut Marking::new(), &ulpdu, true, |piece| {
            bytes.extend_from_slice(piece);
        });
        // The marker behind the one that the stream begins with.
        let byte = 512 + 2 + usize::try_from(bit / 8).unwrap();
        bytes[byte] ^= 1 << (bit % 8);
        pair.inject(0, &bytes);
        pair.run();
        let expected = (Fault::MpaMarker, false, false);
        assert_eq!(terminate_of(&pair), Some(expected), "bit {bit}");
    }
}
