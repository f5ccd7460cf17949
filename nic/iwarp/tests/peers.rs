//! What other implementations send and expect.

mod support;

use support::forge::{frame, read, terminate_of, ulpdus, untagged, write};
use support::victim::{atomic, prepared, send, sent, written};
use support::{PD, Pair, TERMS, responder};
use urxe_iwarp::{FirstFrame, RtrKind, Terms};
use urxe_iwarp_wire::{
    DdpHeader, Fault, ImmediateData, MAX_DDP_HEADER_LEN, MAX_TERMINATE_LEN, Opcode, Queue,
    ReadRequest, Tagged, Terminate, Untagged, fpdu,
};
use urxe_proto::{SendOp, WcStatus};
use urxe_sim::Rights;

#[test]
fn first_frames_name_stag_1() {
    let read = ReadRequest {
        sink_stag: 1,
        sink_offset: 0,
        len: 0,
        source_stag: 1,
        source_offset: 0,
    };
    let request = DdpHeader::Untagged(untagged(Opcode::ReadRequest, Queue::Request, 1));
    let expected = [
        (
            RtrKind::Write,
            frame(&DdpHeader::Tagged(write(1, 0)), &[]),
            None,
        ),
        (
            RtrKind::Read,
            frame(&request, &read.emit()),
            Some(Tagged {
                control: Opcode::ReadResponse.emit(),
                ..write(1, 0)
            }),
        ),
    ];
    for (kind, first, answer) in expected {
        let terms = Terms {
            first: FirstFrame::Send(kind),
            ..TERMS
        };
        let mut pair = Pair::new(1, [terms, responder(&terms)], 1460);
        pair.run();
        assert_eq!(pair.written[0], first, "{kind:?}");
        let answer = answer.map(|header| frame(&DdpHeader::Tagged(header), &[]));
        assert_eq!(pair.written[1], answer.unwrap_or_default(), "{kind:?}");
        // What is read afterwards is no answer to the first frame.
        let source = pair.hosts[1].register(Rights::ALL, vec![3; 8]);
        let target = pair.hosts[0].register(Rights::ALL, vec![0; 8]);
        let va = pair.hosts[1].memory.0.va(source, 0);
        let place = pair.hosts[0].sge(target, 0, 8);
        pair.hosts[0].post(1, SendOp::Read { va, rkey: source }, &[place]);
        pair.run();
        assert_eq!(pair.hosts[0].completions[0].status, WcStatus::Success);
    }
}

/// A TERMINATE with the RDMAP header `rdmap`, in a segment with this number; with the control field
/// as siw has it, or as RFC 5040 does.
fn terminate(msn: u32, rdmap: &[u8], is_of_siw: bool) -> Vec<u8> {
    let mut header = [0; MAX_DDP_HEADER_LEN];
    let request = untagged(Opcode::ReadRequest, Queue::Request, msn);
    let header_len = DdpHeader::Untagged(request).emit(&mut header);
    let terminate = Terminate {
        fault: Fault::ProtectionBounds,
        segment: Some((46, &header[..header_len])),
        rdmap: Some(rdmap),
    };
    let mut raw = [0; MAX_TERMINATE_LEN];
    let len = terminate.emit(&mut raw);
    if is_of_siw {
        raw[0] = raw[0].rotate_left(4);
        raw[2] = raw[2].reverse_bits();
    }
    let header = untagged(Opcode::Terminate, Queue::Terminate, 1);
    sent(header, &raw[..len])
}

#[test]
fn the_read_that_a_terminate_has_counts_before_its_number() {
    // Of three READs, the last two are the same. siw writes the length of a READ as its number.
    let cases = [(64, 0, 1), (64, 1, 2), (2, 1, 2), (3, 1, 3), (1, 2, 3)];
    let both = cases
        .into_iter()
        .flat_map(|case| [(case, false), (case, true)]);
    for ((msn, of, expected), is_of_siw) in both {
        let mut pair = Pair::plain(0);
        let local = pair.hosts[0].register(Rights::ALL, vec![0; 64]);
        let host = &mut pair.hosts[0];
        for (wr_id, va) in [(1, 0x100), (2, 0x200), (3, 0x200)] {
            let place = host.sge(local, 0, 64);
            host.post(wr_id, SendOp::Read { va, rkey: 7 }, &[place]);
        }
        let mut bytes = Vec::new();
        host.qp.poll_output(10_000, &mut host.memory);
        for piece in host.qp.output() {
            host.memory.take(PD, &piece, &mut bytes).unwrap();
        }
        host.qp.handle_sent(bytes.len());
        let rdmap = if of == 2 {
            [9; ReadRequest::LEN]
        } else {
            ulpdus(&bytes)[of][18..].try_into().unwrap()
        };
        let fpdu = if of == 2 {
            terminate(3, &rdmap, is_of_siw)
        } else {
            terminate(msn, &rdmap, is_of_siw)
        };
        host.qp.handle_bytes(&fpdu, None, &mut host.memory);
        for wr_id in 1..4 {
            let done = host.qp.poll_completion().unwrap();
            let status = if wr_id == expected {
                WcStatus::RemoteAccess
            } else {
                WcStatus::WrFlush
            };
            assert_eq!((done.wr_id, done.status), (wr_id, status), "{msn}, {of}");
        }
    }
}

