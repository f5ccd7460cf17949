//! Another user of the peer's host has its address, and a UDP port of its own: once the peer is
//! known to be urxe, which sends from the port that its queue pair's number tells, nothing else
//! counts.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use support::duel::{ACK, DATA, Duel, PEER, PEER_PORT, UNTOUCHED, header, packet};
use support::{in_namespace, post, post_recv};
use urxe_device::{Completion, Gid, QpType, SendOp, WcStatus};
use urxe_wire::{
    Aeth, Bth, CNP_RESERVED_LEN, Header, NakCode, Opcode, Operation, Psn, ROCE_UDP_PORT, Syndrome,
};

/// What a stranger of the peer's host sends.
const FORGED: [u8; 16] = *b"not of the peer!";

/// Another program on the peer's host, with any port, or the well-known one.
fn stranger(duel: &Duel, port: u16) -> UdpSocket {
    UdpSocket::bind((duel.address(), port)).unwrap()
}

fn foreign(duel: &Duel) -> u64 {
    duel.end.count("rx_wrong_source")
}

/// A WRITE with the PSN that the victim expects next.
fn write(duel: &Duel) -> Header {
    let mut header = duel.own_write(16);
    header.bth.psn = duel.qp.query().unwrap().rq_psn;
    header
}

/// The peer writes, and is answered.
fn genuine(duel: &Duel) {
    duel.send(&write(duel), &DATA);
    assert_eq!(duel.verdict(), ACK);
    assert_eq!(duel.end.buffer[..16], DATA);
}

/// All that a stranger that knows all numbers might try, from its port: nothing comes of it, and
/// nothing is answered.
fn nothing_comes_from(duel: &Duel, from: &UdpSocket) {
    let response = |syndrome| {
        let psn = duel.qp.query().unwrap().sq_psn;
        let mut header = header(&duel.qp, Operation::Acknowledge, psn);
        header.aeth = Some(Aeth { syndrome, msn: 1 });
        header
    };
    let mut far = write(duel);
    far.bth.psn = far.bth.psn.add(100);
    let mut wrong = write(duel);
    wrong.reth.as_mut().unwrap().rkey ^= 1;
    let slower = Header::new(Bth::new(Opcode::CNP, duel.qp.number(), Psn::new(0)));
    let packets: [(Header, &[u8]); 6] = [
        (write(duel), &FORGED),
        (far, &FORGED),
        (wrong, &FORGED),
        (response(Syndrome::Ack { credits: 31 }), &[]),
        (response(Syndrome::Nak(NakCode::RemoteAccessError)), &[]),
        (slower, &[0; CNP_RESERVED_LEN]),
    ];
    let mut count = foreign(duel);
    for (header, payload) in packets {
        duel.send_as(from, &header, payload, |_| ());
        count += 1;
        duel.wait_for_count("rx_wrong_source", count);
    }
    assert_eq!(duel.answers(), []);
    assert_ne!(duel.end.buffer[..16], FORGED);
}

#[test]
fn who_is_known_to_be_urxe_is_heard_from_its_port_alone() {
    let duel = Duel::with(11, QpType::Rc, PEER_PORT);
    for _ in 0..3 {
        genuine(&duel);
        for port in [ROCE_UDP_PORT, 0, PEER_PORT + 1] {
            nothing_comes_from(&duel, &stranger(&duel, port));
        }
    }
}

/// Lets what `from` sends arrive as if a switch had marked it (RFC 3168: 3 is "congestion
/// experienced").
fn mark(from: &UdpSocket) {
    let marked: libc::c_int = 3;
    // SAFETY: an option that is an int.
    let status = unsafe {
        libc::setsockopt(
            from.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_TOS,
            (&raw const marked).cast(),
            size_of_val(&marked) as libc::socklen_t,
        )
    };
    assert_eq!(status, 0);
}

