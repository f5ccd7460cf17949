//! The sending side of MPA: FPDUs on their way into the stream. Headers, padding and CRC are made
//! here. Payload stays where it is until the caller gathers it, but where it is short, has markers
//! in it, or may change under a CRC that was computed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use smallvec::SmallVec;
use urxe_iwarp_wire::{Crc32c, DdpHeader, MAX_DDP_HEADER_LEN, Marking, fpdu};
use urxe_proto::{
    AccessError, Payload, RemoteAccess, RemoteRange, Sge, Via, for_each_piece, gather,
};

use crate::constants::COPIED_BYTES;
use crate::memory::StreamMemory;
use crate::requests::{Position, Requests};

/// Where the payload of a frame is.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// In the data of a request.
    Request {
        position: Position,
        offset: u32,
        len: u32,
    },
    /// In memory that the peer reads.
    Remote { rkey: u32, va: u64, len: u32 },
    /// Here.
    Bytes(Vec<u8>),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::Request { len, .. } | Self::Remote { len, .. } => *len as usize,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// An FPDU.
#[derive(Clone, Debug)]
struct Frame {
    /// Where the stream stands before it.
    begin: Option<Marking>,
    /// Length, DDP header, messages that are headers to RDMAP, and short payload.
    head: SmallVec<[u8; 96]>,
    body: Body,
    /// Padding and CRC.
    tail: SmallVec<[u8; 8]>,
    /// The request that is done once the frame is sent.
    finishes: Option<Position>,
}

impl Frame {
    fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Makes padding and CRC for what head and body are now.
    fn seal<M: StreamMemory>(
        &mut self,
        has_crc: bool,
        reach: &Reach<'_, M>,
    ) -> Result<(), AccessError> {
        let ulpdu_len = self.head.len() + self.body.len() - fpdu::HEADER_LEN;
        let mut tail = SmallVec::from_slice(&[0; 3][..fpdu::pad_len(ulpdu_len)]);
        let mut crc = Crc32c::new();
        if has_crc {
            crc.update(&self.head);
            reach.checksum(&self.body, &mut crc)?;
            crc.update(&tail);
            tail.extend_from_slice(&crc.finish());
        } else {
            tail.extend_from_slice(&[0; Crc32c::LEN]);
        }
        self.tail = tail;
        Ok(())
    }
}

/// What is needed to reach payload.
#[derive(Clone, Copy)]
pub(crate) struct Reach<'a, M> {
    pub(crate) requests: &'a Requests,
    pub(crate) via: Via,
    pub(crate) memory: &'a M,
}

