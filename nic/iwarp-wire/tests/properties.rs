//! Properties that hold for all values and all bytes.

use proptest::prelude::*;
use urxe_iwarp_wire::*;

fn opcodes() -> impl Strategy<Value = Opcode> {
    proptest::sample::select(Opcode::ALL.to_vec())
}

fn faults() -> impl Strategy<Value = Fault> {
    proptest::sample::select(Fault::all().collect::<Vec<_>>())
}

prop_compose! {
    fn enhanced()(
        (is_peer_to_peer, fulpdu, write, read) in any::<(bool, bool, bool, bool)>(),
        (ird, ord) in (0..=IRD_ORD_MAX, 0..=IRD_ORD_MAX),
    ) -> Enhanced {
        Enhanced { is_peer_to_peer, rtr: Rtr { fulpdu, write, read }, ird, ord }
    }
}

prop_compose! {
    fn headers()(
        opcode in opcodes(),
        is_last in any::<bool>(),
        is_tagged in any::<bool>(),
        (stag, queue, msn, low) in any::<(u32, u32, u32, u32)>(),
        high in any::<u64>(),
    ) -> DdpHeader {
        let control = opcode.emit();
        if is_tagged {
            DdpHeader::Tagged(Tagged { is_last, control, stag, offset: high })
        } else {
            DdpHeader::Untagged(Untagged { is_last, control, invalidate: stag, queue, msn, offset: low })
        }
    }
}