/// The ICRC does not cover a mark, so a stranger that forges packets of the peer's address can have
/// them marked, and the peer would be told to send less.
#[test]
fn congestion_marks_count_from_the_port_of_the_peer_alone() {
    let duel = Duel::with(19, QpType::Rc, PEER_PORT);
    genuine(&duel);
    let forger = stranger(&duel, 0);
    mark(&forger);
    duel.send_as(&forger, &write(&duel), &FORGED, |_| ());
    duel.wait_for_count("rx_wrong_source", 1);
    assert_eq!(duel.answers(), []);
    mark(&duel.peer);
    duel.send(&write(&duel), &DATA);
    let answers = duel.answers();
    let is_cnp = |answer: &Header| answer.bth.opcode == Opcode::CNP;
    assert!(answers.iter().any(is_cnp), "{answers:?}");
}

/// A forged packet that happens to come next makes the peer another device, until it is heard from
/// its own port.
#[test]
fn a_later_packet_from_the_port_of_the_peer_wins() {
    for port in [ROCE_UDP_PORT, 0] {
        let duel = Duel::with(12, QpType::Rc, PEER_PORT);
        let forger = stranger(&duel, port);
        duel.send_as(&forger, &write(&duel), &FORGED, |_| ());
        // Its answer goes to the well-known port.
        let count = duel.expected.next();
        let is_taken = || duel.qp.query().unwrap().rq_psn == count;
        duel.end.poll_until("it is taken", is_taken);
        assert_eq!(duel.end.buffer[..16], FORGED);
        genuine(&duel);
        nothing_comes_from(&duel, &forger);
        genuine(&duel);
    }
}

/// All that Linux rxe and hardware have in common: they send from no port that a number tells.
#[test]
fn another_device_may_send_from_any_port() {
    let duel = Duel::new(13);
    for _ in 0..4 {
        duel.send_as(&stranger(&duel, 0), &write(&duel), &DATA, |_| ());
        assert_eq!(duel.verdict(), ACK);
    }
}

/// As the holder of port 4791 passes a datagram on (`src/forward.rs`), which `from` sent to `to`.
fn passed_on(from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let mut raw = vec![0xff, b'u', b'r', b'x', 0, 0, 0, 0];
    raw.extend(from.port().to_be_bytes());
    raw.extend(Gid::from(from.ip()).0);
    raw.extend(datagram);
    raw
}

/// Any user of the host can have port 4791, if no other process has it.
#[test]
fn what_is_passed_on_is_not_believed_of_a_peer_that_is_urxe() {
    in_namespace(&["link set lo up"], || {
        let own = Ipv4Addr::LOCALHOST;
        let holder = UdpSocket::bind((own, ROCE_UDP_PORT)).unwrap();
        let duel = Duel::with(14, QpType::Rc, PEER_PORT);
        assert_eq!(duel.to.port(), ROCE_UDP_PORT + 1);
        let peer = duel.peer.local_addr().unwrap();
        let forge = |to: SocketAddr| {
            let packet = packet(peer, to, &write(&duel), &FORGED);
            holder.send_to(&passed_on(peer, &packet), duel.to).unwrap();
        };
        let well_known = SocketAddr::from((own, ROCE_UDP_PORT));
        // Before it was heard the peer may be another device, and come by that way; it is not taken
        // for urxe then.
        forge(well_known);
        assert_eq!(duel.verdict(), ACK);
        assert_eq!(duel.end.buffer[..16], FORGED);
        genuine(&duel);
        let count = foreign(&duel);
        // Its checksum may be right for either way.
        forge(well_known);
        forge(duel.to);
        duel.wait_for_count("rx_wrong_source", count + 2);
        assert_eq!(duel.answers(), []);
        assert_eq!(duel.end.buffer[..16], DATA);
        genuine(&duel);
    });
}