impl<M: StreamMemory> Reach<'_, M> {
    fn checksum(&self, body: &Body, crc: &mut Crc32c) -> Result<(), AccessError> {
        match self.payload(body) {
            Payload::Local { sges, offset, len } => {
                for_each_piece(sges, offset, len as usize, |sge, at, len| {
                    let piece = sub_element(sge, at, len);
                    self.memory.checksum_local(self.via.pd, &piece, crc)
                })
            }
            Payload::Bytes(bytes) => {
                crc.update(bytes);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Copies the payload.
    fn copy(&self, body: &Body) -> Result<Vec<u8>, AccessError> {
        let mut out = alloc::vec![0; body.len()];
        self.copy_to(body, &mut out)?;
        Ok(out)
    }

    /// Copies the payload to `out`, which is as long.
    fn copy_to(&self, body: &Body, out: &mut [u8]) -> Result<(), AccessError> {
        match self.payload(body) {
            Payload::Local { sges, offset, .. } => {
                gather(self.memory, self.via.pd, sges, offset, out)
            }
            Payload::Bytes(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            Payload::Remote { via, rkey, va, len } => {
                let range = RemoteRange { rkey, va, len };
                let access = RemoteAccess::Read;
                self.memory.read_remote(via, range, access, out)
            }
            Payload::Empty | Payload::Words(_) => Ok(()),
        }
    }

    fn payload<'b>(&'b self, body: &'b Body) -> Payload<'b> {
        payload(body, self.requests, self.via)
    }
}

fn payload<'b>(body: &'b Body, requests: &'b Requests, via: Via) -> Payload<'b> {
    match body {
        Body::Request {
            position,
            offset,
            len,
        } => requests
            .get(*position)
            .map_or(Payload::Empty, |request| request.payload(*offset, *len)),
        Body::Remote { rkey, va, len } => Payload::Remote {
            via,
            rkey: *rkey,
            va: *va,
            len: *len,
        },
        Body::Bytes(bytes) => Payload::Bytes(bytes),
    }
}

/// `len` bytes of an element from byte `at`.
pub(crate) fn sub_element(sge: &Sge, at: u32, len: usize) -> Sge {
    Sge {
        addr: sge.addr.wrapping_add(at.into()),
        len: u32::try_from(len).unwrap_or(u32::MAX),
        lkey: sge.lkey,
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    has_crc: bool,
    marking: Option<Marking>,
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Bytes of the first frame that were sent.
    sent: usize,
}

impl Output {
    pub(crate) fn new(has_markers: bool, has_crc: bool) -> Self {
        Self {
            has_crc,
            marking: has_markers.then(Marking::new),
            frames: VecDeque::new(),
            bytes: 0,
            sent: 0,
        }
    }

    /// Bytes that wait to be sent.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether payload of others must not change until it is sent: a CRC covers it, or it was
    /// copied among markers.
    pub(crate) const fn copies_remote(&self) -> bool {
        self.has_crc || self.marking.is_some()
    }

    /// Whether a frame waits whose payload the peer reads from memory.
    pub(crate) fn has_remote(&self) -> bool {
        let mut frames = self.frames.iter();
        frames.any(|frame| matches!(frame.body, Body::Remote { .. }))
    }

    /// The request whose payload is to be sent first.
    pub(crate) fn first_request(&self) -> Option<Position> {
        self.frames.iter().find_map(|frame| match frame.body {
            Body::Request { position, .. } => Some(position),
            _ => None,
        })
    }

    /// Makes a frame. `message` are bytes between header and body.
    ///
    /// # Errors
    /// Why the payload cannot be reached. There is no frame then.
    pub(crate) fn push<M: StreamMemory>(
        &mut self,
        header: &DdpHeader,
        message: &[u8],
        body: Body,
        finishes: Option<Position>,
        reach: &Reach<'_, M>,
    ) -> Result<(), AccessError> {
        let mut raw = [0; MAX_DDP_HEADER_LEN];
        let header_len = header.emit(&mut raw);
        let header = &raw[..header_len];
        let ulpdu_len = header_len + message.len() + body.len();
        let begin = self.marking;
        let frame = if let Some(marking) = &mut self.marking {
            let payload = reach.copy(&body)?;
            let mut out = Vec::new();
            let pieces = [header, message, &payload];
            fpdu::emit_marked(marking, &pieces, self.has_crc, |piece| {
                out.extend_from_slice(piece);
            });
            Frame {
                begin,
                head: SmallVec::new(),
                body: Body::Bytes(out),
                tail: SmallVec::new(),
                finishes,
            }
        } else {
            let mut head = SmallVec::new();
            let len = u16::try_from(ulpdu_len).map_err(|_| AccessError::OutOfBounds)?;
            head.extend_from_slice(&len.to_be_bytes());
            head.extend_from_slice(header);
            head.extend_from_slice(message);
            let body = if body.len() <= COPIED_BYTES {
                let at = head.len();
                head.resize(at + body.len(), 0);
                reach.copy_to(&body, &mut head[at..])?;
                Body::Bytes(Vec::new())
            } else {
                body
            };
            let mut frame = Frame {
                begin,
                head,
                body,
                tail: SmallVec::new(),
                finishes,
            };
            frame.seal(self.has_crc, reach)?;
            if frame.body.len() == 0 {
                // A piece less to be gathered.
                let tail = core::mem::take(&mut frame.tail);
                frame.head.extend_from_slice(&tail);
            }
            frame
        };
        self.bytes += frame.len();
        self.frames.push_back(frame);
        Ok(())
    }

    /// What is to be sent next, in pieces.
    pub(crate) fn pieces<'a>(
        &'a self,
        requests: &'a Requests,
        via: Via,
    ) -> impl Iterator<Item = Payload<'a>> {
        let all = self.frames.iter().flat_map(move |frame| {
            [
                Payload::Bytes(&frame.head),
                payload(&frame.body, requests, via),
                Payload::Bytes(&frame.tail),
            ]
        });
        let mut skip = self.sent;
        all.filter_map(move |piece| {
            let len = piece.len() as usize;
            if skip >= len {
                skip -= len;
                return None;
            }
            Some(without(piece, core::mem::take(&mut skip)))
        })
    }

    /// So many bytes were sent. Calls `finished` for requests that are done by that.
    pub(crate) fn handle_sent(&mut self, len: usize, mut finished: impl FnMut(Position)) {
        self.sent += len.min(self.bytes);
        self.bytes -= len.min(self.bytes);
        while let Some(front) = self.frames.front()
            && self.sent >= front.len()
        {
            self.sent -= front.len();
            front
                .finishes
                .iter()
                .for_each(|position| finished(*position));
            self.frames.pop_front();
        }
    }

    /// Copies payload that is still where its program has it, and takes its CRC again: what waits
    /// may be changed. Of a frame that was sent in part, the CRC stays as it is: it covers what was
    /// sent.
    pub(crate) fn keep<M: StreamMemory>(&mut self, reach: &Reach<'_, M>) {
        if !self.has_crc {
            return;
        }
        let mut sent = self.sent;
        for frame in &mut self.frames {
            let is_begun = core::mem::take(&mut sent) > frame.head.len();
            if let Body::Request { .. } = frame.body
                && let Ok(bytes) = reach.copy(&frame.body)
            {
                frame.body = Body::Bytes(bytes);
                // There is no payload any more that could not be reached.
                let _ = is_begun || frame.seal(true, reach).is_ok();
            }
        }
    }

    /// Drops all frames.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        (self.bytes, self.sent) = (0, 0);
    }

    /// Drops all frames but one that was sent in part, whose payload is copied: what it was in may
    /// be used for other things from now on.
    ///
    /// # Errors
    /// Why it cannot be copied. All frames are gone then, and the stream makes no sense any more.
    pub(crate) fn cut<M: StreamMemory>(&mut self, reach: &Reach<'_, M>) -> Result<(), AccessError> {
        let keep = usize::from(self.sent > 0);
        if let Some(dropped) = self.frames.get(keep) {
            self.marking = dropped.begin;
        }
        self.frames.truncate(keep);
        let result = self.frames.front_mut().map_or(Ok(()), |frame| {
            frame.body = Body::Bytes(reach.copy(&frame.body)?);
            frame.finishes = None;
            Ok(())
        });
        if result.is_err() {
            self.clear();
        }
        let len: usize = self.frames.iter().map(Frame::len).sum();
        self.bytes = len - self.sent;
        result
    }
}

/// The piece without its first bytes.
fn without(piece: Payload<'_>, skip: usize) -> Payload<'_> {
    let less = u32::try_from(skip).unwrap_or(u32::MAX);
    match piece {
        Payload::Bytes(bytes) => Payload::Bytes(&bytes[skip..]),
        Payload::Local { sges, offset, len } => Payload::Local {
            sges,
            offset: offset + less,
            len: len - less,
        },
        Payload::Remote { via, rkey, va, len } => Payload::Remote {
            via,
            rkey,
            va: va.wrapping_add(less.into()),
            len: len - less,
        },
        Payload::Empty | Payload::Words(_) => piece,
    }
}
