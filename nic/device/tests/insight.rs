//! What stands between a device and the network (a bad one, a capture), and what a device tells of
//! itself: two opened devices in one process, over the loopback interface.

mod support;

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pcap_file::pcapng::{Block, PcapNgReader};
use support::{End, Peer, TIMEOUT, device, fill_from, impaired, port_of};
use urxe_device::{
    Completion, Mtu, Nic, ProcessStat, STAT_SCHEMA, STAT_SOCKET_PREFIX, SendOp, WcStatus, Wiring,
};
use urxe_wire::icrc::Flow;
use urxe_wire::{Operation, Packet};

const BUFFER_BYTES: usize = 1 << 18;

/// After this long, what passed is in the capture file though no program asks for it.
const WRITTEN: Duration = Duration::from_millis(300);

fn pair(near: &Wiring, far: &Wiring) -> (Peer, Peer) {
    let ends = [near, far].map(|wiring| End::wired(wiring, BUFFER_BYTES));
    Peer::pair(ends, Mtu::B1024, TIMEOUT)
}

fn post(peer: &Peer, op: SendOp, len: usize) {
    peer.post(0, op, &[peer.sge(0, len)]);
}

fn wait(peer: &Peer, other: &Peer) -> Completion {
    peer.wait(other, 1)[0]
}

/// Sends, writes and reads messages of several lengths, and compares every byte.
fn exchange(a: &mut Peer, b: &mut Peer, rounds: usize) {
    for round in 0..rounds {
        for len in [1, 1024, 5000, 100_001] {
            let check = |a: &Peer, b: &Peer, what| {
                assert!(
                    a.buffer[..len] == b.buffer[..len],
                    "{what} of {len}, round {round}"
                );
            };
            fill_from(&mut a.buffer, round + len);
            b.buffer.fill(0);
            b.post_recv(0, &[b.sge(0, BUFFER_BYTES)]);
            post(a, SendOp::Send, len);
            assert_eq!(wait(b, a).status, WcStatus::Success);
            assert_eq!(wait(a, b).status, WcStatus::Success);
            check(a, b, "SEND");
            b.buffer.fill(0);
            post(a, b.write_op(0), len);
            assert_eq!(wait(a, b).status, WcStatus::Success);
            check(a, b, "WRITE");
            b.buffer.fill(0);
            post(b, a.read_op(0), len);
            assert_eq!(wait(b, a).status, WcStatus::Success);
            check(a, b, "READ");
        }
    }
}

fn captured_in(path: PathBuf) -> Wiring {
    Wiring {
        pcap: Some(path),
        ..Wiring::default()
    }
}

#[test]
fn data_is_right_whatever_the_network_does() {
    let bad = impaired("loss=5%,duplicate=2%,reorder=2%,corrupt=3%,seed=7");
    let (mut a, mut b) = pair(&bad, &bad);
    exchange(&mut a, &mut b, 5);
    let counters = a.nic.stat().counters;
    for name in [
        "impaired_lost",
        "impaired_duplicated",
        "impaired_reordered",
        "impaired_corrupted",
        // And what the protocol made of it.
        "out_of_sequence",
        "duplicate_request",
        "early_retransmissions",
        "rx_icrc_encapsulated",
    ] {
        let both = counters[name] + b.count(name);
        assert!(both > 0, "no {name} among {counters:?}");
    }
}

#[test]
fn a_delay_is_kept() {
    let (mut a, mut b) = pair(&impaired("delay=3ms"), &impaired("delay=4ms,reorder=10%"));
    let start = Instant::now();
    exchange(&mut a, &mut b, 1);
    // Four messages of each kind, and each has to go and be acknowledged.
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(4 * 3 * 7), "{elapsed:?}");
    assert_eq!(b.count("impaired_lost"), 0);
}

/// A captured packet: when, which way, the IPv4 packet.
type Captured = (Duration, u32, Vec<u8>);

/// The directions of pcapng's flags.
const ARRIVED: u32 = 1;
const LEFT: u32 = 2;

fn captured(path: &Path) -> Vec<Captured> {
    let mut reader = PcapNgReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(block) = block.unwrap() {
            let flags = block.options.iter().find_map(|option| match option {
                pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption::Flags(flags) => {
                    Some(*flags)
                }
                _ => None,
            });
            packets.push((block.timestamp, flags.unwrap(), block.data.into_owned()));
        }
    }
    packets
}

/// The RoCE packet in an IPv4 packet, whose IP ID must be the one that the ICRC is right for.
fn roce(packet: &[u8]) -> Packet<'_> {
    let address = |at: usize, port: usize| {
        let ip: [u8; 4] = packet[at..at + 4].try_into().unwrap();
        let port = u16::from_be_bytes([packet[port], packet[port + 1]]);
        std::net::SocketAddr::from((ip, port))
    };
    let id = u16::from_be_bytes([packet[4], packet[5]]);
    let flow = Flow::new(address(12, 20), address(16, 22)).unwrap();
    assert_eq!(
        flow.verify(&packet[28..], id),
        urxe_wire::icrc::Verdict::Exact
    );
    Packet::parse(&packet[28..]).unwrap()
}

