//! What Linux siw sent, by captures of it and urxe (`data/README.md`): all of it is read, and is
//! written as it was; both ends of a set-up, and a queue pair, take it.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use support::forge::ulpdus;
use support::{Pair, TERMS};
use urxe_iwarp::{FirstFrame, Initiator, Offer, Outcome, Responder, RtrKind, Terms};
use urxe_iwarp_wire::{
    DdpHeader, Fault, FrameKind, MAX_DDP_HEADER_LEN, MAX_SETUP_FRAME_LEN, Opcode, ReadRequest,
    SetupFrame, Terminate, fpdu,
};
use urxe_proto::{Instant, WcStatus};
use urxe_sim::Rights;

/// Where siw was.
const SIW: [u8; 4] = [10, 66, 0, 6];

/// One direction of a TCP connection.
#[derive(Debug, Default)]
struct Stream {
    is_of_siw: bool,
    /// The sequence number of the byte that follows.
    next: u32,
    bytes: Vec<u8>,
}

impl Stream {
    fn setup_frame(&self) -> SetupFrame<'_> {
        SetupFrame::parse(&self.bytes).unwrap()
    }

    /// The set-up frame as bytes, and the whole FPDUs behind it.
    fn parts(&self) -> (&[u8], &[u8]) {
        let mut out = [0; MAX_SETUP_FRAME_LEN];
        let len = self.setup_frame().emit(&mut out).unwrap();
        let (frame, rest) = self.bytes.split_at(len);
        assert_eq!(frame, &out[..len]);
        let mut end = 0;
        while let Some([high, low]) = rest.get(end..end + 2) {
            let next = end + fpdu::len(usize::from(u16::from_be_bytes([*high, *low])));
            if next > rest.len() {
                break;
            }
            end = next;
        }
        (frame, &rest[..end])
    }
}

/// Both directions of the only connection in a capture of IPv4 over Ethernet: of the end that asks
/// first.
fn streams(name: &str) -> [Stream; 2] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let pcap = std::fs::read(PathBuf::from(folder).join(name)).unwrap();
    let mut streams = BTreeMap::<_, Stream>::new();
    let mut rest = &pcap[24..];
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let (frame, next) = after.split_at(len);
        rest = next;
        let ip = &frame[14..];
        assert_eq!((ip[0], ip[9]), (0x45, 6), "TCP over IPv4 without options");
        let tcp = &ip[20..usize::from(u16::from_be_bytes([ip[2], ip[3]]))];
        let payload = &tcp[usize::from(tcp[12] >> 4) * 4..];
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
        let stream = streams.entry(tcp[..4].to_vec()).or_default();
        stream.is_of_siw = ip[12..16] == SIW;
        if tcp[13] & 2 != 0 {
            stream.next = sequence.wrapping_add(1);
        } else if sequence == stream.next {
            stream.next = sequence.wrapping_add(u32::try_from(payload.len()).unwrap());
            stream.bytes.extend_from_slice(payload);
        }
    }
    let mut both: Vec<_> = streams.into_values().collect();
    both.sort_by_key(|stream| stream.setup_frame().kind == FrameKind::Reply);
    both.try_into().unwrap()
}

fn opcode(ulpdu: &[u8]) -> Opcode {
    Opcode::parse(DdpHeader::parse(ulpdu).unwrap().control()).unwrap()
}

/// What is in a capture, of siw: opcodes in the order of their first coming, each with how often it
/// came.
fn seen(stream: &Stream) -> Vec<(Opcode, usize)> {
    let mut seen: Vec<(Opcode, usize)> = Vec::new();
    for ulpdu in ulpdus(stream.parts().1) {
        let opcode = opcode(ulpdu);
        match seen.iter_mut().find(|(other, _)| *other == opcode) {
            Some((_, count)) => *count += 1,
            None => seen.push((opcode, 1)),
        }
    }
    seen
}

