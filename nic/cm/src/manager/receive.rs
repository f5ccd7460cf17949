//! Datagrams of peers.

use alloc::boxed::Box;

use super::connection::State;
use super::{Event, Manager, Path, please_wait, timing};
use crate::mad::{Mad, Message};
use crate::manager::ack_timeout_code;
use crate::message::{Apr, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, Stage};
use crate::reason::RejectReason;

impl Manager {
    /// Takes in a datagram that came over `path`. If it is a request that is not known yet,
    /// `fresh`, which must be free, becomes the ID of the exchange.
    ///
    /// A datagram that belongs to an exchange but does not come from its peer's address is dropped,
    /// and one that does not come from its port, if that is known ([`Self::with_ports`]).
    pub fn handle_mad(&mut self, now_ns: u64, path: Path, mad: &Mad, fresh: u32) {
        if self.is_foreign(&path, mad.message.answered_id()) {
            return;
        }
        match &mad.message {
            Message::Req(req) => self.handle_req(now_ns, path, mad, req, fresh),
            Message::Mra(mra) => self.handle_mra(now_ns, path, mra),
            Message::Rej(rej) => self.handle_rej(now_ns, path, rej),
            Message::Rep(rep) => self.handle_rep(path, mad, rep),
            Message::Rtu(rtu) => self.handle_rtu(path, rtu),
            Message::Dreq(dreq) => self.handle_dreq(now_ns, path, mad, dreq),
            Message::Drep(drep) => self.handle_drep(now_ns, path, drep),
            Message::SidrReq(req) => self.handle_sidr_req(path, mad, req, fresh),
            Message::SidrRep(rep) => self.handle_sidr_rep(path, rep),
            Message::Lap(lap) => self.handle_lap(path, mad, lap),
            // We never ask for an alternate path.
            Message::Apr(_) => {}
        }
    }

    /// The state of our connection `id`, if it is one with the peer at `path`, which calls it
    /// `remote_id`.
    fn state_with(&mut self, path: Path, id: u32, remote_id: u32) -> Option<State> {
        let connection = self.connections.get(&id)?;
        let is_theirs = connection.parameters.path.peer() == path.peer()
            && (connection.state == State::ReqSent || connection.remote_id == remote_id);
        if !is_theirs {
            return None;
        }
        let state = connection.state;
        let is_at_port = state != State::ReqSent && {
            let qpn = connection.parameters.remote_qpn;
            self.is_from_port_of(&path, qpn)
        };
        let is_foreign = self.is_foreign(&path, id);
        let connection = self.connections.get_mut(&id)?;
        connection.has_known_port |= is_at_port;
        // A request that is repeated may come by another way.
        if !is_foreign {
            connection.parameters.path.port = path.port;
        }
        Some(state)
    }

    fn handle_req(&mut self, now_ns: u64, path: Path, mad: &Mad, req: &Req, fresh: u32) {
        if let Some(id) = self.asked_by(&path, req) {
            match self.state_with(path, id, req.local_comm_id) {
                Some(State::ReqReceived) => {
                    let wait = please_wait(id, req.local_comm_id, Stage::Request);
                    self.answer(path, mad, wait);
                }
                Some(State::RepSent) => self.repeat(id),
                _ => {}
            }
            return;
        }
        let same_id = self.by_request.get(&(path.peer(), req.local_comm_id));
        let same_qp = self.by_qp.get(&(path.peer(), req.qpn));
        let (same_id, same_qp) = (
            same_id.copied(),
            same_qp.copied().filter(|_| req.qpn.get() != 0),
        );
        let mut olds = same_id.into_iter().chain(same_qp);
        if olds.any(|old| self.is_foreign(&path, old)) {
            // A host that names what is in use and is not its owner ends nothing, and the program
            // does not hear of it.
            self.refuse_stale(path, mad, req);
            return;
        }
        if let Some(old) = same_id {
            self.end_forgotten(now_ns, old);
        }
        if let Some(old) = same_qp
            && self.is_squatter(&path, req.qpn, old)
        {
            self.end_forgotten(now_ns, old);
        }
        if let Some(old) = self.by_qp.get(&(path.peer(), req.qpn)).copied()
            && same_qp.is_some()
        {
            // The peer does not know the old connection any more, else its queue pair were busy
            // (IBTA vol 1, 12.9.8.3.1).
            self.refuse_stale(path, mad, req);
            let _ = self.disconnect(now_ns, old);
            return;
        }
        self.insert_passive(fresh, path, mad.transaction, req);
        self.emit_event(fresh, Event::Request(Box::new(req.clone())));
    }

    fn refuse_stale(&mut self, path: Path, mad: &Mad, req: &Req) {
        let rej = Rej {
            local_comm_id: 0,
            remote_comm_id: req.local_comm_id,
            stage: Stage::Request,
            info_len: 0,
            reason: RejectReason::STALE_CONNECTION,
            info: [0; Rej::INFO_LEN],
            private_data: [0; Rej::PRIVATE_LEN],
        };
        self.answer(path, mad, rej.into());
    }

