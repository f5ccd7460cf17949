//! Unreliable datagrams over the loopback interface: addresses, the global route header, Q_Keys,
//! multicast groups.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use support::{
    End, datagram_to, fill, in_namespace, post_recv, post_to_target, request, set_state, wait_until,
};
use urxe_device::{
    DatagramHeader, Error, GRH_BYTES, Gid, Immediate, PostError, Qp, QpState, QpType, Qpn,
    SendData, SendOp, SendRequest, SendTarget, WcStatus,
};

const QKEY: u32 = 0x1111_1111;

fn to(from: &End, qp: Qpn, qkey: u32) -> SendTarget {
    datagram_to(from.address(), qp, qkey)
}

/// Sends the first bytes of the end's buffer to a queue pair.
fn send(from: &End, qp: &Qp, wr_id: u64, len: usize, peer: &Qp) {
    let target = to(from, peer.number(), QKEY);
    post_to_target(qp, wr_id, SendOp::Send, &[from.sge(0, len)], target);
}

/// Members of a group whose key is the usual one.
fn to_group(from: &End, group: Gid, gid_index: u8) -> SendTarget {
    datagram_to(from.address_of(group, gid_index), Qpn::MULTICAST, QKEY)
}

fn pair(len: usize) -> (End, Qp, End, Qp) {
    let (a, b) = (End::new(len), End::new(len));
    let (qp_a, qp_b) = (a.datagrams(QKEY), b.datagrams(QKEY));
    (a, qp_a, b, qp_b)
}

#[test]
fn a_datagram_arrives_behind_its_route_header() {
    let (mut a, qp_a, b, qp_b) = pair(16384);
    fill(&mut a.buffer);
    for len in [0usize, 1, 5, 1024, 4000, 4096] {
        post_recv(&qp_b, 1, &[b.sge(0, 40), b.sge(100, 4096)]);
        let op = SendOp::SendImm(Immediate([1, 2, 3, 4]));
        post_to_target(&qp_a, 2, op, &[a.sge(0, len)], to(&a, qp_b.number(), QKEY));
        assert_eq!(a.wait(&[], 1)[0].status, WcStatus::Success);
        let got = b.wait(&[&a], 1)[0];
        assert_eq!(
            (got.status, got.byte_len as usize),
            (WcStatus::Success, len + GRH_BYTES)
        );
        assert_eq!(got.source_qp, Some(qp_a.number()));
        assert_eq!(got.immediate, Some(Immediate([1, 2, 3, 4])));
        assert_eq!(b.buffer[100..100 + len], a.buffer[..len]);
        assert_eq!((b.buffer[20], got.header), (0x45, DatagramHeader::Ipv4));
        assert_eq!(b.buffer[32..36], [127, 0, 0, 1]);
        assert_eq!(b.buffer[36..40], [127, 0, 0, 1]);
    }
}

#[test]
fn ipv6_addresses_work_as_well() {
    let (mut a, qp_a, b, qp_b) = pair(8192);
    let Some(index) = a.gid_index(true) else {
        println!("skipped: the loopback interface has no IPv6 address");
        return;
    };
    fill(&mut a.buffer);
    post_recv(&qp_b, 1, &[b.sge(0, 200)]);
    let address = a.address_of(Gid::from(Ipv6Addr::LOCALHOST), index);
    a.nic.check_address(&address).unwrap();
    let target = datagram_to(address, qp_b.number(), QKEY);
    post_to_target(&qp_a, 2, SendOp::Send, &[a.sge(0, 100)], target);
    let got = b.wait(&[&a], 1)[0];
    assert_eq!((got.byte_len, got.header), (140, DatagramHeader::Ipv6));
    assert_eq!(b.buffer[40..140], a.buffer[..100]);
    assert_eq!(b.buffer[0] >> 4, 6);
    assert_eq!(b.buffer[24..40], Ipv6Addr::LOCALHOST.octets());
}

#[test]
fn the_answer_goes_to_whom_the_completion_names() {
    let (a, qp_a, b, qp_b) = pair(4096);
    post_recv(&qp_b, 1, &[b.sge(0, 64)]);
    post_recv(&qp_a, 1, &[a.sge(0, 64)]);
    send(&a, &qp_a, 2, 8, &qp_b);
    assert_eq!(a.wait(&[&b], 1)[0].wr_id, 2);
    let source = b.wait(&[&a], 1)[0].source_qp.unwrap();
    post_to_target(&qp_b, 3, SendOp::Send, &[b.sge(0, 8)], to(&b, source, QKEY));
    assert_eq!(a.wait(&[&b], 1)[0].source_qp, Some(qp_b.number()));
}

