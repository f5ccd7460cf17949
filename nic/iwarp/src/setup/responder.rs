//! The end that is asked.

use urxe_iwarp_wire::{Enhanced, FrameKind, Rtr, SetupFrame};
use urxe_proto::Instant;

use super::exchange::Exchange;
use super::terms::{FirstFrame, Offer, Outcome, SetupError, Terms, at_most};
use crate::constants::SETUP_TIMEOUT_NS;

/// Sets a connection up that the peer asks for.
///
/// Hand in what comes by [`Self::handle_bytes`] until [`Self::request`] has something. Then
/// [`Self::accept`] or [`Self::reject`] it, and send [`Self::output`]. [`Self::outcome`] is pending
/// until then.
#[derive(Clone, Debug)]
pub struct Responder {
    exchange: Exchange,
}

/// What the initiator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requested<'a> {
    /// Its private data.
    pub private_data: &'a [u8],
    /// READs and atomics that it answers at a time, if it says so: the most that this end may have
    /// outstanding.
    pub ird: Option<u16>,
    /// READs and atomics that it has outstanding, if it says so: what this end ought to answer.
    pub ord: Option<u16>,
    /// Whether either end may send first.
    pub is_peer_to_peer: bool,
}

impl Responder {
    /// Begins with a stream that the peer opened.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            exchange: Exchange::new(now, SETUP_TIMEOUT_NS),
        }
    }

    /// How far it is.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.exchange.outcome
    }

    /// The request, once it has come.
    #[must_use]
    pub fn request(&self) -> Option<Requested<'_>> {
        let frame = self.exchange.frame()?;
        Some(Requested {
            private_data: frame.private_data,
            ird: frame.enhanced.map(|enhanced| enhanced.ird),
            ord: frame.enhanced.map(|enhanced| enhanced.ord),
            is_peer_to_peer: frame
                .enhanced
                .is_some_and(|enhanced| enhanced.is_peer_to_peer),
        })
    }

    /// Takes bytes of the stream; how many. The others are behind the request.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let taken = self.exchange.handle_bytes(bytes);
        let kind = self.exchange.frame().map(|frame| frame.kind);
        if kind == Some(FrameKind::Reply) {
            self.exchange.fail(SetupError::WrongKind);
        }
        taken
    }

    /// Accepts the request, with the program's private data in the reply.
    ///
    /// # Errors
    /// [`SetupError::PrivateDataTooLong`], as for an initiator; it may be tried again. Without a
    /// request, or after it was answered, [`SetupError::WrongKind`].
    pub fn accept(&mut self, offer: &Offer, private_data: &[u8]) -> Result<Terms, SetupError> {
        let request = self.pending()?;
        let Offer { ird, ord, .. } = offer.sayable();
        let enhanced = request
            .enhanced
            .map(|asked| answer(&asked, ird, at_most(ord, asked.ird)));
        let (ird, ord) = enhanced.map_or((ird, ord), |answer| (answer.ird, answer.ord));
        let terms = Terms {
            sends_markers: request.wants_markers,
            receives_markers: offer.wants_markers,
            has_crc: offer.wants_crc || request.wants_crc,
            ird,
            ord,
            first: FirstFrame::Await,
        };
        let reply = SetupFrame {
            kind: FrameKind::Reply,
            wants_markers: offer.wants_markers,
            wants_crc: terms.has_crc,
            is_rejected: false,
            revision: request.revision,
            enhanced,
            private_data,
        };
        self.exchange.send(&reply)?;
        self.exchange.outcome = Outcome::Established(terms);
        Ok(terms)
    }

    /// Rejects the request, with the program's private data in the reply.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), SetupError> {
        let request = self.pending()?;
        let reply = SetupFrame {
            kind: FrameKind::Reply,
            wants_markers: false,
            wants_crc: request.wants_crc,
            is_rejected: true,
            revision: request.revision,
            // Intel's devices look for flag A in a rejection, too. There is no offer, so the reply
            // grants what was asked for.
            enhanced: request
                .enhanced
                .map(|asked| answer(&asked, asked.ord, asked.ird)),
            private_data,
        };
        self.exchange.send(&reply)?;
        self.exchange.fail(SetupError::Rejected);
        Ok(())
    }

    /// The request, without its private data, if it is to be answered.
    fn pending(&self) -> Result<SetupFrame<'static>, SetupError> {
        match self.exchange.frame() {
            Some(frame) if self.exchange.outcome == Outcome::Pending => Ok(SetupFrame {
                private_data: &[],
                ..frame
            }),
            _ => Err(SetupError::WrongKind),
        }
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

    /// The stream ended.
    pub fn handle_end(&mut self) {
        self.exchange.fail(SetupError::Ended);
    }

    /// When [`Self::handle_timeout`] is to be called: until the request is complete.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.exchange.poll_timeout()
    }

    /// That time has come. Harmless if called early.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.exchange.handle_timeout(now);
    }
}

/// The answer to enhanced set-up, with this IRD and ORD.
fn answer(asked: &Enhanced, ird: u16, ord: u16) -> Enhanced {
    let rtr = asked.rtr;
    // One is chosen. WRITE is preferred, which has no response; also where the initiator has none
    // of the two, so that it ends the connection and says why.
    let write = asked.is_peer_to_peer && (rtr.write || !rtr.read);
    let read = asked.is_peer_to_peer && !write;
    Enhanced {
        is_peer_to_peer: asked.is_peer_to_peer,
        rtr: Rtr {
            fulpdu: false,
            write,
            read,
        },
        ird: if read { ird.max(1) } else { ird },
        ord,
    }
}
