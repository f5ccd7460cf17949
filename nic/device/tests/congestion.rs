//! Marks of a switch come back as notifications, and slow down the sender of the data. There is no
//! switch here: a program may have its packets marked from the start, by their traffic class.
mod support;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use support::{
    End, connect_both, connect_to, connect_with, datagram_to, fill, impaired, peer_attributes,
    post, post_recv, post_to_target,
};
use urxe_device::{
    AddressVector, Attributes, GRH_BYTES, Gid, Mtu, Qp, QpType, Qpn, SendOp, WcStatus, Wiring,
};
use urxe_udp::{Options, RecvBuffer, Socket};
use urxe_wire::ROCE_UDP_PORT;

const LENGTH: usize = 4 << 20;
const MIN_RATE: &str = "min_rate=200Mbps";
/// How long the message takes at least once its queue pair has been slowed down: at the least rate
/// it takes 170 ms.
const SLOW: Duration = Duration::from_millis(20);
/// Longest time that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const CONGESTION_EXPERIENCED: u8 = 0b11;
const ECN_CAPABLE: u8 = 0b10;

fn end(congestion: &str) -> End {
    let wiring = Wiring {
        congestion: congestion.parse().unwrap(),
        ..Wiring::default()
    };
    End::wired(&wiring, LENGTH)
}

/// Connects two queue pairs; the packets of the first are marked.
fn connect(marked: (&End, &Qp), plain: (&End, &Qp)) {
    for ((end, qp), (_, peer), traffic_class) in
        [(marked, plain, CONGESTION_EXPERIENCED), (plain, marked, 0)]
    {
        let gid = end.nic.gids()[0].gid;
        let wanted = Attributes {
            traffic_class,
            ..peer_attributes(gid, peer.number(), Mtu::B1024)
        };
        connect_with(qp, &wanted);
    }
}

/// Sends `LENGTH` bytes from `from` to `to`, with packets that are marked. Returns how long it
/// took.
fn transfer(from: &mut End, to: &mut End, is_read: bool) -> Duration {
    fill(&mut from.buffer);
    to.buffer.fill(0);
    let (sender, receiver) = (from.qp(QpType::Rc), to.qp(QpType::Rc));
    connect((from, &sender), (to, &receiver));
    let start = Instant::now();
    let sge = |end: &End| [end.sge(0, LENGTH)];
    let completions = if is_read {
        let op = from.read_op(0);
        post(&receiver, 1, op, &sge(to));
        to.wait(&[from], 1)
    } else {
        post_recv(&receiver, 1, &sge(to));
        post(&sender, 1, SendOp::Send, &sge(from));
        from.wait(&[to], 1);
        to.wait(&[from], 1)
    };
    assert_eq!(completions[0].status, WcStatus::Success);
    assert!(from.buffer == to.buffer);
    start.elapsed()
}

fn counters(end: &End) -> [u64; 4] {
    [
        "np_ecn_marked_roce_packets",
        "np_cnp_sent",
        "rp_cnp_handled",
        "rp_cnp_ignored",
    ]
    .map(|name| end.count(name))
}

#[test]
fn who_sends_data_slows_down() {
    for is_read in [false, true] {
        let (mut from, mut to) = (end(MIN_RATE), end(MIN_RATE));
        let took = transfer(&mut from, &mut to, is_read);
        let ([_, _, handled, ignored], [marked, sent, ..]) = (counters(&from), counters(&to));
        assert!(took > SLOW, "READ {is_read}: {took:?}");
        assert!(
            marked >= sent && sent >= handled,
            "{marked} marked, {sent} sent, {handled} handled"
        );
        assert!(
            handled > 3 && ignored == 0,
            "{handled} handled, {ignored} ignored"
        );
    }
}

