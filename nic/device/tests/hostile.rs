//! What a hostile peer, or any host on its network, may send to a live queue pair over real
//! sockets. Each is answered as the specification says or dropped, and none reaches memory that it
//! may not.

mod support;

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use support::duel::{ACK, BUFFER_BYTES, DATA, Duel, PEER, QUIET, UNTOUCHED, datagram};
use support::{End, datagram_to, impaired, port_of, post_recv, post_to_target};
use urxe_device::{Access, Gid, QpType, Qpn, SendOp, WcStatus};
use urxe_wire::{Header, NakCode, Opcode, Operation, Syndrome, Transport};

const DENIED: Option<Syndrome> = Some(Syndrome::Nak(NakCode::RemoteAccessError));
const INVALID: Option<Syndrome> = Some(Syndrome::Nak(NakCode::InvalidRequest));

/// A request with a right ICRC, from the peer's address, with the PSN that is expected, and what is
/// the answer to it.
type Request = (
    &'static str,
    fn(&Duel) -> (Header, Vec<u8>),
    Option<Syndrome>,
);

fn data(header: Header) -> (Header, Vec<u8>) {
    (header, DATA.into())
}

/// The key of another region there.
fn region(duel: &Duel, at: u64, access: Access) -> u32 {
    let region = duel.end.nic.register(duel.end.pd, at, 64, at, access);
    region.unwrap().rkey
}

const REQUESTS: [Request; 16] = [
    (
        "a wrong rkey",
        |duel| data(duel.write(duel.end.va(0), duel.end.key ^ 1, 16)),
        DENIED,
    ),
    (
        "an rkey of nothing",
        |duel| data(duel.write(duel.end.va(0), 0, 16)),
        DENIED,
    ),
    (
        "beyond the end",
        |duel| {
            let va = duel.end.va(BUFFER_BYTES - 15);
            data(duel.write(va, duel.end.key, 16))
        },
        DENIED,
    ),
    (
        "before the start",
        |duel| data(duel.write(duel.end.va(0) - 1, duel.end.key, 16)),
        DENIED,
    ),
    (
        "around the end of the address space",
        |duel| data(duel.write(u64::MAX - 7, duel.end.key, 16)),
        DENIED,
    ),
    (
        "the key of another protection domain",
        |duel| {
            let other = duel.end.nic.alloc_pd();
            let at = duel.end.va(0);
            let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let region = duel.end.nic.register(other, at, 64, at, all).unwrap();
            data(duel.write(at, region.rkey, 16))
        },
        DENIED,
    ),
    (
        "a region that peers may only read",
        |duel| {
            let at = duel.end.va(0);
            data(duel.write(at, region(duel, at, Access::REMOTE_READ), 16))
        },
        DENIED,
    ),
    (
        "an atomic on a region without that right",
        |duel| {
            let at = duel.end.va(0).next_multiple_of(8);
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            (duel.fetch_add(at, region(duel, at, access)), Vec::new())
        },
        DENIED,
    ),
    (
        "an atomic on an odd address",
        |duel| {
            let at = duel.end.va(0).next_multiple_of(8) + 4;
            (duel.fetch_add(at, duel.end.key), Vec::new())
        },
        INVALID,
    ),
    (
        "no length with a wrong key, which nobody looks at",
        |duel| (duel.write(7, 0xdead_beef, 0), Vec::new()),
        ACK,
    ),
    (
        "more data than the length",
        |duel| data(duel.own_write(8)),
        INVALID,
    ),
    (
        "less data than the length",
        |duel| data(duel.own_write(17)),
        INVALID,
    ),
    (
        "a first packet that is not full",
        |duel| {
            let mut header = duel.own_write(3000);
            header.bth.opcode = Opcode::new(Transport::Rc, Operation::WriteFirst);
            data(header)
        },
        INVALID,
    ),
    (
        "more than the path MTU",
        |duel| (duel.own_write(1028), vec![1; 1028]),
        INVALID,
    ),
    (
        "the middle of no message",
        |duel| (duel.header(Operation::WriteMiddle), vec![1; 1024]),
        INVALID,
    ),
    (
        "a PSN far ahead",
        |duel| {
            // Before it said anything credible, the answer would go to where another urxe would
            // listen.
            duel.send(&duel.read(0), &[]);
            let mut header = duel.own_write(16);
            header.bth.psn = duel.expected.add(100_000);
            data(header)
        },
        Some(Syndrome::Nak(NakCode::PsnSequenceError)),
    ),
];

#[test]
fn forbidden_requests_of_the_peer_are_refused_and_touch_nothing() {
    for (name, make, expected) in REQUESTS {
        let duel = Duel::new(1);
        let (header, payload) = make(&duel);
        duel.send(&header, &payload);
        assert_eq!(duel.verdict(), expected, "{name}");
        assert!(duel.is_untouched(), "{name}");
    }
}

/// How a packet is changed, and the counter that tells.
type Change = (&'static str, fn(&Duel), &'static str);

