//! The commands on connections, and what time does to them.

use alloc::boxed::Box;

use urxe_wire::{Psn, Qpn};

use super::Manager;
use super::connection::{Connection, State};
use super::timing::{self, MAX_RETRIES, RESPONSE_TIMEOUT};
use super::values::{ConnectionError, Event, Path};
use crate::mad::{Mad, Message};
use crate::message::{Drep, Dreq, Rej, Rep, Req, Rtu, Stage};
use crate::reason::RejectReason;

impl Manager {
    // ---- commands ----------------------------------------------------------------------------

    /// Asks a peer for a connection. `id`, which must be free, becomes its communication ID. How
    /// long ends may take and how often messages are repeated is filled in.
    pub fn connect(&mut self, now_ns: u64, id: u32, path: Path, mut req: Req) {
        req.local_comm_id = id;
        req.remote_response_timeout = RESPONSE_TIMEOUT;
        req.local_response_timeout = RESPONSE_TIMEOUT;
        req.max_retries = MAX_RETRIES;
        let connection = Connection::new(State::ReqSent, u64::from(id), path, &req);
        self.connections.insert(id, connection);
        self.send_and_repeat(now_ns, id, req.into());
    }

    /// Says yes to a peer's request. The communication IDs are filled in.
    ///
    /// # Errors
    /// If the connection does not wait for an answer.
    pub fn accept(&mut self, now_ns: u64, id: u32, mut rep: Rep) -> Result<(), ConnectionError> {
        let connection = self.in_state(id, &[State::ReqReceived])?;
        rep.local_comm_id = id;
        rep.remote_comm_id = connection.remote_id;
        connection.state = State::RepSent;
        connection.parameters.rq_psn = rep.starting_psn;
        connection.parameters.responder_resources = rep.initiator_depth;
        connection.parameters.initiator_depth = rep.responder_resources;
        self.send_and_repeat(now_ns, id, rep.into());
        Ok(())
    }

    /// Sets what a queue pair that is about to be connected has to be set to, before the answer.
    ///
    /// # Errors
    /// If the connection does not wait for an answer.
    pub fn prepare_accept(&mut self, id: u32, starting_psn: Psn) -> Result<(), ConnectionError> {
        let connection = self.in_state(id, &[State::ReqReceived])?;
        connection.parameters.rq_psn = starting_psn;
        Ok(())
    }

    /// Confirms a peer's reply: the connection stands.
    ///
    /// # Errors
    /// If the connection has no reply to confirm.
    pub fn ready(
        &mut self,
        id: u32,
        private_data: [u8; Rtu::PRIVATE_LEN],
    ) -> Result<(), ConnectionError> {
        let connection = self.in_state(id, &[State::RepReceived])?;
        let rtu = Rtu {
            local_comm_id: id,
            remote_comm_id: connection.remote_id,
            private_data,
        };
        connection.state = State::Established;
        connection.sent = Some(rtu.into());
        self.repeat(id);
        Ok(())
    }

    /// Data arrived on the queue pair: the peer was ready, its RTU is late.
    ///
    /// # Errors
    /// If the connection does not wait for the peer to be ready.
    pub fn notify_established(&mut self, id: u32) -> Result<(), ConnectionError> {
        self.in_state(id, &[State::RepSent])?;
        self.establish(id, [0; Rtu::PRIVATE_LEN]);
        Ok(())
    }

    /// Says no, to a request or to a reply. The connection is gone.
    ///
    /// # Errors
    /// If the connection is beyond that.
    pub fn reject(
        &mut self,
        id: u32,
        reason: RejectReason,
        private_data: [u8; Rej::PRIVATE_LEN],
    ) -> Result<(), ConnectionError> {
        use State::{RepReceived, RepSent, ReqReceived, ReqSent};
        let connection = self.in_state(id, &[ReqReceived, RepReceived, ReqSent, RepSent])?;
        let stage = match connection.state {
            ReqReceived => Stage::Request,
            RepReceived => Stage::Reply,
            _ => Stage::Other,
        };
        let rej = Rej {
            local_comm_id: id,
            remote_comm_id: connection.remote_id,
            stage,
            info_len: 0,
            reason,
            info: [0; Rej::INFO_LEN],
            private_data,
        };
        connection.sent = Some(rej.into());
        self.repeat(id);
        self.forget(id);
        Ok(())
    }

