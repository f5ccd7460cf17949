//! Any bytes as a UDP payload, and as a packet of RoCE v1 behind its Ethernet header: parsing never
//! panics, and what it understands is written back the same.

use urxe_wire::icrc::Flow;
use urxe_wire::{Grh, MAX_HEADER_LEN, Packet};

/// See the module.
pub fn run(bytes: &[u8]) {
    if let Some((raw, payload)) = bytes.split_first_chunk() {
        global_route(raw, payload);
    }
    transport(bytes);
}

fn global_route(raw: &[u8; Grh::LEN], payload: &[u8]) {
    let Some(header) = Grh::parse(raw) else {
        return;
    };
    assert_eq!(header.emit(), *raw);
    let flow = Flow::v1(header.source, header.destination);
    // Bytes with the right sum are found right, and only those.
    let sum = flow.start(payload.len() + 4, 0, payload).finish();
    let whole = [payload, &sum].concat();
    assert!(flow.verify(&whole, 0).is_good());
    let _ = flow.verify(payload, 0);
    transport(payload);
}

fn transport(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    let mut header = [0; MAX_HEADER_LEN];
    let len = packet
        .header
        .emit(packet.payload.len(), &mut header)
        .expect("it was just parsed");
    let again = [&header[..len], packet.payload].concat();
    let pad = urxe_wire::pad_len(packet.payload.len());
    let whole = [&again[..], &[0; 3][..pad], &[0; 4][..]].concat();
    assert_eq!(Packet::parse(&whole).expect("it was just written"), packet);
}
