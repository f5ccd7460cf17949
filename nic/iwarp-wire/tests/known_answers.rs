//! Bytes put together by hand from the layouts in the RFCs, and what they are.

use urxe_iwarp_wire::*;

#[test]
fn an_enhanced_request_is_as_rfc_5044_and_rfc_6581_have_it() {
    let frame = SetupFrame {
        kind: FrameKind::Request,
        wants_markers: false,
        wants_crc: true,
        is_rejected: false,
        revision: 2,
        enhanced: Some(Enhanced {
            is_peer_to_peer: true,
            rtr: Rtr {
                fulpdu: false,
                write: true,
                read: true,
            },
            ird: 16,
            ord: 0x1234,
        }),
        private_data: b"hi",
    };
    let mut out = [0xee; MAX_SETUP_FRAME_LEN];
    let len = frame.emit(&mut out).unwrap();
    // C and S; revision 2; 6 bytes: A and IRD, C and D and ORD, the program's two.
    let expected = [
        &b"MPA ID Req Frame"[..],
        &[0x50, 2, 0, 6],
        &[0x80, 0x10, 0xd2, 0x34],
        b"hi",
    ]
    .concat();
    assert_eq!(out[..len], expected);
}

#[test]
fn a_reply_of_revision_1_has_no_enhanced_data_whatever_its_bits_are() {
    let bytes = [
        &b"MPA ID Rep Frame"[..],
        &[0xf0, 1, 0, 4],
        &[0x80, 0x10, 0xd2, 0x34],
    ]
    .concat();
    let frame = SetupFrame::parse(&bytes).unwrap();
    assert_eq!(frame.kind, FrameKind::Reply);
    assert!(frame.wants_markers && frame.wants_crc && frame.is_rejected);
    assert_eq!(frame.enhanced, None);
    assert_eq!(frame.private_data, [0x80, 0x10, 0xd2, 0x34]);
}

#[test]
fn set_up_frames_that_are_none_say_why() {
    let with = |rest: &[u8]| [&b"MPA ID Req Frame"[..], rest].concat();
    let long = with(&[0, 1, 2, 1]);
    let refused = [
        (b"GET / HTTP/1.1".to_vec(), ParseError::Key),
        (with(&[0, 0, 0, 0]), ParseError::Revision { revision: 0 }),
        (with(&[0, 3, 0, 0]), ParseError::Revision { revision: 3 }),
        (long, ParseError::PrivateDataTooLong { len: 513 }),
        (
            with(&[0x10, 2, 0, 3]),
            ParseError::EnhancedTooShort { len: 3 },
        ),
    ];
    for (bytes, error) in refused {
        assert_eq!(SetupFrame::parse(&bytes), Err(error), "{bytes:?}");
    }
    let frame = SetupFrame {
        private_data: &[0; 513],
        ..SetupFrame::parse(&with(&[0, 1, 0, 0])).unwrap()
    };
    let error = frame.emit(&mut [0; 600]).unwrap_err();
    assert_eq!(error, ParseError::PrivateDataTooLong { len: 513 });
}

#[test]
fn a_write_segment_is_as_rfc_5041_has_tagged_ones() {
    let header = DdpHeader::Tagged(Tagged {
        is_last: true,
        control: Opcode::Write.emit(),
        stag: 0x0102_0304,
        offset: 0x1112_1314_1516_1718,
    });
    let mut out = [0; MAX_DDP_HEADER_LEN];
    let len = header.emit(&mut out);
    // Tagged, last, version 1; RDMAP version 1 and opcode 0.
    let expected = [
        0xc1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
    ];
    assert_eq!(out[..len], expected);
}

#[test]
fn a_send_segment_is_as_rfc_5041_has_untagged_ones() {
    let header = DdpHeader::Untagged(Untagged {
        is_last: false,
        control: Opcode::SendSolicitedInvalidate.emit(),
        invalidate: 0x0a0b_0c0d,
        queue: 0,
        msn: 1,
        offset: 0x200,
    });
    let mut out = [0; MAX_DDP_HEADER_LEN];
    let len = header.emit(&mut out);
    let expected = [
        0x01, 0x46, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 0,
    ];
    assert_eq!(out[..len], expected);
}

#[test]
fn versions_and_opcodes_that_are_not_defined_are_refused() {
    assert_eq!(
        DdpHeader::parse(&[0x82, 0x40]),
        Err(ParseError::DdpVersion { version: 2 })
    );
    assert_eq!(
        Opcode::parse(0x80),
        Err(ParseError::RdmapVersion { version: 2 })
    );
    assert_eq!(Opcode::parse(0x4c), Err(ParseError::Opcode { opcode: 12 }));
    let mut swap = [0; AtomicRequest::LEN];
    swap[3] = 1;
    assert_eq!(
        AtomicRequest::parse(&swap),
        Err(ParseError::AtomicOperation { code: 1 })
    );
}

