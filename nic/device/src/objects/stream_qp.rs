//! Queue pairs of iWARP devices: what programs do to them is done to their place among the
//! device's connections ([`crate::stream`]).

use std::sync::Arc;

use urxe_iwarp::QueuePair;
use urxe_proto::{AttrMask, Attributes, PostError, QpState, RecvRequest, SendRequest};
use urxe_wire::Qpn;

use super::qp::{Qp, completions_of};
use super::qp_init::QpInit;
use crate::engine::Engine;
use crate::engine::table::Receives;
use crate::nic::Nic;
use crate::process::clock::now;
use crate::process::error::Error;
use crate::stream::{Counts, GONE, Slot, StreamConnection};

impl Nic {
    /// Makes a queue pair; the device has started.
    pub(super) fn create_stream_qp(self: &Arc<Self>, init: &QpInit) -> Result<Qp, Error> {
        let mut engine = self.engine();
        let (streams, _) = engine.streams().ok_or(GONE)?;
        let number = streams.fresh_number()?;
        engine.use_objects(init)?;
        let srq = match init.receives() {
            Receives::Shared(number) => Some(number),
            Receives::Own | Receives::Named(_) => None,
        };
        let (_, host) = engine.streams().ok_or(GONE)?;
        let mut qp = QueuePair::new(self.qp_config(number, init));
        // Such queue pairs begin so, as rdma-core's own tests of iWARP devices have it.
        let fresh = Attributes {
            state: QpState::Init,
            ..Attributes::new()
        };
        qp.modify(&fresh, AttrMask::STATE, &*host.memory)?;
        let slot = Slot::new(
            qp,
            completions_of(init.send_cq.as_ref()),
            completions_of(init.recv_cq.as_ref()),
            srq,
        );
        let (streams, _) = engine.streams().ok_or(GONE)?;
        let index = streams.insert(slot);
        log::debug!("{}: QP {} made", self.info().name, number.get());
        Ok(Qp::new(self, index, number, init))
    }

    /// Gives the queue pair of this number a connection.
    ///
    /// # Errors
    /// As [`Qp::connect`].
    pub(crate) fn connect_stream(
        &self,
        number: Qpn,
        connection: StreamConnection,
    ) -> Result<(), Error> {
        let mut engine = self.engine();
        let now = now();
        let (streams, mut host) = engine.streams().ok_or(GONE)?;
        let index = streams.find(number).ok_or(GONE)?;
        streams.connect(index, connection, &mut host, now)?;
        self.note_deadline(&engine, now);
        drop(engine);
        // A thread may be waiting that saw no connection.
        self.sockets_changed();
        Ok(())
    }

    /// Ends the connection of the queue pair of this number, if it has one.
    pub(crate) fn disconnect_stream(&self, number: Qpn) {
        let wanted = Attributes {
            state: QpState::Error,
            ..Attributes::new()
        };
        let mut engine = self.engine();
        let now = now();
        if let Some((streams, mut host)) = engine.streams()
            && let Some(index) = streams.find(number)
        {
            let _ = streams.modify(index, &wanted, AttrMask::STATE, &mut host, now);
        }
        self.note_deadline(&engine, now);
    }

    /// A receive request was posted: messages that came before it go on.
    pub(super) fn resume_streams(&self, engine: &mut Engine) {
        if let Some((streams, mut host)) = engine.streams()
            && streams.is_stalled()
        {
            let now = now();
            streams.resume(&mut host, now);
            self.note_deadline(engine, now);
        }
    }

    /// The program is about to wait for events, which it asks for by `arm`: no completion waits for
    /// a reply meanwhile. The engine is held, or a round of another thread might make one wait in
    /// between, and nothing come that ends that.
    pub(super) fn let_go_and(&self, arm: impl FnOnce()) {
        if !self.is_iwarp() {
            return arm();
        }
        let mut engine = self.engine();
        if let Some((streams, mut host)) = engine.streams() {
            streams.let_go(&mut host, now());
        }
        arm();
    }

    /// The state of the queue pair of this number, if it is this device's.
    pub(crate) fn stream_state(&self, number: Qpn) -> Option<QpState> {
        let mut engine = self.engine();
        let (streams, _) = engine.streams()?;
        let index = streams.find(number)?;
        Some(streams.get_mut(index, number)?.qp.state())
    }
}