const CHANGES: [Change; 8] = [
    (
        "an unknown operation",
        |duel| send_changed(duel, |packet| packet[0] = 0x1e),
        "rx_malformed",
    ),
    (
        "the operation of an unreliable connection",
        |duel| send_changed(duel, |packet| packet[0] |= 0x20),
        "qp_dropped",
    ),
    (
        "more padding than data",
        |duel| {
            let header = duel.header(Operation::SendOnly);
            duel.send_as(&duel.peer, &header, &[], |packet| packet[1] |= 0x30);
        },
        "rx_malformed",
    ),
    (
        "a length that is not of words",
        |duel| send_changed(duel, |packet| packet.push(0)),
        "rx_malformed",
    ),
    (
        "another version of the header",
        |duel| send_changed(duel, |packet| packet[1] |= 0x0f),
        "rx_malformed",
    ),
    (
        "another partition",
        |duel| send_changed(duel, |packet| packet[2..4].copy_from_slice(&[0x81, 0x11])),
        "qp_dropped",
    ),
    (
        "a wrong ICRC",
        |duel| {
            let mut packet = vec![0x0a; 44];
            let header = duel.own_write(12);
            let len = header.emit(12, &mut packet).unwrap();
            packet.truncate(len);
            packet.extend_from_slice(&DATA);
            duel.peer.send_to(&packet, duel.to).unwrap();
        },
        "rx_icrc_encapsulated",
    ),
    (
        "another address",
        |duel| {
            let stranger = UdpSocket::bind((Ipv4Addr::new(127, 77, 6, 99), 0)).unwrap();
            let header = duel.own_write(16);
            duel.send_as(&stranger, &header, &DATA, |_| ());
        },
        "rx_wrong_source",
    ),
];

#[test]
fn packets_that_are_not_what_they_seem_are_dropped_in_silence() {
    for (name, send, counter) in CHANGES {
        let duel = Duel::new(2);
        let counted = || duel.end.count(counter);
        let before = counted();
        send(&duel);
        duel.end.poll_until(name, || counted() > before);
        assert_eq!(duel.answers(), [], "{name}");
        assert!(duel.is_untouched(), "{name}");
        assert_eq!(counted() - before, 1, "{name}");
        // The queue pair serves its peer still.
        duel.send(&duel.own_write(16), &DATA);
        assert_eq!(duel.verdict(), ACK, "{name}");
        assert_eq!(duel.end.buffer[..16], DATA, "{name}");
    }
}

fn send_changed(duel: &Duel, change: fn(&mut Vec<u8>)) {
    let header = duel.own_write(16);
    duel.send_as(&duel.peer, &header, &DATA, change);
}

#[test]
fn what_was_executed_is_not_executed_again() {
    let duel = Duel::new(3);
    let at = duel.end.va(0).next_multiple_of(8);
    let place = (at - duel.end.va(0)) as usize;
    let add = duel.fetch_add(at, duel.end.key);
    let mut write = duel.write(duel.end.va(64), duel.end.key, 16);
    write.bth.psn = duel.expected.next();
    for turn in 0..3 {
        duel.send(&add, &[]);
        let answers = duel.answers_within(Duration::from_secs(10));
        let original = answers[0].atomic_ack.unwrap().original;
        assert_eq!(original, u64::from_ne_bytes([UNTOUCHED; 8]), "turn {turn}");
        // The same PSN with other data, later: acknowledged, no more.
        let data = if turn == 0 { DATA } else { [0xee; 16] };
        duel.send(&write, &data);
        assert_eq!(duel.verdict(), ACK, "turn {turn}");
        let counter = duel.end.buffer[place..place + 8].try_into().unwrap();
        let expected = u64::from_ne_bytes([UNTOUCHED; 8]) + 5;
        assert_eq!(u64::from_ne_bytes(counter), expected, "turn {turn}");
        assert_eq!(duel.end.buffer[64..80], DATA, "turn {turn}");
    }
}

/// The peer may have four READs outstanding, and asks for hundreds at once. Those that the engine
/// has not answered yet count: what it refuses depends on how quick it is, and that it goes on or
/// refuses does not.
#[test]
fn a_flood_of_reads_is_served_or_ends_the_connection() {
    let duel = Duel::new(4);
    for number in 0..300 {
        duel.send(&duel.read(number), &[]);
    }
    for header in duel.answers_within(Duration::from_secs(10)) {
        let syndrome = header.aeth.map(|aeth| aeth.syndrome);
        let gap = Some(Syndrome::Nak(NakCode::PsnSequenceError));
        assert!([ACK, INVALID, gap].contains(&syndrome), "{header:?}");
    }
    assert!(duel.is_untouched());
}

