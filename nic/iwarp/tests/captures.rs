//! What both ends send is held against the dissectors of tshark, where there is one.

mod support;

use std::io::Write as _;
use std::process::{Command, Stdio};

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use support::forge::write;
use support::{PD, Pair};
use urxe_iwarp::{Initiator, Offer, Outcome, Responder};
use urxe_iwarp_wire::{DdpHeader, MAX_DDP_HEADER_LEN, Marking, fpdu};
use urxe_proto::{Instant, SendOp, WindowType};
use urxe_sim::Rights;

const PORTS: [u16; 2] = [40_000, 7174];

/// Frames of a TCP connection, in the order of sending.
struct Capture {
    writer: PcapWriter<Vec<u8>>,
    sequence: [u32; 2],
    count: u32,
}

impl Capture {
    fn new() -> Self {
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let mut capture = Self {
            writer: PcapWriter::with_header(Vec::new(), header).unwrap(),
            sequence: [1000, 5_000_000],
            count: 0,
        };
        // SYN, SYN and ACK.
        capture.segment(0, 0x02, &[]);
        capture.segment(1, 0x12, &[]);
        capture.sequence.iter_mut().for_each(|next| *next += 1);
        capture
    }

    fn data(&mut self, from: usize, bytes: &[u8]) {
        // With PSH and ACK.
        self.segment(from, 0x18, bytes);
    }

    fn segment(&mut self, from: usize, flags: u8, bytes: &[u8]) {
        let to = 1 - from;
        let address = |of: usize| [10, 0, 0, u8::try_from(of + 1).unwrap()];
        let len = u16::try_from(40 + bytes.len()).unwrap();
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([address(from), address(to)].concat());
        frame.extend(PORTS[from].to_be_bytes());
        frame.extend(PORTS[to].to_be_bytes());
        frame.extend(self.sequence[from].to_be_bytes());
        frame.extend(self.sequence[to].to_be_bytes());
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(bytes);
        self.sequence[from] += u32::try_from(bytes.len()).unwrap();
        self.count += 1;
        let when = std::time::Duration::from_micros(self.count.into());
        let packet = PcapPacket::new_owned(when, u32::try_from(frame.len()).unwrap(), frame);
        self.writer.write_packet(&packet).unwrap();
    }

