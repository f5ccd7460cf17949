//! The receiving side of MPA: finds FPDUs in a stream, takes markers out, and checks CRCs
//! (RFC 5044, 4 and 6).

use urxe_iwarp_wire::{Crc32c, DdpHeader, Fault, MAX_DDP_HEADER_LEN, Marker, Marking, fpdu};

/// Longest beginning of an FPDU: length and DDP header.
const HEAD_LEN: usize = fpdu::HEADER_LEN + MAX_DDP_HEADER_LEN;
/// What the kind of DDP header is known from: the length, and its first byte.
const KIND_LEN: usize = fpdu::HEADER_LEN + 1;
/// Longest end: padding and CRC.
const TAIL_LEN: usize = 3 + Crc32c::LEN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Payload,
    Tail,
}

/// What comes next in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'b> {
    /// Nothing until there are more bytes.
    More,
    /// An FPDU begins: [`Input::header`] has its DDP header, [`Input::payload_left`] bytes of
    /// payload follow.
    Header,
    /// Some of its payload.
    Payload(&'b [u8]),
    /// Its end, with the right CRC if there are CRCs.
    End,
    /// The stream makes no sense any more.
    Bad(Fault),
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    has_crc: bool,
    marking: Option<Marking>,
    marker: [u8; Marker::LEN],
    marker_have: usize,
    /// Bytes of the stream since the beginning of the length.
    back: u16,
    stage: Stage,
    head: [u8; HEAD_LEN],
    tail: [u8; TAIL_LEN],
    /// Bytes there are of head or tail.
    have: usize,
    /// The DDP header has come as a whole.
    has_header: bool,
    payload_left: usize,
    crc: Crc32c,
    /// The CRC of this FPDU was checked ahead of its payload.
    is_checked: bool,
}

impl Input {
    pub(crate) fn new(has_markers: bool, has_crc: bool) -> Self {
        Self {
            has_crc,
            marking: has_markers.then(Marking::new),
            marker: [0; Marker::LEN],
            marker_have: 0,
            back: 0,
            stage: Stage::Head,
            head: [0; HEAD_LEN],
            tail: [0; TAIL_LEN],
            have: 0,
            has_header: false,
            payload_left: 0,
            crc: Crc32c::new(),
            is_checked: false,
        }
    }

    /// Length of the ULPDU in progress, bytes.
    fn ulpdu_len(&self) -> usize {
        usize::from(u16::from_be_bytes([self.head[0], self.head[1]]))
    }

    /// Length of the ULPDU in progress as the wire has it.
    pub(crate) fn segment_len(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// The DDP header of the FPDU in progress, or that has just ended, once it has come; empty
    /// before.
    pub(crate) fn header(&self) -> &[u8] {
        let len = if self.has_header {
            self.header_len()
        } else {
            0
        };
        &self.head[fpdu::HEADER_LEN..][..len]
    }

    /// Length of the DDP header of the FPDU in progress, bytes; known from its first.
    fn header_len(&self) -> usize {
        DdpHeader::len_of(self.head[fpdu::HEADER_LEN])
    }

    /// Bytes of payload that the FPDU in progress still has.
    pub(crate) fn payload_left(&self) -> usize {
        match self.stage {
            Stage::Payload => self.payload_left,
            _ => 0,
        }
    }

    /// Whether an FPDU has begun and not ended.
    pub(crate) fn is_within(&self) -> bool {
        self.stage != Stage::Head || self.have > 0 || self.marker_have > 0
    }

    /// Whether payload may be read to where it goes: not among markers.
    pub(crate) fn may_skip(&self) -> bool {
        self.marking.is_none() && self.payload_left() > 0
    }

    /// The CRC in progress, if it counts, for payload that was skipped.
    pub(crate) fn crc_in_progress(&mut self) -> Option<&mut Crc32c> {
        (self.has_crc && !self.is_checked).then_some(&mut self.crc)
    }

    /// So many bytes of payload were read to where they go.
    pub(crate) fn skip(&mut self, len: usize) {
        self.payload_left -= len;
    }

    /// Goes on by one step, and takes the bytes for it.
    pub(crate) fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Step<'b> {
        loop {
            let is_between = self.stage == Stage::Head && self.have == 0;
            self.has_header &= !is_between;
            if is_between && self.has_whole_bad(bytes) {
                return Step::Bad(Fault::MpaCrc);
            }
            match self.take_marker(bytes) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(step) => return step,
            }
            let step = match self.stage {
                Stage::Head => self.next_head(bytes),
                Stage::Payload if self.payload_left == 0 => {
                    (self.stage, self.have) = (Stage::Tail, 0);
                    None
                }
                Stage::Payload => Some(self.next_payload(bytes)),
                Stage::Tail => self.next_tail(bytes),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Checks the CRC of an FPDU that is there as a whole, before anything of it is placed.
    fn has_whole_bad(&mut self, bytes: &[u8]) -> bool {
        self.is_checked = false;
        if !self.has_crc || self.marking.is_some() || bytes.len() < fpdu::HEADER_LEN {
            return false;
        }
        let ulpdu_len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let Some(whole) = bytes.get(..fpdu::len(ulpdu_len)) else {
            return false;
        };
        let (covered, sent) = whole.split_at(whole.len() - Crc32c::LEN);
        let mut crc = Crc32c::new();
        crc.update(covered);
        self.is_checked = true;
        crc.finish() != sent
    }

    /// Takes a marker where one is due; whether it did.
    fn take_marker<'b>(&mut self, bytes: &mut &'b [u8]) -> Result<bool, Step<'b>> {
        let Some(marking) = &mut self.marking else {
            return Ok(false);
        };
        if marking.until_marker() > 0 {
            return Ok(false);
        }
        let len = bytes.len().min(Marker::LEN - self.marker_have);
        let (now, later) = bytes.split_at(len);
        *bytes = later;
        self.marker[self.marker_have..][..len].copy_from_slice(now);
        self.marker_have += len;
        if self.marker_have < Marker::LEN {
            return Err(Step::More);
        }
        self.marker_have = 0;
        marking.pass(Marker::LEN);
        self.crc.update(&self.marker);
        if Marker::parse(&self.marker).back != self.back {
            return Err(Step::Bad(Fault::MpaMarker));
        }
        if self.back > 0 {
            self.pass_back(Marker::LEN);
        }
        Ok(true)
    }