#[test]
fn without_congestion_control_nothing_happens() {
    for (here, there) in [("off", MIN_RATE), (MIN_RATE, "off")] {
        let (mut from, mut to) = (end(here), end(there));
        transfer(&mut from, &mut to, false);
        let ([_, _, handled, ignored], [marked, sent, ..]) = (counters(&from), counters(&to));
        assert!(marked > 0);
        assert_eq!(handled, 0, "{here}, {there}");
        assert_eq!(sent > 0, there != "off");
        assert!(ignored <= sent);
    }
}

/// What packets of a connection bear in the field of the type of service.
fn tos_of_a_connection(congestion: &str) -> u8 {
    let address = Ipv4Addr::new(127, 77, 8, 1);
    let peer = Socket::bind((address, ROCE_UDP_PORT).into(), &Options::default()).unwrap();
    let sender = end(congestion);
    let qp = sender.qp(QpType::Rc);
    connect_to(&qp, Gid::from(address), Qpn::new(5), Mtu::B1024);
    let sge = sender.sge(0, 64);
    post(&qp, 1, SendOp::Send, &[sge]);
    let (mut buffer, start) = (RecvBuffer::new(), Instant::now());
    loop {
        sender.cq.poll(0, |_| ());
        if let Some(meta) = peer.receive(&mut buffer).unwrap() {
            return meta.tos;
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

/// Only an end that reacts to marks may say that it does (RFC 3168, 5).
#[test]
fn packets_of_connections_say_that_marks_are_heeded() {
    for (congestion, expected) in [("", ECN_CAPABLE), ("off", 0)] {
        assert_eq!(tos_of_a_connection(congestion), expected, "{congestion:?}");
    }
}

/// Nothing slows datagrams down; but the program may, and say so.
#[test]
fn datagrams_say_that_marks_are_heeded_if_the_program_does() {
    for traffic_class in [0, 0xb8, 0xb8 | ECN_CAPABLE] {
        let (from, to) = (end(""), end(""));
        let (sender, receiver) = (from.datagrams(5), to.datagrams(5));
        post_recv(&receiver, 1, &[to.sge(0, 1024)]);
        let address = AddressVector {
            traffic_class,
            ..from.address()
        };
        let target = datagram_to(address, receiver.number(), 5);
        post_to_target(&sender, 1, SendOp::Send, &[from.sge(0, 64)], target);
        from.wait(&[&to], 1);
        to.wait(&[&from], 1);
        // The IPv4 header stands in the last 20 bytes.
        assert_eq!(to.buffer[GRH_BYTES - 20 + 1], traffic_class);
    }
}

/// The sender takes the peer's buffer to be like its own: it finds out by losing packets.
#[test]
fn a_tiny_receive_buffer_loses_packets_and_no_data() {
    // On a bad network every packet leaves alone, and so finds the buffer full or not.
    let mut from = End::wired(&impaired("duplicate=0.1%"), LENGTH);
    let tiny = Wiring {
        receive_buffer_bytes: Some(8 << 10),
        ..Wiring::default()
    };
    let to = End::wired(&tiny, LENGTH);
    fill(&mut from.buffer);
    let (sender, receiver) = (from.qp(QpType::Rc), to.qp(QpType::Rc));
    connect_both(&from, &sender, &to, &receiver, Mtu::B1024);
    post_recv(&receiver, 1, &[to.sge(0, LENGTH / 8)]);
    // No background thread empties the buffer while packets still come.
    to.nic.close();
    let sge = from.sge(0, LENGTH / 8);
    post(&sender, 1, SendOp::Send, &[sge]);
    let (mut done, start) = (Vec::new(), Instant::now());
    while done.len() < 2 {
        for end in [&from, &to] {
            end.cq.poll(1, |completion| done.push(completion.status));
        }
        assert!(start.elapsed() < PATIENCE, "only {done:?}");
    }
    assert_eq!(done, [WcStatus::Success; 2]);
    assert!(from.buffer[..LENGTH / 8] == to.buffer[..LENGTH / 8]);
    assert!(to.count("rx_buffer_drops") > 0);
}