#[test]
fn without_an_ird_only_a_read_of_no_bytes_is_answered() {
    let terms = [
        TERMS,
        Terms {
            ird: 0,
            first: FirstFrame::Await,
            ..TERMS
        },
    ];
    for (what, len) in [("READ of none", 0), ("READ", 8), ("atomic", 8)] {
        let mut pair = Pair::new(1, terms, 1460);
        let key = pair.hosts[1].register(Rights::ALL, vec![0; 8]);
        let va = pair.hosts[1].memory.0.va(key, 0);
        let bytes = match what {
            "atomic" => atomic(key, va),
            _ => read(key, va, len),
        };
        let host = &mut pair.hosts[1];
        host.qp.handle_bytes(&bytes, None, &mut host.memory);
        let mut out = Vec::new();
        host.qp.poll_output(10_000, &mut host.memory);
        for piece in host.qp.output() {
            host.memory.take(PD, &piece, &mut out).unwrap();
        }
        let all = ulpdus(&out);
        let header = DdpHeader::parse(all[0]).unwrap();
        let opcode = Opcode::parse(header.control()).unwrap();
        if len == 0 {
            assert_eq!(opcode, Opcode::ReadResponse);
        } else {
            assert_eq!(opcode, Opcode::Terminate, "{what}");
            let terminate = Terminate::parse(&all[0][18..]).unwrap();
            assert_eq!(terminate.fault, Fault::UntaggedNoBuffer, "{what}");
        }
    }
}

#[test]
fn immediate_data_without_a_write_has_no_length() {
    let (mut pair, keys) = prepared(0);
    let immediate = |msn| {
        let header = untagged(Opcode::Immediate, Queue::Send, msn);
        sent(header, &ImmediateData([1; 4]).emit())
    };
    let bytes = [
        written(write(keys.all, keys.va), &[1; 8]),
        immediate(1),
        immediate(2),
    ];
    pair.inject(0, &bytes.concat());
    pair.run();
    let done = pair.hosts[1].completions.iter();
    let lengths: Vec<_> = done.map(|done| (done.wr_id, done.byte_len)).collect();
    assert_eq!(lengths, [(1, 8), (2, 0)]);
}

#[test]
fn a_write_that_fails_within_a_send_flushes_its_receive() {
    let (mut pair, _) = prepared(0);
    let host = &mut pair.hosts[1];
    let key = host.register(Rights::ALL, vec![0; 64]);
    let first = Untagged {
        is_last: false,
        ..send(1)
    };
    let write = written(write(key, host.memory.0.va(key, 0)), &[1; 64]);
    let (before, after) = write.split_at(30);
    host.qp
        .handle_bytes(&sent(first, &[0; 60]), None, &mut host.memory);
    host.qp.handle_bytes(before, None, &mut host.memory);
    host.memory.0.deregister(key);
    host.qp.handle_bytes(after, None, &mut host.memory);
    pair.run();
    let done = pair.hosts[1].completions.iter();
    let done: Vec<_> = done.map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(done, [(1, WcStatus::WrFlush), (2, WcStatus::WrFlush)]);
    let expected = (Fault::TaggedInvalidStag, true, false);
    assert_eq!(terminate_of(&pair), Some(expected));
}

#[test]
fn a_send_beyond_what_a_completion_can_say_is_too_long() {
    let terms = Terms {
        has_crc: false,
        first: FirstFrame::Await,
        ..TERMS
    };
    let mut pair = Pair::new(0, [terms; 2], 1460);
    let host = &mut pair.hosts[1];
    let len = (1 << 30) + 0x10_0000;
    let key = host.register(Rights::ALL, vec![0; len as usize]);
    let place = host.sge(key, 0, len);
    host.post_recv(1, &[place; 4]);
    let payload_len: u16 = 65_516;
    let ulpdu_len = payload_len + 18;
    let mut raw = [0; 2 + MAX_DDP_HEADER_LEN];
    raw[..2].copy_from_slice(&ulpdu_len.to_be_bytes());
    let tail = vec![0; fpdu::len(ulpdu_len.into()) - 2 - usize::from(ulpdu_len)];
    let mut offset = 0u32;
    while let Some(next) = offset.checked_add(payload_len.into()) {
        let header = Untagged {
            is_last: false,
            offset,
            ..send(1)
        };
        DdpHeader::Untagged(header).emit(&mut raw[2..]);
        host.qp.handle_bytes(&raw, None, &mut host.memory);
        // Nothing is in the payload, so nothing needs to be read to where it goes.
        host.qp.handle_placed(payload_len.into(), &mut host.memory);
        host.qp.handle_bytes(&tail, None, &mut host.memory);
        offset = next;
    }
    assert!(host.qp.poll_completion().is_none());
    let header = Untagged { offset, ..send(1) };
    DdpHeader::Untagged(header).emit(&mut raw[2..]);
    host.qp.handle_bytes(&raw, None, &mut host.memory);
    let done = host.qp.poll_completion().unwrap();
    assert_eq!((done.wr_id, done.status), (1, WcStatus::LocalLength));
}