impl Qp {
    /// Gives a queue pair of an iWARP device, in the state `Init`, its connection: it is ready to
    /// send then.
    ///
    /// # Errors
    /// [`Error::Invalid`] in another state, or of another device.
    pub fn connect(&self, connection: StreamConnection) -> Result<(), Error> {
        if !self.nic.is_iwarp() {
            return Err(Error::Invalid(
                "a TCP connection for a queue pair of a RoCE device".into(),
            ));
        }
        self.nic.connect_stream(self.number, connection)
    }

    fn stream_slot<'a>(&self, engine: &'a mut Engine) -> Result<&'a mut Slot, Error> {
        let (streams, _) = engine.streams().ok_or(GONE)?;
        streams.get_mut(self.index, self.number).ok_or(GONE)
    }

    pub(super) fn query_stream(&self) -> Result<Attributes, Error> {
        let mut engine = self.nic.engine();
        let qp = &self.stream_slot(&mut engine)?.qp;
        Ok(Attributes {
            is_draining: qp.is_draining(),
            ..qp.attributes().clone()
        })
    }

    pub(super) fn modify_stream(&self, wanted: &Attributes, mask: AttrMask) -> Result<(), Error> {
        let mut engine = self.nic.engine();
        let now = now();
        let before = self.stream_slot(&mut engine)?.qp.state();
        let (streams, mut host) = engine.streams().ok_or(GONE)?;
        streams.modify(self.index, wanted, mask, &mut host, now)?;
        let after = self.stream_slot(&mut engine)?.qp.state();
        log::debug!("QP {}: {before:?} to {after:?}", self.number.get());
        if after == QpState::Reset {
            self.forget_completions();
        }
        self.nic.note_deadline(&engine, now);
        Ok(())
    }

    pub(super) fn post_stream_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let mut engine = self.nic.engine();
        let slot = self.stream_slot(&mut engine)?;
        slot.qp.post_recv(request)?;
        if slot.qp.state() == QpState::Error {
            self.settle_stream(&mut engine);
        }
        self.nic.resume_streams(&mut engine);
        Ok(())
    }

    pub(super) fn check_stream(
        &self,
        engine: &mut Engine,
        request: &SendRequest<'_>,
        ahead: usize,
    ) -> Result<(), PostError> {
        match self.stream_slot(engine) {
            Ok(slot) => slot.qp.check_send(request, ahead).map(drop),
            Err(_) => Err(PostError::State(QpState::Reset)),
        }
    }

    pub(super) fn post_stream(
        &self,
        engine: &mut Engine,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        match self.stream_slot(engine) {
            Ok(slot) => slot.post(request),
            Err(_) => Err(PostError::State(QpState::Reset)),
        }
    }

    /// Sends what was posted, now or, of a program that streams, at the latest when it polls.
    pub(super) fn settle_posted_stream(&self, engine: &mut Engine) {
        let (now, progress) = (now(), self.nic.progress());
        if self.stream_slot(engine).is_err() {
            return;
        }
        if !engine.gather_in_stream(now, self.index, progress.polls()) || !progress.hold_long(now) {
            self.settle_stream(engine);
        } else if engine.claim_round(now) {
            progress.note_released();
            engine.send_gathered(now);
            progress.note_work(1);
        } else {
            progress.note_work(1);
        }
    }

    /// Sends what was posted, and delivers what that completes.
    pub(super) fn settle_stream(&self, engine: &mut Engine) {
        let now = now();
        let mut counts = Counts::default();
        if let Some((streams, mut host)) = engine.streams()
            && streams.get_mut(self.index, self.number).is_some()
        {
            streams.serve_posted(self.index, &mut host, now, &mut counts);
        }
        if !engine.is_unfinished() {
            self.nic.progress().note_released();
        }
        self.nic.progress().note_work(1 + counts.packets);
        self.nic.note_deadline(engine, now);
    }

    pub(super) fn destroy_stream(&self) {
        let mut engine = self.nic.engine();
        if self.stream_slot(&mut engine).is_err() {
            return;
        }
        log::debug!("QP {} destroyed", self.number.get());
        let now = now();
        if let Some((streams, mut host)) = engine.streams() {
            streams.remove(self.index, &mut host, now);
        }
        engine.memory.forget_qp(self.number);
        engine.release_objects(&self.init);
        engine.events.forget_qp(self.number);
        self.nic.note_deadline(&engine, now);
        drop(engine);
        self.leave_completions();
    }
}