    /// Ends a connection. Nothing happens if it is over already.
    ///
    /// # Errors
    /// If the connection never stood.
    pub fn disconnect(&mut self, now_ns: u64, id: u32) -> Result<(), ConnectionError> {
        let connection = self
            .connections
            .get_mut(&id)
            .ok_or(ConnectionError::Unknown)?;
        match connection.state {
            State::DreqSent | State::TimeWait => return Ok(()),
            State::Established | State::RepSent => {}
            _ => return Err(ConnectionError::State),
        }
        let dreq = Dreq {
            local_comm_id: id,
            remote_comm_id: connection.remote_id,
            remote_qpn: connection.parameters.remote_qpn,
            private_data: [0; Dreq::PRIVATE_LEN],
        };
        connection.state = State::DreqSent;
        connection.max_retries = MAX_RETRIES / 2;
        self.send_and_repeat(now_ns, id, dreq.into());
        Ok(())
    }

    /// The program is done with an exchange, whatever its state. It gets no more events; the peer
    /// is told what it has to know.
    pub fn abandon(&mut self, now_ns: u64, id: u32) {
        self.events.retain(|(of, _)| *of != id);
        self.abandon_resolution(id);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.is_owned = false;
        let state = connection.state;
        let _ = match state {
            State::ReqSent => self.reject(id, RejectReason::TIMEOUT, [0; Rej::PRIVATE_LEN]),
            State::ReqReceived | State::RepReceived => {
                self.reject(id, RejectReason::CONSUMER, [0; Rej::PRIVATE_LEN])
            }
            State::RepSent | State::Established => self.disconnect(now_ns, id),
            State::DreqSent | State::TimeWait => Ok(()),
        };
    }

    // ---- inside ------------------------------------------------------------------------------

    /// Begins a connection that a peer asked for.
    pub(super) fn insert_passive(&mut self, id: u32, path: Path, transaction: u64, req: &Req) {
        let mut connection = Connection::new(State::ReqReceived, transaction, path, req);
        connection.has_known_port = self.is_from_port_of(&path, req.qpn);
        self.connections.insert(id, connection);
        self.by_request.insert((path.peer(), req.local_comm_id), id);
        self.by_qp.insert((path.peer(), req.qpn), id);
    }

    /// Whether a datagram came from the port that the number of a queue pair tells.
    pub(super) fn is_from_port_of(&self, path: &Path, qpn: Qpn) -> bool {
        let port = self.port_of.map(|port_of| port_of(qpn));
        port.is_some() && port == path.from
    }

    /// Whether a datagram about our connection `id` did not come from its peer, whose port is
    /// known.
    pub(super) fn is_foreign(&self, path: &Path, id: u32) -> bool {
        self.connections.get(&id).is_some_and(|connection| {
            connection.has_known_port
                && !self.is_from_port_of(path, connection.parameters.remote_qpn)
        })
    }

    /// Whether the datagram at `path` comes from the port that the number of the queue pair tells,
    /// from which connection `id` was never heard. Another user of the peer's host asked for it
    /// then, or the owner did and has forgotten it.
    pub(super) fn is_squatter(&self, path: &Path, qpn: Qpn, id: u32) -> bool {
        let old = self.connections.get(&id);
        self.is_from_port_of(path, qpn) && old.is_some_and(|old| !old.has_known_port)
    }

    /// The connection that the peer at `path` asked for with this very request. It may have another
    /// one by the same ID, which it has forgotten, and we have not yet: IDs come again.
    pub(super) fn asked_by(&self, path: &Path, req: &Req) -> Option<u32> {
        let id = *self.by_request.get(&(path.peer(), req.local_comm_id))?;
        let parameters = &self.connections.get(&id)?.parameters;
        let is_same = parameters.remote_qpn == req.qpn && parameters.sq_psn == req.starting_psn;
        is_same.then_some(id)
    }

    /// The peer uses the ID of a connection for another one: it has forgotten this one.
    pub(super) fn end_forgotten(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        match connection.state {
            State::TimeWait => {
                self.emit_event(id, Event::TimeWaitExit);
                self.forget(id);
            }
            State::ReqReceived => {
                let rej = Rej {
                    local_comm_id: connection.remote_id,
                    remote_comm_id: id,
                    stage: Stage::Other,
                    info_len: 0,
                    reason: RejectReason::TIMEOUT,
                    info: [0; Rej::INFO_LEN],
                    private_data: [0; Rej::PRIVATE_LEN],
                };
                self.emit_event(id, Event::Rejected(Box::new(rej)));
                self.forget(id);
            }
            _ => self.enter_time_wait(now_ns, id),
        }
    }