    /// What tshark says of it; nothing without tshark.
    fn dissected(self) -> Option<String> {
        let child = Command::new("tshark")
            // Payload is nothing in particular, whatever it looks like.
            .args(["--disable-protocol", "rpcordma"])
            .args(["--disable-protocol", "smb_direct"])
            .args(["-n", "-r", "-", "-V"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: tshark is not installed (Debian: tshark)");
            return None;
        };
        let mut input = child.stdin.take().unwrap();
        input.write_all(&self.writer.into_writer()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "tshark cannot read the capture");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Both set-up frames.
fn set_up(capture: &mut Capture, offers: [Offer; 2]) -> [urxe_iwarp::Terms; 2] {
    let mut asks = Initiator::new(Instant::default(), offers[0], b"private").unwrap();
    let mut answers = Responder::new(Instant::default());
    capture.data(0, asks.output());
    answers.handle_bytes(asks.output());
    let terms = answers.accept(&offers[1], b"data").unwrap();
    capture.data(1, answers.output());
    asks.handle_bytes(answers.output());
    let Outcome::Established(first) = asks.outcome() else {
        panic!("no connection");
    };
    [first, terms]
}

const OFFER: Offer = Offer {
    wants_markers: false,
    wants_crc: true,
    ird: 4,
    ord: 4,
    is_enhanced: false,
    is_peer_to_peer: false,
};

fn assert_clean(text: &str, fpdus: usize) {
    let bad = [
        "Malformed",
        "Expert Info (Error",
        "Bad CRC",
        "Expert Info (Warning",
    ];
    for line in text.lines() {
        assert!(!bad.iter().any(|word| line.contains(word)), "{line}");
    }
    assert_eq!(text.matches("(Good CRC32)").count(), fpdus);
}

/// Takes whole FPDUs off the beginning.
fn whole(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let len = usize::from(u16::from_be_bytes([*buffer.first()?, *buffer.get(1)?]));
    let len = fpdu::len(len);
    (buffer.len() >= len).then(|| buffer.drain(..len).collect())
}

#[test]
fn all_operations_are_dissected() {
    let mut capture = Capture::new();
    let terms = set_up(&mut capture, [OFFER; 2]);
    let mut pair = Pair::new(4, terms, 1460);
    let source = pair.hosts[0].register(Rights::ALL, vec![7; 5000]);
    let target = pair.hosts[1].register(Rights::ALL, vec![0; 5000]);
    let window = pair.hosts[1].memory.0.alloc_window(PD, WindowType::Type2);
    let (va, rkey) = (pair.hosts[1].memory.0.va(target, 0), target);
    let all = pair.hosts[0].sge(source, 0, 5000);
    let word = pair.hosts[0].sge(source, 0, 8);
    let place = pair.hosts[1].sge(target, 0, 5000);
    (1..4).for_each(|wr_id| pair.hosts[1].post_recv(wr_id, &[place]));
    let add = SendOp::FetchAdd { va, rkey, add: 1 };
    let swap = SendOp::CompareSwap {
        va,
        rkey,
        compare: 1,
        swap: 2,
    };
    let ops = [
        (SendOp::Send, all),
        (SendOp::Write { va, rkey }, all),
        (SendOp::Read { va, rkey }, all),
        (add, word),
        (swap, word),
        // The window is not bound: a TERMINATE is the answer.
        (SendOp::SendInvalidate { rkey: window }, word),
    ];
    for (wr_id, (op, sge)) in (0..).zip(ops) {
        pair.hosts[0].post(wr_id, op, &[sge]);
    }
    pair.run();
    let mut waiting = [Vec::new(), Vec::new()];
    let mut fpdus = 0;
    for (from, bytes) in &pair.log {
        waiting[*from].extend_from_slice(bytes);
        while let Some(fpdu) = whole(&mut waiting[*from]) {
            capture.data(*from, &fpdu);
            fpdus += 1;
        }
    }
    assert!(waiting.iter().all(Vec::is_empty));
    let Some(text) = capture.dissected() else {
        return;
    };
    assert_clean(&text, fpdus);
    for opcode in [
        "Write",
        "Read Request",
        "Read Response",
        "Send",
        "Send with Invalidate",
        "Terminate",
        "Atomic Request",
        "Atomic Response",
    ] {
        let line = format!("= OpCode: {opcode} (");
        assert!(text.contains(&line), "no {opcode}");
    }
    assert!(text.contains("OpCode: CmpSwap (2)") && text.contains("OpCode: FetchAdd (0)"));
    assert!(text.contains("Error Code for RDMA layer: STag cannot be Invalidated (0x09)"));
}

#[test]
fn markers_are_dissected() {
    let mut capture = Capture::new();
    let marked = Offer {
        wants_markers: true,
        ..OFFER
    };
    let terms = set_up(&mut capture, [OFFER, marked]);
    assert!(terms[0].sends_markers && !terms[0].receives_markers);
    let mut marking = Marking::new();
    let lengths = [700, 0, 494, 1300, 3];
    for len in lengths {
        let mut raw = [0; MAX_DDP_HEADER_LEN];
        let header_len = DdpHeader::Tagged(write(1, 2)).emit(&mut raw);
        let mut bytes = Vec::new();
        let ulpdu = [&raw[..header_len], &vec![5; len]];
        fpdu::emit_marked(&mut marking, &ulpdu, true, |piece| {
            bytes.extend_from_slice(piece)
        });
        capture.data(0, &bytes);
    }
    let Some(text) = capture.dissected() else {
        return;
    };
    assert_clean(&text, lengths.len());
    let pointers: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("FPDU back pointer: "))
        .collect();
    assert_eq!(pointers.len(), 6, "{pointers:?}");
}
