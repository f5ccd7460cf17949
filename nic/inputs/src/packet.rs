//! Any bytes as a UDP payload: parsing never panics, and what it understands is written back the
//! same.

use urxe_wire::{MAX_HEADER_LEN, Packet};

/// See the module.
pub fn run(bytes: &[u8]) {
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
