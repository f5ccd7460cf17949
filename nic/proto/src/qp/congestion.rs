//! Congestion control of a queue pair: marks that its packets arrive with, notifications to and
//! from its peer, and what a queue pair sends that has been slowed down.

use alloc::boxed::Box;
use alloc::sync::Arc;

use urxe_wire::{Bth, CNP_RESERVED_LEN, Header, ICRC_LEN, Opcode, Psn, pad_len};

use super::{AckMode, QueuePair};
use crate::control::{Acknowledged, CongestionControl, Feedback, Loss, NotifiedControl};
use crate::memory::Memory;
use crate::notification::NotificationPoint;
use crate::rc::requester::Requester;
use crate::run::Run;
use crate::state::QpState;
use crate::time::Instant;
use crate::verbs::{Payload, QpType, Transmit};

/// What a queue pair needs to control congestion, besides what slows it down.
#[derive(Clone, Debug)]
pub(super) enum Congestion {
    /// Something that is there only while there is congestion.
    Notified {
        reaction: Arc<dyn NotifiedControl>,
        notification: NotificationPoint,
    },
    /// Something that is always there, and needs to know how far it is.
    Other {
        /// Up to here packets are counted.
        counted_to: Psn,
        /// Packets acknowledged before that.
        packets: u64,
    },
}

impl Congestion {
    pub(super) const fn is_notified(&self) -> bool {
        matches!(self, Self::Notified { .. })
    }
}

/// Losses of either kind.
type Losses = (u64, u64);

impl QueuePair {
    // ---- getters -----------------------------------------------------------------------------

