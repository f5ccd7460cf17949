//! Packets of the general services queue pair (QP 1): unreliable datagrams with a management
//! datagram.

use std::net::SocketAddr;

use urxe_cm::MAD_LEN;
use urxe_wire::icrc::Flow;
use urxe_wire::{
    Bth, CM_QKEY, Deth, Header, ICRC_LEN, Opcode, Operation, Packet, Psn, Qpn, Transport,
};

const HEADER_LEN: usize = Bth::LEN + Deth::LEN;
const PACKET_LEN: usize = HEADER_LEN + MAD_LEN + ICRC_LEN;

const OPCODE: Opcode = Opcode::Queue {
    transport: Transport::Ud,
    operation: Operation::SendOnly,
};

/// The packet with `mad`, from one socket to another, as Linux rxe writes it (it asks for an
/// acknowledgement that datagrams do not have). `None` if the addresses are of two families.
pub(super) fn packet(
    from: SocketAddr,
    to: SocketAddr,
    psn: u32,
    mad: &[u8; MAD_LEN],
) -> Option<[u8; PACKET_LEN]> {
    let mut header = Header::new(Bth {
        ack_request: true,
        ..Bth::new(OPCODE, Qpn::GSI, Psn::new(psn))
    });
    header.deth = Some(Deth {
        qkey: CM_QKEY,
        src_qp: Qpn::GSI,
    });
    let mut packet = [0; PACKET_LEN];
    header.emit(MAD_LEN, &mut packet).ok()?;
    packet[HEADER_LEN..HEADER_LEN + MAD_LEN].copy_from_slice(mad);
    let (covered, icrc) = packet.split_at_mut(HEADER_LEN + MAD_LEN);
    // A datagram that leaves alone has the IPv4 ID 0.
    let bytes = Flow::new(from, to)?.start(PACKET_LEN, 0, covered).finish();
    icrc.copy_from_slice(&bytes);
    Some(packet)
}

/// The management datagram in a packet for QP 1, if it may be believed.
pub(super) fn mad<'a>(
    from: SocketAddr,
    to: SocketAddr,
    ip_id: u16,
    datagram: &[u8],
    packet: &Packet<'a>,
) -> Option<&'a [u8; MAD_LEN]> {
    let header = &packet.header;
    let is_ours = header.bth.opcode == OPCODE
        && header.bth.dest_qp == Qpn::GSI
        && header.deth.is_some_and(|deth| deth.qkey == CM_QKEY)
        && Flow::new(from, to)?.verify(datagram, ip_id).is_good();
    packet.payload.try_into().ok().filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_not() {
        let from: SocketAddr = "10.0.0.1:4792".parse().unwrap();
        let to: SocketAddr = "10.0.0.2:4791".parse().unwrap();
        let raw = packet(from, to, 7, &[0x5a; MAD_LEN]).unwrap();
        let parsed = Packet::parse(&raw).unwrap();
        assert_eq!(mad(from, to, 0, &raw, &parsed), Some(&[0x5a; MAD_LEN]));
        assert_eq!(mad(to, from, 0, &raw, &parsed), None, "another flow");
        let mut other = raw;
        other[100] ^= 1;
        let parsed = Packet::parse(&other).unwrap();
        assert_eq!(mad(from, to, 0, &other, &parsed), None, "a wrong ICRC");
        let mut other = raw;
        other[15] ^= 1;
        let parsed = Packet::parse(&other).unwrap();
        assert_eq!(mad(from, to, 0, &other, &parsed), None, "a wrong Q_Key");
    }
}
