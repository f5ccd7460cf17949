//! What stands between a device and the network (a bad one, a capture), and what a device tells of
//! itself: two opened devices in one process, over the loopback interface.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pcap_file::pcapng::{Block, PcapNgReader};
use urxe_device::{
    Access, AttrMask, Attributes, Capacity, Completion, Cq, DeviceInfo, Mtu, Nic, ProcessStat, Psn,
    Qp, QpInit, QpState, QpType, RecvRequest, STAT_SCHEMA, STAT_SOCKET_PREFIX, SendData, SendOp,
    SendRequest, SendTarget, Sge, WcStatus, Wiring,
};
use urxe_wire::icrc::Flow;
use urxe_wire::{Operation, Packet, ROCE_UDP_PORT};

const BUFFER_BYTES: usize = 1 << 18;

/// After this long, what passed is in the capture file though no program asks for it.
const WRITTEN: Duration = Duration::from_millis(300);

/// One end: a device with one queue pair and one registered buffer.
struct End {
    qp: Qp,
    nic: Arc<Nic>,
    cq: Arc<Cq>,
    buffer: Vec<u8>,
    key: u32,
}

fn loopback() -> DeviceInfo {
    let devices = urxe_device::list().unwrap();
    let mut devices = devices.into_iter();
    devices
        .find(|device| device.netdev == "lo")
        .expect("the loopback interface is up")
}

impl End {
    fn new(wiring: &Wiring) -> Self {
        let nic = Nic::open_wired(&loopback(), wiring).unwrap();
        let pd = nic.alloc_pd();
        let cq = nic.create_cq(256, None, 0).unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(Arc::clone(&cq)),
            recv_cq: Some(Arc::clone(&cq)),
            srq: None,
            xrcd: None,
            capacity: Capacity {
                send_requests: 64,
                recv_requests: 64,
                send_sges: 1,
                recv_sges: 1,
                inline_bytes: 0,
            },
        };
        let qp = nic.create_qp(&init).unwrap();
        let buffer = vec![0; BUFFER_BYTES];
        let at = buffer.as_ptr() as u64;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let registered = nic.register(pd, at, BUFFER_BYTES as u64, at, access);
        Self {
            key: registered.unwrap().lkey,
            qp,
            nic,
            cq,
            buffer,
        }
    }

    fn connect(&self, peer: &Self) {
        let attributes = Attributes {
            allow_remote_write: true,
            allow_remote_read: true,
            dest_gid: self.nic.gids()[0].gid,
            path_mtu: Mtu::B1024,
            dest_qp: peer.qp.number(),
            rq_psn: Psn::new(100),
            sq_psn: Psn::new(100),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            ..Attributes::new()
        };
        let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let receive = AttrMask::ADDRESS_VECTOR
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let send = AttrMask::TIMEOUT
            | AttrMask::RETRY_COUNT
            | AttrMask::RNR_RETRY
            | AttrMask::SQ_PSN
            | AttrMask::MAX_RD_ATOMIC;
        for (state, mask) in [
            (QpState::Init, init),
            (QpState::ReadyToReceive, receive),
            (QpState::ReadyToSend, send),
        ] {
            let wanted = Attributes {
                state,
                ..attributes.clone()
            };
            self.qp.modify(&wanted, mask | AttrMask::STATE).unwrap();
        }
    }

    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.buffer.as_ptr() as u64,
            len: u32::try_from(len).unwrap(),
            lkey: self.key,
        }
    }

    fn post(&self, op: SendOp, len: usize) {
        let request = SendRequest {
            wr_id: 0,
            op,
            data: SendData::Sges(&[self.sge(len)]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        self.qp.post_send(&request).unwrap();
    }

    fn post_recv(&self) {
        let sges = &[self.sge(BUFFER_BYTES)];
        self.qp.post_recv(&RecvRequest { wr_id: 0, sges }).unwrap();
    }

    fn fill(&mut self, seed: usize) {
        for (i, byte) in self.buffer.iter_mut().enumerate() {
            *byte = (i * 7 + i / 251 + seed) as u8;
        }
    }

    fn va(&self) -> u64 {
        self.buffer.as_ptr() as u64
    }
}

fn pair(near: &Wiring, far: &Wiring) -> (End, End) {
    let (a, b) = (End::new(near), End::new(far));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

fn wait(end: &End, other: &End) -> Completion {
    let start = Instant::now();
    let mut got = None;
    while got.is_none() {
        end.cq.poll(1, |completion| got = Some(completion));
        other.cq.poll(0, |_| ());
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "nothing in a minute"
        );
    }
    got.unwrap()
}

/// Sends, writes and reads messages of several lengths, and compares every byte.
fn exchange(a: &mut End, b: &mut End, rounds: usize) {
    for round in 0..rounds {
        for len in [1, 1024, 5000, 100_001] {
            a.fill(round + len);
            b.buffer.fill(0);
            b.post_recv();
            a.post(SendOp::Send, len);
            assert_eq!(wait(b, a).status, WcStatus::Success);
            assert_eq!(wait(a, b).status, WcStatus::Success);
            assert!(
                a.buffer[..len] == b.buffer[..len],
                "SEND of {len}, round {round}"
            );
            b.buffer.fill(0);
            let (va, rkey) = (b.va(), b.key);
            a.post(SendOp::Write { va, rkey }, len);
            assert_eq!(wait(a, b).status, WcStatus::Success);
            assert!(
                a.buffer[..len] == b.buffer[..len],
                "WRITE of {len}, round {round}"
            );
            b.buffer.fill(0);
            let (va, rkey) = (a.va(), a.key);
            b.post(SendOp::Read { va, rkey }, len);
            assert_eq!(wait(b, a).status, WcStatus::Success);
            assert!(
                a.buffer[..len] == b.buffer[..len],
                "READ of {len}, round {round}"
            );
        }
    }
}

fn wiring(impairment: &str) -> Wiring {
    Wiring {
        impairment: impairment.parse().unwrap(),
        ..Wiring::default()
    }
}

#[test]
fn data_is_right_whatever_the_network_does() {
    let bad = wiring("loss=5%,duplicate=2%,reorder=2%,corrupt=3%,seed=7");
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
        let both = counters[name] + b.nic.stat().counters[name];
        assert!(both > 0, "no {name} among {counters:?}");
    }
}