#[test]
fn every_frame_is_read_and_written_as_it_was() {
    for name in [
        "client.pcap",
        "server.pcap",
        "client_of_peers.pcap",
        "client_of_mpa_1.pcap",
        "refuses_read.pcap",
        "refuses_write.pcap",
        "refuses_send.pcap",
        "rejects.pcap",
    ] {
        let both = streams(name);
        assert_ne!(both[0].is_of_siw, both[1].is_of_siw);
        for stream in &both {
            // This compares the set-up frame, and `ulpdus` padding and CRCs.
            for ulpdu in ulpdus(stream.parts().1) {
                let header = DdpHeader::parse(ulpdu).unwrap();
                let mut out = [0; MAX_DDP_HEADER_LEN];
                let len = header.emit(&mut out);
                assert_eq!(ulpdu[..len], out[..len], "{name}");
                if opcode(ulpdu) == Opcode::ReadRequest {
                    let request = ReadRequest::parse(&ulpdu[len..]).unwrap();
                    assert_eq!(ulpdu[len..], request.emit(), "{name}");
                }
            }
        }
    }
}

#[test]
fn siw_sent_every_operation_that_it_has() {
    let expected: [(&str, &[Opcode]); 4] = [
        ("client.pcap", &[Opcode::Send, Opcode::ReadResponse]),
        (
            "server.pcap",
            &[Opcode::ReadRequest, Opcode::Send, Opcode::Write],
        ),
        (
            "client_of_peers.pcap",
            &[Opcode::Write, Opcode::Send, Opcode::ReadResponse],
        ),
        ("refuses_read.pcap", &[Opcode::Terminate]),
    ];
    for (name, opcodes) in expected {
        let both = streams(name);
        let stream = both.iter().find(|stream| stream.is_of_siw).unwrap();
        let found: Vec<_> = seen(stream).into_iter().map(|(opcode, _)| opcode).collect();
        assert_eq!(found, opcodes, "{name}");
    }
}

/// The offer of an end that made a request or a reply.
fn offer(frame: &SetupFrame<'_>) -> Offer {
    Offer {
        wants_markers: false,
        wants_crc: true,
        ird: frame.enhanced.map_or(1, |enhanced| enhanced.ird),
        ord: frame.enhanced.map_or(1, |enhanced| enhanced.ord),
        is_enhanced: true,
        is_peer_to_peer: true,
    }
}

#[test]
fn its_requests_are_answered_as_they_were() {
    for (name, is_peer_to_peer) in [
        ("client.pcap", false),
        ("client_of_peers.pcap", true),
        ("client_of_mpa_1.pcap", false),
    ] {
        let [asks, answers] = streams(name);
        assert!(asks.is_of_siw);
        let (request, reply) = (asks.setup_frame(), answers.setup_frame());
        assert_eq!(request.revision, if name.contains("mpa_1") { 1 } else { 2 });
        let mut responder = Responder::new(Instant::default());
        let taken = responder.handle_bytes(&asks.bytes);
        assert_eq!(taken, asks.parts().0.len(), "what is behind it stays");
        let asked = responder.request().unwrap();
        assert_eq!(asked.is_peer_to_peer, is_peer_to_peer, "{name}");
        let terms = responder
            .accept(&offer(&reply), reply.private_data)
            .unwrap();
        assert!(terms.has_crc, "urxe asks for CRCs, and siw takes part");
        assert_eq!(responder.output(), answers.parts().0, "{name}");
    }
}

#[test]
fn its_reply_makes_a_connection_between_peers() {
    let [asks, answers] = streams("server.pcap");
    let request = asks.setup_frame();
    let made = Initiator::new(Instant::default(), offer(&request), request.private_data);
    let mut initiator = made.unwrap();
    assert_eq!(initiator.output(), asks.parts().0);
    initiator.handle_sent(asks.parts().0.len());
    let taken = initiator.handle_bytes(&answers.bytes);
    assert_eq!(taken, answers.parts().0.len());
    let Outcome::Established(terms) = initiator.outcome() else {
        panic!("{:?}", initiator.outcome());
    };
    assert!(terms.has_crc && !terms.sends_markers);
    assert_eq!(terms.first, FirstFrame::Send(RtrKind::Write));
    // That is the first that went.
    assert_eq!(opcode(ulpdus(asks.parts().1)[0]), Opcode::Write);
}

