//! FPDUs by hand, and what a queue pair answers to them.

use urxe_iwarp_wire::{
    DdpHeader, Fault, MAX_DDP_HEADER_LEN, Opcode, Queue, ReadRequest, Tagged, Terminate, Untagged,
    fpdu,
};

use super::{Pair, TERMS};

/// An FPDU with this header and payload.
pub fn frame(header: &DdpHeader, payload: &[u8]) -> Vec<u8> {
    let mut raw = [0; MAX_DDP_HEADER_LEN];
    let len = header.emit(&mut raw);
    bare(&[&raw[..len], payload].concat())
}

/// An FPDU with this ULPDU.
pub fn bare(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    fpdu::emit(&[ulpdu], TERMS.has_crc, |piece| {
        out.extend_from_slice(piece)
    });
    out
}

pub fn write(stag: u32, offset: u64) -> Tagged {
    Tagged {
        is_last: true,
        control: Opcode::Write.emit(),
        stag,
        offset,
    }
}

pub fn untagged(opcode: Opcode, queue: Queue, msn: u32) -> Untagged {
    Untagged {
        is_last: true,
        control: opcode.emit(),
        invalidate: 0,
        queue: queue as u32,
        msn,
        offset: 0,
    }
}

pub fn read(source_stag: u32, source_offset: u64, len: u32) -> Vec<u8> {
    let header = DdpHeader::Untagged(untagged(Opcode::ReadRequest, Queue::Request, 1));
    let request = ReadRequest {
        sink_stag: 0x77,
        sink_offset: 0x88,
        len,
        source_stag,
        source_offset,
    };
    frame(&header, &request.emit())
}

/// The FPDUs that a host wrote: their ULPDUs, with the CRCs checked.
pub fn ulpdus(stream: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut all) = (stream, Vec::new());
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let (now, later) = rest.split_at(fpdu::len(len));
        assert_eq!(now, bare(&now[2..2 + len]), "padding or CRC");
        all.push(&now[2..2 + len]);
        rest = later;
    }
    all
}

/// What the TERMINATE says that host 1 sent last: the fault, and which headers come with it.
pub fn terminate_of(pair: &Pair) -> Option<(Fault, bool, bool)> {
    terminate_by(pair, 1)
}

/// The same of either host.
pub fn terminate_by(pair: &Pair, host: usize) -> Option<(Fault, bool, bool)> {
    let all = ulpdus(&pair.written[host]);
    let last = all.last()?;
    let header = DdpHeader::parse(last).unwrap();
    if Opcode::parse(header.control()) != Ok(Opcode::Terminate) {
        return None;
    }
    let terminate = Terminate::parse(&last[header.buffer_len()..]).unwrap();
    Some((
        terminate.fault,
        terminate.segment.is_some(),
        terminate.rdmap.is_some(),
    ))
}