proptest! {
    #[test]
    fn set_up_frames_are_read_as_they_were_written(
        is_request in any::<bool>(),
        (wants_markers, wants_crc, is_rejected) in any::<(bool, bool, bool)>(),
        enhanced in proptest::option::of(enhanced()),
        data in proptest::collection::vec(any::<u8>(), 0..=508),
        behind in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let frame = SetupFrame {
            kind: if is_request { FrameKind::Request } else { FrameKind::Reply },
            wants_markers,
            wants_crc,
            is_rejected,
            revision: if enhanced.is_some() { 2 } else { 1 },
            enhanced,
            private_data: &data,
        };
        let mut out = [0; MAX_SETUP_FRAME_LEN];
        let len = frame.emit(&mut out).unwrap();
        prop_assert_eq!(len, frame.buffer_len());
        let stream = [&out[..len], &behind].concat();
        prop_assert_eq!(SetupFrame::parse(&stream), Ok(frame));
        for cut in 0..len {
            let needed = match SetupFrame::parse(&stream[..cut]) {
                Err(ParseError::TooShort { needed, available }) if available == cut => needed,
                other => panic!("{cut} bytes of {len}: {other:?}"),
            };
            prop_assert!(needed > cut && needed <= len);
        }
    }

    #[test]
    fn ddp_headers_are_read_as_they_were_written(header in headers(), behind in any::<[u8; 5]>()) {
        let mut out = [0; MAX_DDP_HEADER_LEN];
        let len = header.emit(&mut out);
        prop_assert_eq!(len, DdpHeader::len_of(out[0]));
        prop_assert_eq!(DdpHeader::parse(&[&out[..len], &behind].concat()), Ok(header));
        prop_assert_eq!(DdpHeader::parse(&out[..len - 1]).is_ok(), false);
    }

    #[test]
    fn messages_are_read_as_they_were_written(
        (sink_stag, len, source_stag, id) in any::<(u32, u32, u32, u32)>(),
        (sink_offset, source_offset, compare, swap) in any::<(u64, u64, u64, u64)>(),
        is_add in any::<bool>(),
        immediate in any::<[u8; 4]>(),
    ) {
        let read = ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset };
        prop_assert_eq!(ReadRequest::parse(&read.emit()), Ok(read));
        let operation = if is_add {
            AtomicOperation::FetchAdd { add: swap }
        } else {
            AtomicOperation::CompareSwap { compare, swap }
        };
        let atomic = AtomicRequest { operation, id, stag: source_stag, offset: source_offset };
        prop_assert_eq!(AtomicRequest::parse(&atomic.emit()), Ok(atomic));
        let response = AtomicResponse { id, original: swap };
        prop_assert_eq!(AtomicResponse::parse(&response.emit()), Ok(response));
        let immediate = ImmediateData(immediate);
        prop_assert_eq!(ImmediateData::parse(&immediate.emit()), Ok(immediate));
    }

    #[test]
    fn terminates_are_read_as_they_were_written(
        fault in faults(),
        header in proptest::option::of((any::<u16>(), headers())),
        has_rdmap in any::<bool>(),
        rdmap in any::<[u8; 32]>(),
    ) {
        let mut raw = [0; MAX_DDP_HEADER_LEN];
        let segment = header.map(|(len, header)| (len, header.emit(&mut raw), header));
        let opcode = segment.and_then(|(.., header)| match header {
            DdpHeader::Untagged(header) => Opcode::parse(header.control).ok(),
            DdpHeader::Tagged(_) => None,
        });
        let rdmap = [rdmap, rdmap].concat();
        let rdmap = match opcode {
            Some(Opcode::ReadRequest) => Some(&rdmap[..ReadRequest::LEN]),
            Some(Opcode::AtomicRequest) => Some(&rdmap[..AtomicRequest::LEN]),
            _ => None,
        };
        let terminate = Terminate {
            fault,
            segment: segment.map(|(len, header_len, _)| (len, &raw[..header_len])),
            rdmap: rdmap.filter(|_| has_rdmap),
        };
        let mut out = [0; MAX_TERMINATE_LEN];
        let len = terminate.emit(&mut out);
        prop_assert_eq!(Terminate::parse(&out[..len]), Ok(terminate));
        let needed = len - terminate.rdmap.map_or(0, <[u8]>::len);
        for cut in 0..needed {
            prop_assert!(Terminate::parse(&out[..cut]).is_err());
        }
        for cut in needed..len {
            prop_assert_eq!(Terminate::parse(&out[..cut]), Ok(Terminate { rdmap: None, ..terminate }));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = SetupFrame::parse(&bytes);
        let _ = SetupFrame::parse(&[&b"MPA ID Req Frame"[..], &bytes].concat());
        let _ = DdpHeader::parse(&bytes);
        let _ = ReadRequest::parse(&bytes);
        let _ = AtomicRequest::parse(&bytes);
        let _ = AtomicResponse::parse(&bytes);
        let _ = Terminate::parse(&bytes);
        bytes.first().map(|byte| Opcode::parse(*byte));
    }

    #[test]
    fn markers_stand_every_512_bytes_and_point_back(
        lengths in proptest::collection::vec(0usize..3000, 1..6),
        cut in 0usize..100,
    ) {
        let mut marking = Marking::new();
        let (mut stream, mut starts) = (Vec::new(), Vec::new());
        for (n, len) in lengths.iter().enumerate() {
            let ulpdu = vec![u8::try_from(n).unwrap() + 1; *len];
            let (head, tail) = ulpdu.split_at(cut.min(*len));
            let begin = stream.len();
            starts.push(if begin.is_multiple_of(512) { begin + 4 } else { begin });
            fpdu::emit_marked(&mut marking, &[head, tail], true, |piece| stream.extend_from_slice(piece));
            let crc_at = stream.len() - 4;
            let mut crc = Crc32c::new();
            crc.update(&stream[begin..crc_at]);
            prop_assert_eq!(&crc.finish()[..], &stream[crc_at..]);
        }
        let mut rest: Vec<u8> = Vec::new();
        for (at, chunk) in (0..).step_by(512).zip(stream.chunks(512)) {
            let marker = Marker::parse(chunk[..4].try_into().unwrap());
            let start = starts.iter().rev().find(|start| **start <= at + 4 && (**start <= at || **start == at + 4));
            let expected = start.map_or(0, |start| at.saturating_sub(*start));
            prop_assert_eq!(usize::from(marker.back), expected, "at {}", at);
            rest.extend_from_slice(&chunk[4..]);
        }
        let mut at = 0;
        for (n, len) in (1..).zip(&lengths) {
            prop_assert_eq!(usize::from(u16::from_be_bytes([rest[at], rest[at + 1]])), *len);
            prop_assert!(rest[at + 2..][..*len].iter().all(|byte| *byte == n));
            at += fpdu::len(*len);
        }
        prop_assert_eq!(at, rest.len());
    }
}
