//! Any bytes as a DDP segment, and as the messages that RDMAP has in one. Parsing never panics, and
//! what it understands is written back the same.

use urxe_iwarp_wire::{
    AtomicRequest, AtomicResponse, DdpHeader, ImmediateData, MAX_DDP_HEADER_LEN, MAX_TERMINATE_LEN,
    Opcode, ReadRequest, Terminate,
};

/// See the module.
pub fn run(bytes: &[u8]) {
    messages(bytes);
    let Ok(header) = DdpHeader::parse(bytes) else {
        return;
    };
    let mut raw = [0; MAX_DDP_HEADER_LEN];
    let len = header.emit(&mut raw);
    assert_eq!(DdpHeader::parse(&raw[..len]), Ok(header));
    assert_eq!(raw[1..len], bytes[1..len]);
    if let Ok(opcode) = Opcode::parse(header.control()) {
        assert_eq!(Opcode::parse(opcode.emit()), Ok(opcode));
    }
    messages(&bytes[len..]);
}

fn messages(bytes: &[u8]) {
    if let Ok(read) = ReadRequest::parse(bytes) {
        assert_eq!(read.emit(), bytes);
    }
    if let Ok(atomic) = AtomicRequest::parse(bytes) {
        assert_eq!(AtomicRequest::parse(&atomic.emit()), Ok(atomic));
    }
    if let Ok(response) = AtomicResponse::parse(bytes) {
        assert_eq!(response.emit(), bytes);
    }
    if let Ok(immediate) = ImmediateData::parse(bytes) {
        assert_eq!(ImmediateData::parse(&immediate.emit()), Ok(immediate));
    }
    if let Ok(terminate) = Terminate::parse(bytes) {
        let mut raw = [0; MAX_TERMINATE_LEN];
        let len = terminate.emit(&mut raw);
        assert_eq!(Terminate::parse(&raw[..len]), Ok(terminate));
    }
}
