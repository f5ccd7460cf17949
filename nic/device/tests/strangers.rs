//! Peers that are not of our own kind: they listen on port 4791 whatever their queue pairs'
//! numbers, and send from a port of their choice.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use support::duel::{PEER as NUMBER, datagram, header, packet, without_icrc};
use support::{
    End, connect_to, datagram_to, in_namespace, port_of, post, post_recv, post_to_target,
};
use urxe_device::{Gid, Mtu, Psn, QpType, Qpn, SendOp, WcStatus};
use urxe_wire::icrc::Flow;
use urxe_wire::{Aeth, Bth, Header, Opcode, Operation, Packet, ROCE_UDP_PORT, Syndrome, Transport};

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

    /// The next packet, which it would not take in if its ICRC were wrong.
    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; 8192];
        let (len, from) = self.listener.recv_from(&mut buffer).expect("a packet");
        buffer.truncate(len);
        let flow = Flow::new(from, self.listener.local_addr().unwrap()).unwrap();
        assert!(
            flow.verify(&buffer, 0).is_good(),
            "ICRC of what {from} sent"
        );
        (from, buffer)
    }

    fn send(&self, to: SocketAddr, header: &Header, payload: &[u8]) {
        let packet = packet(self.sender.local_addr().unwrap(), to, header, payload);
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

/// A thread that blocks runs the engine, but sleeps: it does not know of what others post
/// meanwhile.
#[test]
fn what_is_lost_is_sent_again_while_another_thread_blocks() {
    let address = Ipv4Addr::new(127, 77, 0, 6);
    let stranger = Stranger::new(address);
    let mut a = End::new(4096);
    let channel = a.add_channel();
    let qp = a.qp(QpType::Rc);
    connect_to(&qp, Gid::from(address), Qpn::new(5), Mtu::B1024);
    a.cq.arm(false);
    // Not scoped: where it is never woken, the test still ends.
    let blocked = std::thread::spawn(move || channel.wait().unwrap());
    // Until it sleeps, and the background thread has found that out.
    std::thread::sleep(Duration::from_millis(100));
    let sge = a.sge(0, 8);
    post(&qp, 1, SendOp::Send, &[sge]);
    let psn = |bytes: &[u8]| Packet::parse(bytes).unwrap().header.bth.psn;
    let (_, lost) = stranger.receive();
    let (from, again) = stranger.receive();
    assert_eq!(psn(&lost), psn(&again));
    stranger.acknowledge(from, qp.number(), psn(&again));
    assert_eq!(blocked.join().unwrap(), 42);
    assert_eq!(a.wait(&[], 1)[0].status, WcStatus::Success);
}

#[test]
fn a_connection_finds_the_port_on_which_its_peer_answers() {
    let address = Ipv4Addr::new(127, 77, 0, 1);
    let stranger = Stranger::new(address);
    // The port that the number tells, where no socket would listen.
    let other = UdpSocket::bind((address, port_of(NUMBER))).unwrap();
    other.set_nonblocking(true).unwrap();
    let a = End::new(4096);
    let qp = a.qp(QpType::Rc);
    connect_to(&qp, Gid::from(address), NUMBER, Mtu::B1024);
    let mut acknowledged = None;
    for turn in 0..3 {
        post(&qp, turn, SendOp::Send, &[a.sge(0, 8)]);
        // Nothing else makes the first packet be sent again.
        let (from, bytes) = std::thread::scope(|scope| {
            let heard = scope.spawn(|| {
                // A processor that was late to acknowledge may have let the last one be sent twice.
                let is_new = |bytes: &[u8]| {
                    let psn = Packet::parse(bytes).unwrap().header.bth.psn;
                    Some(psn) != acknowledged
                };
                let mut got = stranger.receive();
                while !is_new(&got.1) {
                    got = stranger.receive();
                }
                got
            });
            while !heard.is_finished() {
                a.cq.poll(0, |_| ());
                std::thread::sleep(Duration::from_millis(1));
            }
            heard.join().unwrap()
        });
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.header.bth.dest_qp, NUMBER);
        stranger.acknowledge(from, qp.number(), packet.header.bth.psn);
        acknowledged = Some(packet.header.bth.psn);
        assert_eq!(a.wait(&[], 1)[0].status, WcStatus::Success);
        let tried = std::iter::from_fn(|| other.recv(&mut [0; 100]).ok()).count();
        assert_eq!(tried > 0, turn == 0, "{tried} packets in turn {turn}");
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
    stranger.send(a.udp_address(&qp), &datagram(&qp, QKEY), b"12345678");
    let got = a.wait(&[], 1)[0];
    assert_eq!((got.source_qp, got.byte_len), (Some(NUMBER), 48));
    let target = datagram_to(a.address_of(Gid::from(address), 0), NUMBER, QKEY);
    post_to_target(&qp, 2, SendOp::Send, &[a.sge(40, 8)], target);
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
        let psn = connected.query().unwrap().rq_psn;
        let mut header = header(&connected, Operation::SendOnly, psn);
        stranger.send(to, &header, b"12345678");
        assert_eq!(second.wait(&[], 1)[0].byte_len, 8);
        let (_, bytes) = stranger.receive();
        let answer = Packet::parse(&bytes).unwrap();
        assert_eq!(
            (answer.header.bth.dest_qp, answer.header.bth.psn),
            (NUMBER, psn)
        );
        // One of our own kind comes directly once it has been answered, from the same port: its
        // ICRCs are others then.
        let direct = SocketAddr::new(to.ip(), to.port() + 1);
        for (number, to) in (1..).zip([direct, to, direct]) {
            post_recv(&connected, 1, &[second.sge(0, 100)]);
            header.bth.psn = psn.add(number);
            stranger.send(to, &header, b"12345678");
            assert_eq!(second.wait(&[], 1)[0].byte_len, 8, "packet {number}");
        }

        post_recv(&datagrams, 2, &[second.sge(200, 100)]);
        stranger.send(to, &datagram(&datagrams, QKEY), b"12345678");
        let got = second.wait(&[], 1)[0];
        assert_eq!((got.source_qp, got.byte_len), (Some(NUMBER), 48));
        assert_eq!(second.buffer[200 + 40..][..8], *b"12345678");
    });
}

