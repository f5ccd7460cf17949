//! Damage to packets: by accident (the ICRC tells), and on purpose (it does not).

use alloc::vec::Vec;

use urxe_wire::icrc::Flow;
use urxe_wire::{
    AtomicEth, Bth, Extensions, Header, ICRC_LEN, MAX_HEADER_LEN, Opcode, Operation, Packet, Reth,
    pad_len,
};

use crate::random::Random;

/// Flips one to eight bits.
pub(crate) fn corrupt(udp_payload: &mut [u8], random: &mut Random) {
    for _ in 0..random.between(1, 8) {
        let at = random.index(udp_payload.len());
        if let Some(byte) = udp_payload.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
    }
}

/// Changes something about a packet that its receiver will believe. A packet that cannot be changed
/// this way stays as it is.
pub(crate) fn forge(udp_payload: &mut Vec<u8>, flow: &Flow, random: &mut Random) {
    let Ok(packet) = Packet::parse(udp_payload) else {
        return;
    };
    let mut header = packet.header;
    let mut payload = packet.payload.to_vec();
    match random.below(6) {
        0 => header.bth.psn = header.bth.psn.add(small_or_any(random)),
        1 => header = with_operation(header.bth, random),
        2 => {
            let len = random.index(2 * payload.len() + 2);
            payload.resize(len, 0x5a);
        }
        3 => change_target(&mut header, random),
        4 => header.bth.ack_request ^= true,
        _ => {
            if let Some(aeth) = &mut header.aeth {
                aeth.syndrome = any_syndrome(random);
            }
        }
    }
    if let Some(forged) = assemble(&header, &payload, flow) {
        *udp_payload = forged;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "any 32 bits will do")]
fn small_or_any(random: &mut Random) -> u32 {
    match random.below(3) {
        0 => 1 + random.below(8) as u32,
        1 => 0u32.wrapping_sub(1 + random.below(8) as u32),
        _ => random.bits() as u32,
    }
}

fn with_operation(bth: Bth, random: &mut Random) -> Header {
    let transport = bth.opcode.transport().unwrap_or(urxe_wire::Transport::Rc);
    let operation = Operation::ALL[random.index(Operation::ALL.len())];
    let mut header = Header::new(Bth {
        opcode: Opcode::new(transport, operation),
        ..bth
    });
    let wanted = Extensions::of(header.bth.opcode);
    let (va, number) = (random.bits(), random.bits());
    let rkey = small_or_any(random);
    if wanted.contains(Extensions::FETH) {
        header.feth = Some(urxe_wire::Feth::parse(&rkey.to_be_bytes()));
    }
    if wanted.contains(Extensions::RETH) {
        header.reth = Some(Reth {
            va,
            rkey,
            len: small_or_any(random),
        });
    }
    if wanted.contains(Extensions::ATOMIC) {
        header.atomic = Some(AtomicEth {
            va,
            rkey,
            swap_or_add: number,
            compare: number,
        });
    }
    if wanted.contains(Extensions::AETH) {
        header.aeth = Some(urxe_wire::Aeth {
            syndrome: any_syndrome(random),
            msn: rkey,
        });
    }
    if wanted.contains(Extensions::ATOMIC_ACK) {
        header.atomic_ack = Some(urxe_wire::AtomicAckEth { original: number });
    }
    if wanted.contains(Extensions::IMMEDIATE) {
        header.immediate = Some(urxe_wire::Immediate(rkey.to_be_bytes()));
    }
    if wanted.contains(Extensions::IETH) {
        header.ieth = Some(urxe_wire::Ieth { rkey });
    }
    header
}

fn change_target(header: &mut Header, random: &mut Random) {
    let Some(reth) = &mut header.reth else { return };
    match random.below(3) {
        0 => reth.va = reth.va.wrapping_add(u64::from(small_or_any(random))),
        1 => reth.rkey = reth.rkey.wrapping_add(small_or_any(random)),
        _ => reth.len = reth.len.wrapping_add(small_or_any(random)),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "any 8 bits will do")]
fn any_syndrome(random: &mut Random) -> urxe_wire::Syndrome {
    loop {
        if let Ok(syndrome) = urxe_wire::Syndrome::from_code(random.bits() as u8) {
            return syndrome;
        }
    }
}

/// The UDP payload of a packet: headers, payload, padding, ICRC for the IPv4 ID 0.
pub(crate) fn assemble(header: &Header, payload: &[u8], flow: &Flow) -> Option<Vec<u8>> {
    let mut packet = Vec::with_capacity(MAX_HEADER_LEN + payload.len() + 8);
    packet.resize(MAX_HEADER_LEN, 0);
    let header_len = header.emit(payload.len(), &mut packet).ok()?;
    packet.truncate(header_len);
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + pad_len(payload.len()), 0);
    let icrc = flow.start(packet.len() + ICRC_LEN, 0, &packet).finish();
    packet.extend_from_slice(&icrc);
    Some(packet)
}
