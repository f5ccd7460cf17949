//! A connection of a queue pair: both directions of its stream, what is under way in them, and how
//! it ends.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use smallvec::SmallVec;
use urxe_iwarp_wire::{
    AtomicRequest, DdpHeader, Opcode, Queue, ReadRequest, Tagged, Untagged, fpdu,
};
use urxe_proto::{Instant, RecvWqe};

use crate::constants::{CLOSE_TIMEOUT_NS, RECEIVE_TIMEOUT_NS};
use crate::input::Input;
use crate::output::Output;
use crate::requests::Position;
use crate::setup::{FirstFrame, RtrKind, Terms};

/// What the caller has to do with the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// Close the direction to the peer: all output was sent.
    Shutdown,
    /// Close the stream.
    Close,
}

/// How far its end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// What output is left is the last; once a time is known, the peer has until then to take it.
    Ending(Option<Instant>),
    /// This direction is closed; the peer has until then.
    Shut(Instant),
    Over,
}

/// A READ or atomic that waits for its response, in the order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Of this host.
    Request {
        position: Position,
        /// The MSN of its message, which a TERMINATE names.
        msn: u32,
    },
    /// The READ of no bytes that came first.
    Rtr,
}

/// What a READ or atomic of the peer asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseTo {
    Read {
        request: ReadRequest,
        /// Bytes of the answer that are in frames.
        sent: u32,
    },
    Atomic(AtomicRequest),
}

/// A READ or atomic of the peer that is to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    /// The MSN of the request, which a TERMINATE names.
    pub(crate) msn: u32,
    pub(crate) to: ResponseTo,
}

impl Response {
    /// The DDP header of the request.
    pub(crate) fn header(&self) -> DdpHeader {
        let opcode = match self.to {
            ResponseTo::Read { .. } => Opcode::ReadRequest,
            ResponseTo::Atomic(_) => Opcode::AtomicRequest,
        };
        DdpHeader::Untagged(Untagged {
            is_last: true,
            control: opcode.emit(),
            invalidate: 0,
            queue: Queue::Request as u32,
            msn: self.msn,
            offset: 0,
        })
    }

    /// The message of the request.
    pub(crate) fn message(&self) -> SmallVec<[u8; 64]> {
        match self.to {
            ResponseTo::Read { request, .. } => SmallVec::from_slice(&request.emit()),
            ResponseTo::Atomic(request) => SmallVec::from_slice(&request.emit()),
        }
    }
}

/// What the frames in progress belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing: a message of either kind may begin. Whether the last was a response.
    Free {
        was_response: bool,
    },
    Request,
    Response,
}

/// Where the payload of the segment in progress goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// It is held until its CRC was checked: it is a header to RDMAP.
    Held,
    /// RDMA WRITE.
    Write,
    /// The data of a READ.
    Fetched,
    /// A receive buffer.
    Receive,
}

/// The segment in progress.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) opcode: Opcode,
    pub(crate) target: Target,
    /// Its header, whichever it has.
    pub(crate) tagged: Option<Tagged>,
    pub(crate) untagged: Option<Untagged>,
    pub(crate) is_last: bool,
    /// Bytes of payload that are where they go.
    pub(crate) done: u32,
    pub(crate) held: SmallVec<[u8; 64]>,
}

/// A SEND in progress.
#[derive(Clone, Debug)]
pub(crate) struct Inbound {
    pub(crate) wqe: RecvWqe,
    pub(crate) opcode: Opcode,
    pub(crate) received: u32,
}

/// A segment whose header has come waits for a receive request.
#[derive(Debug)]
pub(crate) struct Stalled {
    /// What came behind the header.
    pub(crate) rest: Vec<u8>,
    /// How long it waits, once a time is known.
    pub(crate) until: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) terms: Terms,
    /// Longest ULPDU that is sent.
    pub(crate) mulpdu: u32,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) phase: Phase,
    pub(crate) has_peer_ended: bool,
    pub(crate) is_close_told: bool,
    /// The peer knows that it may send, and so does this end.
    pub(crate) may_send: bool,
    pub(crate) rtr: Option<RtrKind>,
    pub(crate) has_received: bool,
    /// MSN of the next message to send, by queue.
    pub(crate) next_msn: [u32; Queue::COUNT],
    /// MSN of the next message to come, by queue.
    pub(crate) expected_msn: [u32; Queue::COUNT],
    /// The request that begins next.
    pub(crate) cursor: Position,
    pub(crate) turn: Turn,
    pub(crate) fetches: VecDeque<Fetch>,
    pub(crate) responses: VecDeque<Response>,
    pub(crate) segment: Option<Segment>,
    pub(crate) inbound: Option<Inbound>,
    pub(crate) stalled: Option<Stalled>,
    /// Bytes of the last RDMA WRITE message that came, for immediate data behind it.
    pub(crate) written: u32,
    /// Whether that message is complete.
    pub(crate) is_written: bool,
}

