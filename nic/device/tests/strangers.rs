//! Peers that are not of our own kind: they listen on port 4791 whatever their queue pairs' numbers, and
//! send from a port of their choice.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use support::{End, connect_to, in_namespace, post, post_recv};
use urxe_device::{Gid, Mtu, Psn, QpType, Qpn, SendOp, SendTarget, WcStatus};
use urxe_wire::icrc::Flow;
use urxe_wire::{
    Aeth, Bth, Deth, Header, MAX_HEADER_LEN, Opcode, Operation, Packet, ROCE_UDP_PORT, Syndrome,
    Transport,
};

/// A number whose upper bits would tell another port.
const NUMBER: Qpn = Qpn::new(0x3a_bcde);

struct Stranger {
    /// Where it listens.
    listener: UdpSocket,
    /// Where it sends from.
    sender: UdpSocket,
}

impl Stranger {
    fn new(address: Ipv4Addr) -> Self {
        let bind = |port| UdpSocket::bind((address, port)).unwrap();
        let (listener, sender) = (bind(ROCE_UDP_PORT), bind(0));
        listener
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        Self { listener, sender }
    }

    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; 8192];
        let (len, from) = self.listener.recv_from(&mut buffer).expect("a packet");
        buffer.truncate(len);
        (from, buffer)
    }

    fn send(&self, to: SocketAddr, header: &Header, payload: &[u8]) {
        let mut packet = vec![0; MAX_HEADER_LEN];
        let len = header.emit(payload.len(), &mut packet).unwrap();
        packet.truncate(len);
        packet.extend_from_slice(payload);
        assert_eq!(payload.len() % 4, 0, "no padding here");
        let flow = Flow::new(self.sender.local_addr().unwrap(), to).unwrap();
        let icrc = flow.start(packet.len() + 4, 0, &packet).finish();
        packet.extend_from_slice(&icrc);
        self.sender.send_to(&packet, to).unwrap();
    }

    /// Acknowledges a request.
    fn acknowledge(&self, to: SocketAddr, qp: Qpn, psn: Psn) {
        let opcode = Opcode::new(Transport::Rc, Operation::Acknowledge);
        let mut header = Header::new(Bth::new(opcode, qp, psn));
        header.aeth = Some(Aeth {
            syndrome: Syndrome::Ack { credits: 31 },
            msn: 1,
        });
        self.send(to, &header, &[]);
    }
}

#[test]
fn a_connection_finds_the_port_on_which_its_peer_answers() {
    let address = Ipv4Addr::new(127, 77, 0, 1);
    let stranger = Stranger::new(address);
    let a = End::new(4096);
    let qp = a.qp(QpType::Rc);
    connect_to(&qp, Gid::from(address), NUMBER, Mtu::B1024);
    for turn in 0..3 {
        let start = Instant::now();
        post(
            &qp,
            turn,
            SendOp::Send,
            &[a.sge(0, 8)],
            SendTarget::Connection,
        );
        // Nobody else makes the first packet be sent again.
        let (from, bytes) = std::thread::scope(|scope| {
            let heard = scope.spawn(|| stranger.receive());
            while !heard.is_finished() {
                a.cq.poll(0, |_| ());
                std::thread::sleep(Duration::from_millis(1));
            }
            heard.join().unwrap()
        });
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.header.bth.dest_qp, NUMBER);
        stranger.acknowledge(from, qp.number(), packet.header.bth.psn);
        assert_eq!(a.wait(&[], 1)[0].status, WcStatus::Success);
        let took = start.elapsed();
        assert!(turn == 0 || took < Duration::from_millis(15), "{took:?}");
    }
}

#[test]
fn a_datagram_of_a_stranger_is_answered_at_port_4791() {
    const QKEY: u32 = 77;
    let address = Ipv4Addr::new(127, 77, 0, 2);
    let stranger = Stranger::new(address);
    let a = End::new(4096);
    let qp = a.datagrams(QKEY);
    post_recv(&qp, 1, &[a.sge(0, 100)]);
    let opcode = Opcode::new(Transport::Ud, Operation::SendOnly);
    let mut header = Header::new(Bth::new(opcode, qp.number(), Psn::new(5)));
    header.deth = Some(Deth {
        qkey: QKEY,
        src_qp: NUMBER,
    });
    let gid = a.nic.gids()[0].gid;
    let slot = u16::try_from(qp.number().get() >> 14).unwrap();
    let to = SocketAddr::new(gid.to_ip(), ROCE_UDP_PORT + slot);
    stranger.send(to, &header, b"12345678");
    let got = a.wait(&[], 1)[0];
    assert_eq!((got.source_qp, got.byte_len), (Some(NUMBER), 48));
    let target = SendTarget::Datagram {
        address: a.address_of(Gid::from(address), 0),
        qp: NUMBER,
        qkey: QKEY,
    };
    post(&qp, 2, SendOp::Send, &[a.sge(40, 8)], target);
    let (_, bytes) = stranger.receive();
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(
        (packet.header.bth.dest_qp, packet.payload),
        (NUMBER, &b"12345678"[..])
    );
}

/// All that a stranger sends comes to port 4791, which the first opened device of a host has.
#[test]
fn what_a_stranger_sends_reaches_all_devices_of_a_host() {
    in_namespace(&["link set lo up"], || {
        const QKEY: u32 = 77;
        let address = Ipv4Addr::new(127, 77, 0, 3);
        let first = End::new(4096);
        let holder = first.qp(QpType::Rc);
        let second = End::new(4096);
        let (connected, datagrams) = (second.qp(QpType::Rc), second.datagrams(QKEY));
        assert_eq!(holder.number().get() >> 14, 0);
        assert_eq!(connected.number().get() >> 14, 1);
        // On the second's port 4791, which the first has: on another address, then.
        let stranger = Stranger::new(address);
        let to = SocketAddr::new(second.nic.gids()[0].gid.to_ip(), ROCE_UDP_PORT);

        connect_to(&connected, Gid::from(address), NUMBER, Mtu::B1024);
        post_recv(&connected, 1, &[second.sge(0, 100)]);
        let opcode = Opcode::new(Transport::Rc, Operation::SendOnly);
        let psn = connected.query().unwrap().rq_psn;
        let mut bth = Bth::new(opcode, connected.number(), psn);
        bth.ack_request = true;
        stranger.send(to, &Header::new(bth), b"12345678");
        assert_eq!(second.wait(&[], 1)[0].byte_len, 8);
        let (_, bytes) = stranger.receive();
        let answer = Packet::parse(&bytes).unwrap();
        assert_eq!(
            (answer.header.bth.dest_qp, answer.header.bth.psn),
            (NUMBER, psn)
        );

        post_recv(&datagrams, 2, &[second.sge(200, 100)]);
        let opcode = Opcode::new(Transport::Ud, Operation::SendOnly);
        let mut header = Header::new(Bth::new(opcode, datagrams.number(), Psn::new(5)));
        header.deth = Some(Deth {
            qkey: QKEY,
            src_qp: NUMBER,
        });
        stranger.send(to, &header, b"12345678");
        let got = second.wait(&[], 1)[0];
        assert_eq!((got.source_qp, got.byte_len), (Some(NUMBER), 48));
        assert_eq!(second.buffer[200 + 40..][..8], *b"12345678");
    });
}