/// Another urxe would send from that port, and would understand more than the specification says. A
/// stranger that knows the number of the queue pair, but not the PSN, cannot make it take its peer
/// for one, nor send its answers there.
#[test]
fn an_address_alone_does_not_tell_what_the_peer_is() {
    let duel = Duel::new(6);
    let forger = UdpSocket::bind((duel.address(), port_of(PEER))).unwrap();
    let write = |number: u32| {
        let mut header = duel.own_write(16);
        header.bth.psn = duel.expected.add(number);
        header
    };
    let forge = || {
        for number in [1_000, 1 << 22, 1 << 23, 3 << 22] {
            duel.send_as(&forger, &write(number), &DATA, |_| ());
        }
        duel.answers()
    };
    forge();
    for turn in 0..3 {
        duel.send(&write(turn), &DATA);
        assert_eq!(duel.verdict(), ACK, "turn {turn}");
        forge();
        // Nothing but the answer: to a READ, an acknowledgement besides would tell Linux rxe that
        // it is done.
        if turn == 2 {
            duel.send(&duel.read(turn + 1), &[]);
            let answers = duel.answers_within(Duration::from_secs(10));
            let expected = Opcode::new(Transport::Rc, Operation::ReadResponseOnly);
            let opcodes: Vec<_> = answers.iter().map(|header| header.bth.opcode).collect();
            assert_eq!(opcodes, [expected]);
        }
    }
    forge();
    // What comes early is dropped, and the word of it says no more than the specification has it
    // say.
    duel.send(&write(9), &DATA);
    for (header, payload_len) in duel.packets_within(QUIET) {
        let syndrome = header.aeth.map(|aeth| aeth.syndrome);
        assert_eq!(syndrome, Some(Syndrome::Nak(NakCode::PsnSequenceError)));
        assert_eq!(payload_len, 0);
    }
}

#[test]
fn a_datagram_with_a_wrong_qkey_takes_no_receive() {
    let duel = Duel::new(5);
    let qp = duel.end.datagrams(77);
    post_recv(&qp, 1, &[duel.end.sge(0, 200)]);
    for qkey in [0, 76, 78, u32::MAX] {
        duel.send(&datagram(&qp, qkey), &DATA);
        duel.end.wait_for_nothing();
        assert!(duel.is_untouched(), "{qkey:#x}");
    }
    // Nor do such datagrams tell where the peer listens: not here, by its number.
    let address = duel.end.address_of(Gid::from(duel.address()), 0);
    let target = datagram_to(address, PEER, 77);
    post_to_target(&qp, 2, SendOp::Send, &[duel.end.sge(0, 8)], target);
    assert_eq!(duel.end.wait(&[], 1)[0].status, WcStatus::Success);
    assert_eq!(duel.answers(), []);
    duel.send(&datagram(&qp, 77), &DATA);
    assert_eq!(duel.end.wait(&[], 1)[0].byte_len, 56);
}

/// Any host may send to a group. What was damaged on the way is for no member.
#[test]
fn a_damaged_datagram_reaches_no_member_of_a_group() {
    let duel = Duel::new(18);
    let qp = duel.end.datagrams(77);
    let gid = Gid::from(Ipv4Addr::new(239, 77, 1, 8));
    qp.attach_multicast(gid).unwrap();
    post_recv(&qp, 1, &[duel.end.sge(0, 200)]);
    let send = |end: &End, count: usize| {
        let from = end.datagrams(77);
        let target = datagram_to(end.address_of(gid, 0), Qpn::MULTICAST, 77);
        for _ in 0..count {
            post_to_target(&from, 2, SendOp::Send, &[end.sge(0, 8)], target);
            assert_eq!(end.wait(&[], 1)[0].status, WcStatus::Success);
        }
    };
    let damaging = End::wired(&impaired("corrupt=100%"), 4096);
    // Most are damaged where they would be refused for that alone: the operation, the queue pair,
    // the Q_Key.
    send(&damaging, 100);
    duel.end.wait_for_nothing();
    assert!(duel.is_untouched());
    send(&End::new(4096), 1);
    assert_eq!(duel.end.wait(&[], 1)[0].byte_len, 48);
}

/// An attacker that can guess keys and numbers needs no more to write into memory (ReDMArk, USENIX
/// Security '21).
#[test]
fn keys_and_numbers_do_not_follow_from_each_other() {
    const COUNT: usize = 200;
    let end = End::new(4096);
    let at = end.va(0);
    let keys: Vec<_> = (0..COUNT)
        .map(|_| {
            let region = end.nic.register(end.pd, at, 64, at, Access::REMOTE_READ);
            region.unwrap().rkey
        })
        .collect();
    let qps: Vec<_> = (0..COUNT).map(|_| end.qp(QpType::Rc)).collect();
    let numbers: Vec<_> = qps.iter().map(|qp| qp.number().get()).collect();
    for (what, values) in [("rkeys", keys), ("queue pair numbers", numbers)] {
        let steps = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        let different: HashSet<_> = steps.collect();
        assert!(different.len() > COUNT * 9 / 10, "{what}: {values:?}");
    }
}