#[test]
fn queue_pairs_of_a_process_talk_to_each_other_and_themselves() {
    let a = End::new(4096);
    let qps = [(); 3].map(|()| a.datagrams(QKEY));
    for (from, qp) in qps.iter().enumerate() {
        for (into, other) in qps.iter().enumerate() {
            let wr_id = (10 * from + into) as u64;
            post_recv(other, wr_id, &[a.sge(0, 64)]);
            send(&a, qp, 99, 8, other);
            let mut got = a.wait(&[], 2);
            got.sort_by_key(|completion| completion.source_qp.is_some());
            assert_eq!((got[0].wr_id, got[0].qp), (99, qp.number()));
            assert_eq!((got[1].wr_id, got[1].qp), (wr_id, other.number()));
        }
    }
}

#[test]
fn a_wrong_key_and_a_message_that_does_not_fit_are_dropped() {
    let (a, qp_a, b, qp_b) = pair(8192);
    let send = |len, qkey| {
        let target = to(&a, qp_b.number(), qkey);
        post_to_target(&qp_a, 2, SendOp::Send, &[a.sge(0, len)], target);
        assert_eq!(a.wait(&[&b], 1)[0].status, WcStatus::Success);
    };
    post_recv(&qp_b, 1, &[b.sge(0, 40 + 64)]);
    send(8, QKEY + 1);
    send(65, QKEY);
    b.wait_for_nothing();
    let stats = b.nic.qp_stats()[0].1;
    assert_eq!((stats.bad_qkey, stats.too_long), (1, 1));
    // The high bit asks for the sender's own key.
    send(64, 0x8000_0000);
    assert_eq!(b.wait(&[&a], 1)[0].byte_len, 104);
    send(64, QKEY);
    b.wait_for_nothing();
    assert_eq!(b.nic.qp_stats()[0].1.out_of_buffer, 1);
}

#[test]
fn a_message_longer_than_the_mtu_is_refused() {
    let (a, qp_a, _b, qp_b) = pair(8192);
    let mtu = a.nic.port().active_mtu.bytes();
    let sges = [a.sge(0, mtu + 1)];
    let target = to(&a, qp_b.number(), QKEY);
    let request = request(1, SendOp::Send, &sges, target);
    assert_eq!(qp_a.post_send(&request), Err(PostError::TooLong));
    let write = SendRequest {
        op: SendOp::Write { va: 0, rkey: 1 },
        data: SendData::Sges(&[]),
        ..request
    };
    assert_eq!(qp_a.post_send(&write), Err(PostError::Unsupported));
}

#[test]
fn a_send_that_fails_here_stops_the_send_queue_until_a_restart() {
    let (a, qp_a, b, qp_b) = pair(8192);
    let mut bad = a.sge(0, 8);
    bad.lkey ^= 0x55;
    post_to_target(&qp_a, 1, SendOp::Send, &[bad], to(&a, qp_b.number(), QKEY));
    send(&a, &qp_a, 2, 8, &qp_b);
    let statuses: Vec<_> = a.wait(&[&b], 2).iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::LocalProtection, WcStatus::WrFlush]);
    assert_eq!(qp_a.state().unwrap(), QpState::SendQueueError);
    // It still receives.
    post_recv(&qp_a, 3, &[a.sge(0, 64)]);
    send(&b, &qp_b, 4, 8, &qp_a);
    assert_eq!(a.wait(&[&b], 1)[0].wr_id, 3);
    set_state(&qp_a, QpState::ReadyToSend);
    post_recv(&qp_b, 5, &[b.sge(0, 64)]);
    send(&a, &qp_a, 6, 8, &qp_b);
    assert_eq!(a.wait(&[&b], 1)[0].status, WcStatus::Success);
    assert_eq!(b.wait(&[&a], 2)[1].wr_id, 5);
}

#[test]
fn what_was_completed_may_be_overwritten() {
    // The completion comes before the network has taken anything: the data must have been copied.
    let (mut a, qp_a, b, qp_b) = pair(1 << 16);
    for round in 0..200u8 {
        a.buffer[..4096].fill(round);
        post_recv(&qp_b, 1, &[b.sge(0, 40), b.sge(64, 4096)]);
        send(&a, &qp_a, 2, 4096, &qp_b);
        assert_eq!(a.wait(&[], 1)[0].status, WcStatus::Success);
        a.buffer[..4096].fill(!round);
        assert_eq!(b.wait(&[&a], 1)[0].status, WcStatus::Success);
        assert!(b.buffer[64..64 + 4096].iter().all(|byte| *byte == round));
    }
}