    /// What slows the queue pair down; `None` while nothing does.
    #[must_use]
    pub fn congestion_control(&self) -> Option<&dyn CongestionControl> {
        self.control.as_deref()
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Turns congestion control by notifications on, or all of it off, as it is at first. A queue
    /// pair that is slowed down is so no more.
    pub fn set_notified_control(&mut self, reaction: Option<Arc<dyn NotifiedControl>>) {
        self.control = None;
        if let Some(requester) = self.sender.reliable_mut() {
            requester.grant(None, None);
        }
        self.congestion = reaction.map(|reaction| {
            Box::new(Congestion::Notified {
                reaction,
                notification: NotificationPoint::default(),
            })
        });
    }

    /// Lets something control congestion that is always there, until the queue pair is reset. For
    /// reliable queue pairs that are ready to send: it lives on acknowledgements.
    pub fn set_congestion_control(&mut self, control: Box<dyn CongestionControl>) {
        self.congestion = Some(Box::new(Congestion::Other {
            counted_to: self.sender.next_psn(),
            packets: 0,
        }));
        self.control = Some(control);
        self.obey();
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// The packet that was just handled bears the mark "congestion experienced" (RFC 3168, 5). The
    /// caller sends what [`Self::poll_notification`] gives. Not for datagram queue pairs, which
    /// have no peer to notify.
    pub fn handle_congestion_mark(&mut self, now: Instant) {
        if self.config.qp_type != QpType::Ud
            && let Some(Congestion::Notified {
                reaction,
                notification,
            }) = self.congestion.as_deref_mut()
        {
            notification.handle_mark(now, reaction.notification_interval_ns());
        }
    }

    /// The acknowledgement that was just handled brought this back of the path. It goes to the
    /// congestion control that [`Self::set_congestion_control`] has set.
    pub fn handle_feedback(&mut self, now: Instant, feedback: Feedback<'_>) {
        let (
            Some(control),
            Some(Congestion::Other {
                counted_to,
                packets,
            }),
        ) = (&mut self.control, self.congestion.as_deref_mut())
        else {
            return;
        };
        let Some(requester) = self.sender.reliable() else {
            return;
        };
        let (acknowledged, sent) = requester.progress_since(*counted_to);
        *counted_to = counted_to.add(acknowledged);
        let mtu_bytes = u64::from(self.connection.mtu_bytes);
        let before = *packets;
        *packets += u64::from(acknowledged);
        let event = Acknowledged {
            acknowledged_bytes: *packets * mtu_bytes,
            sent_bytes: (before + u64::from(sent)) * mtu_bytes,
            feedback,
        };
        control.handle_acknowledged(now, &event);
        self.obey();
    }

    /// How many losses were found out so far, by gaps and by silence; `None` while nothing wants to
    /// know.
    #[inline]
    pub(super) fn losses(&self) -> Option<Losses> {
        let stats = &self.stats;
        self.control.as_ref().map(|_| {
            (
                stats.packet_seq_err + stats.implied_nak_seq_err,
                stats.probes + stats.local_ack_timeout_err,
            )
        })
    }

    /// Tells congestion control of losses, if there were more than before.
    #[inline]
    pub(super) fn note_losses(&mut self, now: Instant, before: Option<Losses>) {
        if let Some(before) = before
            && let Some(after) = self.losses()
            && after != before
        {
            self.tell_of_losses(now, after.0 > before.0);
        }
    }

    #[cold]
    fn tell_of_losses(&mut self, now: Instant, is_gap: bool) {
        let loss = if is_gap { Loss::Gap } else { Loss::Silence };
        if let Some(control) = &mut self.control {
            control.handle_loss(now, loss);
        }
        self.obey();
    }

    /// Takes the window that congestion control says, if it says one.
    fn obey(&mut self) {
        if let Some(control) = &self.control
            && !self
                .congestion
                .as_deref()
                .is_some_and(Congestion::is_notified)
        {
            let mtu_bytes = u64::from(self.connection.mtu_bytes);
            let window = control.window_bytes();
            let packets =
                window.map(|bytes| u32::try_from(bytes.div_ceil(mtu_bytes)).unwrap_or(u32::MAX));
            let ack_interval = control.packets_per_acknowledgement();
            if let Some(requester) = self.sender.reliable_mut() {
                requester.grant(packets, ack_interval);
            }
        }
    }

    /// A congestion notification came.
    #[cold]
    pub(super) fn handle_notification(&mut self, now: Instant, bth: &Bth) {
        if bth.opcode != Opcode::CNP || !self.may_handle(false) {
            self.stats.dropped += 1;
            return;
        }
        let Some(congestion) = self.congestion.as_deref() else {
            self.stats.cnp_ignored += 1;
            return;
        };
        let requester = self.sender.reliable();
        if congestion.is_notified() && requester.is_some_and(Requester::competes) {
            self.stats.cnp_ignored += 1;
            return;
        }
        self.stats.cnp_handled += 1;
        if let Some(control) = &mut self.control {
            control.handle_notification(now);
            self.obey();
            return;
        }
        if let Congestion::Notified { reaction, .. } = congestion {
            let mtu_bytes = self.connection.mtu_bytes;
            let requester = self.sender.reliable();
            let measured_bps = requester.and_then(|requester| requester.rate_bps(mtu_bytes));
            self.control = Some(reaction.begin(now, measured_bps));
        }
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// The congestion notification to send, if one is owed. It should overtake what waits, and be
    /// no subject of congestion control itself: its type of service is not "ECN capable".
    pub fn poll_notification(&mut self) -> Option<Transmit<'static>> {
        let Congestion::Notified { notification, .. } = self.congestion.as_deref_mut()? else {
            return None;
        };
        if !notification.poll() {
            return None;
        }
        self.stats.cnp_sent += 1;
        self.stats.tx_packets += 1;
        let mut bth = Bth::new(Opcode::CNP, self.connection.peer, Psn::new(0));
        bth.becn = true;
        bth.pkey = self.connection.pkey;
        let payload = Payload::Bytes(&[0; CNP_RESERVED_LEN]);
        Some(Transmit::connected(Header::new(bth), payload))
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
        let control = self.control.as_mut()?;
        let may_send = control.may_send(now);
        if control.is_idle() {
            self.control = None;
            return self.poll_run(now, mode, 1, memory);
        }
        let sends_data = self.responder.acknowledger.is_about_to_send_data();
        if may_send
            && may_request
            && !(sends_data && self.turns.was_of_requests())
            && let Some(mut planned) =
                self.sender
                    .plan(now, &self.connection, may_start, 1, memory, &mut self.out)
        {
            control.handle_sent(now, wire_bytes(&planned.header, planned.len));
            self.note_planned(&mut planned);
            return Some(self.sender.packets(&planned));
        }
        if sends_data {
            if !may_send {
                return None;
            }
            self.turns.restart();
            let response = self.poll_response(now, mode, 1, memory);
            if let (Some(control), Some(Run { first, .. })) = (&mut self.control, &response) {
                control.handle_sent(now, wire_bytes(&first.header, first.payload.len()));
            }
            return response;
        }
        self.poll_response(now, mode, 1, memory)
    }

    /// When a packet may go that congestion control holds back.
    pub(super) fn paced_until(&self) -> Option<Instant> {
        self.control.as_ref()?.poll_timeout()
    }
}

/// Bytes of a packet from its BTH to its ICRC.
#[expect(clippy::cast_possible_truncation, reason = "at most a few kilobytes")]
const fn wire_bytes(header: &Header, payload_len: u32) -> u32 {
    payload_len + (header.wire_len() + pad_len(payload_len as usize) + ICRC_LEN) as u32
}
