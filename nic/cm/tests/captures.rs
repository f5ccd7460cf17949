//! Datagrams that Linux really sent: each is understood, and written byte for byte as it was; and
//! the state machines, given a program's part, say what Linux said.

use std::net::IpAddr;
use std::path::Path as FilePath;

use pcap_file::pcap::PcapReader;
use urxe_cm::*;
use urxe_wire::{CM_QKEY, Gid, Packet, Qpn};

/// The management datagrams of a capture, in order.
fn mads(name: &str) -> Vec<[u8; MAD_LEN]> {
    let path = FilePath::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut found = Vec::new();
    while let Some(frame) = reader.next_packet() {
        let frame = frame.unwrap().data;
        // Ethernet, IPv4 without options, UDP to the RoCE port.
        if frame.len() < 54 || frame[12..14] != [8, 0] || frame[36..38] != 4791u16.to_be_bytes() {
            continue;
        }
        let packet = Packet::parse(&frame[42..]).unwrap();
        if packet.header.bth.dest_qp == Qpn::GSI {
            let deth = packet.header.deth.unwrap();
            assert_eq!((deth.qkey, deth.src_qp), (CM_QKEY, Qpn::GSI));
            found.push(packet.payload.try_into().unwrap());
        }
    }
    found
}

fn parsed(name: &str) -> Vec<Mad> {
    mads(name)
        .iter()
        .map(|raw| Mad::parse(raw).unwrap())
        .collect()
}

const FILES: [&str; 4] = [
    "rdmacm_rping.pcap",
    "rdmacm_ucmatose.pcap",
    "rdmacm_reject.pcap",
    "rdmacm_udaddy.pcap",
];

