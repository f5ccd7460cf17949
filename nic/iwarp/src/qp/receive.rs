//! The way in: bytes of the stream, where payload goes, and what a message does once it is there.

use smallvec::SmallVec;
use urxe_iwarp_wire::{
    AtomicRequest, AtomicResponse, Fault, ImmediateData, Opcode, Queue, ReadRequest,
};
use urxe_proto::{
    AccessError, Completion, CompletionKind, LocalAccess, QpEvent, RemoteAccess, RemoteRange,
    SharedReceiveQueue, WcStatus, for_each_piece, scatter,
};
use urxe_wire::Immediate;

use super::QueuePair;
use super::refusal::{Refusal, of_header, of_request, of_tagged};
use crate::input::Step;
use crate::memory::{Place, StreamMemory};
use crate::output::sub_element;
use crate::stream::{Fetch, Response, ResponseTo, Segment, Target};

impl QueuePair {
    /// Takes bytes of the stream, all of them, behind those that were taken before. `srq` is the
    /// shared receive queue that the queue pair has, if it has one.
    pub fn handle_bytes<M: StreamMemory>(
        &mut self,
        bytes: &[u8],
        srq: Option<&mut SharedReceiveQueue>,
        memory: &mut M,
    ) {
        let mut rest = bytes;
        let mut srq = srq;
        while let Some(stream) = &mut self.stream {
            if !stream.is_open() {
                self.stats.bytes_ignored += rest.len() as u64;
                return;
            }
            if let Some(stalled) = &mut stream.stalled {
                stalled.rest.extend_from_slice(rest);
                return;
            }
            let result = match stream.input.next(&mut rest) {
                Step::More => return,
                Step::Header => self.begin_or_stall(srq.as_deref_mut(), memory),
                Step::Payload(piece) => self.place(piece, memory),
                Step::End => self.end_segment(memory),
                Step::Bad(fault) => {
                    self.stats.crc_errors += u64::from(fault == Fault::MpaCrc);
                    Err(fault.into())
                }
            };
            if let Err(refusal) = result {
                self.refuse(&refusal, memory);
            }
        }
    }

    /// Where the next bytes of the stream go, in order: payload of the segment whose header has
    /// come. Read them there, tell by [`Self::handle_placed`], and give what comes behind them to
    /// [`Self::handle_bytes`]. Nothing if there is no payload to come, and among markers: then all
    /// bytes go to [`Self::handle_bytes`].
    ///
    /// It is all checked, and holds until memory or queue pair are used for anything else.
    #[must_use]
    pub fn destinations<M: StreamMemory>(&self, memory: &M) -> SmallVec<[Place; 4]> {
        self.places(memory).unwrap_or_default()
    }

    fn places<M: StreamMemory>(&self, memory: &M) -> Option<SmallVec<[Place; 4]>> {
        let stream = self.stream.as_ref()?;
        let segment = stream.segment.as_ref()?;
        if !stream.is_open() || !stream.input.may_skip() {
            return None;
        }
        let left = stream.input.payload_left();
        let (pd, sges, at) = match segment.target {
            Target::Held => return None,
            Target::Write => {
                let range = self.remote_range(segment, left)?;
                let via = self.via();
                memory.check_remote(via, range, RemoteAccess::Write).ok()?;
                let place = Place::Remote { via, range };
                return Some(SmallVec::from_slice(&[place]));
            }
            Target::Receive => {
                let inbound = stream.inbound.as_ref()?;
                (inbound.wqe.pd, &inbound.wqe.sges[..], inbound.received)
            }
            Target::Fetched => {
                let Some(Fetch::Request { position, .. }) = stream.fetches.front() else {
                    return None;
                };
                let request = self.requests.get(*position)?;
                (self.config.pd, request.sges(), request.moved)
            }
        };
        let mut places = SmallVec::new();
        for_each_piece(sges, at + segment.done, left, |sge, at, len| {
            let sge = sub_element(sge, at, len);
            memory.check_local(pd, &sge, LocalAccess::Write)?;
            places.push(Place::Local { pd, sge });
            Ok(())
        })
        .ok()?;
        Some(places)
    }

    fn remote_range(&self, segment: &Segment, len: usize) -> Option<RemoteRange> {
        let header = segment.tagged.as_ref()?;
        Some(RemoteRange {
            rkey: header.stag,
            va: header.offset.wrapping_add(segment.done.into()),
            len: u32::try_from(len).ok()?,
        })
    }

    /// The first `len` bytes of what [`Self::destinations`] gave were read to there. Their CRC is
    /// taken from there; what they are part of is not complete before it was checked.
    pub fn handle_placed<M: StreamMemory>(&mut self, len: usize, memory: &mut M) {
        let places = self.destinations(memory);
        let Some(stream) = &mut self.stream else {
            return;
        };
        let mut left = u32::try_from(len).unwrap_or(u32::MAX);
        let mut result = Ok(());
        for place in places {
            let now = place.first(left);
            left -= now.len();
            if let Some(crc) = stream.input.crc_in_progress() {
                let added = match now {
                    Place::Local { pd, sge } => memory.checksum_local(pd, &sge, crc),
                    Place::Remote { via, range } => {
                        memory.checksum_remote(via, range, RemoteAccess::Write, crc)
                    }
                };
                result = result.and(added);
            }
            stream.input.skip(now.len() as usize);
            if let Some(segment) = &mut stream.segment {
                segment.done += now.len();
            }
            self.stats.bytes_placed += u64::from(now.len());
        }
        // Memory went away meanwhile, or the caller read more than there was room for.
        if result.is_err() || left > 0 {
            self.refuse(&Fault::DdpCatastrophic.into(), memory);
        }
    }

