//! The queue pair: state, attributes, work requests, and the end of its connection.

mod receive;
mod refusal;
mod respond;
mod segment;
mod stall;
mod terminate;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use urxe_iwarp_wire::Fault;
use urxe_proto::{
    AttrMask, Attributes, Completion, Instant, ModifyError, Payload, PdId, PostError, QpConfig,
    QpEvent, QpState, ReceiveQueue, RecvRequest, SendOp, SendRequest, SendTarget, Via, WcStatus,
};
use urxe_wire::Qpn;

use crate::constants::MAX_MESSAGE_BYTES;
use crate::memory::StreamMemory;
use crate::output::Reach;
use crate::requests::{Request, Requests};
use crate::setup::Terms;
use crate::stats::Stats;
use crate::stream::{Phase, Stream, StreamAction};

/// A queue pair. The crate's documentation has the call order.
#[derive(Debug)]
pub struct QueuePair {
    config: QpConfig,
    attributes: Attributes,
    receives: ReceiveQueue,
    requests: Requests,
    stream: Option<Box<Stream>>,
    completions: VecDeque<Completion>,
    events: VecDeque<QpEvent>,
    is_last_reported: bool,
    /// That the send queue has drained is known, and told if the program wants to be told.
    is_drain_reported: bool,
    /// Messages that have come in full.
    messages: u64,
    stats: Stats,
}

impl QueuePair {
    /// A queue pair in the state `Reset`. Of the configuration, the type is RC, whatever it says.
    #[must_use]
    pub fn new(config: QpConfig) -> Self {
        Self {
            receives: ReceiveQueue::new(config.pd),
            config,
            attributes: Attributes::new(),
            requests: Requests::default(),
            stream: None,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            is_last_reported: false,
            is_drain_reported: false,
            messages: 0,
            stats: Stats::default(),
        }
    }

    // ---- getters -----------------------------------------------------------------------------

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> Qpn {
        self.config.number
    }

    /// Its protection domain.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.config.pd
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> QpState {
        self.attributes.state
    }

