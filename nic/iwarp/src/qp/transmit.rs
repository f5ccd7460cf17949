//! The way out: which message is next, and its segments (RFC 5040, 5; RFC 5041, 5).

use smallvec::SmallVec;
use urxe_iwarp_wire::{
    AtomicOperation, AtomicRequest, DdpHeader, Fault, ImmediateData, Opcode, Queue, ReadRequest,
    Tagged, Untagged,
};
use urxe_proto::{AccessError, LocalAccess, QpState, SendOp, WcStatus};
use urxe_wire::Immediate;

use super::QueuePair;
use super::receive::atomic_id;
use crate::constants::RTR_STAG;
use crate::memory::StreamMemory;
use crate::output::{Body, Reach};
use crate::requests::{Position, Progress, Request};
use crate::setup::RtrKind;
use crate::stream::{Fetch, Stream, Turn};

/// A frame to be made.
pub(super) struct Planned {
    pub(super) header: DdpHeader,
    pub(super) message: SmallVec<[u8; 64]>,
    pub(super) body: Body,
    pub(super) finishes: Option<Position>,
}

pub(super) const NO_BODY: Body = Body::Bytes(alloc::vec::Vec::new());

impl QueuePair {
    /// Prepares FPDUs until `max_bytes` wait to be sent, or there are no more; how many bytes wait.
    /// [`Self::output`] has them.
    ///
    /// Long payload of this host's requests is not copied: its CRC is taken now. Payload that the
    /// peer reads may change at any time, so it is copied where a CRC covers it.
    pub fn poll_output<M: StreamMemory>(&mut self, max_bytes: usize, memory: &mut M) -> usize {
        while self.waiting() < max_bytes && self.prepare(memory) {}
        self.complete_requests();
        self.waiting()
    }

    /// The stream takes nothing more for now. What waits is copied where a CRC covers it: a program
    /// that changes payload before its request completes is to send either, as with every device,
    /// and not to lose its connection.
    pub fn handle_blocked<M: StreamMemory>(&mut self, memory: &M) {
        let via = self.via();
        if let Some(stream) = &mut self.stream {
            let reach = Reach {
                requests: &self.requests,
                via,
                memory,
            };
            stream.output.keep(&reach);
        }
    }

    /// Bytes that wait to be sent.
    fn waiting(&self) -> usize {
        self.stream.as_ref().map_or(0, |stream| stream.output.len())
    }