    fn in_state(&mut self, id: u32, states: &[State]) -> Result<&mut Connection, ConnectionError> {
        let connection = self
            .connections
            .get_mut(&id)
            .ok_or(ConnectionError::Unknown)?;
        if states.contains(&connection.state) {
            Ok(connection)
        } else {
            Err(ConnectionError::State)
        }
    }

    pub(super) fn emit_event(&mut self, id: u32, event: Event) {
        if self
            .connections
            .get(&id)
            .is_some_and(|connection| connection.is_owned)
        {
            self.events.push_back((id, event));
        }
    }

    /// Sends `message` now and again until something stops the timer.
    fn send_and_repeat(&mut self, now_ns: u64, id: u32, message: Message) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.sent = Some(message);
        connection.attempts = 0;
        connection.patient_until_ns = 0;
        let delay_ns = timing::retry_ns(0, connection.response_timeout);
        self.repeat(id);
        self.set_timer(id, Some(now_ns.saturating_add(delay_ns)));
    }

    /// Sends what was sent last once more.
    pub(super) fn repeat(&mut self, id: u32) {
        if let Some(connection) = self.connections.get(&id)
            && let Some(message) = connection.sent.clone()
        {
            let (path, transaction) = (connection.parameters.path, connection.transaction);
            self.send(
                path,
                &Mad {
                    transaction,
                    message,
                },
            );
        }
    }

    pub(super) fn set_timer(&mut self, id: u32, at_ns: Option<u64>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(before) = core::mem::replace(&mut connection.deadline_ns, at_ns) {
            self.timers.remove(&(before, id));
        }
        if let Some(at_ns) = at_ns {
            self.timers.insert((at_ns, id));
        }
    }

    pub(super) fn expire_connection(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.state == State::TimeWait {
            self.emit_event(id, Event::TimeWaitExit);
            self.forget(id);
            return;
        }
        if now_ns < connection.patient_until_ns {
            self.repeat(id);
            self.set_timer(id, Some(now_ns.saturating_add(timing::PATIENT_RETRY_NS)));
            return;
        }
        if connection.attempts < connection.max_retries {
            connection.attempts += 1;
            let delay_ns = timing::retry_ns(connection.attempts, connection.response_timeout);
            self.repeat(id);
            self.set_timer(id, Some(now_ns.saturating_add(delay_ns)));
            return;
        }
        if connection.state == State::DreqSent {
            self.enter_time_wait(now_ns, id);
            return;
        }
        self.emit_event(id, Event::Unreachable);
        // It may be only the way back that is broken: the peer must not wait for us.
        let _ = self.reject(id, RejectReason::TIMEOUT, [0; Rej::PRIVATE_LEN]);
    }

    pub(super) fn establish(&mut self, id: u32, private_data: [u8; Rtu::PRIVATE_LEN]) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Established;
            connection.sent = None;
            self.set_timer(id, None);
            self.emit_event(id, Event::Ready(Box::new(private_data)));
        }
    }

    /// The connection is over: says so to the program, and goes on to answer repetitions for a
    /// while.
    pub(super) fn enter_time_wait(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let was = core::mem::replace(&mut connection.state, State::TimeWait);
        connection.sent = None;
        let end_ns = now_ns.saturating_add(connection.time_wait_ns());
        let by_qp = (
            connection.parameters.path.peer(),
            connection.parameters.remote_qpn,
        );
        if self.by_qp.get(&by_qp) == Some(&id) {
            self.by_qp.remove(&by_qp);
        }
        self.set_timer(id, Some(end_ns));
        if was != State::TimeWait {
            self.emit_event(id, Event::Disconnected);
        }
    }

    /// Takes a connection out of all tables.
    pub(super) fn forget(&mut self, id: u32) {
        self.set_timer(id, None);
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        let by_request = (connection.parameters.path.peer(), connection.remote_id);
        if connection.is_passive && self.by_request.get(&by_request) == Some(&id) {
            self.by_request.remove(&by_request);
        }
        let by_qp = (
            connection.parameters.path.peer(),
            connection.parameters.remote_qpn,
        );
        if self.by_qp.get(&by_qp) == Some(&id) {
            self.by_qp.remove(&by_qp);
        }
    }

    /// Confirms the end of a connection to a peer that asks for it.
    pub(super) fn confirm_end(&mut self, path: Path, mad: &Mad, dreq: &Dreq) {
        let drep = Drep {
            local_comm_id: dreq.remote_comm_id,
            remote_comm_id: dreq.local_comm_id,
            private_data: [0; Drep::PRIVATE_LEN],
        };
        self.answer(path, mad, drep.into());
    }
}
