//! Rounds of the engine: on the program's threads, and on the background thread.

use std::sync::{Arc, MutexGuard};

use urxe_duty::Advice;
use urxe_proto::Instant;

use super::{Nic, lock};
use crate::delivery::moderated::Moderated;
use crate::engine::Engine;
use crate::memory::Offer;
use crate::process::clock::now;
use crate::process::guard;
use crate::process::usage::advise;

/// What a round of [`Nic::run_looking`] or [`Nic::run_waiting`] came to.
pub(crate) struct Round {
    /// How many packets came.
    pub(crate) received: usize,
    /// Whether they were more than answers: a peer wants something.
    pub(crate) has_requests: bool,
    /// When it was.
    pub(crate) at: Instant,
    /// When the next one is wanted.
    pub(crate) wanted_at: Option<Instant>,
}

impl Nic {
    /// Whether the last round left something to send.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.engine().is_unfinished()
    }

    /// Takes in what came to sockets that no queue pair uses, for which a program that polls does
    /// not look.
    pub(crate) fn run_idle_sockets(&self) {
        if let Ok(mut engine) = self.engine.try_lock() {
            engine.receive_idle();
        }
    }

    /// Sends what waits for company, if anything does: the program polled and does not run a round.
    #[inline]
    pub(crate) fn release(&self) {
        if self.progress.is_holding() {
            self.release_now();
        }
    }

    #[cold]
    fn release_now(&self) {
        // The thread that has the lock is about to send, or has the program's next poll to follow.
        if let Ok(mut engine) = self.engine.try_lock() {
            self.progress.note_released();
            let now = now();
            engine.send_gathered(now);
            self.note_deadline(&engine, now);
        }
    }

    /// The program posted, and then did not poll: sends what waits, and lets nothing wait for a
    /// while.
    pub(crate) fn stop_gathering(&self) {
        let mut engine = self.engine();
        self.progress.note_released();
        engine.stop_gathering(now());
    }

    /// A round of the program's own. Returns how many packets came, and whether there was nothing
    /// to do, and memory alone was looked at to find that out.
    pub(crate) fn run_round(&self, engine: &mut Engine) -> (usize, bool) {
        self.progress.note_round();
        self.progress.note_released();
        let was_amid = self.progress.is_to_tell() && engine.is_amid();
        let sent_before = engine.sent();
        let (received, now) = engine.run_round();
        let Some(now) = now else {
            return (received, engine.was_quick(received));
        };
        let sent = engine.sent() - sent_before;
        self.note_came(received, sent);
        self.progress.note_work(sent + received as u64);
        self.progress.note_round_at(now);
        self.moderated.expire(now);
        self.note_deadline(engine, now);
        if was_amid && !engine.is_amid() {
            self.progress.note_answered();
        }
        (received, false)
    }

    /// A round received and sent so much. Over a connection, requests complete by what is sent.
    fn note_came(&self, received: usize, sent: u64) {
        if received > 0 || self.is_iwarp() && sent > 0 {
            self.naps.note_arrival();
        }
    }

    /// How many rounds brought packets so far; for [`Self::run_inline`].
    #[inline]
    pub(crate) fn arrivals(&self) -> u64 {
        self.naps.arrivals()
    }

    /// One round on the program's own thread, unless another thread is at it; perhaps a wait, if no
    /// round has brought packets since there were `seen`.
    pub(crate) fn run_inline(&self, seen: u64) {
        let mut received = 0;
        if let Ok(mut engine) = self.engine.try_lock() {
            // Only now: where threads that post hold the lock whenever one polls, the background
            // thread has to see to what arrives.
            let has_looked_at_memory_only;
            (received, has_looked_at_memory_only) = self.run_round(&mut engine);
            if engine.memory.protected.has_offers() {
                self.make_offers(engine);
            } else if has_looked_at_memory_only {
                return;
            }
        }
        match advise(received > 0, self.progress.work()) {
            Advice::Spin => {}
            Advice::Yield => std::thread::yield_now(),
            Advice::Wait(wait_ns) => {
                let sockets = Arc::clone(&lock(&self.sockets));
                self.naps.wait(seen, &sockets, self.connections(), wait_ns);
            }
        }
    }

    /// One round of a thread that is going to wait for packets.
    pub(crate) fn run_waiting(&self) -> Round {
        let mut engine = self.engine();
        let round = self.run_for_thread(&mut engine, Engine::run_background_round);
        if engine.memory.protected.has_offers() {
            self.make_offers(engine);
        }
        round
    }

    /// One round of a thread that looks for packets before it sleeps, unless another thread is at
    /// it.
    pub(crate) fn run_looking(&self) -> Option<Round> {
        let mut engine = self.engine.try_lock().ok()?;
        let round = self.run_for_thread(&mut engine, Engine::run_looking_round);
        if engine.memory.protected.has_offers() {
            self.make_offers(engine);
        }
        Some(round)
    }

    /// Lets the program's handler of faults know of accesses to memory that it has protected. It
    /// may not come back, or take long: the engine is free meanwhile, and nothing here has to be
    /// dropped while it runs.
    #[cold]
    fn make_offers(&self, mut engine: MutexGuard<'_, Engine>) {
        let mut next = engine.memory.protected.take_offer();
        drop(engine);
        while let Some(Offer { at, writes }) = next {
            let is_accessible = guard::offer(at, writes);
            let mut engine = self.engine();
            if !is_accessible {
                engine.memory.protected.note_refused(at);
            }
            next = engine.memory.protected.take_offer();
        }
    }

    fn run_for_thread(
        &self,
        engine: &mut Engine,
        run: impl FnOnce(&mut Engine, Instant) -> usize,
    ) -> Round {
        self.progress.note_released();
        let at = now();
        let (before, sent_before) = (engine.requests, engine.sent());
        let received = run(engine, at);
        self.note_came(received, engine.sent() - sent_before);
        self.moderated.expire(at);
        Round {
            received,
            has_requests: engine.requests != before,
            at,
            wanted_at: if engine.is_unfinished() {
                Some(at)
            } else {
                self.deadline(engine, at)
            },
        }
    }

    /// After a round or a command of the program: the background thread may have to wake earlier.
    pub(crate) fn note_deadline(&self, engine: &Engine, now: Instant) {
        self.progress.note_deadline(self.deadline(engine, now));
    }

    /// Whether the engine, with which no thread is busy, should have run `late_ns` ago.
    pub(crate) fn is_late(&self, late_ns: u64) -> bool {
        let Ok(engine) = self.engine.try_lock() else {
            return false;
        };
        let now = now();
        self.deadline(&engine, now)
            .is_some_and(|at| now.since(at) >= late_ns)
    }

    /// Whether a request of the program has no answer yet, or a message no reply of its, or a
    /// thread is busy with the engine.
    pub(crate) fn is_amid(&self) -> bool {
        match self.engine.try_lock() {
            Ok(mut engine) => {
                engine.see();
                engine.is_amid()
            }
            Err(_) => true,
        }
    }

    pub(crate) fn earliest_deadline(&self) -> Option<Instant> {
        self.deadline(&self.engine(), now())
    }

    /// When a round is wanted again.
    fn deadline(&self, engine: &Engine, now: Instant) -> Option<Instant> {
        match (engine.deadline(now), self.moderated.due()) {
            (Some(engine), Some(event)) => Some(engine.min(event)),
            (engine, event) => engine.or(event),
        }
    }

    pub(crate) const fn moderated(&self) -> &Arc<Moderated> {
        &self.moderated
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::nic::tests::alone::{are_amid, connected, run_until_nobody_is_amid, write};
    use crate::process::clock::staged::Clock;

    #[test]
    fn open_requests_and_messages_without_a_reply_are_not_the_end() {
        let (ends, qps) = connected(64);
        assert_eq!(are_amid(&ends), [false; 2]);
        write(&ends[0], &qps[0], &ends[1], 64);
        assert_eq!(are_amid(&ends), [true, false]);
        ends[1].nic.run_waiting();
        assert_eq!(are_amid(&ends), [true; 2], "the program may reply");
        run_until_nobody_is_amid(&ends);
    }

    /// A program that was told of each part of it would look a dozen times for one message.
    #[test]
    fn nobody_replies_to_a_message_that_has_come_in_part() {
        const LEN: usize = 4 << 20;
        const MESSAGES: u8 = 200;
        // More are in flight at a time, the faster the answers were.
        let _clock = Clock::new();
        let (mut ends, qps) = connected(LEN);
        let mut held_within = 0;
        for turn in 1..=MESSAGES {
            ends[0].buffer[LEN - 1] = turn;
            write(&ends[0], &qps[0], &ends[1], LEN);
            loop {
                let Round { wanted_at, .. } = ends[1].nic.run_waiting();
                // SAFETY: a byte that is there; the device writes it.
                if unsafe { std::ptr::from_ref(&ends[1].buffer[LEN - 1]).read_volatile() } == turn {
                    break;
                }
                assert_eq!(are_amid(&ends), [true, false], "a part has come");
                held_within += usize::from(wanted_at.is_some());
                ends[0].nic.run_waiting();
            }
            run_until_nobody_is_amid(&ends);
        }
        assert!(
            held_within >= 10,
            "an acknowledgement waited {held_within} times within a message"
        );
    }

    /// Those that wait in a poll are told of it ([`crate::nic::naps`]).
    #[test]
    fn what_comes_is_counted_whoever_takes_it_in() {
        let nic = Nic::open_without_thread();
        let to = {
            let mut engine = nic.engine();
            let ports = &mut engine.sockets.as_mut().unwrap().ports;
            // A round looks only where a queue pair is.
            ports[0].users = 1;
            ports[0].socket.as_ref().unwrap().local_address()
        };
        let peer = UdpSocket::bind((to.ip(), 0)).unwrap();
        for take_in in [
            |nic: &Nic| nic.run_inline(nic.arrivals()),
            |nic: &Nic| _ = nic.run_waiting(),
            |nic: &Nic| _ = nic.run_looking(),
        ] {
            let before = nic.arrivals();
            peer.send_to(&[0; 64], to).unwrap();
            take_in(&nic);
            assert_eq!(nic.arrivals(), before + 1);
        }
    }
}