#[test]
fn a_capture_has_what_was_sent_and_received() {
    let folder = tempfile::tempdir().unwrap();
    let pcap = |name: &str| folder.path().join(name);
    let capture = |name: &str| captured_in(pcap(name));
    let own = format!("near.{}", std::process::id());
    let (mut a, mut b) = pair(&capture("near.%p"), &capture("far"));
    exchange(&mut a, &mut b, 1);
    let (near, far) = settled(|| {
        let sent = usize::try_from(a.count("tx_packets")).unwrap();
        let (near, far) = (captured(&pcap(&own)), captured(&pcap("far")));
        let is_whole = addressed(&near, LEFT, &b).len() == sent
            && straight(&near, LEFT, &b).len() == straight(&far, ARRIVED, &b).len();
        let is_answered = straight(&far, LEFT, &a).len() == straight(&near, ARRIVED, &a).len();
        (is_whole && is_answered, (near, far))
    });
    // The same bytes at both ends, headers included.
    let (out, back) = (straight(&near, LEFT, &b), straight(&near, ARRIVED, &a));
    assert!(out == straight(&far, ARRIVED, &b));
    assert!(back == straight(&far, LEFT, &a));
    let operations: Vec<_> = [out, back]
        .concat()
        .iter()
        .map(|packet| roce(packet).header.bth.opcode.operation().unwrap())
        .collect();
    for operation in [
        Operation::SendOnly,
        Operation::SendMiddle,
        Operation::WriteLast,
        Operation::ReadRequest,
        Operation::ReadResponseOnly,
        Operation::Acknowledge,
    ] {
        assert!(operations.contains(&operation), "no {operation:?}");
    }
    assert!(
        near.is_sorted_by_key(|packet| packet.0),
        "not in order of time"
    );
}

#[test]
fn a_capture_on_a_bad_network_has_only_what_left() {
    let folder = tempfile::tempdir().unwrap();
    let near = Wiring {
        pcap: Some(folder.path().join("near")),
        ..impaired("loss=10%,duplicate=10%")
    };
    let far = captured_in(folder.path().join("far"));
    let (mut a, mut b) = pair(&near, &far);
    exchange(&mut a, &mut b, 2);
    let (lost, doubled) = settled(|| {
        let counters = a.nic.stat().counters;
        let [sent, lost, doubled] =
            ["tx_packets", "impaired_lost", "impaired_duplicated"].map(|name| counters[name]);
        let [near, far] = ["near", "far"].map(|name| captured(&folder.path().join(name)));
        let is_whole = addressed(&near, LEFT, &b).len() as u64 == sent - lost + doubled
            && straight(&near, LEFT, &b).len() == straight(&far, ARRIVED, &b).len();
        (is_whole, (lost, doubled))
    });
    assert!(lost > 0 && doubled > 0);
}

/// The packets of a direction to the queue pair of an end. The device that holds the port of
/// hardware has those of other tests, too, and passes them on.
fn addressed(packets: &[Captured], direction: u32, end: &Peer) -> Vec<Vec<u8>> {
    packets
        .iter()
        .filter(|packet| packet.1 == direction)
        .map(|packet| packet.2.clone())
        .filter(|packet| field(&packet[33..36]) == end.qp.number().get())
        .collect()
}

/// Those among them that went straight to it: while a peer is silent, as it may be on a busy
/// machine, some go to the port of hardware instead.
fn straight(packets: &[Captured], direction: u32, end: &Peer) -> Vec<Vec<u8>> {
    // The numbers of urxe's queue pairs tell their port.
    let port = u32::from(port_of(end.qp.number()));
    let mut packets = addressed(packets, direction, end);
    packets.retain(|packet| field(&packet[22..24]) == port);
    packets
}

/// A number in network byte order.
fn field(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// What `look` finds once it says that all of it is there: acknowledgements go on for a moment, and
/// a capture is written a moment later.
fn settled<T>(look: impl Fn() -> (bool, T)) -> T {
    for _ in 0..50 {
        std::thread::sleep(WRITTEN);
        if let (true, found) = look() {
            return found;
        }
    }
    panic!("capture and counters never agree");
}

#[test]
fn a_capture_that_cannot_be_written_is_refused() {
    let wiring = captured_in("/nonexistent/capture".into());
    let error = Nic::open_wired(&device("lo"), &wiring).unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/capture"),
        "{error}"
    );
}

/// What this process answers to `urxe stat`.
fn ask() -> ProcessStat {
    let own = format!("@{STAT_SOCKET_PREFIX}{}/", std::process::id());
    let sockets = std::fs::read_to_string("/proc/self/net/unix").unwrap();
    let mut names = sockets.lines().filter_map(|line| line.split_once(&own));
    let name = format!("{}{}", &own[1..], names.next().expect("it listens").1);
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let mut text = String::new();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_process_tells_its_counters_while_its_threads_poll() {
    let (mut a, mut b) = pair(&Wiring::default(), &Wiring::default());
    exchange(&mut a, &mut b, 1);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let process = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                a.cq.poll(1, |_| ());
                b.cq.poll(1, |_| ());
            }
        });
        let process = ask();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        process
    });
    assert_eq!(
        (process.schema, process.pid),
        (STAT_SCHEMA, std::process::id())
    );
    let (device, qp) = process
        .devices
        .iter()
        .flat_map(|device| device.qps.iter().map(move |qp| (device, qp)))
        .find(|(_, qp)| qp.lqpn == a.qp.number().get())
        .expect("the queue pair is there");
    assert_eq!(device.device, "urxe_lo");
    assert_eq!(qp.rqpn, Some(b.qp.number().get()));
    assert_eq!((qp.r#type.as_str(), qp.state.as_str()), ("RC", "RTS"));
    assert_eq!(qp.remote_address, Some("127.0.0.1".to_owned()));
    assert!(device.udp_port.unwrap() >= 4791);
    // 1, 1, 5 and 98 packets of SEND and of WRITE, and a request per READ at least.
    assert!(qp.counters["tx_packets"] >= 2 * 105 + 4);
    assert!(device.counters["tx_packets"] >= qp.counters["tx_packets"]);
    // What a queue pair counted stays with the device.
    let before = b.nic.stat().counters["qp_dropped"];
    b.qp.destroy();
    let after = b.nic.stat();
    assert!(after.qps.is_empty() && after.counters["qp_dropped"] >= before);
}