    fn handle_mra(&mut self, now_ns: u64, path: Path, mra: &Mra) {
        let state = self.state_with(path, mra.remote_comm_id, mra.local_comm_id);
        let is_awaited = matches!(
            (state, mra.stage),
            (Some(State::ReqSent), Stage::Request) | (Some(State::RepSent), Stage::Reply)
        );
        if let Some(connection) = self
            .connections
            .get_mut(&mra.remote_comm_id)
            .filter(|_| is_awaited)
        {
            // A peer that takes longer says so again when it is asked again.
            let longer_ns = timing::code_ns(mra.service_timeout.min(timing::SERVICE_TIMEOUT));
            connection.patient_until_ns = now_ns.saturating_add(longer_ns);
            let next_ns = now_ns.saturating_add(timing::PATIENT_RETRY_NS.min(longer_ns));
            self.set_timer(mra.remote_comm_id, Some(next_ns));
        }
    }

    fn handle_rej(&mut self, now_ns: u64, path: Path, rej: &Rej) {
        let id = rej.remote_comm_id;
        // A peer that has no connection names no ID of its own.
        let remote_id = if rej.local_comm_id == 0 {
            self.connections.get(&id).map_or(0, |c| c.remote_id)
        } else {
            rej.local_comm_id
        };
        match self.state_with(path, id, remote_id) {
            Some(State::ReqSent | State::RepReceived | State::ReqReceived | State::RepSent) => {
                self.emit_event(id, Event::Rejected(Box::new(rej.clone())));
                self.forget(id);
            }
            Some(State::Established | State::DreqSent) => self.enter_time_wait(now_ns, id),
            Some(State::TimeWait) | None => {}
        }
    }

    fn handle_rep(&mut self, path: Path, mad: &Mad, rep: &Rep) {
        let id = rep.remote_comm_id;
        match self.state_with(path, id, rep.local_comm_id) {
            Some(State::ReqSent) => {
                let has_known_port = self.is_from_port_of(&path, rep.qpn);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.state = State::RepReceived;
                    connection.has_known_port = has_known_port;
                    connection.remote_id = rep.local_comm_id;
                    connection.sent = None;
                    let parameters = &mut connection.parameters;
                    parameters.remote_qpn = rep.qpn;
                    parameters.sq_psn = rep.starting_psn;
                    parameters.initiator_depth = rep.responder_resources;
                    parameters.responder_resources = rep.initiator_depth;
                    parameters.rnr_retry_count = rep.rnr_retry_count;
                    parameters.ack_timeout =
                        parameters.ack_timeout.max(ack_timeout_code(rep.ack_delay));
                }
                self.set_timer(id, None);
                self.emit_event(id, Event::Reply(Box::new(rep.clone())));
            }
            Some(State::RepReceived) => {
                let wait = please_wait(id, rep.local_comm_id, Stage::Reply);
                self.answer(path, mad, wait);
            }
            // Our RTU was lost.
            Some(State::Established) => self.repeat(id),
            Some(_) => {}
            None => {
                let rej = Rej {
                    local_comm_id: id,
                    remote_comm_id: rep.local_comm_id,
                    stage: Stage::Reply,
                    info_len: 0,
                    reason: RejectReason::INVALID_COMM_ID,
                    info: [0; Rej::INFO_LEN],
                    private_data: [0; Rej::PRIVATE_LEN],
                };
                self.answer(path, mad, rej.into());
            }
        }
    }

    fn handle_rtu(&mut self, path: Path, rtu: &Rtu) {
        let id = rtu.remote_comm_id;
        if self.state_with(path, id, rtu.local_comm_id) == Some(State::RepSent) {
            self.establish(id, rtu.private_data);
        }
    }

    fn handle_dreq(&mut self, now_ns: u64, path: Path, mad: &Mad, dreq: &Dreq) {
        // Also where there is nothing to end: the peer waits for it.
        self.confirm_end(path, mad, dreq);
        let id = dreq.remote_comm_id;
        if let Some(State::Established | State::RepSent | State::RepReceived | State::DreqSent) =
            self.state_with(path, id, dreq.local_comm_id)
        {
            self.enter_time_wait(now_ns, id);
        }
    }

    fn handle_drep(&mut self, now_ns: u64, path: Path, drep: &Drep) {
        let id = drep.remote_comm_id;
        if self.state_with(path, id, drep.local_comm_id) == Some(State::DreqSent) {
            self.enter_time_wait(now_ns, id);
        }
    }

    fn handle_lap(&mut self, path: Path, mad: &Mad, lap: &Lap) {
        let apr = Apr {
            local_comm_id: lap.remote_comm_id,
            remote_comm_id: lap.local_comm_id,
            status: Apr::UNSUPPORTED,
        };
        self.answer(path, mad, apr.into());
    }
}
