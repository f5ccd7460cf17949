//! The life of an iWARP queue pair: it gets a connection on what the peer's set-up frame agrees to,
//! and then all may happen in any order. Segments come in FPDUs that are right, and bytes that are
//! none; its program posts and changes its state; time passes; the stream ends or is lost; it gets
//! another connection. It never panics, completes every work request once, sends nothing behind the
//! end of its direction, and never keeps a stream for ever.

use urxe_iwarp::{CLOSE_TIMEOUT_NS, Initiator, Offer, Outcome, Responder, StreamAction, Terms};
use urxe_iwarp_wire::{Enhanced, FrameKind, MAX_SETUP_FRAME_LEN, Marking, SetupFrame, fpdu};
use urxe_proto::{
    AttrMask, Attributes, Instant, QpState, RecvRequest, SendData, SendOp, SendRequest, SendTarget,
    Sge, WindowAccess, WindowBind,
};
use urxe_wire::Immediate;

use crate::queue_pair::{KEY, Region, WINDOW_KEY};
use crate::rdmap::{fresh, send, take};

const START: Instant = Instant::from_nanos(1);
/// Steps of an input that count.
const STEPS_MAX: usize = 300;
/// A byte of an input for the time that passes stands for so much.
const TICK_NS: u64 = 20_000_000;
/// And one for output.
const OUTPUT_BYTES: usize = 32;
const STATES: [QpState; 6] = [
    QpState::Error,
    QpState::Reset,
    QpState::Init,
    QpState::ReadyToReceive,
    QpState::ReadyToSend,
    QpState::SendQueueDrain,
];

/// What is left of an input. Behind its end are zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }
}

/// See the module.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(terms) = agreed(&mut input) else {
        return;
    };
    let mut life = Life::new(terms, input.byte());
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        life.step(&mut input);
        life.settle();
    }
    life.end();
}

/// What both ends agree on, if they do.
fn agreed(input: &mut Input<'_>) -> Option<Terms> {
    let [ours, theirs] = [input.byte(), input.byte()];
    let offer = Offer {
        wants_markers: ours & 1 != 0,
        wants_crc: ours & 2 != 0,
        is_enhanced: ours & 4 != 0,
        is_peer_to_peer: ours & 8 != 0,
        ird: u16::from(ours >> 5 & 3),
        ord: u16::from(ours >> 6),
    };
    let is_asked = ours & 16 != 0;
    let is_enhanced = theirs & 4 != 0;
    let said = [0; 4].map(|_: u8| input.byte());
    let frame = SetupFrame {
        kind: if is_asked {
            FrameKind::Request
        } else {
            FrameKind::Reply
        },
        wants_markers: theirs & 1 != 0,
        wants_crc: theirs & 2 != 0,
        is_rejected: false,
        revision: if is_enhanced { 2 } else { 1 },
        enhanced: is_enhanced.then(|| Enhanced::parse(&said)),
        private_data: &[theirs; 5],
    };
    let mut raw = [0; MAX_SETUP_FRAME_LEN];
    let len = frame.emit(&mut raw).expect("its private data is short");
    let outcome = if is_asked {
        let mut responder = Responder::new(START);
        assert_eq!(responder.handle_bytes(&raw[..len]), len);
        responder.accept(&offer, &[]).expect("it was asked");
        responder.outcome()
    } else {
        let mut initiator = Initiator::new(START, offer, &[]).expect("it has no private data");
        assert_eq!(initiator.handle_bytes(&raw[..len]), len);
        initiator.outcome()
    };
    match outcome {
        Outcome::Established(terms) => Some(terms),
        Outcome::Pending => panic!("it has all of the frame"),
        Outcome::Failed(_) => None,
    }
}

struct Life {
    qp: urxe_iwarp::QueuePair,
    memory: Region,
    now: Instant,
    terms: Terms,
    segment_len: usize,
    in_place: bool,
    /// Where the peer's direction stands between its markers.
    marking: Marking,
    has_stream: bool,
    has_peer_ended: bool,
    is_shut: bool,
    /// Work requests since the queue pair was last reset.
    posted: u64,
    completed: u64,
}

impl Life {
    fn new(terms: Terms, shape: u8) -> Self {
        let memory = Region::new();
        let mut life = Self {
            qp: fresh(false, &memory),
            memory,
            now: START,
            terms,
            segment_len: if shape & 1 != 0 { 200 } else { 1460 },
            in_place: shape & 2 != 0,
            marking: Marking::new(),
            has_stream: false,
            has_peer_ended: false,
            is_shut: false,
            posted: 0,
            completed: 0,
        };
        life.connect();
        life
    }

