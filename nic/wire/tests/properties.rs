//! Properties that hold for all headers and all bytes.

use proptest::prelude::*;
use urxe_wire::*;

fn opcodes() -> impl Strategy<Value = Opcode> {
    let all: Vec<_> = (0..=u8::MAX)
        .filter_map(|byte| Opcode::try_from(byte).ok())
        .collect();
    proptest::sample::select(all)
}

fn syndromes() -> impl Strategy<Value = Syndrome> {
    any::<u8>().prop_filter_map("reserved", |byte| Syndrome::from_code(byte).ok())
}

prop_compose! {
    fn bths()(
        opcode in opcodes(),
        (solicited, migrated, fecn, becn, ack_request) in any::<(bool, bool, bool, bool, bool)>(),
        acknowledges in any::<Option<u32>>(),
        (pkey, qpn, psn) in any::<(u16, u32, u32)>(),
    ) -> Bth {
        let acknowledges = acknowledges.map(PartialPsn::new);
        let pkey = if acknowledges.is_some() { Pkey::DEFAULT } else { Pkey(pkey) };
        Bth { opcode, solicited, migrated, pkey, fecn, becn, dest_qp: Qpn::new(qpn), ack_request, acknowledges, psn: Psn::new(psn) }
    }
}

prop_compose! {
    fn headers()(
        bth in bths(),
        syndrome in syndromes(),
        (va, swap_or_add, compare) in any::<(u64, u64, u64)>(),
        (rkey, len, qkey, number) in any::<(u32, u32, u32, u32)>(),
        immediate in any::<[u8; 4]>(),
    ) -> Header {
        let has = |extension| Extensions::of(bth.opcode).contains(extension);
        Header {
            bth,
            deth: has(Extensions::DETH).then_some(Deth { qkey, src_qp: Qpn::new(number) }),
            xrceth: has(Extensions::XRCETH).then_some(XrcEth { srqn: Srqn::new(number) }),
            feth: has(Extensions::FETH).then_some(Feth { placement: (number & 15) as u8, selectivity: (number >> 4 & 3) as u8 }),
            reth: has(Extensions::RETH).then_some(Reth { va, rkey, len }),
            atomic: has(Extensions::ATOMIC).then_some(AtomicEth { va, rkey, swap_or_add, compare }),
            aeth: has(Extensions::AETH).then_some(Aeth { syndrome, msn: number >> 8 }),
            atomic_ack: has(Extensions::ATOMIC_ACK).then_some(AtomicAckEth { original: compare }),
            immediate: has(Extensions::IMMEDIATE).then_some(Immediate(immediate)),
            ieth: has(Extensions::IETH).then_some(Ieth { rkey }),
        }
    }
}

/// Every kind of UDP payload, from noise to nearly right.
fn mostly_packets() -> impl Strategy<Value = Vec<u8>> {
    let noise = proptest::collection::vec(any::<u8>(), 0..96);
    (any::<u8>(), 0u8..4, noise).prop_map(|(opcode, pad, mut bytes)| {
        if let [first, flags, ..] = &mut bytes[..] {
            *first = opcode;
            *flags = *flags & 0xc0 | pad << 4;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn headers_survive_the_trip(header in headers(), payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let carries = header.bth.opcode.operation().is_none_or(Operation::carries_payload);
        let payload = if carries { payload } else { Vec::new() };
        let mut packet = vec![0; MAX_HEADER_LEN];
        let len = header.emit(payload.len(), &mut packet).unwrap();
        prop_assert_eq!(len, header.wire_len());
        packet.truncate(len);
        packet.extend(&payload);
        packet.resize(packet.len() + pad_len(payload.len()) + ICRC_LEN, 0);
        prop_assert_eq!(Packet::parse(&packet), Ok(Packet { header, payload: &payload }));
        let cut = matches!(Packet::parse(&packet[..len - 1]), Err(ParseError::TooShort { .. }));
        prop_assert!(cut);
    }

    #[test]
    fn parse_never_panics_on_noise(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = Packet::parse(&bytes);
    }

    #[test]
    fn parse_never_panics_and_is_sound_on_near_packets(bytes in mostly_packets()) {
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut out = [0; MAX_HEADER_LEN];
            let len = packet.header.emit(packet.payload.len(), &mut out).unwrap();
            prop_assert_eq!(len, packet.header.wire_len());
            prop_assert!(len + packet.payload.len() + ICRC_LEN <= bytes.len());
        }
    }

    #[test]
    fn emit_refuses_short_buffers_untouched(header in headers(), missing in 1usize..MAX_HEADER_LEN) {
        let needed = header.wire_len();
        let mut out = vec![0xaa; needed.saturating_sub(missing)];
        let available = out.len();
        prop_assert_eq!(header.emit(0, &mut out), Err(EmitError::BufferTooShort { needed, available }));
        prop_assert!(out.iter().all(|byte| *byte == 0xaa));
    }

    #[test]
    fn psn_distance_undoes_add(start in 0u32..Psn::COUNT, count in -0x80_0000i32..0x80_0000) {
        let start = Psn::new(start);
        let end = start.add(count.cast_unsigned());
        prop_assert_eq!(end.distance_from(start), count);
        prop_assert_eq!(end.is_after(start), count > 0);
        prop_assert_eq!(end.is_before(start), count < 0);
        prop_assert_eq!(end.sub(count.cast_unsigned()), start);
    }
}