#[test]
fn every_datagram_is_understood_and_written_as_it_was() {
    let mut attributes = std::collections::BTreeSet::new();
    for name in FILES {
        for raw in mads(name) {
            let mad = Mad::parse(&raw).unwrap();
            assert_eq!(mad.emit(), raw, "{name}: {mad:?}");
            attributes.insert(mad.message.attribute() as u16);
        }
    }
    let all = [0x10, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert!(attributes.iter().eq(&all), "{attributes:x?}");
}

#[test]
fn a_request_says_what_the_program_asked_for() {
    let Message::Req(req) = &parsed("rdmacm_rping.pcap")[0].message else {
        panic!("the first is a REQ")
    };
    assert_eq!(req.service_id.port(), Some((PortSpace::Tcp, 7174)));
    assert_eq!(
        (req.qpn, req.retry_count, req.rnr_retry_count),
        (Qpn::new(0x1c), 7, 7)
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!(
        (req.remote_response_timeout, req.max_retries),
        (RESPONSE_TIMEOUT, MAX_RETRIES)
    );
    let header = IpHeader::parse(&req.private_data).unwrap();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(
        (header.source, header.destination),
        (ip("10.66.0.2"), ip("10.66.0.3"))
    );
    assert_eq!(req.private_data[..IpHeader::LEN], header.emit());
    assert_eq!(req.local_gid, Gid::from(ip("10.66.0.2")));
}

/// The way to the peer, as the end at `local` has it.
fn path(local: &str, remote: &str) -> Path {
    Path {
        link: 2,
        local: Gid::from(local.parse::<IpAddr>().unwrap()),
        remote: Gid::from(remote.parse::<IpAddr>().unwrap()),
        port: 4791,
        from: None,
    }
}

/// The one datagram that the manager wants to send.
fn only(manager: &mut Manager) -> Mad {
    let transmit = manager.poll_transmit().expect("an answer");
    assert_eq!(manager.poll_transmit(), None);
    Mad::parse(&transmit.mad[..]).unwrap()
}

#[test]
fn a_listener_says_what_linux_said() {
    let mads = parsed("rdmacm_rping.pcap");
    let here = path("10.66.0.3", "10.66.0.2");
    let Message::Rep(rep) = &mads[1].message else {
        panic!("the second is a REP")
    };
    let mut manager = Manager::default();
    manager.handle_mad(0, here, &mads[0], rep.local_comm_id);
    assert!(matches!(manager.poll_event(), Some((_, Event::Request(_)))));
    manager.accept(0, rep.local_comm_id, rep.clone()).unwrap();
    assert_eq!(only(&mut manager), mads[1]);
    manager.handle_mad(0, here, &mads[2], 1);
    assert!(matches!(manager.poll_event(), Some((_, Event::Ready(_)))));
    manager.handle_mad(0, here, &mads[3], 1);
    assert_eq!(only(&mut manager), mads[4]);
    assert!(matches!(
        manager.poll_event(),
        Some((_, Event::Disconnected))
    ));
}

#[test]
fn a_requester_says_what_linux_said() {
    let mads = parsed("rdmacm_rping.pcap");
    let here = path("10.66.0.2", "10.66.0.3");
    let Message::Req(req) = &mads[0].message else {
        panic!("the first is a REQ")
    };
    let id = req.local_comm_id;
    let mut manager = Manager::default();
    manager.connect(0, id, here, req.clone());
    // Transactions are each end's own business; Linux's are not ours.
    assert_eq!(only(&mut manager).message, mads[0].message);
    manager.handle_mad(0, here, &mads[1], 1);
    assert!(matches!(manager.poll_event(), Some((_, Event::Reply(_)))));
    let parameters = *manager.parameters(id).unwrap();
    assert_eq!(parameters.remote_qpn, Qpn::new(0x1c));
    assert_eq!(parameters.rq_psn.get(), 0xf6_b851);
    assert_eq!(parameters.sq_psn.get(), 0x3c_a57d);
    manager.ready(id, [0; Rtu::PRIVATE_LEN]).unwrap();
    assert_eq!(only(&mut manager).message, mads[2].message);
    manager.disconnect(0, id).unwrap();
    assert_eq!(only(&mut manager).message, mads[3].message);
    manager.handle_mad(0, here, &mads[4], 1);
    assert!(matches!(
        manager.poll_event(),
        Some((_, Event::Disconnected))
    ));
}

#[test]
fn nobody_listening_is_refused_as_linux_refuses() {
    let mads = parsed("rdmacm_reject.pcap");
    let mut manager = Manager::default();
    manager.refuse(path("10.66.0.3", "10.66.0.2"), &mads[0]);
    assert_eq!(only(&mut manager), mads[1]);
}

#[test]
fn a_resolution_says_what_linux_said() {
    let mads = parsed("rdmacm_udaddy.pcap");
    let (Message::SidrReq(req), Message::SidrRep(rep)) = (&mads[0].message, &mads[1].message)
    else {
        panic!("a question and its answer")
    };
    let mut server = Manager::default();
    server.handle_mad(0, path("10.66.0.3", "10.66.0.2"), &mads[0], 77);
    assert!(matches!(server.poll_event(), Some((77, Event::Resolve(_)))));
    server.answer_resolution(0, 77, rep.clone()).unwrap();
    assert_eq!(only(&mut server), mads[1]);
    // Repeated, it is answered again without asking the program.
    server.handle_mad(0, path("10.66.0.3", "10.66.0.2"), &mads[0], 78);
    assert_eq!(only(&mut server), mads[1]);
    assert_eq!(server.poll_event(), None);

    let mut client = Manager::default();
    let here = path("10.66.0.2", "10.66.0.3");
    client.resolve(0, req.request_id, here, req.clone());
    assert_eq!(only(&mut client).message, mads[0].message);
    client.handle_mad(0, here, &mads[1], 1);
    assert!(matches!(client.poll_event(), Some((_, Event::Resolved(_)))));
    assert!(client.is_idle());
}

#[test]
fn what_is_no_message_is_refused_and_nothing_panics() {
    let good = mads("rdmacm_rping.pcap")[0];
    assert_eq!(Mad::parse(&good[..255]), Err(MadError::Length(255)));
    for (at, value) in [(0, 2), (1, 8), (2, 1), (3, 1)] {
        let mut other = good;
        other[at] = value;
        assert!(matches!(Mad::parse(&other), Err(MadError::NotCm(_))));
    }
    let mut other = good;
    other[17] = 0x1b;
    assert_eq!(Mad::parse(&other), Err(MadError::Attribute(0x1b)));
    for attribute in 0x10..=0x1a {
        for byte in [0, 0x55, 0xff] {
            let mut raw = [byte; MAD_LEN];
            raw[..24].copy_from_slice(&good[..24]);
            raw[17] = attribute;
            let mad = Mad::parse(&raw).unwrap();
            let mut manager = Manager::default();
            manager.handle_mad(0, path("10.66.0.3", "10.66.0.2"), &mad, 5);
            manager.handle_timeout(u64::MAX);
        }
    }
}