impl Stream {
    pub(crate) fn new(terms: Terms, segment_len: usize, cursor: Position) -> Self {
        let mulpdu = fpdu::mulpdu(segment_len, terms.sends_markers);
        Self {
            terms,
            mulpdu: u32::try_from(mulpdu).unwrap_or(u32::MAX),
            input: Input::new(terms.receives_markers, terms.has_crc),
            output: Output::new(terms.sends_markers, terms.has_crc),
            phase: Phase::Open,
            has_peer_ended: false,
            is_close_told: false,
            may_send: terms.first != FirstFrame::Await,
            rtr: match terms.first {
                FirstFrame::Send(kind) => Some(kind),
                FirstFrame::Free | FirstFrame::Await => None,
            },
            has_received: false,
            next_msn: [1; Queue::COUNT],
            expected_msn: [1; Queue::COUNT],
            cursor,
            turn: Turn::Free {
                was_response: false,
            },
            fetches: VecDeque::new(),
            responses: VecDeque::new(),
            segment: None,
            inbound: None,
            stalled: None,
            written: 0,
            is_written: true,
        }
    }

    /// Payload that fits in a segment with a header of so many bytes.
    pub(crate) fn room(&self, header_len: usize) -> u32 {
        self.mulpdu - u32::try_from(header_len).unwrap_or(0)
    }

    /// The next header of an untagged message of one segment, or of its first.
    pub(crate) fn untagged(&self, queue: Queue, opcode: Opcode) -> Untagged {
        Untagged {
            is_last: true,
            control: opcode.emit(),
            invalidate: 0,
            queue: queue as u32,
            msn: self.next_msn[queue as usize],
            offset: 0,
        }
    }

    /// Counts a message as sent.
    pub(crate) fn pass_msn(&mut self, queue: Queue) {
        let msn = &mut self.next_msn[queue as usize];
        *msn = msn.wrapping_add(1);
    }

    /// Counts a message as received.
    pub(crate) fn expect_next(&mut self, queue: Queue) {
        let msn = &mut self.expected_msn[queue as usize];
        *msn = msn.wrapping_add(1);
    }

    /// A message is in frames as a whole.
    pub(crate) fn end_turn(&mut self, was_response: bool) {
        self.turn = Turn::Free { was_response };
        if !was_response {
            self.cursor += 1;
        }
    }

    /// Nothing more comes from requests and responses.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ending(None);
        self.fetches.clear();
        self.responses.clear();
        self.segment = None;
        self.stalled = None;
        self.rtr = None;
    }

    /// Whether nothing has ended it yet.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// It is over, whatever is left to be sent.
    pub(crate) fn abandon(&mut self) {
        self.end();
        self.output.clear();
        self.phase = Phase::Over;
    }

    /// When the peer's time to take the last output, or to close, is over, or that of a message
    /// that waits for a receive request.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Open => self.stalled.as_ref()?.until,
            Phase::Shut(deadline) => Some(deadline),
            Phase::Ending(deadline) => deadline,
            Phase::Over => None,
        }
    }

    /// See [`crate::QueuePair::poll_action`].
    pub(crate) fn poll_action(&mut self, now: Instant) -> Option<StreamAction> {
        if let Some(stalled) = &mut self.stalled {
            let until = now.after(RECEIVE_TIMEOUT_NS);
            stalled.until.get_or_insert(until);
        }
        match self.phase {
            Phase::Ending(_) if self.output.len() == 0 && !self.has_peer_ended => {
                self.phase = Phase::Shut(now.after(CLOSE_TIMEOUT_NS));
                return Some(StreamAction::Shutdown);
            }
            Phase::Ending(_) if self.output.len() == 0 => self.phase = Phase::Over,
            Phase::Ending(None) => self.phase = Phase::Ending(Some(now.after(CLOSE_TIMEOUT_NS))),
            Phase::Ending(Some(deadline)) if now >= deadline => self.abandon(),
            Phase::Shut(deadline) if self.has_peer_ended || now >= deadline => {
                self.phase = Phase::Over;
            }
            _ => {}
        }
        let is_over = self.phase == Phase::Over;
        (is_over && !core::mem::replace(&mut self.is_close_told, true))
            .then_some(StreamAction::Close)
    }
}