/// What arrives early is kept, up to 192 packets ahead: from elsewhere it would take as many
/// guesses less.
#[test]
fn packets_at_every_191st_number_leave_no_byte_of_a_stranger() {
    const STEP: u32 = 191;
    let duel = Duel::with(15, QpType::Rc, PEER_PORT);
    genuine(&duel);
    let forger = stranger(&duel, 0);
    let first = duel.qp.query().unwrap().rq_psn;
    let before = foreign(&duel);
    let mut header = duel.header(Operation::SendOnly);
    header.bth.ack_request = false;
    let count = (1 << 24) / STEP;
    for number in 0..count {
        header.bth.psn = first.add(STEP * number);
        duel.send_as(&forger, &header, &FORGED, |_| ());
        if number % 64 == 0 {
            duel.end.cq.poll(0, |_| ());
        }
    }
    duel.end
        .poll_until("they are seen", || foreign(&duel) > before);
    // The peer goes on past all that might have been kept.
    for number in 0..3 * STEP {
        post_recv(&duel.qp, u64::from(number), &[duel.end.sge(64, 16)]);
        let mut header = duel.header(Operation::SendOnly);
        header.bth.psn = first.add(number);
        duel.send(&header, &DATA);
        let got: Completion = duel.end.wait(&[], 1)[0];
        assert_eq!((got.status, got.wr_id), (WcStatus::Success, number.into()));
        assert_eq!(duel.end.buffer[64..80], DATA, "{number}");
    }
}

#[test]
fn an_unreliable_connection_hears_a_known_peer_alone() {
    let duel = Duel::with(16, QpType::Uc, PEER_PORT);
    let forger = stranger(&duel, 0);
    let message = |ahead: u32| {
        let mut header = duel.header(Operation::SendOnly);
        header.bth.psn = duel.qp.query().unwrap().rq_psn.add(ahead);
        header
    };
    (0..20).for_each(|number| post_recv(&duel.qp, number, &[duel.end.sge(64, 16)]));
    // It takes any number for the next one, from anywhere, ...
    for ahead in [0x70_0000, 0] {
        duel.send_as(&forger, &message(ahead), &FORGED, |_| ());
        assert_eq!(duel.end.wait(&[], 1)[0].status, WcStatus::Success);
    }
    // ... until the peer was heard, twice, as the first was not the one that came next.
    for _ in 0..2 {
        let mut header = message(0);
        header.bth.psn = duel.expected.add(u32::from(duel.end.buffer[64] == DATA[0]));
        duel.send(&header, &DATA);
        duel.end.wait(&[], 1);
        assert_eq!(duel.end.buffer[64..80], DATA);
    }
    let count = foreign(&duel);
    duel.send_as(&forger, &message(0), &FORGED, |_| ());
    duel.send_as(&forger, &message(0x70_0000), &FORGED, |_| ());
    duel.wait_for_count("rx_wrong_source", count + 2);
    duel.end.wait_for_nothing();
    assert_eq!(duel.end.buffer[64..80], DATA);
    duel.send(&message(0), &DATA);
    assert_eq!(duel.end.wait(&[], 1).len(), 1);
}

/// The word that a queue pair is gone (`src/farewell.rs`).
fn farewell(duel: &Duel, from: &UdpSocket) {
    let mut mad = vec![0; 256];
    mad[..4].copy_from_slice(&[1, 0x3e, 1, 3]);
    mad[37..40].copy_from_slice(&[0x76, 0x72, 0x78]);
    let psn = duel.qp.query().unwrap().sq_psn;
    let words = [duel.qp.number().get(), PEER.get(), psn.get()];
    for (to, word) in mad[40..].chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    let source = from.local_addr().unwrap();
    let datagram = urxe_device::gsi_datagram(&mad, source, duel.to).unwrap();
    from.send_to(&datagram, duel.to).unwrap();
}

#[test]
fn word_of_a_gone_peer_counts_from_its_port_and_after_silence() {
    let duel = Duel::with(17, QpType::Rc, PEER_PORT);
    genuine(&duel);
    let sge = duel.end.sge(0, 8);
    post(&duel.qp, 1, SendOp::Send, &[sge]);
    // The transport timeout is 4 times 67 ms.
    let stranger = stranger(&duel, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(600) {
        farewell(&duel, &stranger);
        duel.end.wait_for_nothing();
    }
    let start = Instant::now();
    farewell(&duel, &duel.peer);
    let got = duel.end.wait(&[], 1)[0];
    assert_eq!(got.status, WcStatus::RetryExceeded);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(268), "{waited:?}");
    let timeouts = duel.end.nic.qp_stats()[0].1.local_ack_timeout_err;
    assert!(timeouts < 7, "the retries were used up");
    assert!(duel.end.buffer[16..].iter().all(|byte| *byte == UNTOUCHED));
}
