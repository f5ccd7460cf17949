//! The commands on resolutions, and what comes of them.

use alloc::boxed::Box;

use super::Manager;
use super::resolution::{Resolution, State};
use super::timing::{self, MAX_RETRIES, RESPONSE_TIMEOUT};
use super::values::{ConnectionError, Event, Path};
use crate::mad::Mad;
use crate::message::{SidrRep, SidrReq};
use crate::reason::SidrStatus;

impl Manager {
    /// Asks a peer which queue pair serves. `id`, which must be free, becomes the request's ID.
    pub fn resolve(&mut self, now_ns: u64, id: u32, path: Path, mut req: SidrReq) {
        req.request_id = id;
        let resolution = Resolution {
            state: State::Asked,
            path,
            transaction: u64::from(id),
            request_id: id,
            is_owned: true,
            request: None,
            sent: Some(req.into()),
            attempts: 0,
            deadline_ns: None,
        };
        self.resolutions.insert(id, resolution);
        self.repeat_resolution(id);
        let delay_ns = timing::retry_ns(0, RESPONSE_TIMEOUT);
        self.set_resolution_timer(id, Some(now_ns.saturating_add(delay_ns)));
    }

    /// Answers a peer that asked. The IDs are filled in; with a status other than success the rest
    /// means nothing.
    ///
    /// # Errors
    /// If there is nothing to answer.
    pub fn answer_resolution(
        &mut self,
        now_ns: u64,
        id: u32,
        mut rep: SidrRep,
    ) -> Result<(), ConnectionError> {
        let resolution = self
            .resolutions
            .get_mut(&id)
            .ok_or(ConnectionError::Unknown)?;
        let request = match (resolution.state, &resolution.request) {
            (State::ToAnswer, Some(request)) => request,
            _ => return Err(ConnectionError::State),
        };
        rep.request_id = resolution.request_id;
        rep.service_id = request.service_id;
        resolution.state = State::Answered;
        resolution.sent = Some(rep.into());
        self.repeat_resolution(id);
        let end_ns = now_ns.saturating_add(timing::REMEMBER_ANSWER_NS);
        self.set_resolution_timer(id, Some(end_ns));
        Ok(())
    }

    /// Where a resolution's datagrams go.
    #[must_use]
    pub fn resolution_path(&self, id: u32) -> Option<&Path> {
        self.resolutions.get(&id).map(|resolution| &resolution.path)
    }

    pub(super) fn abandon_resolution(&mut self, id: u32) {
        let Some(resolution) = self.resolutions.get_mut(&id) else {
            return;
        };
        resolution.is_owned = false;
        match resolution.state {
            State::Asked => self.forget_resolution(id),
            State::ToAnswer => {
                let rep = SidrRep {
                    request_id: 0,
                    status: SidrStatus::REJECT,
                    info_len: 0,
                    qpn: urxe_wire::Qpn::default(),
                    service_id: crate::service::ServiceId(0),
                    qkey: 0,
                    info: [0; SidrRep::INFO_LEN],
                    private_data: [0; SidrRep::PRIVATE_LEN],
                };
                // Answered long ago, as far as timers go: repetitions are refused anew.
                let _ = self.answer_resolution(0, id, rep);
                self.forget_resolution(id);
            }
            State::Answered => {}
        }
    }

    /// The resolution that the peer at `path` asked for with this very question. It may ask another
    /// one by the same ID.
    pub(super) fn resolved_for(&self, path: &Path, req: &SidrReq) -> Option<u32> {
        let id = *self.by_resolution.get(&(path.peer(), req.request_id))?;
        let known = self.resolutions.get(&id)?.request.as_ref();
        known.is_some_and(|known| known == req).then_some(id)
    }

    pub(super) fn handle_sidr_req(&mut self, path: Path, mad: &Mad, req: &SidrReq, fresh: u32) {
        let key = (path.peer(), req.request_id);
        if let Some(id) = self.resolved_for(&path, req) {
            // Nothing is sent while the program has not answered.
            self.repeat_resolution(id);
            return;
        }
        let resolution = Resolution {
            state: State::ToAnswer,
            path,
            transaction: mad.transaction,
            request_id: req.request_id,
            is_owned: true,
            request: Some(req.clone()),
            sent: None,
            attempts: 0,
            deadline_ns: None,
        };
        self.resolutions.insert(fresh, resolution);
        self.by_resolution.insert(key, fresh);
        self.events
            .push_back((fresh, Event::Resolve(Box::new(req.clone()))));
    }

    pub(super) fn handle_sidr_rep(&mut self, path: Path, rep: &SidrRep) {
        let id = rep.request_id;
        let is_awaited = self.resolutions.get(&id).is_some_and(|resolution| {
            resolution.state == State::Asked && resolution.path.peer() == path.peer()
        });
        if is_awaited {
            self.events
                .push_back((id, Event::Resolved(Box::new(rep.clone()))));
            self.forget_resolution(id);
        }
    }

    fn repeat_resolution(&mut self, id: u32) {
        if let Some(resolution) = self.resolutions.get(&id)
            && let Some(message) = resolution.sent.clone()
        {
            let (path, transaction) = (resolution.path, resolution.transaction);
            self.send(
                path,
                &Mad {
                    transaction,
                    message,
                },
            );
        }
    }

    fn set_resolution_timer(&mut self, id: u32, at_ns: Option<u64>) {
        let Some(resolution) = self.resolutions.get_mut(&id) else {
            return;
        };
        if let Some(before) = core::mem::replace(&mut resolution.deadline_ns, at_ns) {
            self.timers.remove(&(before, id));
        }
        if let Some(at_ns) = at_ns {
            self.timers.insert((at_ns, id));
        }
    }

    pub(super) fn expire_resolution(&mut self, now_ns: u64, id: u32) {
        let Some(resolution) = self.resolutions.get_mut(&id) else {
            return;
        };
        if resolution.state == State::Asked {
            if resolution.attempts < MAX_RETRIES {
                resolution.attempts += 1;
                let delay_ns = timing::retry_ns(resolution.attempts, RESPONSE_TIMEOUT);
                self.repeat_resolution(id);
                self.set_resolution_timer(id, Some(now_ns.saturating_add(delay_ns)));
                return;
            }
            if resolution.is_owned {
                self.events.push_back((id, Event::Unreachable));
            }
        }
        self.forget_resolution(id);
    }

    fn forget_resolution(&mut self, id: u32) {
        self.set_resolution_timer(id, None);
        if let Some(resolution) = self.resolutions.remove(&id) {
            let key = (resolution.path.peer(), resolution.request_id);
            if self.by_resolution.get(&key) == Some(&id) {
                self.by_resolution.remove(&key);
            }
        }
    }
}