#[test]
fn a_terminate_is_as_rfc_5040_has_it() {
    let header = [0x81, 0x40, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    let terminate = Terminate {
        fault: Fault::TaggedBounds,
        segment: Some((0x0102, &header)),
        rdmap: None,
    };
    let mut out = [0; MAX_TERMINATE_LEN];
    let len = terminate.emit(&mut out);
    // Layer DDP, type 1 (tagged buffer), code 1; headers M and D.
    assert_eq!(out[..6], [0x11, 0x01, 0xc0, 0, 1, 2]);
    assert_eq!(out[6..len], header);
}

/// A TERMINATE with the bits M, D and R, and these bytes behind its control field.
fn terminate_with_all(rest: &[u8]) -> Vec<u8> {
    [&[0x01, 0x00, 0xe0, 0, 0, 46], rest].concat()
}

#[test]
fn a_terminate_may_announce_an_rdmap_header_that_is_not_there() {
    let mut write = [0; 18];
    write[..2].copy_from_slice(&[0xc1, Opcode::Write.emit()]);
    let mut read = [0; 18];
    read[..2].copy_from_slice(&[0x41, Opcode::ReadRequest.emit()]);
    // The header of the WRITE is shorter than what comes with it; that of the READ is all there is.
    for (bytes, header) in [(&write, &write[..14]), (&read, &read[..])] {
        let bytes = terminate_with_all(bytes);
        let terminate = Terminate {
            fault: Fault::ProtectionInvalidStag,
            segment: Some((46, header)),
            rdmap: None,
        };
        assert_eq!(Terminate::parse(&bytes), Ok(terminate));
    }
    let whole = [&read[..], &[7; ReadRequest::LEN]].concat();
    let bytes = terminate_with_all(&whole);
    let rdmap = Terminate::parse(&bytes).unwrap().rdmap;
    assert_eq!(rdmap, Some(&[7; ReadRequest::LEN][..]));
}

#[test]
fn an_addition_may_stop_the_carry_behind_the_last_bit() {
    let request = AtomicRequest {
        operation: AtomicOperation::FetchAdd { add: 5 },
        id: 1,
        stag: 2,
        offset: 8,
    };
    let mut raw = request.emit();
    raw[28] = 0x80;
    assert_eq!(AtomicRequest::parse(&raw), Ok(request));
    for (at, bit) in [(28, 0x40), (35, 1)] {
        let mut raw = request.emit();
        raw[at] |= bit;
        let error = ParseError::AtomicOperation { code: 0 };
        assert_eq!(AtomicRequest::parse(&raw), Err(error));
    }
}

#[test]
fn a_swap_takes_place_as_a_whole() {
    let request = AtomicRequest {
        operation: AtomicOperation::CompareSwap {
            compare: 5,
            swap: 6,
        },
        id: 1,
        stag: 2,
        offset: 8,
    };
    let raw = request.emit();
    assert_eq!(AtomicRequest::parse(&raw), Ok(request));
    // The masks of what is stored, and of what is compared.
    for (at, bit) in [(28, 0x80), (35, 1), (44, 0x80), (51, 1)] {
        let mut raw = raw;
        raw[at] ^= bit;
        let error = ParseError::AtomicOperation { code: 2 };
        assert_eq!(AtomicRequest::parse(&raw), Err(error));
    }
}

#[test]
fn more_than_can_be_said_of_ird_and_ord_does_not_become_not_negotiated() {
    let enhanced = Enhanced {
        ird: 0x4000,
        ord: u16::MAX,
        ..Enhanced::default()
    };
    assert_eq!(enhanced.emit(), [0x3f, 0xfe, 0x3f, 0xfe]);
}

#[test]
fn an_fpdu_has_its_length_padding_and_crc() {
    let mut stream = Vec::new();
    let mut marking = Marking::new();
    fpdu::emit_marked(&mut marking, &[&[7; 3]], false, |piece| {
        stream.extend_from_slice(piece);
    });
    // The stream begins with a marker that points at the length behind it.
    let expected = [0, 0, 0, 0, 0, 3, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(stream, expected);
}

#[test]
fn every_fault_has_a_code_of_its_own() {
    for fault in Fault::all() {
        let (layer, kind, code) = fault.to_wire();
        assert_eq!(Fault::from_wire(layer, kind, code), fault);
        assert!(fault.layer().is_some());
    }
    let unknown = Fault::from_wire(5, 4, 3);
    assert_eq!((unknown.to_wire(), unknown.layer()), ((5, 4, 3), None));
}

#[test]
fn a_terminate_of_siw_has_its_control_field_the_other_way_round() {
    let header = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    // Of the SEND that `refuses_send.pcap` of nic/iwarp has: DDP, untagged, no buffer; M and D.
    let bytes = [&[0x21, 2, 3, 0, 0x10, 0][..], &header].concat();
    let terminate = Terminate {
        fault: Fault::UntaggedNoBuffer,
        segment: Some((0x1000, &header)),
        rdmap: None,
    };
    assert_eq!(Terminate::parse(&bytes), Ok(terminate));
    // A bit that means something is one of another implementation.
    let bytes = [&[0x12, 2, 0xc3, 0, 0x10, 0][..], &header].concat();
    assert_eq!(Terminate::parse(&bytes), Ok(terminate));
}

#[test]
fn faults_of_stags_are_about_access_whichever_layer_finds_them() {
    let about = [
        Fault::ProtectionAccess,
        Fault::ProtectionInvalidStag,
        Fault::TaggedInvalidStag,
        Fault::TaggedBounds,
    ];
    assert!(about.iter().all(|fault| fault.is_about_access()));
    let others = [
        Fault::OperationVersion,
        Fault::DdpCatastrophic,
        Fault::UntaggedNoBuffer,
        Fault::MpaCrc,
    ];
    assert!(!others.iter().any(|fault| fault.is_about_access()));
}
