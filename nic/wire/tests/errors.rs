//! What is wrong with a packet is said precisely.

use urxe_wire::*;

fn packet(opcode: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = opcode;
    bytes
}

#[test]
fn cut_packets_name_the_part_that_is_missing() {
    let short = |part, needed, available| {
        Err(ParseError::TooShort {
            part,
            needed,
            available,
        })
    };
    assert_eq!(Packet::parse(&[]), short(Part::Bth, 12, 0));
    assert_eq!(Packet::parse(&packet(0x04, 11)), short(Part::Bth, 12, 11));
    assert_eq!(Packet::parse(&packet(0x04, 12)), short(Part::Icrc, 16, 12));
    assert_eq!(Packet::parse(&packet(0x0b, 24)), short(Part::Reth, 28, 24));
    assert_eq!(
        Packet::parse(&packet(0x0b, 28)),
        short(Part::Immediate, 32, 28)
    );
    assert_eq!(
        Packet::parse(&packet(0xb3, 16)),
        short(Part::AtomicEth, 44, 16)
    );
    assert_eq!(
        Packet::parse(&packet(0x0b, 28)).unwrap_err().to_string(),
        "packet ends in its immediate data: 28 bytes, needs at least 32"
    );
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    let mut versioned = packet(0x04, 16);
    versioned[1] = 0x01;
    assert_eq!(
        Packet::parse(&versioned),
        Err(ParseError::TransportVersion { version: 1 })
    );

    let mut padded = packet(0x04, 16);
    padded[1] = 0x30;
    assert_eq!(
        Packet::parse(&padded),
        Err(ParseError::PadExceedsPayload {
            pad: 3,
            available: 0
        })
    );

    assert_eq!(
        Packet::parse(&packet(0x04, 17)),
        Err(ParseError::NotWords { len: 17 })
    );

    let mut syndrome = packet(0x11, 20);
    syndrome[12] = 0x45;
    assert_eq!(
        Packet::parse(&syndrome),
        Err(ParseError::ReservedSyndrome { syndrome: 0x45 })
    );

    let surplus = ParseError::UnexpectedPayload {
        operation: Operation::Acknowledge,
        len: 4,
    };
    assert_eq!(Packet::parse(&packet(0x11, 24)), Err(surplus));

    // A NAK for a PSN sequence error may tell what has arrived of what follows; no other, and
    // nothing else.
    let mut told = packet(0x11, 20 + HELD_LEN);
    assert!(matches!(
        Packet::parse(&told),
        Err(ParseError::UnexpectedPayload { .. })
    ));
    told[12] = 0x60;
    assert_eq!(Packet::parse(&told).unwrap().payload.len(), HELD_LEN);
    told.truncate(24);
    assert!(matches!(
        Packet::parse(&told),
        Err(ParseError::UnexpectedPayload { .. })
    ));

    let opcode = OpcodeError::NotForTransport {
        transport: Transport::Ud,
        operation: Operation::WriteOnly,
    };
    assert_eq!(
        Packet::parse(&packet(0x6a, 16)),
        Err(ParseError::Opcode(opcode))
    );
    assert_eq!(
        opcode.to_string(),
        "the Ud transport service does not define WriteOnly"
    );
}

#[test]
fn headers_that_do_not_fit_their_opcode_do_not_emit() {
    let bth = |transport, operation| {
        Bth::new(Opcode::new(transport, operation), Qpn::new(2), Psn::new(3))
    };
    let mut out = [0; MAX_HEADER_LEN];
    let undefined = Header::new(bth(Transport::Uc, Operation::ReadRequest));
    assert!(matches!(
        undefined.emit(0, &mut out),
        Err(EmitError::UndefinedOpcode { .. })
    ));
    let missing = Header::new(bth(Transport::Rc, Operation::WriteOnly));
    assert_eq!(
        missing.emit(0, &mut out),
        Err(EmitError::WrongExtensions { opcode: 0x0a })
    );
    let surplus = Header {
        ieth: Some(Ieth { rkey: 1 }),
        ..Header::new(bth(Transport::Rc, Operation::SendOnly))
    };
    assert_eq!(
        surplus.emit(0, &mut out),
        Err(EmitError::WrongExtensions { opcode: 0x04 })
    );
    assert_eq!(out, [0; MAX_HEADER_LEN]);
}

#[test]
fn a_congestion_notification_is_read_and_written() {
    let header = Header::new(Bth {
        becn: true,
        ..Bth::new(Opcode::CNP, Qpn::new(0x1234), Psn::new(0))
    });
    let mut bytes = vec![0; Bth::LEN + CNP_RESERVED_LEN + ICRC_LEN];
    assert_eq!(header.emit(CNP_RESERVED_LEN, &mut bytes), Ok(Bth::LEN));
    assert_eq!(
        bytes[..12],
        [0x81, 0, 0xff, 0xff, 0x40, 0, 0x12, 0x34, 0, 0, 0, 0]
    );
    assert_eq!(
        Packet::parse(&bytes),
        Ok(Packet {
            header,
            payload: &[0; CNP_RESERVED_LEN]
        })
    );
}