#[test]
fn its_rejection_is_one_with_private_data() {
    let [asks, answers] = streams("rejects.pcap");
    let request = asks.setup_frame();
    let made = Initiator::new(Instant::default(), offer(&request), request.private_data);
    let mut initiator = made.unwrap();
    initiator.handle_bytes(&answers.bytes);
    let outcome = initiator.outcome();
    assert_eq!(outcome, Outcome::Failed(urxe_iwarp::SetupError::Rejected));
    assert_eq!(initiator.private_data(), b"answer");
}

#[test]
fn its_messages_arrive() {
    let [asks, _] = streams("client_of_peers.pcap");
    let terms = Terms {
        first: FirstFrame::Await,
        ..TERMS
    };
    let mut pair = Pair::new(0, [TERMS, terms], 1460);
    let host = &mut pair.hosts[1];
    let key = host.register(Rights::ALL, vec![0; 64]);
    let place = host.sge(key, 0, 64);
    let mut lengths = Vec::new();
    let mut rest = asks.parts().1;
    for ulpdu in ulpdus(rest) {
        let (fpdu, later) = rest.split_at(fpdu::len(ulpdu.len()));
        rest = later;
        match opcode(ulpdu) {
            // It answers what this queue pair has not asked for.
            Opcode::ReadResponse => continue,
            Opcode::Send => {
                lengths.push(ulpdu.len() - 18);
                host.post_recv(lengths.len() as u64, &[place]);
            }
            // The first frame, of no bytes.
            other => assert_eq!(other, Opcode::Write),
        }
        host.qp.handle_bytes(fpdu, None, &mut host.memory);
    }
    assert!(lengths.len() > 1);
    for (wr_id, len) in (1..).zip(lengths) {
        let done = host.qp.poll_completion().unwrap();
        assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success));
        assert_eq!(done.byte_len as usize, len);
    }
}

#[test]
fn its_terminates_say_what_it_refused() {
    for (name, fault, refused) in [
        (
            "refuses_read.pcap",
            Fault::ProtectionInvalidStag,
            Opcode::ReadRequest,
        ),
        (
            "refuses_write.pcap",
            Fault::TaggedInvalidStag,
            Opcode::Write,
        ),
        ("refuses_send.pcap", Fault::UntaggedNoBuffer, Opcode::Send),
    ] {
        let [asks, answers] = streams(name);
        assert!(answers.is_of_siw);
        let (of_peer, of_siw) = (ulpdus(asks.parts().1), ulpdus(answers.parts().1));
        let last = of_siw.last().unwrap();
        let header = DdpHeader::parse(last).unwrap();
        let terminate = Terminate::parse(&last[header.buffer_len()..]).unwrap();
        assert_eq!(terminate.fault, fault, "{name}");
        // The first frame, between peers, is a WRITE of no bytes.
        let is_it = |ulpdu: &&&[u8]| opcode(ulpdu) == refused && ulpdu.len() > 20;
        let segment = of_peer.iter().find(is_it).unwrap();
        let header_len = DdpHeader::parse(segment).unwrap().buffer_len();
        let (len, header) = terminate.segment.unwrap();
        let mut expected = segment[..header_len].to_vec();
        let is_read = refused == Opcode::ReadRequest;
        let headers_len = header_len + if is_read { ReadRequest::LEN } else { 0 };
        // siw counts the payload alone.
        assert_eq!(usize::from(len), segment.len() - headers_len, "{name}");
        if is_read {
            // Where the number of the request belongs, siw has the length of the READ.
            expected[10..14].copy_from_slice(&4096u32.to_be_bytes());
        }
        assert_eq!(header, expected, "{name}");
        assert_eq!(terminate.rdmap, is_read.then(|| &segment[header_len..]));
    }
}
