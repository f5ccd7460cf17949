//! A queue pair of ours, and a peer that is connected to it and means harm.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use urxe_device::{Gid, Mtu, Psn, Qp, QpType, Qpn};
use urxe_wire::icrc::Flow;
use urxe_wire::{
    AtomicEth, Bth, Deth, Header, MAX_HEADER_LEN, Opcode, Operation, Packet, ROCE_UDP_PORT, Reth,
    Syndrome, pad_len,
};

use super::{End, connect_to};

/// The peer's queue pair. Its number tells the UDP port 5025.
pub const PEER: Qpn = Qpn::new(0x3a_bcde);
pub const ACK: Option<Syndrome> = Some(Syndrome::Ack { credits: 31 });
/// That port.
pub const PEER_PORT: u16 = 5025;
/// What it sends.
pub const DATA: [u8; 16] = *b"this is an evil!";
/// What the victim's buffer holds.
pub const UNTOUCHED: u8 = 0xcc;
pub const BUFFER_BYTES: usize = 4096;
/// How long nothing has to come for nothing to be on its way.
pub const QUIET: Duration = Duration::from_millis(30);

/// A queue pair of ours, and a peer that is connected to it and means harm.
pub struct Duel {
    pub end: End,
    pub qp: Qp,
    /// The peer, as far as addresses tell.
    pub peer: UdpSocket,
    pub to: SocketAddr,
    pub expected: Psn,
}

impl Duel {
    /// `host` keeps tests that run at once apart.
    pub fn new(host: u8) -> Self {
        Self::with(host, QpType::Rc, ROCE_UDP_PORT)
    }

    /// The same with a queue pair of any type that is connected, and a peer that sends from this
    /// port and listens on it.
    pub fn with(host: u8, qp_type: QpType, port: u16) -> Self {
        let address = Ipv4Addr::new(127, 77, 6, host);
        let peer = UdpSocket::bind((address, port)).unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut end = End::new(BUFFER_BYTES);
        end.buffer.fill(UNTOUCHED);
        let qp = end.qp(qp_type);
        connect_to(&qp, Gid::from(address), PEER, Mtu::B1024);
        let to = end.udp_address(&qp);
        let expected = qp.query().unwrap().rq_psn;
        Self {
            end,
            qp,
            peer,
            to,
            expected,
        }
    }

    /// Where the peer is, if it is there.
    pub fn address(&self) -> IpAddr {
        self.peer.local_addr().unwrap().ip()
    }

    pub fn header(&self, operation: Operation) -> Header {
        header(&self.qp, operation, self.expected)
    }

    pub fn write(&self, va: u64, rkey: u32, len: usize) -> Header {
        let mut header = self.header(Operation::WriteOnly);
        header.reth = Some(Reth {
            va,
            rkey,
            len: u32::try_from(len).unwrap(),
        });
        header
    }

    /// A WRITE to the start of the buffer.
    pub fn own_write(&self, len: usize) -> Header {
        self.write(self.end.va(0), self.end.key, len)
    }

    pub fn read(&self, number: u32) -> Header {
        let mut header = self.header(Operation::ReadRequest);
        header.bth.psn = self.expected.add(number);
        header.reth = Some(self.end.reth(0, 8));
        header
    }

    pub fn fetch_add(&self, va: u64, rkey: u32) -> Header {
        let mut header = self.header(Operation::FetchAdd);
        header.atomic = Some(AtomicEth {
            va,
            rkey,
            swap_or_add: 5,
            compare: 0,
        });
        header
    }

    pub fn send(&self, header: &Header, payload: &[u8]) {
        self.send_as(&self.peer, header, payload, |_| ());
    }

    /// Sends from a socket, with `change` made to the bytes before the ICRC, which is right.
    pub fn send_as(
        &self,
        from: &UdpSocket,
        header: &Header,
        payload: &[u8],
        change: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut packet = without_icrc(header, payload);
        change(&mut packet);
        add_icrc(from.local_addr().unwrap(), self.to, &mut packet);
        from.send_to(&packet, self.to).unwrap();
    }

    /// What comes back until nothing does for a while: headers.
    pub fn answers(&self) -> Vec<Header> {
        self.answers_within(QUIET)
    }

    pub fn answers_within(&self, patience: Duration) -> Vec<Header> {
        let packets = self.packets_within(patience);
        packets.into_iter().map(|(header, _)| header).collect()
    }

    /// The same, with the lengths of their payloads.
    pub fn packets_within(&self, patience: Duration) -> Vec<(Header, usize)> {
        let mut end = Instant::now() + patience;
        let mut answers = Vec::new();
        let mut buffer = [0; 8192];
        while Instant::now() < end {
            self.end.cq.poll(0, |_| ());
            while let Ok((len, _)) = self.peer.recv_from(&mut buffer) {
                let packet = Packet::parse(&buffer[..len]).unwrap();
                answers.push((packet.header, packet.payload.len()));
                end = Instant::now() + QUIET;
            }
        }
        answers
    }

    /// Polls until a counter of the device has this value.
    pub fn wait_for_count(&self, counter: &str, value: u64) {
        let has_it = || self.end.count(counter) >= value;
        self.end.poll_until(counter, has_it);
    }

    /// The last word of the victim, which says some.
    pub fn verdict(&self) -> Option<Syndrome> {
        let answers = self.answers_within(Duration::from_secs(10));
        answers.last()?.aeth.map(|aeth| aeth.syndrome)
    }

    pub fn is_untouched(&self) -> bool {
        self.end.buffer.iter().all(|byte| *byte == UNTOUCHED)
    }
}

/// A packet that asks for an acknowledgement, of the transport of the queue pair that it is for.
pub fn header(qp: &Qp, operation: Operation, psn: Psn) -> Header {
    let transport = qp.init().qp_type.transport();
    let mut bth = Bth::new(Opcode::new(transport, operation), qp.number(), psn);
    bth.ack_request = true;
    Header::new(bth)
}

/// A datagram of the peer's queue pair.
pub fn datagram(qp: &Qp, qkey: u32) -> Header {
    let mut header = header(qp, Operation::SendOnly, Psn::new(5));
    header.bth.ack_request = false;
    header.deth = Some(Deth { qkey, src_qp: PEER });
    header
}

/// A RoCEv2 packet with a right ICRC, as a socket at `from` would send it.
pub fn packet(from: SocketAddr, to: SocketAddr, header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = without_icrc(header, payload);
    add_icrc(from, to, &mut packet);
    packet
}

pub fn without_icrc(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; MAX_HEADER_LEN];
    let len = header.emit(payload.len(), &mut packet).unwrap();
    packet.truncate(len);
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + pad_len(payload.len()), 0);
    packet
}

fn add_icrc(from: SocketAddr, to: SocketAddr, packet: &mut Vec<u8>) {
    let flow = Flow::new(from, to).unwrap();
    let icrc = flow.start(packet.len() + 4, 0, packet).finish();
    packet.extend_from_slice(&icrc);
}