#[test]
fn a_delay_is_kept() {
    let (mut a, mut b) = pair(&wiring("delay=3ms"), &wiring("delay=4ms,reorder=10%"));
    let start = Instant::now();
    exchange(&mut a, &mut b, 1);
    // Four messages of each kind, and each has to go and be acknowledged.
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(4 * 3 * 7), "{elapsed:?}");
    assert_eq!(b.nic.stat().counters["impaired_lost"], 0);
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
    let capture = |name: &str| Wiring {
        pcap: Some(pcap(name)),
        ..Wiring::default()
    };
    let own = format!("near.{}", std::process::id());
    let (mut a, mut b) = pair(&capture("near.%p"), &capture("far"));
    exchange(&mut a, &mut b, 1);
    let (near, far) = settled(|| {
        let sent = usize::try_from(a.nic.stat().counters["tx_packets"]).unwrap();
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
        ..wiring("loss=10%,duplicate=10%")
    };
    let far = Wiring {
        pcap: Some(folder.path().join("far")),
        ..Wiring::default()
    };
    let (mut a, mut b) = pair(&near, &far);
    exchange(&mut a, &mut b, 2);
    let (lost, doubled) = settled(|| {
        let stat = a.nic.stat();
        let [sent, lost, doubled] =
            ["tx_packets", "impaired_lost", "impaired_duplicated"].map(|name| stat.counters[name]);
        let [near, far] = ["near", "far"].map(|name| captured(&folder.path().join(name)));
        let is_whole = addressed(&near, LEFT, &b).len() as u64 == sent - lost + doubled
            && straight(&near, LEFT, &b).len() == straight(&far, ARRIVED, &b).len();
        (is_whole, (lost, doubled))
    });
    assert!(lost > 0 && doubled > 0);
}

/// The packets of a direction to the queue pair of an end. The device that holds the port of
/// hardware has those of other tests, too, and passes them on.
fn addressed(packets: &[Captured], direction: u32, end: &End) -> Vec<Vec<u8>> {
    packets
        .iter()
        .filter(|packet| packet.1 == direction)
        .map(|packet| packet.2.clone())
        .filter(|packet| field(&packet[33..36]) == end.qp.number().get())
        .collect()
}

/// Those among them that went straight to it: while a peer is silent, as it may be on a busy
/// machine, some go to the port of hardware instead.
fn straight(packets: &[Captured], direction: u32, end: &End) -> Vec<Vec<u8>> {
    // The numbers of urxe's queue pairs tell their port.
    let port = u32::from(ROCE_UDP_PORT) + (end.qp.number().get() >> 14);
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
    let wiring = Wiring {
        pcap: Some("/nonexistent/capture".into()),
        ..Wiring::default()
    };
    let error = Nic::open_wired(&loopback(), &wiring).unwrap_err();
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