    fn connect(&mut self) {
        let is_due = matches!(self.qp.state(), QpState::Init | QpState::ReadyToReceive);
        let is_connected = self.qp.connect(self.terms, self.segment_len);
        assert_eq!(is_connected, is_due && !self.has_stream);
        if is_connected {
            self.marking = Marking::new();
            self.has_stream = true;
            (self.has_peer_ended, self.is_shut) = (false, false);
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        match kind % 10 {
            0 | 1 => {
                let len = usize::from(input.byte());
                let mut ulpdu = input.take(len).to_vec();
                // Payload of which the bytes do not matter.
                ulpdu.resize(ulpdu.len() + usize::from(kind / 10) * 40, kind);
                let cut = usize::from(input.byte());
                let mut bytes = Vec::new();
                let pieces = [&ulpdu[..]];
                let put = |piece: &[u8]| bytes.extend_from_slice(piece);
                if self.terms.receives_markers {
                    fpdu::emit_marked(&mut self.marking, &pieces, self.terms.has_crc, put);
                } else {
                    fpdu::emit(&pieces, self.terms.has_crc, put);
                }
                let (first, second) = bytes.split_at(cut.min(bytes.len()));
                self.come(first);
                self.come(second);
            }
            2 => {
                let len = usize::from(input.byte());
                let bytes = input.take(len);
                self.marking.pass(bytes.len());
                self.come(bytes);
            }
            3 => {
                let sent = send(
                    &mut self.qp,
                    usize::from(input.byte()) * OUTPUT_BYTES,
                    &mut self.memory,
                );
                assert!(sent == 0 || self.has_stream && !self.is_shut);
            }
            4 => self.post_send(input),
            5 => {
                let sges = [Sge {
                    addr: u64::from(input.byte()) * 8,
                    len: u32::from(input.byte()) * 8,
                    lkey: KEY,
                }];
                let request = RecvRequest {
                    wr_id: self.posted,
                    sges: &sges,
                };
                self.posted += u64::from(self.qp.post_recv(&request).is_ok());
                self.qp.resume(None, &mut self.memory);
            }
            6 => self.modify(STATES[usize::from(input.byte()) % STATES.len()], kind),
            7 => {
                self.now = self.now.after(u64::from(input.byte()) * TICK_NS);
                self.qp.handle_timeout(self.now, &self.memory);
            }
            8 => {
                if self.has_stream {
                    self.has_peer_ended = true;
                    self.qp.handle_end((kind / 10) & 1 != 0, &self.memory);
                }
            }
            _ if (kind / 10) & 1 != 0 => self.qp.handle_memory_fault(&self.memory),
            _ => self.connect(),
        }
    }

    fn come(&mut self, bytes: &[u8]) {
        if self.has_stream && !self.has_peer_ended {
            take(&mut self.qp, bytes, self.in_place, None, &mut self.memory);
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>) {
        let [kind, len] = [input.byte(), input.byte()];
        let (va, rkey) = (u64::from(len) * 8, if kind & 0x80 != 0 { KEY } else { 9 });
        let op = match kind % 9 {
            0 => SendOp::Send,
            1 => SendOp::SendInvalidate { rkey },
            2 => SendOp::Write { va, rkey },
            3 => SendOp::WriteImm {
                va,
                rkey,
                immediate: Immediate([kind; 4]),
            },
            4 => SendOp::Read { va, rkey },
            5 => SendOp::FetchAdd { va, rkey, add: 1 },
            6 => SendOp::CompareSwap {
                va,
                rkey,
                compare: 0,
                swap: 1,
            },
            7 => SendOp::LocalInvalidate {
                rkey: WINDOW_KEY + u32::from(len & 1),
            },
            _ => SendOp::BindWindow(WindowBind {
                rkey: WINDOW_KEY + 1,
                lkey: KEY,
                addr: 1024,
                len: 1024,
                access: WindowAccess::all() - WindowAccess::ZERO_BASED,
            }),
        };
        let len = match kind % 9 {
            5 | 6 => 8,
            7 | 8 => 0,
            _ => u32::from(len) * 16,
        };
        // The longest ends behind the region.
        let sges = [Sge {
            addr: 24,
            len,
            lkey: KEY,
        }];
        let request = SendRequest {
            wr_id: self.posted,
            op,
            data: SendData::Sges(if len > 0 { &sges } else { &[] }),
            signaled: true,
            solicited: kind & 0x40 != 0,
            fence: kind & 0x20 != 0,
            target: SendTarget::Connection,
        };
        self.posted += u64::from(self.qp.post_send(&request).is_ok());
    }

    fn modify(&mut self, state: QpState, rights: u8) {
        let wanted = Attributes {
            state,
            allow_remote_write: rights & 0x80 == 0,
            allow_remote_read: rights & 0x40 == 0,
            allow_remote_atomic: rights & 0x20 == 0,
            ..Attributes::new()
        };
        let mask = AttrMask::STATE | AttrMask::ACCESS_FLAGS;
        let is_done = self.qp.modify(&wanted, mask, &self.memory).is_ok();
        if is_done && state == QpState::Reset {
            (self.posted, self.completed) = (0, 0);
        }
    }

    /// Does what the queue pair wants done with its stream, and counts what it has completed.
    fn settle(&mut self) {
        while let Some(action) = self.qp.poll_action(self.now) {
            assert!(self.has_stream, "of a stream that was closed");
            match action {
                StreamAction::Shutdown => assert!(!std::mem::replace(&mut self.is_shut, true)),
                StreamAction::Close => self.has_stream = false,
            }
        }
        while self.qp.poll_completion().is_some() {
            self.completed += 1;
        }
        assert!(self.completed <= self.posted);
        while self.qp.poll_event().is_some() {}
    }

    fn end(&mut self) {
        self.modify(QpState::Error, 0);
        self.settle();
        assert_eq!(self.completed, self.posted);
        for _ in 0..2 {
            self.now = self.now.after(CLOSE_TIMEOUT_NS);
            self.qp.handle_timeout(self.now, &self.memory);
            self.settle();
        }
        assert!(!self.has_stream, "it is kept for ever");
    }
}
