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
            bytes: 0,
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
    fn settle_posted(&self, engine: &mut Engine, bytes: u64) {
        let now = now();
        let sent_before = engine.stats.tx_packets;
        if engine.note_post(now, self.index, bytes) && self.nic.progress().hold(now) {
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
    /// Of the messages that were posted.
    bytes: u64,
}

impl SendPoster<'_> {
    /// Whether a send request would be taken behind `ahead` others that are posted before it.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check(&mut self, request: &SendRequest<'_>, ahead: usize) -> Result<(), PostError> {
        let checked = match self.qp.slot(&mut self.engine) {
            _ if self.qp.nic.is_iwarp() => self.qp.check_stream(&mut self.engine, request, ahead),
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
            _ if self.qp.nic.is_iwarp() => self.qp.post_stream(&mut self.engine, request),
            Ok(slot) => slot.qp.post_send(request),
            Err(_) => Err(PostError::State(QpState::Reset)),
        };
        match posted {
            Ok(()) => self.bytes += request.data.len(),
            Err(PostError::Full) => self.found_full = true,
            Err(_) => {}
        }
        posted
    }

    /// What was queued goes out.
    fn submit(mut self) {
        if self.qp.nic.is_iwarp() {
            self.qp.settle_posted_stream(&mut self.engine);
        } else {
            self.qp.settle_posted(&mut self.engine, self.bytes);
        }
        if self.found_full {
            // The program will try again until there is room, perhaps from many threads, which then
            // leave the lock to none that would take in the acknowledgements that make room.
            self.qp.nic.run_round(&mut self.engine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::tests::alone::{connected, run_until_nobody_is_amid, write};
    use crate::process::clock::staged::Clock;
    use crate::support::End;

    /// Posts so many messages of a program that streams, and polled before.
    struct Stream {
        ends: [End; 2],
        qps: [Qp; 2],
        len: usize,
        _clock: Clock,
    }

    impl Stream {
        fn new(len: usize) -> Self {
            let clock = Clock::new();
            let (ends, qps) = connected(len);
            let stream = Self {
                ends,
                qps,
                len,
                _clock: clock,
            };
            for _ in 0..20 {
                stream.post(1);
            }
            run_until_nobody_is_amid(&stream.ends);
            for _ in 0..16 {
                stream.ends[0].cq.poll(1, |_| ());
            }
            stream
        }

        fn post(&self, count: usize) {
            (0..count).for_each(|_| write(&self.ends[0], &self.qps[0], &self.ends[1], self.len));
        }

        /// Packets that were made so far.
        fn packets(&self) -> u64 {
            let mut engine = self.ends[0].nic.engine();
            self.qps[0].slot(&mut engine).unwrap().qp.stats().tx_packets
        }
    }

    #[test]
    fn requests_of_a_stream_become_packets_sixteen_at_a_time() {
        let stream = Stream::new(64);
        let before = stream.packets();
        let made = || stream.packets() - before;
        stream.post(1);
        assert_eq!(made(), 1, "one alone waits for none");
        stream.post(15);
        assert_eq!(made(), 1);
        stream.post(1);
        assert_eq!(made(), 17);
        stream.post(5);
        assert_eq!(made(), 17);
        while stream.ends[0].cq.poll(64, |_| ()) > 0 {}
        assert_eq!(made(), 22, "a poll that finds nothing ends the wait");
        run_until_nobody_is_amid(&stream.ends);
    }

    #[test]
    fn what_waits_goes_when_the_program_is_found_not_to_poll() {
        let stream = Stream::new(64);
        let before = stream.packets();
        stream.post(3);
        assert_eq!(stream.packets() - before, 1);
        stream.ends[0].nic.stop_gathering();
        assert_eq!(stream.packets() - before, 3);
        run_until_nobody_is_amid(&stream.ends);
    }

    #[test]
    fn long_messages_become_packets_at_once() {
        let stream = Stream::new(8 << 10);
        let before = stream.packets();
        for posted in 1..4 {
            stream.post(1);
            assert_eq!(stream.packets() - before, 2 * posted, "two packets each");
        }
        run_until_nobody_is_amid(&stream.ends);
    }

    #[test]
    fn requests_do_not_keep_an_acknowledgement_waiting() {
        let stream = Stream::new(64);
        let [left, right] = &stream.ends;
        stream.post(12);
        left.nic.engine().send_gathered(now());
        let before = stream.packets();
        let requests = left.nic.engine().requests;
        write(right, &stream.qps[1], left, 64);
        while left.nic.engine().requests == requests {
            left.nic.run_waiting();
        }
        stream.post(1);
        assert_eq!(
            stream.packets() - before,
            1,
            "the acknowledgement rides with it"
        );
        run_until_nobody_is_amid(&stream.ends);
    }

    #[test]
    fn what_waits_goes_before_its_queue_pair_or_its_memory_ends() {
        for end in [
            |stream: &Stream| stream.qps[0].destroy(),
            |stream: &Stream| stream.ends[0].nic.engine().forget_outgoing_memory(),
        ] {
            let stream = Stream::new(64);
            let sent = || stream.ends[0].nic.engine().stats.tx_packets;
            let before = sent();
            stream.post(5);
            assert_eq!(sent() - before, 1);
            end(&stream);
            assert!(sent() - before >= 5);
        }
    }
}