    /// Its attributes.
    #[must_use]
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Its counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// SENDs, WRITEs and immediate data of the peer that have come in full, so far.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a send request was posted that is not complete.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.requests.len() > 0
    }

    /// Whether the send queue, in the state `SendQueueDrain`, has a request that was begun and is
    /// not complete.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state() == QpState::SendQueueDrain && self.requests.has_begun()
    }

    /// What the peers agreed on, while there is a connection.
    #[must_use]
    pub fn terms(&self) -> Option<&Terms> {
        self.stream.as_ref().map(|stream| &stream.terms)
    }

    fn via(&self) -> Via {
        Via {
            pd: self.config.pd,
            qp: self.config.number,
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Changes state and attributes, those that `mask` names. A connection alone
    /// ([`Self::connect`]) makes it ready to send. While it is, setting that state again, or
    /// `ReadyToReceive`, leaves the state as it is: librdmacm does so.
    ///
    /// In `SendQueueDrain`, what was begun goes on and no request begins, as with queue pairs over
    /// RoCE. Drivers of Linux end the connection there.
    ///
    /// `Error` and `Reset` end the connection, without a TERMINATE.
    ///
    /// # Errors
    /// [`ModifyError::Transition`] and [`ModifyError::CurrentState`]; nothing is changed then.
    pub fn modify<M: StreamMemory>(
        &mut self,
        wanted: &Attributes,
        mask: AttrMask,
        memory: &M,
    ) -> Result<(), ModifyError> {
        use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain};
        let from = self.state();
        if mask.contains(AttrMask::CURRENT_STATE) && wanted.current_state != from {
            return Err(ModifyError::CurrentState { actual: from });
        }
        let to = match (from, wanted.state) {
            _ if !mask.contains(AttrMask::STATE) => from,
            (_, to @ (Reset | Error)) | (Reset | Init, to @ Init) => to,
            (ReadyToSend, ReadyToReceive | ReadyToSend) => ReadyToSend,
            (ReadyToSend | SendQueueDrain, to @ (ReadyToSend | SendQueueDrain)) => to,
            (from, to) => return Err(ModifyError::Transition { from, to }),
        };
        self.attributes.merge(wanted, mask);
        match to {
            Reset => self.reset(memory),
            Error => self.disconnect(memory),
            _ => self.attributes.state = to,
        }
        if from != to {
            self.is_drain_reported = false;
        }
        self.report_drained();
        Ok(())
    }

    fn reset<M: StreamMemory>(&mut self, memory: &M) {
        self.end_stream(memory);
        let (stats, messages) = (self.stats, self.messages);
        let mut stream = self.stream.take();
        if let Some(stream) = &mut stream {
            // The receive request in it is gone, as all others are.
            stream.inbound = None;
        }
        *self = Self {
            stats,
            messages,
            stream,
            ..Self::new(self.config)
        };
    }

    /// The connection is set up: the queue pair is ready to send. `segment_len` are the bytes that
    /// TCP sends at a time: the segment size of the connection, or, where segments are cut later, a
    /// multiple of it. Whether it was: the queue pair is in the state `Init` or `ReadyToReceive`
    /// before, and the stream of an earlier connection was closed.
    pub fn connect(&mut self, terms: Terms, segment_len: usize) -> bool {
        if self.stream.is_some() {
            return false;
        }
        if !matches!(self.state(), QpState::Init | QpState::ReadyToReceive) {
            return false;
        }
        let cursor = self.requests.end();
        self.stream = Some(Box::new(Stream::new(terms, segment_len, cursor)));
        self.attributes.state = QpState::ReadyToSend;
        self.attributes.max_rd_atomic = u8::try_from(terms.ord).unwrap_or(u8::MAX);
        self.attributes.max_dest_rd_atomic = u8::try_from(terms.ird).unwrap_or(u8::MAX);
        true
    }

    /// Ends the connection: what was handed out in part is completed, all else is flushed, and the
    /// queue pair is in the error state.
    pub fn disconnect<M: StreamMemory>(&mut self, memory: &M) {
        self.end_stream(memory);
        self.enter_error();
    }

    /// Queues a send request.
    ///
    /// # Errors
    /// Why it was not taken. In the error state it is taken and flushed.
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let length = self.check_send(request, 0)?;
        self.requests.push(Request::new(request, length));
        if self.state() == QpState::Error {
            self.requests.flush();
            self.complete_requests();
        }
        Ok(())
    }

    /// Whether a send request would be taken once `ahead` others are queued; its length in bytes.
    ///
    /// iWARP has no SEND with immediate data, ATOMIC WRITE and FLUSH.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check_send(&self, request: &SendRequest<'_>, ahead: usize) -> Result<u32, PostError> {
        let state = self.state();
        if !matches!(
            state,
            QpState::ReadyToSend | QpState::SendQueueDrain | QpState::Error
        ) {
            return Err(PostError::State(state));
        }
        let capacity = &self.config.capacity;
        if self.requests.len() + ahead >= capacity.send_requests as usize {
            return Err(PostError::Full);
        }
        let is_unknown = matches!(
            request.op,
            SendOp::SendImm(_) | SendOp::AtomicWrite { .. } | SendOp::Flush { .. }
        );
        if is_unknown || request.target != SendTarget::Connection {
            return Err(PostError::Unsupported);
        }
        capacity.message_length(request, MAX_MESSAGE_BYTES)
    }

    /// Queues a receive request.
    ///
    /// # Errors
    /// Why it was not taken. In the error state it is taken and flushed.
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let state = self.state();
        if state == QpState::Reset {
            return Err(PostError::State(state));
        }
        if self.config.shares_receives {
            return Err(PostError::SharedReceives);
        }
        let capacity = &self.config.capacity;
        self.receives
            .post(request, capacity.recv_requests, capacity.recv_sges)?;
        if state == QpState::Error {
            self.flush_receives();
        }
        Ok(())
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// A completion was lost because its queue was full: the queue pair cannot go on.
    pub fn handle_cq_overrun<M: StreamMemory>(&mut self, memory: &M) {
        if self.state() != QpState::Error {
            self.events.push_back(QpEvent::Fatal);
            self.disconnect(memory);
        }
    }

    /// Memory that a piece of [`Self::output`] names cannot be read any more. The connection fails,
    /// and with it the first request that has such pieces.
    pub fn handle_memory_fault<M: StreamMemory>(&mut self, memory: &M) {
        let Some(stream) = self.stream.as_ref().filter(|stream| stream.is_open()) else {
            return;
        };
        match stream.output.first_request() {
            Some(position) => self.requests.finish(position, WcStatus::LocalProtection),
            None => self.events.push_back(QpEvent::AccessError),
        }
        self.fail(Fault::RdmapCatastrophic, None, None, memory);
    }

    /// The peer's direction of the stream ended; `is_lost` if the stream broke, and nothing can be
    /// sent any more.
    pub fn handle_end<M: StreamMemory>(&mut self, is_lost: bool, memory: &M) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let is_cut = stream.input.is_within() || is_lost;
        // Of a stream that was ending, the queue pair has seen the end, or was reset since.
        let was_open = stream.is_open();
        stream.has_peer_ended = true;
        if is_lost {
            stream.abandon();
        }
        if was_open {
            if is_cut {
                self.events.push_back(QpEvent::Fatal);
            }
            self.disconnect(memory);
        }
    }

    /// That time has come. Harmless if called early; [`Self::poll_action`] is to be asked then.
    pub fn handle_timeout<M: StreamMemory>(&mut self, now: Instant, memory: &M) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if stream.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if stream.is_open() {
            self.give_up_waiting(memory);
        } else {
            stream.abandon();
        }
    }

    // ---- outputs -----------------------------------------------------------------------------

    /// When [`Self::handle_timeout`] is to be called: the peer has some time to take the last
    /// output, and some to close its direction of the stream, and a message that waits for a
    /// receive request has some. To be asked behind [`Self::poll_action`], which knows the time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.stream.as_ref()?.deadline()
    }

    /// What is to be done with the stream, each once.
    pub fn poll_action(&mut self, now: Instant) -> Option<StreamAction> {
        let stream = self.stream.as_mut()?;
        let action = stream.poll_action(now)?;
        if action == StreamAction::Close {
            self.stream = None;
        }
        Some(action)
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front()
    }

    /// The bytes that wait to be sent, in order, as the pieces that [`Self::poll_output`] prepared.
    pub fn output(&self) -> impl Iterator<Item = Payload<'_>> {
        let via = self.via();
        let stream = self.stream.iter();
        stream.flat_map(move |stream| stream.output.pieces(&self.requests, via))
    }

    /// So many bytes of the output are in the stream. Requests complete by that.
    pub fn handle_sent(&mut self, len: usize) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let requests = &mut self.requests;
        stream.output.handle_sent(len, |position| {
            requests.finish(position, WcStatus::Success);
        });
        self.complete_requests();
    }

    // ---- inner -------------------------------------------------------------------------------

    fn complete_requests(&mut self) {
        while let Some(completion) = self.requests.complete(self.config.number) {
            self.completions.push_back(completion);
        }
        self.report_drained();
    }

    fn report_drained(&mut self) {
        let is_drained = self.state() == QpState::SendQueueDrain && !self.requests.has_begun();
        if is_drained
            && !core::mem::replace(&mut self.is_drain_reported, true)
            && self.attributes.sqd_notify
        {
            self.events.push_back(QpEvent::SendQueueDrained);
        }
    }

    fn flush_receives(&mut self) {
        let number = self.config.number;
        let inbound = self
            .stream
            .as_mut()
            .and_then(|stream| stream.inbound.take());
        if let Some(inbound) = inbound {
            self.completions
                .push_back(inbound.wqe.completion(number, WcStatus::WrFlush));
        }
        while let Some(wqe) = self.receives.pop_front() {
            self.completions
                .push_back(wqe.completion(number, WcStatus::WrFlush));
        }
    }

    /// Drops all that is to be sent but a frame that is in the stream in part.
    fn end_stream<M: StreamMemory>(&mut self, memory: &M) {
        let via = self.via();
        let Some(stream) = &mut self.stream else {
            return;
        };
        if !stream.is_open() {
            return;
        }
        let requests = &self.requests;
        stream.end();
        let reach = Reach {
            requests,
            via,
            memory,
        };
        if stream.output.cut(&reach).is_err() {
            stream.phase = Phase::Over;
        }
    }

    fn enter_error(&mut self) {
        self.attributes.state = QpState::Error;
        self.requests.flush();
        self.complete_requests();
        self.flush_receives();
        if self.config.shares_receives && !core::mem::replace(&mut self.is_last_reported, true) {
            self.events.push_back(QpEvent::LastWqeReached);
        }
    }
}