    /// Copies payload to where it goes.
    fn place<M: StreamMemory>(&mut self, piece: &[u8], memory: &mut M) -> Result<(), Refusal> {
        let via = self.via();
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let Some(segment) = &mut stream.segment else {
            return Ok(());
        };
        let done = segment.done;
        segment.done += u32::try_from(piece.len()).unwrap_or(u32::MAX);
        let placed = match segment.target {
            Target::Held => {
                segment.held.extend_from_slice(piece);
                return Ok(());
            }
            Target::Write => {
                let range = segment.tagged.as_ref().map(|header| RemoteRange {
                    rkey: header.stag,
                    va: header.offset.wrapping_add(done.into()),
                    len: segment.done - done,
                });
                let range = range.ok_or(Fault::DdpCatastrophic)?;
                memory
                    .write_remote(via, range, piece)
                    .map_err(|error| of_tagged(error).into())
            }
            Target::Receive => {
                let inbound = stream.inbound.as_ref().ok_or(Fault::DdpCatastrophic)?;
                let (wqe, at) = (&inbound.wqe, inbound.received + done);
                scatter(memory, wqe.pd, &wqe.sges, at, piece).map_err(|_| {
                    Refusal::with_receive(Fault::DdpCatastrophic, WcStatus::LocalProtection)
                })
            }
            Target::Fetched => {
                let Some(Fetch::Request { position, .. }) = stream.fetches.front().copied() else {
                    return Err(Fault::DdpCatastrophic.into());
                };
                let request = self.requests.get(position);
                let request = request.ok_or(Fault::DdpCatastrophic)?;
                let at = request.moved + done;
                scatter(memory, via.pd, request.sges(), at, piece).map_err(|_| {
                    self.requests.finish(position, WcStatus::LocalProtection);
                    Fault::RdmapCatastrophic.into()
                })
            }
        };
        self.stats.bytes_copied += piece.len() as u64;
        placed
    }

    /// A segment is complete, and its CRC right.
    fn end_segment<M: StreamMemory>(&mut self, memory: &mut M) -> Result<(), Refusal> {
        self.stats.fpdus_received += 1;
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        stream.may_send = true;
        if !core::mem::replace(&mut stream.has_received, true) {
            self.events.push_back(QpEvent::CommunicationEstablished);
        }
        let Some(segment) = stream.segment.take() else {
            return Ok(());
        };
        let is_of_program = match segment.target {
            Target::Write | Target::Receive => true,
            Target::Fetched => false,
            Target::Held => matches!(
                segment.opcode,
                Opcode::Immediate | Opcode::ImmediateSolicited
            ),
        };
        self.messages += u64::from(segment.is_last && is_of_program);
        match segment.target {
            Target::Write => {
                let before = if stream.is_written { 0 } else { stream.written };
                stream.written = before.saturating_add(segment.done);
                stream.is_written = segment.is_last;
                Ok(())
            }
            Target::Fetched => {
                self.end_fetched(&segment);
                Ok(())
            }
            Target::Receive => {
                if let Some(inbound) = &mut stream.inbound {
                    inbound.received += segment.done;
                }
                if segment.is_last {
                    stream.expect_next(Queue::Send);
                    return self.deliver(&segment, None, memory);
                }
                Ok(())
            }
            Target::Held => self.end_held(&segment, memory),
        }
    }

