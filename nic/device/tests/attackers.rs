//! Attackers of each kind that docs/security.md thinks of, at a live queue pair: by raw frames on
//! its link, and by sockets on its host. Those on the peer's host are in `foreign_ports.rs`, and a
//! peer that lies in `hostile.rs`.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use support::duel::{BUFFER_BYTES, DATA, PEER, PEER_PORT, UNTOUCHED, datagram, header, packet};
use support::wire_end::WireEnd;
use support::{
    End, connect_with, in_namespace, limit_descriptors, on_a_link, peer_attributes, port_of,
    post_recv,
};
use urxe_device::{Attributes, Gid, Mtu, Psn, Qp, QpType};
use urxe_wire::{Header, Operation, ROCE_UDP_PORT};

const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const OTHER_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);
const QKEY: u32 = 77;
/// UDP ports that devices may have, from 4791 on.
const SLOTS: u16 = 1 << 10;
/// Long enough for what was sent to be dealt with, where nothing shows that it was.
const QUIET: Duration = Duration::from_millis(30);

/// The victim, and the other end of its link.
struct Scene {
    end: End,
    /// Connected to the peer, which is not there: all that comes is forged.
    qp: Qp,
    datagrams: Qp,
    to: SocketAddr,
    link: WireEnd,
}

impl Scene {
    fn new() -> Self {
        let mut end = End::on("near", BUFFER_BYTES);
        end.buffer.fill(UNTOUCHED);
        let qp = end.qp(QpType::Rc);
        let wanted = Attributes {
            source_gid_index: end.gid_index(false).unwrap(),
            ..peer_attributes(Gid::from(PEER_IP), PEER, Mtu::B1024)
        };
        connect_with(&qp, &wanted);
        let datagrams = end.datagrams(QKEY);
        let to = SocketAddr::from((VICTIM, port_of(qp.number())));
        Self {
            end,
            qp,
            datagrams,
            to,
            link: WireEnd::open(),
        }
    }

    /// A WRITE with this PSN.
    fn write(&self, psn: Psn) -> Header {
        let mut header = header(&self.qp, Operation::WriteOnly, psn);
        header.reth = Some(self.end.reth(0, 16));
        header
    }

    fn message(&self, qkey: u32) -> Header {
        datagram(&self.datagrams, qkey)
    }

    fn next(&self) -> Psn {
        self.qp.query().unwrap().rq_psn
    }

    /// What leaves the far end of the link.
    fn send(&self, from: SocketAddr, payload: &[u8]) {
        let SocketAddr::V4(source) = from else {
            panic!("{from}");
        };
        let frame = frame(self.link.near_mac, source, self.to.port(), payload);
        self.link.put(&frame);
    }

    /// Sends a packet by the link, which brings the victim's memory what it has.
    fn writes(&self, from: SocketAddr, psn: Psn) {
        self.send(from, &packet(from, self.to, &self.write(psn), &DATA));
        self.end
            .poll_until("the memory is written", || self.end.buffer[..16] == DATA);
    }

    /// Sends a packet by the link, which `counter` counts, and which changes nothing of the
    /// victim's memory.
    fn is_counted(&self, from: SocketAddr, psn: Psn, counter: &str) {
        let before = self.end.count(counter);
        self.send(from, &packet(from, self.to, &self.write(psn), &DATA));
        self.end
            .poll_until(counter, || self.end.count(counter) > before);
        assert_ne!(self.end.buffer[..16], DATA, "{from}");
    }

    /// Sends a packet by the link, of which nothing is to be seen.
    fn is_ignored(&self, from: SocketAddr, psn: Psn) {
        self.send(from, &packet(from, self.to, &self.write(psn), &DATA));
        self.settle();
        assert_ne!(self.end.buffer[..16], DATA, "{from}");
    }

    fn settle(&self) {
        let start = Instant::now();
        while start.elapsed() < QUIET {
            self.end.cq.poll(0, |_| ());
        }
    }
}

/// An Ethernet frame as neighbours exchange them.
fn frame(to: [u8; 6], from: std::net::SocketAddrV4, port: u16, payload: &[u8]) -> Vec<u8> {
    let udp_bytes = u16::try_from(8 + payload.len()).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp_bytes).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 255, 17, 0, 0]);
    ip.extend(from.ip().octets());
    ip.extend(VICTIM.octets());
    let words = ip.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9, 8, 0], &ip].concat();
    frame.extend(from.port().to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend(udp_bytes.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend_from_slice(payload);
    frame
}

fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::from((ip, port))
}

/// An attacker that sees the packets of a connection knows all its numbers: with one packet it
/// writes where the peer may.
#[test]
fn on_the_path_one_packet_is_enough() {
    on_a_link(|| {
        let scene = Scene::new();
        scene.writes(at(PEER_IP, PEER_PORT), scene.next());
    });
}

