//! The beginning of a segment: whether it may come, and where its payload goes. All of it is
//! checked here, before any of it is placed.

use smallvec::SmallVec;
use urxe_iwarp_wire::{
    AtomicRequest, AtomicResponse, DdpHeader, Fault, ImmediateData, MAX_TERMINATE_LEN, Opcode,
    Queue, ReadRequest, Tagged, Untagged,
};
use urxe_proto::{
    AccessError, LocalAccess, PdId, RecvWqe, RemoteAccess, RemoteRange, SendOp, Sge,
    SharedReceiveQueue, WcStatus, for_each_piece,
};

use super::QueuePair;
use super::refusal::{Refusal, of_header, of_tagged};
use crate::constants::RTR_STAG;
use crate::memory::StreamMemory;
use crate::output::sub_element;
use crate::stream::{Fetch, Inbound, Segment, Stream, Target};

/// Whether a part of a list may be written.
fn check_list<M: StreamMemory>(
    memory: &M,
    pd: PdId,
    sges: &[Sge],
    offset: u32,
    len: u32,
) -> Result<(), AccessError> {
    for_each_piece(sges, offset, len as usize, |sge, at, len| {
        memory.check_local(pd, &sub_element(sge, at, len), LocalAccess::Write)
    })
}

/// The queue that messages of an untagged operation are in, and the longest of them that is no
/// SEND.
const fn queue_of(opcode: Opcode) -> Option<(Queue, usize)> {
    match opcode {
        Opcode::Send
        | Opcode::SendInvalidate
        | Opcode::SendSolicited
        | Opcode::SendSolicitedInvalidate => Some((Queue::Send, 0)),
        Opcode::Immediate | Opcode::ImmediateSolicited => Some((Queue::Send, ImmediateData::LEN)),
        Opcode::ReadRequest => Some((Queue::Request, ReadRequest::LEN)),
        Opcode::AtomicRequest => Some((Queue::Request, AtomicRequest::LEN)),
        Opcode::AtomicResponse => Some((Queue::AtomicResponse, AtomicResponse::LEN)),
        Opcode::Terminate => Some((Queue::Terminate, MAX_TERMINATE_LEN)),
        Opcode::Write | Opcode::ReadResponse => None,
    }
}

impl QueuePair {
    /// A segment begins whose DDP header has come.
    pub(super) fn begin_segment<M: StreamMemory>(
        &mut self,
        srq: Option<&mut SharedReceiveQueue>,
        memory: &M,
    ) -> Result<(), Refusal> {
        let Some(stream) = self.stream.take() else {
            return Ok(());
        };
        let mut stream = stream;
        let result = self.segment(&mut stream, srq, memory);
        let result = result.map(|segment| stream.segment = Some(segment));
        self.stream = Some(stream);
        result
    }

    fn segment<M: StreamMemory>(
        &mut self,
        stream: &mut Stream,
        srq: Option<&mut SharedReceiveQueue>,
        memory: &M,
    ) -> Result<Segment, Refusal> {
        let raw = stream.input.header();
        let is_tagged = raw.len() == Tagged::LEN;
        let len = u32::try_from(stream.input.payload_left()).unwrap_or(u32::MAX);
        let header = DdpHeader::parse(raw).map_err(|error| of_header(error, is_tagged))?;
        let opcode =
            Opcode::parse(header.control()).map_err(|error| of_header(error, is_tagged))?;
        let (target, tagged, untagged) = match header {
            DdpHeader::Tagged(header) => {
                let target = self.tagged(stream, opcode, &header, len, memory);
                (target, Some(header), None)
            }
            DdpHeader::Untagged(header) => {
                let target = self.untagged(stream, opcode, &header, len, srq, memory);
                (target, None, Some(header))
            }
        };
        let target = target.map_err(|refusal| Refusal {
            is_answered: opcode != Opcode::Terminate,
            ..refusal
        })?;
        Ok(Segment {
            opcode,
            target,
            tagged,
            untagged,
            is_last: header.is_last(),
            done: 0,
            held: SmallVec::new(),
        })
    }

    fn tagged<M: StreamMemory>(
        &mut self,
        stream: &Stream,
        opcode: Opcode,
        header: &Tagged,
        len: u32,
        memory: &M,
    ) -> Result<Target, Refusal> {
        match opcode {
            Opcode::Write if len == 0 => Ok(Target::Write),
            Opcode::Write if !self.attributes.allow_remote_write => {
                Err(Fault::ProtectionAccess.into())
            }
            Opcode::Write => {
                if header.offset.checked_add(len.into()).is_none() {
                    return Err(Fault::TaggedOffsetWrap.into());
                }
                let range = RemoteRange {
                    rkey: header.stag,
                    va: header.offset,
                    len,
                };
                let checked = memory.check_remote(self.via(), range, RemoteAccess::Write);
                checked.map_err(of_tagged)?;
                Ok(Target::Write)
            }
            Opcode::ReadResponse => self.fetched(stream, header, len, memory),
            _ => Err(Fault::OperationUnexpectedOpcode.into()),
        }
    }

