//! The way out of answers to READs and atomics of the peer (RFC 5040, 5.5; RFC 7306, 5.4 and 7).

use smallvec::SmallVec;
use urxe_iwarp_wire::{
    AtomicOperation, AtomicRequest, AtomicResponse, DdpHeader, MAX_DDP_HEADER_LEN, Opcode, Queue,
    ReadRequest, Tagged,
};
use urxe_proto::{AccessError, AtomicOp, QpEvent, RemoteAccess, RemoteRange, Via};

use super::QueuePair;
use super::refusal::of_request;
use super::transmit::{NO_BODY, Planned, tagged};
use crate::memory::StreamMemory;
use crate::output::Body;
use crate::stream::{Response, ResponseTo, Stream, Turn};

impl QueuePair {
    /// The next frame of the oldest response.
    pub(super) fn respond_next<M: StreamMemory>(&mut self, memory: &mut M) -> bool {
        let via = self.via();
        let Some(stream) = &mut self.stream else {
            return false;
        };
        let Some(response) = stream.responses.front().copied() else {
            return false;
        };
        let planned = match response.to {
            ResponseTo::Read { request, sent } => {
                plan_response(stream, &request, sent, via, memory)
            }
            // It takes place behind what was read before.
            ResponseTo::Atomic(_) if stream.output.has_remote() => return false,
            ResponseTo::Atomic(request) => plan_atomic(stream, &request, via, memory),
        };
        let planned = planned.map(|(planned, is_last)| {
            stream.turn = Turn::Response;
            if is_last {
                stream.responses.pop_front();
                stream.end_turn(true);
            }
            planned
        });
        let Err(error) = planned.and_then(|planned| self.try_push(planned, memory)) else {
            return true;
        };
        self.events.push_back(QpEvent::AccessError);
        let mut header = [0; MAX_DDP_HEADER_LEN];
        let header_len = response.header().emit(&mut header);
        let message = response.message();
        let len = u16::try_from(header_len + message.len()).unwrap_or(u16::MAX);
        let segment = (len, &header[..header_len]);
        self.fail(of_request(error), Some(segment), Some(&message), memory);
        false
    }
}

/// The next segment of the answer to a READ, behind `sent` bytes.
fn plan_response<M: StreamMemory>(
    stream: &mut Stream,
    read: &ReadRequest,
    sent: u32,
    via: Via,
    memory: &M,
) -> Result<(Planned, bool), AccessError> {
    let left = read.len - sent;
    let len = left.min(stream.room(Tagged::LEN));
    let is_last = len == left;
    let (rkey, va) = (
        read.source_stag,
        read.source_offset.wrapping_add(sent.into()),
    );
    let range = RemoteRange { rkey, va, len };
    let access = RemoteAccess::Read;
    let body = if len == 0 {
        NO_BODY
    } else if stream.output.copies_remote() {
        let mut bytes = alloc::vec![0; len as usize];
        memory.read_remote(via, range, access, &mut bytes)?;
        Body::Bytes(bytes)
    } else {
        memory.check_remote(via, range, access)?;
        Body::Remote { rkey, va, len }
    };
    if let Some(Response {
        to: ResponseTo::Read { sent, .. },
        ..
    }) = stream.responses.front_mut()
    {
        *sent += len;
    }
    let sink_offset = read.sink_offset.wrapping_add(sent.into());
    let planned = Planned {
        header: tagged(Opcode::ReadResponse, read.sink_stag, sink_offset, is_last),
        message: SmallVec::new(),
        body,
        finishes: None,
    };
    Ok((planned, is_last))
}

/// Does an atomic, and answers it.
fn plan_atomic<M: StreamMemory>(
    stream: &mut Stream,
    request: &AtomicRequest,
    via: Via,
    memory: &mut M,
) -> Result<(Planned, bool), AccessError> {
    let op = match request.operation {
        AtomicOperation::FetchAdd { add } => AtomicOp::FetchAdd { add },
        AtomicOperation::CompareSwap { compare, swap } => AtomicOp::CompareSwap { compare, swap },
    };
    let id = request.id;
    let original = memory.atomic(via, request.stag, request.offset, op)?;
    let header = stream.untagged(Queue::AtomicResponse, Opcode::AtomicResponse);
    stream.pass_msn(Queue::AtomicResponse);
    let planned = Planned {
        header: DdpHeader::Untagged(header),
        message: SmallVec::from_slice(&AtomicResponse { id, original }.emit()),
        body: NO_BODY,
        finishes: None,
    };
    Ok((planned, true))
}
