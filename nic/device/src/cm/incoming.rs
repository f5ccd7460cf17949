//! Messages that came in, and those that wait for a listener.

use urxe_cm::{Mad, Message, Path, ServiceId};
use urxe_wire::ROCE_UDP_PORT;

use super::agent::Inner;
use super::id::SLOT_SHIFT;
use super::relay::{self, Relayed};
use super::waiting::Waiting;

impl Inner {
    /// A datagram that came to UDP port `port`, or that was passed on (`None`).
    pub(super) fn incoming(&mut self, path: Path, raw: &[u8], port: Option<u16>) {
        let Ok(mad) = Mad::parse(raw) else {
            return;
        };
        match &mad.message {
            Message::Req(req) => self.request(path, &mad, req.service_id, port),
            Message::SidrReq(req) => self.request(path, &mad, req.service_id, port),
            message => {
                let slot = u16::try_from(message.answered_id() >> SLOT_SHIFT).unwrap_or(0);
                if port != Some(ROCE_UDP_PORT) || !self.pass_on_answer(path, &mad, slot) {
                    self.manager.handle_mad(self.now_ns, path, &mad, 0);
                }
            }
        }
    }

    fn request(&mut self, path: Path, mad: &Mad, service_id: ServiceId, port: Option<u16>) {
        if self.manager.is_repetition(&path, &mad.message) {
            self.manager.handle_mad(self.now_ns, path, mad, 0);
        } else if self.waiting.was_refused(self.now_ns, &path, mad) {
            self.manager.refuse(path, mad);
        } else if let Some(listener) = self.listener_for(&path, service_id) {
            // What cannot be taken in now will be repeated.
            let _ = self.admit(listener, path, mad);
        } else if port.is_none() || !self.pass_on_request(path, mad, service_id) {
            self.keep_waiting(path, mad, service_id);
            return;
        }
        self.waiting.forget(&path, mad);
    }

    fn keep_waiting(&mut self, path: Path, mad: &Mad, service_id: ServiceId) {
        if self.waiting.keep(self.now_ns, path, mad, service_id) {
            self.is_stale = true;
        } else {
            self.manager.refuse(path, mad);
        }
    }

    /// Takes in requests that have a listener by now, and refuses those that have waited enough.
    pub(super) fn look_at_waiting(&mut self) {
        for waiting in self.waiting.take() {
            let Waiting {
                path,
                service_id,
                mad,
                ..
            } = &waiting;
            if self.manager.is_repetition(path, &mad.message) {
                // A repetition of it was taken in.
            } else if let Some(listener) = self.listener_for(path, *service_id) {
                let _ = self.admit(listener, *path, mad);
            } else if self.now_ns < waiting.until_ns {
                self.waiting.put_back(waiting);
            } else if !self.pass_on_request(*path, mad, *service_id) {
                self.manager.refuse(*path, mad);
                self.waiting
                    .note_refused(self.now_ns, waiting.path, waiting.mad);
            }
        }
    }

    fn pass_on_request(&mut self, path: Path, mad: &Mad, service_id: ServiceId) -> bool {
        let from = self.door(path.link).and_then(|door| door.holder_relay());
        let relayed = Relayed {
            path,
            mad: mad.emit(),
        };
        match (from, service_id.port()) {
            (Some(from), Some((space, port))) => relay::to_listener(from, space, port, &relayed),
            _ => false,
        }
    }

    fn pass_on_answer(&mut self, path: Path, mad: &Mad, slot: u16) -> bool {
        let Some(door) = self.door(path.link) else {
            return false;
        };
        if slot == door.slot {
            return false;
        }
        let relayed = Relayed {
            path,
            mad: mad.emit(),
        };
        door.holder_relay()
            .is_some_and(|from| slot != 0 && relay::to_process(from, slot, &relayed))
    }
}