    /// The data of a READ comes in the order in which it was asked for, and whole.
    fn fetched<M: StreamMemory>(
        &mut self,
        stream: &Stream,
        header: &Tagged,
        len: u32,
        memory: &M,
    ) -> Result<Target, Refusal> {
        let position = match stream.fetches.front() {
            Some(Fetch::Request { position, .. }) => *position,
            Some(Fetch::Rtr) if (header.stag, header.offset, len) == (RTR_STAG, 0, 0) => {
                return Ok(Target::Fetched);
            }
            Some(Fetch::Rtr) => return Err(Fault::TaggedInvalidStag.into()),
            None => return Err(Fault::OperationUnexpectedOpcode.into()),
        };
        let request = self.requests.get(position);
        let request = request.filter(|request| matches!(request.op, SendOp::Read { .. }));
        let request = request.ok_or(Fault::OperationUnexpectedOpcode)?;
        let (stag, first) = request.sink();
        if header.stag != stag {
            return Err(Fault::TaggedInvalidStag.into());
        }
        let expected = first.wrapping_add(request.moved.into());
        if header.offset != expected || len > request.length - request.moved {
            return Err(Fault::TaggedBounds.into());
        }
        if header.is_last != (len == request.length - request.moved) {
            return Err(Fault::OperationUnspecified.into());
        }
        let sges = request.sges();
        if check_list(memory, self.config.pd, sges, request.moved, len).is_err() {
            self.requests.finish(position, WcStatus::LocalProtection);
            return Err(Fault::RdmapCatastrophic.into());
        }
        Ok(Target::Fetched)
    }

    fn untagged<M: StreamMemory>(
        &mut self,
        stream: &mut Stream,
        opcode: Opcode,
        header: &Untagged,
        len: u32,
        srq: Option<&mut SharedReceiveQueue>,
        memory: &M,
    ) -> Result<Target, Refusal> {
        let (queue, longest) = queue_of(opcode).ok_or(Fault::OperationUnexpectedOpcode)?;
        let named = Queue::from_number(header.queue).ok_or(Fault::UntaggedQueue)?;
        if named != queue {
            return Err(Fault::UntaggedQueue.into());
        }
        if header.msn != stream.expected_msn[queue as usize] {
            return Err(Fault::UntaggedMsnRange.into());
        }
        if longest == 0 {
            return self.send(stream, opcode, header, len, srq, memory);
        }
        if stream.inbound.is_some() && queue == Queue::Send {
            return Err(Fault::OperationUnexpectedOpcode.into());
        }
        if header.offset != 0 {
            return Err(Fault::UntaggedOffset.into());
        }
        if !header.is_last || len as usize > longest {
            return Err(Fault::UntaggedTooLong.into());
        }
        if queue == Queue::Send {
            // Immediate data takes a receive request, whose buffers it leaves alone.
            let wqe = self.take_receive(srq)?;
            stream.inbound = Some(Inbound {
                wqe,
                opcode,
                received: 0,
            });
        }
        Ok(Target::Held)
    }

    fn send<M: StreamMemory>(
        &mut self,
        stream: &mut Stream,
        opcode: Opcode,
        header: &Untagged,
        len: u32,
        srq: Option<&mut SharedReceiveQueue>,
        memory: &M,
    ) -> Result<Target, Refusal> {
        let inbound = match &mut stream.inbound {
            Some(inbound) if inbound.opcode != opcode => {
                return Err(Fault::OperationUnexpectedOpcode.into());
            }
            Some(inbound) if inbound.received != header.offset => {
                return Err(Fault::UntaggedOffset.into());
            }
            Some(inbound) => inbound,
            None if header.offset != 0 => return Err(Fault::UntaggedOffset.into()),
            slot => slot.insert(Inbound {
                wqe: self.take_receive(srq)?,
                opcode,
                received: 0,
            }),
        };
        let wqe = &inbound.wqe;
        // Offsets and the lengths of completions have 32 bits, whatever the buffers have room for.
        let longest = wqe.capacity.min(u32::MAX.into());
        if u64::from(inbound.received) + u64::from(len) > longest {
            let (fault, status) = (Fault::UntaggedTooLong, WcStatus::LocalLength);
            return Err(Refusal::with_receive(fault, status));
        }
        if check_list(memory, wqe.pd, &wqe.sges, inbound.received, len).is_err() {
            let (fault, status) = (Fault::DdpCatastrophic, WcStatus::LocalProtection);
            return Err(Refusal::with_receive(fault, status));
        }
        Ok(Target::Receive)
    }

    fn take_receive(&mut self, srq: Option<&mut SharedReceiveQueue>) -> Result<RecvWqe, Refusal> {
        let wqe = match srq {
            Some(srq) if self.config.shares_receives => srq.take(),
            _ => self.receives.pop_front(),
        };
        wqe.ok_or_else(|| Fault::UntaggedNoBuffer.into())
    }
}