/// The word of a queue pair that is gone: the receiver's number, its own, and a PSN. See
/// `farewell.rs`.
fn farewell(datagram: &[u8]) -> Option<[u32; 3]> {
    let mad = urxe_device::gsi_payload(datagram)?;
    let word = |at: usize| u32::from_be_bytes(*mad[40 + at..].first_chunk().unwrap());
    Some([word(0), word(4), word(8)])
}

#[test]
fn who_missed_the_word_that_a_queue_pair_is_gone_is_told_again() {
    const SLOT: u16 = 0x2c;
    let address = Ipv4Addr::new(127, 77, 0, 4);
    // One of our own kind: it sends from the port that its number tells.
    let peer = Qpn::new(u32::from(SLOT) << 14 | 5);
    let listener = UdpSocket::bind((address, ROCE_UDP_PORT + SLOT)).unwrap();
    let sender = listener.try_clone().unwrap();
    let stranger = Stranger { listener, sender };
    let within = |ms| {
        stranger
            .listener
            .set_read_timeout(Some(Duration::from_millis(ms)))
    };
    within(5000).unwrap();
    let a = End::new(4096);
    let (qp, other) = (a.qp(QpType::Rc), a.qp(QpType::Rc));
    connect_to(&qp, Gid::from(address), peer, Mtu::B1024);
    connect_to(&other, Gid::from(address), peer, Mtu::B1024);
    let gone = qp.number();
    let to = a.udp_address(&qp);
    post_recv(&qp, 1, &[a.sge(0, 100)]);
    let psn = qp.query().unwrap().rq_psn;
    let first = header(&qp, Operation::SendOnly, psn);
    let request = |psn: Psn| {
        let mut header = first;
        header.bth.psn = psn;
        header
    };
    stranger.send(to, &request(psn), b"12345678");
    a.wait(&[], 1);
    let (_, bytes) = stranger.receive();
    assert_eq!(farewell(&bytes), None, "an acknowledgement");
    drop(qp);
    let (_, bytes) = stranger.receive();
    let said = farewell(&bytes).expect("the word");
    assert_eq!(said, [peer.get(), gone.get(), psn.add(1).get()]);

    // That one was lost, say: so the peer sends again.
    let asks = |psn| {
        std::thread::sleep(Duration::from_millis(2));
        stranger.send(to, &request(psn), b"12345678");
        a.wait_for_nothing();
    };
    for count in 5..7 {
        let psn = psn.add(count);
        asks(psn);
        let (_, bytes) = stranger.receive();
        assert_eq!(farewell(&bytes), Some([peer.get(), gone.get(), psn.get()]));
    }
    // Another host is not told, nor is one that forges the address but not the ICRC.
    let elsewhere = Stranger {
        listener: stranger.listener.try_clone().unwrap(),
        sender: UdpSocket::bind((address, 0)).unwrap(),
    };
    elsewhere.send(to, &request(psn), b"12345678");
    let damaged = bytes_of(&request(psn));
    stranger.sender.send_to(&damaged, to).unwrap();
    a.wait_for_nothing();
    within(50).unwrap();
    assert!(stranger.listener.recv_from(&mut [0; 8192]).is_err());
}

/// A packet whose ICRC is wrong.
fn bytes_of(header: &Header) -> Vec<u8> {
    let mut packet = without_icrc(header, &[7; 8]);
    packet.extend_from_slice(&[7; 4]);
    packet
}

/// Linux rxe takes an acknowledgement for the end of a READ, whether its last response came or not.
#[test]
fn a_read_is_acknowledged_by_its_response_and_nothing_else() {
    let address = Ipv4Addr::new(127, 77, 0, 5);
    let stranger = Stranger::new(address);
    let a = End::new(4096);
    let qp = a.qp(QpType::Rc);
    connect_to(&qp, Gid::from(address), NUMBER, Mtu::B1024);
    let mut header = header(&qp, Operation::ReadRequest, qp.query().unwrap().rq_psn);
    header.reth = Some(a.reth(0, 2048));
    stranger.send(a.udp_address(&qp), &header, &[]);
    a.wait_for_nothing();
    let operations = [(); 2].map(|()| {
        let (_, bytes) = stranger.receive();
        let opcode = Packet::parse(&bytes).unwrap().header.bth.opcode;
        opcode.operation().unwrap()
    });
    use Operation::{ReadResponseFirst, ReadResponseLast};
    assert_eq!(operations, [ReadResponseFirst, ReadResponseLast]);
    let quiet = Some(Duration::from_millis(50));
    stranger.listener.set_read_timeout(quiet).unwrap();
    assert!(stranger.listener.recv_from(&mut [0; 8192]).is_err());
}
