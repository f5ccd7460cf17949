//! The end that asks.

use alloc::vec::Vec;

use urxe_iwarp_wire::{
    DdpHeader, Enhanced, Fault, FrameKind, IRD_ORD_MAX, MAX_DDP_HEADER_LEN, MAX_TERMINATE_LEN,
    Marking, Opcode, Queue, Rtr, SetupFrame, Terminate, Untagged, fpdu,
};
use urxe_proto::Instant;

use super::exchange::Exchange;
use super::terms::{FirstFrame, Offer, Outcome, RtrKind, SetupError, Terms, at_most};
use crate::constants::REPLY_TIMEOUT_NS;

/// Sets a connection up that this end asks for.
///
/// Send [`Self::output`], tell of what went by [`Self::handle_sent`], and hand in what comes by
/// [`Self::handle_bytes`], until [`Self::outcome`] is no longer pending.
#[derive(Clone, Debug)]
pub struct Initiator {
    offer: Offer,
    exchange: Exchange,
}

impl Initiator {
    /// Begins, with the program's private data in the request.
    ///
    /// # Errors
    /// [`SetupError::PrivateDataTooLong`]: 256 bytes are allowed, 252 with enhanced set-up.
    pub fn new(now: Instant, offer: Offer, private_data: &[u8]) -> Result<Self, SetupError> {
        let mut exchange = Exchange::new(now, REPLY_TIMEOUT_NS);
        let offer = offer.sayable();
        let enhanced = offer.is_enhanced.then_some(Enhanced {
            is_peer_to_peer: offer.is_peer_to_peer,
            rtr: Rtr {
                fulpdu: false,
                write: offer.is_peer_to_peer,
                // It counts as one of those outstanding.
                read: offer.is_peer_to_peer && offer.ord > 0,
            },
            ird: offer.ird,
            ord: offer.ord,
        });
        exchange.send(&SetupFrame {
            kind: FrameKind::Request,
            wants_markers: offer.wants_markers,
            wants_crc: offer.wants_crc,
            is_rejected: false,
            revision: if offer.is_enhanced { 2 } else { 1 },
            enhanced,
            private_data,
        })?;
        Ok(Self { offer, exchange })
    }

    /// How far it is.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.exchange.outcome
    }

    /// The private data of the reply, also of one that rejects; empty before.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.exchange
            .frame()
            .map_or(&[], |frame| frame.private_data)
    }

    /// What is to be sent next.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.exchange.output()
    }

    /// So many bytes of the output were sent.
    pub fn handle_sent(&mut self, len: usize) {
        self.exchange.handle_sent(len);
    }

    /// Takes bytes of the stream; how many. The others are behind the reply, and for the queue
    /// pair.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let taken = self.exchange.handle_bytes(bytes);
        if self.exchange.outcome == Outcome::Pending
            && let Some(reply) = self.exchange.frame()
        {
            let result = terms(&self.offer, &reply);
            let has_crc = self.offer.wants_crc || reply.wants_crc;
            let has_markers = reply.wants_markers;
            match result {
                Ok(terms) => self.exchange.outcome = Outcome::Established(terms),
                Err(error) => {
                    if let Some(fault) = error.fault() {
                        let last = terminate(fault, has_markers, has_crc);
                        self.exchange.send_bytes(&last);
                    }
                    self.exchange.fail(error);
                }
            }
        }
        taken
    }

    /// The stream ended.
    pub fn handle_end(&mut self) {
        self.exchange.fail(SetupError::Ended);
    }

    /// When [`Self::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.exchange.poll_timeout()
    }

    /// That time has come. Harmless if called early.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.exchange.handle_timeout(now);
    }
}

/// What a reply makes of an offer (RFC 5044, 7.1.1; RFC 6581, 9).
fn terms(offer: &Offer, reply: &SetupFrame<'_>) -> Result<Terms, SetupError> {
    if reply.kind != FrameKind::Reply {
        return Err(SetupError::WrongKind);
    }
    if reply.is_rejected {
        return Err(SetupError::Rejected);
    }
    let revision = reply.revision;
    let has_answer = reply.enhanced.is_some() || !offer.is_enhanced;
    if revision != if offer.is_enhanced { 2 } else { 1 } || !has_answer {
        return Err(SetupError::Revision { revision });
    }
    let (mut ord, mut first) = (offer.ord, FirstFrame::Free);
    if let Some(enhanced) = reply.enhanced {
        ord = at_most(ord, enhanced.ird);
        if enhanced.ord != IRD_ORD_MAX && enhanced.ord > offer.ird {
            return Err(SetupError::InsufficientIrd);
        }
        if offer.is_peer_to_peer && enhanced.is_peer_to_peer {
            first = match enhanced.rtr {
                Rtr { write: true, .. } => FirstFrame::Send(RtrKind::Write),
                Rtr { read: true, .. } if ord > 0 => FirstFrame::Send(RtrKind::Read),
                _ => return Err(SetupError::NoMatchingRtr),
            };
        }
    }
    Ok(Terms {
        sends_markers: reply.wants_markers,
        receives_markers: offer.wants_markers,
        has_crc: offer.wants_crc || reply.wants_crc,
        ird: offer.ird,
        ord,
        first,
    })
}

/// The one FPDU of a connection that is not to be: its TERMINATE.
fn terminate(fault: Fault, has_markers: bool, has_crc: bool) -> Vec<u8> {
    let header = DdpHeader::Untagged(Untagged {
        is_last: true,
        control: Opcode::Terminate.emit(),
        invalidate: 0,
        queue: Queue::Terminate as u32,
        msn: 1,
        offset: 0,
    });
    let (mut head, mut body) = ([0; MAX_DDP_HEADER_LEN], [0; MAX_TERMINATE_LEN]);
    let head_len = header.emit(&mut head);
    let terminate = Terminate {
        fault,
        segment: None,
        rdmap: None,
    };
    let body_len = terminate.emit(&mut body);
    let mut out = Vec::new();
    let ulpdu = [&head[..head_len], &body[..body_len]];
    if has_markers {
        fpdu::emit_marked(&mut Marking::new(), &ulpdu, has_crc, |piece| {
            out.extend_from_slice(piece);
        });
    } else {
        fpdu::emit(&ulpdu, has_crc, |piece| out.extend_from_slice(piece));
    }
    out
}