    /// Prepares a frame, or does a step without one; whether it did.
    fn prepare<M: StreamMemory>(&mut self, memory: &mut M) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        if !stream.is_open() || !stream.may_send {
            return false;
        }
        if let Some(kind) = stream.rtr.take() {
            return self.send_rtr(kind, memory);
        }
        match stream.turn {
            Turn::Request => self.continue_request(memory),
            Turn::Response => self.respond_next(memory),
            Turn::Free { was_response: true } => {
                self.begin_request(memory) || self.respond_next(memory)
            }
            Turn::Free { .. } => self.respond_next(memory) || self.begin_request(memory),
        }
    }

    /// Makes the frame of a request. If its payload cannot be reached, the request fails.
    fn push<M: StreamMemory>(&mut self, planned: Planned, position: Position, memory: &M) -> bool {
        self.try_push(planned, memory).is_ok()
            || self.fail_request(position, WcStatus::LocalProtection, memory)
    }

    /// Makes the frame.
    pub(super) fn try_push<M: StreamMemory>(
        &mut self,
        planned: Planned,
        memory: &M,
    ) -> Result<(), AccessError> {
        let via = self.via();
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let reach = Reach {
            requests: &self.requests,
            via,
            memory,
        };
        let Planned {
            header,
            message,
            body,
            finishes,
        } = planned;
        stream
            .output
            .push(&header, &message, body, finishes, &reach)?;
        self.stats.fpdus_sent += 1;
        Ok(())
    }

    /// A request of this host cannot be carried out.
    fn fail_request<M: StreamMemory>(
        &mut self,
        position: Position,
        status: WcStatus,
        memory: &M,
    ) -> bool {
        self.requests.finish(position, status);
        self.fail(Fault::RdmapCatastrophic, None, None, memory);
        false
    }

    fn send_rtr<M: StreamMemory>(&mut self, kind: RtrKind, memory: &M) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        let (header, message) = match kind {
            RtrKind::Write => (tagged(Opcode::Write, RTR_STAG, 0, true), SmallVec::new()),
            RtrKind::Read => {
                let header = stream.untagged(Queue::Request, Opcode::ReadRequest);
                stream.pass_msn(Queue::Request);
                stream.fetches.push_back(Fetch::Rtr);
                let request = ReadRequest {
                    sink_stag: RTR_STAG,
                    sink_offset: 0,
                    len: 0,
                    source_stag: RTR_STAG,
                    source_offset: 0,
                };
                let message = SmallVec::from_slice(&request.emit());
                (DdpHeader::Untagged(header), message)
            }
        };
        let planned = Planned {
            header,
            message,
            body: NO_BODY,
            finishes: None,
        };
        // There is no payload that could not be reached.
        self.try_push(planned, memory).is_ok()
    }

    /// Begins the next request, if it may begin.
    fn begin_request<M: StreamMemory>(&mut self, memory: &mut M) -> bool {
        if self.state() != QpState::ReadyToSend {
            return false;
        }
        let pd = self.config.pd;
        let Some(stream) = &mut self.stream else {
            return false;
        };
        let position = stream.cursor;
        let Some(request) = self.requests.get_mut(position) else {
            return false;
        };
        let op = request.op;
        if request.fence && !stream.fetches.is_empty() {
            return false;
        }
        if op.is_local() {
            return self.carry_out(position, &op, memory);
        }
        if op.is_fetch() && stream.fetches.len() >= usize::from(stream.terms.ord) {
            // What no READ is allowed to wait for does not come.
            return stream.terms.ord == 0
                && self.fail_request(position, WcStatus::LocalQpOperation, memory);
        }
        let access = if op.is_fetch() {
            LocalAccess::Write
        } else {
            LocalAccess::Read
        };
        let mut sges = request.sges().iter().filter(|sge| sge.len > 0);
        if sges.any(|sge| memory.check_local(pd, sge, access).is_err()) {
            return self.fail_request(position, WcStatus::LocalProtection, memory);
        }
        request.progress = Progress::Started;
        stream.turn = Turn::Request;
        self.continue_request(memory)
    }

    /// Invalidates a key, or binds a window.
    fn carry_out<M: StreamMemory>(
        &mut self,
        position: Position,
        op: &SendOp,
        memory: &mut M,
    ) -> bool {
        let via = self.via();
        let result = match op {
            SendOp::LocalInvalidate { rkey } => memory.invalidate(via, *rkey),
            SendOp::BindWindow(bind) => memory.bind_window(via, bind),
            _ => Ok(()),
        };
        if result.is_err() {
            return self.fail_request(position, WcStatus::MwBind, memory);
        }
        self.requests.finish(position, WcStatus::Success);
        if let Some(stream) = &mut self.stream {
            stream.cursor += 1;
        }
        true
    }

    /// The next frame of the request that began.
    fn continue_request<M: StreamMemory>(&mut self, memory: &M) -> bool {
        let position = self.stream.as_ref().map(|stream| stream.cursor);
        match position.zip(self.plan_request()) {
            Some((position, planned)) => self.push(planned, position, memory),
            None => false,
        }
    }

    fn plan_request(&mut self) -> Option<Planned> {
        let stream = self.stream.as_mut()?;
        let position = stream.cursor;
        let request = self.requests.get_mut(position)?;
        let (planned, is_last) = match request.op {
            SendOp::WriteImm { immediate, .. } if request.progress == Progress::Written => {
                plan_immediate(stream, request, position, immediate)
            }
            SendOp::Write { va, rkey } => plan_write(stream, request, position, (rkey, va)),
            SendOp::WriteImm { va, rkey, .. } => {
                let (mut planned, is_last) = plan_write(stream, request, position, (rkey, va));
                if is_last {
                    request.progress = Progress::Written;
                    planned.finishes = None;
                }
                (planned, false)
            }
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                plan_fetch(stream, request, position)
            }
            _ => plan_send(stream, request, position),
        };
        if is_last {
            stream.end_turn(false);
        }
        Some(planned)
    }
}

/// As much of the message as fits in a segment, and whether it is the rest.
fn body_of(request: &mut Request, position: Position, room: u32) -> (Body, bool) {
    let (offset, left) = (request.moved, request.length - request.moved);
    let len = left.min(room);
    request.moved += len;
    let body = Body::Request {
        position,
        offset,
        len,
    };
    (body, len == left)
}

