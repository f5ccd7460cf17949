//! Congestion control of a queue pair: marks that its packets arrive with, notifications to and
//! from its peer, and what a queue pair sends that has been slowed down.

use alloc::boxed::Box;

use urxe_wire::{Bth, CNP_RESERVED_LEN, Header, ICRC_LEN, Opcode, Psn, pad_len};

use super::{AckMode, QueuePair};
use crate::dcqcn::{DcqcnParameters, FirstRate, NotificationPoint, ReactionPoint};
use crate::memory::Memory;
use crate::peer::PeerAbilities;
use crate::run::Run;
use crate::state::QpState;
use crate::time::Instant;
use crate::verbs::{Payload, QpType, Transmit};

/// What a queue pair needs to control congestion, besides its reaction point.
#[derive(Clone, Debug)]
pub(super) struct Congestion {
    parameters: DcqcnParameters,
    notification: NotificationPoint,
}

impl QueuePair {
    // ---- getters -----------------------------------------------------------------------------

    /// What slows the queue pair down; `None` while nothing does.
    #[must_use]
    pub fn reaction_point(&self) -> Option<&ReactionPoint> {
        self.reaction.as_deref()
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Turns congestion control on, or off, as it is at first. A queue pair that is slowed down is
    /// so no more.
    pub fn set_dcqcn(&mut self, parameters: Option<DcqcnParameters>) {
        self.reaction = None;
        self.congestion = parameters.map(|parameters| {
            Box::new(Congestion {
                parameters,
                notification: NotificationPoint::default(),
            })
        });
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// The packet that was just handled bears the mark "congestion experienced" (RFC 3168, 5). The
    /// caller sends what [`Self::poll_notification`] gives. Not for datagram queue pairs, which
    /// have no peer to notify.
    pub fn handle_congestion_mark(&mut self, now: Instant) {
        if self.config.qp_type != QpType::Ud
            && let Some(congestion) = &mut self.congestion
        {
            let interval_ns = congestion.parameters.cnp_interval_ns;
            congestion.notification.handle_mark(now, interval_ns);
        }
    }

    /// A congestion notification came.
    #[cold]
    pub(super) fn handle_notification(&mut self, now: Instant, bth: &Bth) {
        if bth.opcode != Opcode::CNP || !self.may_handle(false) {
            self.stats.dropped += 1;
            return;
        }
        let Some(congestion) = &self.congestion else {
            self.stats.cnp_ignored += 1;
            return;
        };
        self.stats.cnp_handled += 1;
        if let Some(reaction) = &mut self.reaction {
            reaction.handle_cnp(now);
            return;
        }
        let parameters = congestion.parameters;
        let measured_bps = match parameters.first_rate {
            FirstRate::Line => None,
            FirstRate::Measured => self.sender.rate_bps(self.connection.mtu_bytes),
        };
        let rate_bps = measured_bps.unwrap_or(parameters.line_rate_bps);
        self.reaction = Some(Box::new(ReactionPoint::new(parameters, now, rate_bps)));
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// The congestion notification to send, if one is owed. It should overtake what waits, and be
    /// no subject of congestion control itself: its type of service is not "ECN capable".
    pub fn poll_notification(&mut self) -> Option<Transmit<'static>> {
        let congestion = self.congestion.as_mut()?;
        if !congestion.notification.poll() {
            return None;
        }
        self.stats.cnp_sent += 1;
        self.stats.tx_packets += 1;
        let mut bth = Bth::new(Opcode::CNP, self.connection.peer, Psn::new(0));
        bth.becn = true;
        bth.pkey = self.connection.pkey;
        Some(Transmit {
            address: None,
            header: Header::new(bth),
            payload: Payload::Bytes(&[0; CNP_RESERVED_LEN]),
        })
    }

    /// [`Self::poll_run`] of a queue pair that has been slowed down. Acknowledgements go at any
    /// time.
    #[cold]
    pub(super) fn poll_paced<M: Memory>(
        &mut self,
        now: Instant,
        mode: AckMode,
        memory: &mut M,
    ) -> Option<Run<'_>> {
        let may_start = self.state() == QpState::ReadyToSend;
        let may_request = may_start || self.state() == QpState::SendQueueDrain;
        let reaction = self.reaction.as_mut()?;
        let may_send = reaction.may_send(now);
        if reaction.is_recovered() {
            self.reaction = None;
            return self.poll_run(now, mode, 1, memory);
        }
        let sends_data = self.responder.is_about_to_send_data();
        if may_send
            && may_request
            && !(sends_data && self.turns.was_of_requests())
            && let Some(mut planned) =
                self.sender
                    .plan(now, &self.connection, may_start, 1, memory, &mut self.out)
        {
            reaction.handle_sent(now, wire_bytes(&planned.header, planned.len));
            self.stats.tx_packets += 1;
            self.turns.note_requests(1);
            self.responder.note_request();
            if planned.ends
                && self
                    .connection
                    .has(PeerAbilities::ACKNOWLEDGEMENTS_IN_REQUESTS)
            {
                self.acknowledge_in(&mut planned);
            }
            return Some(self.sender.packets(&planned));
        }
        if sends_data {
            if !may_send {
                return None;
            }
            self.turns.restart();
            let response = self.poll_response(now, mode, 1, memory);
            if let (Some(reaction), Some(Run { first, .. })) = (&mut self.reaction, &response) {
                reaction.handle_sent(now, wire_bytes(&first.header, first.payload.len()));
            }
            return response;
        }
        self.poll_response(now, mode, 1, memory)
    }

    /// When a packet may go that congestion control holds back.
    pub(super) fn paced_until(&self) -> Option<Instant> {
        self.reaction.as_ref()?.poll_timeout()
    }
}

/// Bytes of a packet from its BTH to its ICRC.
#[expect(clippy::cast_possible_truncation, reason = "at most a few kilobytes")]
const fn wire_bytes(header: &Header, payload_len: u32) -> u32 {
    payload_len + (header.wire_len() + pad_len(payload_len as usize) + ICRC_LEN) as u32
}