    fn pass_back(&mut self, len: usize) {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        self.back = self.back.wrapping_add(len);
    }

    /// Takes up to `want` bytes, but none beyond the next marker.
    fn take<'b>(&mut self, bytes: &mut &'b [u8], want: usize) -> &'b [u8] {
        let room = match &self.marking {
            Some(marking) => marking.until_marker(),
            None => usize::MAX,
        };
        let (now, later) = bytes.split_at(want.min(room).min(bytes.len()));
        *bytes = later;
        if let Some(marking) = &mut self.marking {
            marking.pass(now.len());
        }
        self.pass_back(now.len());
        now
    }

    fn cover(&mut self, bytes: &[u8]) {
        if let Some(crc) = self.crc_in_progress() {
            crc.update(bytes);
        }
    }

    fn next_head<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<Step<'b>> {
        let want = if self.have < KIND_LEN {
            KIND_LEN
        } else {
            fpdu::HEADER_LEN + self.header_len()
        };
        let now = self.take(bytes, want - self.have);
        if now.is_empty() {
            return Some(Step::More);
        }
        self.head[self.have..][..now.len()].copy_from_slice(now);
        self.have += now.len();
        self.cover(now);
        if self.have < KIND_LEN {
            return None;
        }
        // A ULPDU that ends within its header is none of DDP's.
        let header_len = self.header_len();
        if self.ulpdu_len() < header_len {
            return Some(Step::Bad(Fault::DdpCatastrophic));
        }
        if self.have < fpdu::HEADER_LEN + header_len {
            return None;
        }
        self.stage = Stage::Payload;
        self.has_header = true;
        self.payload_left = self.ulpdu_len() - header_len;
        Some(Step::Header)
    }

    fn next_payload<'b>(&mut self, bytes: &mut &'b [u8]) -> Step<'b> {
        let now = self.take(bytes, self.payload_left);
        if now.is_empty() {
            return Step::More;
        }
        self.payload_left -= now.len();
        self.cover(now);
        Step::Payload(now)
    }

    fn next_tail<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<Step<'b>> {
        let pad_len = fpdu::pad_len(self.ulpdu_len());
        // Padding ends where a marker may stand, so it is taken alone.
        let want = if self.have < pad_len {
            pad_len
        } else {
            pad_len + Crc32c::LEN
        };
        let now = self.take(bytes, want - self.have);
        if now.is_empty() {
            return Some(Step::More);
        }
        if self.have < pad_len {
            self.cover(now);
        }
        self.tail[self.have..][..now.len()].copy_from_slice(now);
        self.have += now.len();
        if self.have < pad_len + Crc32c::LEN {
            return None;
        }
        let is_good = self.tail[pad_len..self.have] == self.crc.finish();
        let counts = self.has_crc && !self.is_checked;
        (self.stage, self.have, self.back) = (Stage::Head, 0, 0);
        self.crc = Crc32c::new();
        if counts && !is_good {
            return Some(Step::Bad(Fault::MpaCrc));
        }
        Some(Step::End)
    }
}