/// An attacker that may forge the peer's address and port, and knows the queue pair, but not the
/// PSN.
#[test]
fn beside_the_path_the_next_psn_has_to_be_guessed() {
    const GUESSES: u32 = 1500;
    on_a_link(|| {
        let scene = Scene::new();
        let from = at(PEER_IP, PEER_PORT);
        // Before the peer was heard, and once it is known to be urxe.
        for turn in 0..2 {
            let expected = scene.next();
            let before = scene.end.count("rx_packets");
            for guess in 1..=GUESSES {
                // Right by none of them, nor near enough to be kept.
                let psn = expected.add(11_000 * guess);
                scene.send(from, &packet(from, scene.to, &scene.write(psn), &DATA));
                let all = before + u64::from(guess);
                scene
                    .end
                    .poll_until("it has come", || scene.end.count("rx_packets") >= all);
            }
            assert_eq!(scene.next(), expected, "turn {turn}");
            assert!(turn == 1 || scene.end.buffer.iter().all(|byte| *byte == UNTOUCHED));
            scene.writes(from, scene.next());
        }
    });
}

#[test]
fn beside_the_path_the_port_of_a_known_peer_has_to_be_right() {
    on_a_link(|| {
        let mut scene = Scene::new();
        scene.writes(at(PEER_IP, PEER_PORT), scene.next());
        scene.end.buffer.fill(UNTOUCHED);
        for port in [ROCE_UDP_PORT, PEER_PORT - 1, 50_000] {
            scene.is_counted(at(PEER_IP, port), scene.next(), "rx_wrong_source");
        }
    });
}

/// Another host of the link, from its own address, or from the victim's, which no packet from a
/// link can have.
#[test]
fn who_does_not_forge_the_address_of_the_peer_does_nothing() {
    on_a_link(|| {
        // Port 4791 is another process's, so that packets for the victim might be passed on.
        let holder = UdpSocket::bind((VICTIM, ROCE_UDP_PORT)).unwrap();
        let scene = Scene::new();
        assert_eq!(scene.to.port(), ROCE_UDP_PORT + 1);
        let next = scene.next();
        scene.is_counted(at(OTHER_IP, PEER_PORT), next, "rx_wrong_source");
        let before = scene.end.count("rx_packets");
        for port in [ROCE_UDP_PORT, PEER_PORT, scene.to.port()] {
            scene.is_ignored(at(VICTIM, port), next);
            // As the holder passes on what the peer sent to it.
            let mut raw = vec![0xff, b'u', b'r', b'x', 0, 0, 0, 0];
            raw.extend(50_000u16.to_be_bytes());
            raw.extend(Gid::from(PEER_IP).0);
            let well_known = at(VICTIM, ROCE_UDP_PORT);
            raw.extend(packet(
                at(PEER_IP, 50_000),
                well_known,
                &scene.write(next),
                &DATA,
            ));
            scene.send(at(VICTIM, port), &raw);
            scene.settle();
            assert_ne!(scene.end.buffer[..16], DATA, "{port}");
        }
        assert_eq!(
            scene.end.count("rx_packets"),
            before,
            "the kernel would drop them"
        );
        drop(holder);
    });
}

/// Another user of the victim's host: its packets have the host's own address.
#[test]
fn another_user_of_the_host_does_nothing() {
    on_a_link(|| {
        let scene = Scene::new();
        for (count, ip) in (1..).zip([VICTIM, Ipv4Addr::LOCALHOST]) {
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            let from = socket.local_addr().unwrap();
            let bytes = packet(from, scene.to, &scene.write(scene.next()), &DATA);
            socket.send_to(&bytes, scene.to).unwrap();
            scene.end.poll_until("it is dropped", || {
                scene.end.count("rx_wrong_source") == count
            });
        }
        assert!(scene.end.buffer.iter().all(|byte| *byte == UNTOUCHED));
    });
}

/// Another user may have all ports first. A process that comes later is told so, and finds one as
/// soon as there is one.
#[test]
fn who_takes_all_ports_keeps_others_out_as_long_as_it_has_them() {
    in_namespace(&["link set lo up"], || {
        limit_descriptors(2 * libc::rlim_t::from(SLOTS));
        let take = |slot| UdpSocket::bind((Ipv4Addr::LOCALHOST, ROCE_UDP_PORT + slot)).unwrap();
        let mut taken: Vec<UdpSocket> = (0..SLOTS).map(take).collect();
        let end = End::new(BUFFER_BYTES);
        let error = end.nic.create_qp(&end.init(QpType::Rc)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the device has no UDP port between 4791 and 5814 left"
        );
        taken.pop();
        let qp = end.qp(QpType::Rc);
        assert_eq!(qp.number().get() >> 14, u32::from(SLOTS - 1));
    });
}

#[test]
fn a_datagram_takes_the_qkey_and_nothing_else() {
    on_a_link(|| {
        let scene = Scene::new();
        post_recv(&scene.datagrams, 1, &[scene.end.sge(0, 200)]);
        let from = at(OTHER_IP, 50_000);
        for qkey in [0, QKEY + 1, u32::MAX] {
            scene.send(from, &packet(from, scene.to, &scene.message(qkey), &DATA));
            scene.end.wait_for_nothing();
        }
        scene.send(from, &packet(from, scene.to, &scene.message(QKEY), &DATA));
        let got = scene.end.wait(&[], 1)[0];
        assert_eq!((got.source_qp, got.byte_len), (Some(PEER), 56));
    });
}