    fn end_fetched(&mut self, segment: &Segment) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if let Some(Fetch::Request { position, .. }) = stream.fetches.front()
            && let Some(request) = self.requests.get_mut(*position)
        {
            request.moved += segment.done;
            if segment.is_last {
                self.requests.finish(*position, WcStatus::Success);
            }
        }
        if segment.is_last {
            stream.fetches.pop_front();
        }
        self.complete_requests();
    }

    /// A message is there that takes a receive request.
    fn deliver<M: StreamMemory>(
        &mut self,
        segment: &Segment,
        immediate: Option<ImmediateData>,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let via = self.via();
        let rkey = segment.untagged.as_ref().map(|header| header.invalidate);
        let invalidated_rkey = rkey.filter(|_| segment.opcode.invalidates());
        if let Some(rkey) = invalidated_rkey
            && memory.invalidate(via, rkey).is_err()
        {
            let fault = Fault::ProtectionCannotInvalidate;
            return Err(Refusal::with_receive(fault, WcStatus::LocalAccess));
        }
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let Some(inbound) = stream.inbound.take() else {
            return Ok(());
        };
        let (kind, byte_len) = match immediate {
            Some(_) => (
                CompletionKind::RecvWriteImm,
                core::mem::take(&mut stream.written),
            ),
            None => (CompletionKind::Recv, inbound.received),
        };
        self.completions.push_back(Completion {
            kind,
            byte_len,
            immediate: immediate.map(|data| Immediate(data.0)),
            invalidated_rkey,
            solicited: segment.opcode.is_solicited(),
            ..inbound.wqe.completion(via.qp, WcStatus::Success)
        });
        Ok(())
    }

    fn end_held<M: StreamMemory>(
        &mut self,
        segment: &Segment,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let held = &segment.held[..];
        match segment.opcode {
            Opcode::ReadRequest => self.end_read_request(held, memory),
            Opcode::AtomicRequest => self.end_atomic_request(held, memory),
            Opcode::AtomicResponse => self.end_atomic_response(held, memory),
            Opcode::Terminate => {
                self.end_terminate(held, memory);
                Ok(())
            }
            _ => {
                let data = ImmediateData::parse(held).map_err(|error| of_header(error, false))?;
                if let Some(stream) = &mut self.stream {
                    stream.expect_next(Queue::Send);
                }
                self.deliver(segment, Some(data), memory)
            }
        }
    }

    fn end_read_request<M: StreamMemory>(
        &mut self,
        held: &[u8],
        memory: &M,
    ) -> Result<(), Refusal> {
        let refused = |fault| Refusal::with_header(fault, held);
        let request = ReadRequest::parse(held).map_err(|error| of_header(error, false))?;
        if request.len > 0 {
            if !self.attributes.allow_remote_read {
                return Err(refused(Fault::ProtectionAccess));
            }
            if request
                .source_offset
                .checked_add(request.len.into())
                .is_none()
            {
                return Err(refused(Fault::ProtectionOffsetWrap));
            }
            let range = RemoteRange {
                rkey: request.source_stag,
                va: request.source_offset,
                len: request.len,
            };
            let checked = memory.check_remote(self.via(), range, RemoteAccess::Read);
            checked.map_err(|error| refused(of_request(error)))?;
        }
        self.respond(ResponseTo::Read { request, sent: 0 })
            .map_err(refused)
    }

    fn end_atomic_request<M: StreamMemory>(
        &mut self,
        held: &[u8],
        memory: &M,
    ) -> Result<(), Refusal> {
        let refused = |fault| Refusal::with_header(fault, held);
        let request = AtomicRequest::parse(held).map_err(|error| of_header(error, false))?;
        if !self.attributes.allow_remote_atomic {
            return Err(refused(Fault::ProtectionAccess));
        }
        let range = RemoteRange {
            rkey: request.stag,
            va: request.offset,
            len: 8,
        };
        let checked = match request.offset.is_multiple_of(8) {
            true => memory.check_remote(self.via(), range, RemoteAccess::Atomic),
            false => Err(AccessError::Misaligned),
        };
        checked.map_err(|error| refused(of_request(error)))?;
        self.respond(ResponseTo::Atomic(request)).map_err(refused)
    }

    /// Queues a response; there are as many at a time as this end said (IRD).
    fn respond(&mut self, to: ResponseTo) -> Result<(), Fault> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        // The READ of no bytes that comes first does not need any.
        let is_empty = matches!(to, ResponseTo::Read { request, .. } if request.len == 0);
        let allowed = stream.terms.ird.max(u16::from(is_empty));
        if stream.responses.len() >= usize::from(allowed) {
            return Err(Fault::UntaggedNoBuffer);
        }
        let msn = stream.expected_msn[Queue::Request as usize];
        stream.responses.push_back(Response { msn, to });
        stream.expect_next(Queue::Request);
        Ok(())
    }

    fn end_atomic_response<M: StreamMemory>(
        &mut self,
        held: &[u8],
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let response = AtomicResponse::parse(held).map_err(|error| of_header(error, false))?;
        let pd = self.config.pd;
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let Some(Fetch::Request { position, .. }) = stream.fetches.front().copied() else {
            return Err(Fault::OperationUnexpectedOpcode.into());
        };
        let request = self.requests.get(position);
        let request = request.filter(|request| request.op.is_atomic());
        let request = request.ok_or(Fault::OperationUnexpectedOpcode)?;
        if response.id != atomic_id(position) {
            return Err(Fault::OperationUnspecified.into());
        }
        let value = response.original.to_ne_bytes();
        if scatter(memory, pd, request.sges(), 0, &value).is_err() {
            self.requests.finish(position, WcStatus::LocalProtection);
            return Err(Fault::RdmapCatastrophic.into());
        }
        stream.expect_next(Queue::AtomicResponse);
        stream.fetches.pop_front();
        self.requests.finish(position, WcStatus::Success);
        self.complete_requests();
        Ok(())
    }
}

/// What an atomic request is known by in its response.
#[expect(
    clippy::cast_possible_truncation,
    reason = "fewer than 2^32 are outstanding"
)]
pub(super) const fn atomic_id(position: u64) -> u32 {
    position as u32
}
