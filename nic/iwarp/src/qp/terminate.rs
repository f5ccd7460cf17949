//! Connections that fail: what a TERMINATE says (RFC 5040, 4.8), and what one that comes means.

use smallvec::SmallVec;
use urxe_iwarp_wire::{
    DdpHeader, Fault, MAX_DDP_HEADER_LEN, MAX_TERMINATE_LEN, Opcode, Queue, Terminate,
};
use urxe_proto::{QpEvent, WcStatus};

use super::QueuePair;
use super::refusal::{Refusal, status_of};
use super::transmit::fetch_message;
use crate::memory::StreamMemory;
use crate::output::{Body, Reach};
use crate::requests::Position;
use crate::stream::{Fetch, Phase};

/// Whether a TERMINATE of this has the headers of the segment. It has none where they are not known
/// to be headers, and of errors that are about no segment.
const fn has_headers(fault: Fault) -> bool {
    !matches!(
        fault,
        Fault::MpaCrc
            | Fault::MpaMarker
            | Fault::RdmapCatastrophic
            | Fault::OperationVersion
            | Fault::OperationUnexpectedOpcode
            | Fault::TaggedVersion
            | Fault::UntaggedVersion
    )
}

impl QueuePair {
    /// The connection fails by what this end found: a TERMINATE says so. `segment` are the length
    /// and the DDP header of the segment in which it was, `rdmap` its RDMAP header.
    pub(super) fn fail<M: StreamMemory>(
        &mut self,
        fault: Fault,
        segment: Option<(u16, &[u8])>,
        rdmap: Option<&[u8]>,
        memory: &M,
    ) {
        self.end_stream(memory);
        let via = self.via();
        if let Some(stream) = &mut self.stream
            && matches!(stream.phase, Phase::Ending(_))
        {
            let header = DdpHeader::Untagged(stream.untagged(Queue::Terminate, Opcode::Terminate));
            let terminate = Terminate {
                fault,
                segment: segment.filter(|_| has_headers(fault)),
                rdmap,
            };
            let mut message = [0; MAX_TERMINATE_LEN];
            let len = terminate.emit(&mut message);
            let reach = Reach {
                requests: &self.requests,
                via,
                memory,
            };
            let body = Body::Bytes(alloc::vec::Vec::new());
            let pushed = stream
                .output
                .push(&header, &message[..len], body, None, &reach);
            if pushed.is_ok() {
                self.stats.terminates_sent += 1;
                self.stats.fpdus_sent += 1;
            }
        }
        self.enter_error();
    }

    /// Ends the connection because of what came.
    pub(super) fn refuse<M: StreamMemory>(&mut self, refusal: &Refusal, memory: &M) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.is_open()) else {
            return;
        };
        if !refusal.is_answered {
            self.end_terminate(&[], memory);
            return;
        }
        self.events.push_back(refusal.event());
        let len = stream.input.segment_len();
        let raw: SmallVec<[u8; MAX_DDP_HEADER_LEN]> = SmallVec::from_slice(stream.input.header());
        if refusal.receive != WcStatus::WrFlush
            && let Some(inbound) = stream.inbound.take()
        {
            let completion = inbound.wqe.completion(self.config.number, refusal.receive);
            self.completions.push_back(completion);
        }
        let segment = (!raw.is_empty()).then_some((len, &raw[..]));
        self.fail(refusal.fault, segment, refusal.rdmap.as_deref(), memory);
    }

    /// The peer ended the connection, and says why.
    pub(super) fn end_terminate<M: StreamMemory>(&mut self, message: &[u8], memory: &M) {
        self.stats.terminates_received += 1;
        if let Ok(terminate) = Terminate::parse(message)
            && let Some(position) = self.blamed(&terminate)
        {
            self.requests.finish(position, status_of(terminate.fault));
        }
        self.events.push_back(QpEvent::Fatal);
        self.disconnect(memory);
    }

    /// The READ or atomic that a TERMINATE is about. Other requests are complete once they are in
    /// the stream.
    ///
    /// The request that the TERMINATE has counts first, and its number among several that are the
    /// same: of errors while it answers a READ, Linux siw has the length of the READ as the number.
    fn blamed(&self, terminate: &Terminate<'_>) -> Option<Position> {
        let (_, header) = terminate.segment?;
        let named = match DdpHeader::parse(header) {
            Ok(DdpHeader::Untagged(header)) if header.queue == Queue::Request as u32 => {
                Some(header.msn)
            }
            _ => None,
        };
        let stream = self.stream.as_ref()?;
        let fetches = || {
            stream.fetches.iter().filter_map(|fetch| match *fetch {
                Fetch::Request { position, msn } => Some((position, Some(msn) == named)),
                Fetch::Rtr => None,
            })
        };
        let is_same = |position| {
            let request = self.requests.get(position);
            let message = request.map(|request| fetch_message(request, position).1);
            message.is_some() && message.as_deref() == terminate.rdmap
        };
        let same = || fetches().filter(|(position, _)| is_same(*position));
        let found = same().find(|(_, is_named)| *is_named);
        let found = found.or_else(|| same().next());
        let found = found.or_else(|| fetches().find(|(_, is_named)| *is_named));
        found.map(|(position, _)| position)
    }
}
