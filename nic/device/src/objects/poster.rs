//! Send requests on their way into a queue pair.

use std::sync::MutexGuard;

use urxe_proto::{AckMode, PostError, QpState, SendRequest};

use super::qp::Qp;
use crate::engine::Engine;
use crate::process::clock::now;

impl Qp {
    /// Lets `post` queue send requests, and submits them: those that it queued go out, whatever it
    /// returns, or, of a program that streams, at the latest when it polls. The engine is held
    /// meanwhile.
    pub fn post_sends<T>(&self, post: impl FnOnce(&mut SendPoster<'_>) -> T) -> T {
        let mut poster = SendPoster {
            qp: self,
            engine: self.nic.engine(),
            found_full: false,
        };
        let result = post(&mut poster);
        poster.submit();
        result
    }

    /// Queues a send request, and submits it.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends(|poster| poster.post(request))
    }

    /// The same for requests that were posted: those of a program that streams may wait for
    /// company.
    fn settle_posted(&self, engine: &mut Engine) {
        let now = now();
        engine.mark_ready(self.index);
        let sent_before = engine.stats.tx_packets;
        if engine.note_post(now) && self.nic.progress().hold(now) {
            engine.gather(now);
        } else if self.nic.progress().is_polled(now) {
            engine.transmit(now, AckMode::Flush);
        } else {
            engine.transmit(now, AckMode::All);
        }
        let sent = engine.stats.tx_packets - sent_before;
        self.nic.progress().note_work(1 + sent);
        // A thread that blocks for the program runs rounds itself.
        if !self.nic.progress().is_blocked_in() && engine.claim_round(now) {
            self.nic.run_round(engine);
        }
        self.finish(engine, now);
    }
}

/// Takes send requests for one queue pair ([`Qp::post_sends`]).
#[derive(Debug)]
pub struct SendPoster<'a> {
    qp: &'a Qp,
    engine: MutexGuard<'a, Engine>,
    found_full: bool,
}

impl SendPoster<'_> {
    /// Whether a send request would be taken behind `ahead` others that are posted before it.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check(&mut self, request: &SendRequest<'_>, ahead: usize) -> Result<(), PostError> {
        let checked = match self.qp.slot(&mut self.engine) {
            Ok(slot) => slot.qp.check_send(request, ahead).map(|_| ()),
            Err(_) => Err(PostError::State(QpState::Reset)),
        };
        self.found_full |= checked == Err(PostError::Full);
        checked
    }

    /// Queues a send request.
    ///
    /// # Errors
    /// Why it was not taken; earlier ones stand.
    pub fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let posted = match self.qp.slot(&mut self.engine) {
            Ok(slot) => slot.qp.post_send(request),
            Err(_) => Err(PostError::State(QpState::Reset)),
        };
        if posted == Err(PostError::Full) {
            self.found_full = true;
        }
        posted
    }

    /// What was queued goes out.
    fn submit(mut self) {
        self.qp.settle_posted(&mut self.engine);
        if self.found_full {
            // The program will try again until there is room, perhaps from many threads, which then
            // leave the lock to none that would take in the acknowledgements that make room.
            self.qp.nic.run_round(&mut self.engine);
        }
    }
}