fn plan_write(
    stream: &Stream,
    request: &mut Request,
    position: Position,
    (rkey, va): (u32, u64),
) -> (Planned, bool) {
    let at = va.wrapping_add(request.moved.into());
    let (body, is_last) = body_of(request, position, stream.room(Tagged::LEN));
    let planned = Planned {
        header: tagged(Opcode::Write, rkey, at, is_last),
        message: SmallVec::new(),
        body,
        finishes: is_last.then_some(position),
    };
    (planned, is_last)
}

fn plan_send(stream: &mut Stream, request: &mut Request, position: Position) -> (Planned, bool) {
    let (op, offset) = (request.op, request.moved);
    let (body, is_last) = body_of(request, position, stream.room(Untagged::LEN));
    let invalidate = match op {
        SendOp::SendInvalidate { rkey } => rkey,
        _ => 0,
    };
    let opcode = send_opcode(&op, request.solicited);
    let header = DdpHeader::Untagged(Untagged {
        is_last,
        invalidate,
        offset,
        ..stream.untagged(Queue::Send, opcode)
    });
    if is_last {
        stream.pass_msn(Queue::Send);
    }
    let planned = Planned {
        header,
        message: SmallVec::new(),
        body,
        finishes: is_last.then_some(position),
    };
    (planned, is_last)
}

fn plan_immediate(
    stream: &mut Stream,
    request: &Request,
    position: Position,
    immediate: Immediate,
) -> (Planned, bool) {
    let opcode = if request.solicited {
        Opcode::ImmediateSolicited
    } else {
        Opcode::Immediate
    };
    let header = stream.untagged(Queue::Send, opcode);
    stream.pass_msn(Queue::Send);
    let planned = Planned {
        header: DdpHeader::Untagged(header),
        message: SmallVec::from_slice(&ImmediateData(immediate.0).emit()),
        body: NO_BODY,
        finishes: Some(position),
    };
    (planned, true)
}

fn plan_fetch(stream: &mut Stream, request: &Request, position: Position) -> (Planned, bool) {
    let (opcode, message) = fetch_message(request, position);
    let header = stream.untagged(Queue::Request, opcode);
    let msn = header.msn;
    stream.pass_msn(Queue::Request);
    stream.fetches.push_back(Fetch::Request { position, msn });
    let planned = Planned {
        header: DdpHeader::Untagged(header),
        message,
        body: NO_BODY,
        finishes: None,
    };
    (planned, true)
}

pub(super) const fn tagged(opcode: Opcode, stag: u32, offset: u64, is_last: bool) -> DdpHeader {
    DdpHeader::Tagged(Tagged {
        is_last,
        control: opcode.emit(),
        stag,
        offset,
    })
}

const fn send_opcode(op: &SendOp, solicited: bool) -> Opcode {
    match (op, solicited) {
        (SendOp::SendInvalidate { .. }, false) => Opcode::SendInvalidate,
        (SendOp::SendInvalidate { .. }, true) => Opcode::SendSolicitedInvalidate,
        (_, false) => Opcode::Send,
        (_, true) => Opcode::SendSolicited,
    }
}

/// The message of a READ or atomic.
pub(super) fn fetch_message(request: &Request, position: Position) -> (Opcode, SmallVec<[u8; 64]>) {
    let (operation, va, rkey) = match request.op {
        SendOp::CompareSwap {
            va,
            rkey,
            compare,
            swap,
        } => (AtomicOperation::CompareSwap { compare, swap }, va, rkey),
        SendOp::FetchAdd { va, rkey, add } => (AtomicOperation::FetchAdd { add }, va, rkey),
        SendOp::Read { va, rkey } => {
            let (sink_stag, sink_offset) = request.sink();
            let request = ReadRequest {
                sink_stag,
                sink_offset,
                len: request.length,
                source_stag: rkey,
                source_offset: va,
            };
            return (Opcode::ReadRequest, SmallVec::from_slice(&request.emit()));
        }
        _ => (AtomicOperation::FetchAdd { add: 0 }, 0, 0),
    };
    let request = AtomicRequest {
        operation,
        id: atomic_id(position),
        stag: rkey,
        offset: va,
    };
    (Opcode::AtomicRequest, SmallVec::from_slice(&request.emit()))
}