fn group_reaches_all_members(netdev: &str, group: IpAddr) {
    let (a, b) = (End::on(netdev, 8192), End::on(netdev, 8192));
    let (qp_a, qp_b) = (a.datagrams(QKEY), b.datagrams(QKEY));
    let index = a.gid_index(group.is_ipv6()).unwrap();
    let other = b.datagrams(QKEY);
    let of_another_key = b.datagrams(QKEY + 1);
    let gid = Gid::from(group);
    for (end, qp) in [
        (&b, &qp_b),
        (&b, &other),
        (&b, &of_another_key),
        (&a, &qp_a),
    ] {
        qp.attach_multicast(gid).unwrap();
        qp.attach_multicast(gid).unwrap();
        post_recv(qp, 7, &[end.sge(0, 100)]);
        post_recv(qp, 8, &[end.sge(0, 100)]);
    }
    let target = to_group(&a, gid, index);
    post_to_target(&qp_a, 2, SendOp::Send, &[a.sge(0, 8)], target);
    let got = a.wait(&[&b], 2);
    assert!(got.iter().any(|c| c.source_qp == Some(qp_a.number())));
    let mut members: Vec<_> = b.wait(&[&a], 2).iter().map(|c| c.qp).collect();
    members.sort();
    let mut expected = [qp_b.number(), other.number()];
    expected.sort();
    assert_eq!(members, expected);
    b.wait_for_nothing();
    qp_b.detach_multicast(gid).unwrap();
    assert!(matches!(qp_b.detach_multicast(gid), Err(Error::Invalid(_))));
    post_to_target(&qp_a, 3, SendOp::Send, &[a.sge(0, 8)], target);
    assert_eq!(b.wait(&[&a], 1)[0].qp, other.number());
    b.wait_for_nothing();
}

#[test]
fn a_group_reaches_all_members_over_ipv4() {
    group_reaches_all_members("lo", Ipv4Addr::new(239, 77, 1, 1).into());
}

#[test]
fn a_group_reaches_all_members_over_ipv6() {
    // The loopback interface has no route for groups of IPv6.
    let link = [
        "link add one type veth peer name two",
        "link set lo up",
        "link set one up",
        "link set two up",
        "addr add fd00::1/64 dev one nodad",
    ];
    in_namespace(&link, || {
        for group in ["ff0e::77:1", "ff02::77:1"] {
            group_reaches_all_members("one", group.parse().unwrap());
        }
    });
}

#[test]
fn a_member_that_does_not_poll_is_reached() {
    // The background thread has to watch the group's socket, which comes after the others.
    let (a, qp_a, b, qp_b) = pair(4096);
    std::thread::sleep(Duration::from_millis(20));
    let gid = Gid::from(Ipv4Addr::new(239, 77, 1, 2));
    qp_b.attach_multicast(gid).unwrap();
    post_recv(&qp_b, 7, &[b.sge(0, 100)]);
    let target = to_group(&a, gid, 0);
    post_to_target(&qp_a, 2, SendOp::Send, &[a.sge(0, 8)], target);
    let is_taken_in = || b.nic.qp_stats()[0].1.rx_packets > 0;
    wait_until("it is taken in", is_taken_in);
}

#[test]
fn a_blocked_reader_is_woken_by_a_group_joined_later() {
    let (a, mut b) = (End::new(4096), End::new(4096));
    let channel = b.add_channel();
    let (qp_a, qp_b) = (a.datagrams(QKEY), b.datagrams(QKEY));
    post_recv(&qp_b, 7, &[b.sge(0, 100)]);
    b.cq.arm(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| channel.wait().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        let gid = Gid::from(Ipv4Addr::new(239, 77, 1, 4));
        qp_b.attach_multicast(gid).unwrap();
        let target = to_group(&a, gid, 0);
        post_to_target(&qp_a, 2, SendOp::Send, &[a.sge(0, 8)], target);
        wait_until("the reader is woken", || reader.is_finished());
        assert_eq!(reader.join().unwrap(), 42);
    });
}

#[test]
fn only_datagram_queue_pairs_join_only_groups() {
    let a = End::new(4096);
    let group = Gid::from(Ipv4Addr::new(239, 77, 1, 3));
    let rc = a.qp(QpType::Rc);
    assert!(matches!(rc.attach_multicast(group), Err(Error::Invalid(_))));
    let refused = a
        .datagrams(QKEY)
        .attach_multicast(Gid::from(Ipv4Addr::LOCALHOST));
    assert!(matches!(refused, Err(Error::Invalid(_))));
}

#[test]
fn an_address_of_another_family_is_refused() {
    let a = End::new(64);
    let ipv4 = a.gid_index(false).unwrap();
    let wrong = a.address_of(Gid::from(Ipv6Addr::LOCALHOST), ipv4);
    let none = a.address_of(Gid::from(Ipv4Addr::LOCALHOST), 99);
    for address in [wrong, none] {
        let refused = a.nic.check_address(&address);
        assert!(matches!(refused, Err(Error::Invalid(_))));
    }
}

#[test]
fn receive_memory_that_may_not_be_written_stops_the_queue_pair() {
    let (a, qp_a, b, qp_b) = pair(4096);
    let mut bad = b.sge(0, 100);
    bad.lkey ^= 0x55;
    post_recv(&qp_b, 1, &[bad]);
    post_recv(&qp_b, 2, &[b.sge(0, 100)]);
    send(&a, &qp_a, 3, 8, &qp_b);
    let statuses: Vec<_> = b.wait(&[&a], 2).iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::LocalProtection, WcStatus::WrFlush]);
    assert_eq!(qp_b.state().unwrap(), QpState::Error);
}
