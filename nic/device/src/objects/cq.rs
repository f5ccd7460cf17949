//! Completion queues, as the program has them: it polls, and runs the engine where there are no
//! completions yet.

use std::sync::Arc;

use urxe_proto::Completion;

use crate::delivery::completions::{Completions, Tells};
use crate::delivery::moderation::Moderation;
use crate::nic::Nic;
use crate::objects::channel::CompletionChannel;
use crate::process::clock;
use crate::process::error::Error;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    nic: Arc<Nic>,
    channel: Option<Arc<CompletionChannel>>,
    completions: Arc<Completions>,
}

impl Nic {
    /// Makes a completion queue. `cookie` comes back from the channel and in events.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a depth of zero or above the limit.
    pub fn create_cq(
        self: &Arc<Self>,
        depth: usize,
        channel: Option<Arc<CompletionChannel>>,
        cookie: u64,
    ) -> Result<Arc<Cq>, Error> {
        if depth == 0 || depth > self.limits().max_cqe {
            return Err(Error::Invalid(format!(
                "a completion queue has 1 to {} entries, not {depth}",
                self.limits().max_cqe
            )));
        }
        let tells = Tells {
            progress: Arc::clone(self.progress()),
            events: Arc::clone(self.events()),
            moderated: Arc::clone(self.moderated()),
        };
        let events = channel.as_ref().map(|channel| Arc::clone(channel.events()));
        Ok(Arc::new(Cq {
            nic: Arc::clone(self),
            channel,
            completions: Arc::new(Completions::new(tells, depth, events, cookie)),
        }))
    }
}

impl Cq {
    /// Where the engine delivers.
    pub(crate) const fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// Completions that it holds at most.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.completions.depth()
    }

    /// Changes how many completions it holds at most.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it holds more than that now.
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        self.completions.resize(depth, self.nic.limits().max_cqe)
    }

    /// Moves completions, oldest first, into `out` by calling it, at most `limit` times; runs the
    /// engine if there are none yet. Returns how many.
    pub fn poll(&self, limit: usize, mut out: impl FnMut(Completion)) -> usize {
        let completions = &self.completions;
        let seen = self.nic.arrivals();
        let count = completions.take(limit, &mut out);
        if count > 0 {
            self.nic.progress().note_found();
            completions.note_drained(count < limit);
        }
        if count > 0 || limit == 0 {
            self.release_if_empty();
            return count;
        }
        self.nic.run_inline(seen);
        let count = completions.take(limit, &mut out);
        completions.note_drained(count < limit);
        count
    }

    /// Takes the oldest completion, with the time it came ([`Self::timestamp_now_ns`]; 0 if the
    /// queue has no timestamps); runs the engine if there is none yet.
    pub fn poll_one(&self) -> Option<(Completion, u64)> {
        let seen = self.nic.arrivals();
        if let Some(taken) = self.completions.take_one() {
            self.nic.progress().note_found();
            self.completions.note_drained(false);
            self.release_if_empty();
            return Some(taken);
        }
        self.nic.run_inline(seen);
        let taken = self.completions.take_one();
        self.completions.note_drained(taken.is_none());
        taken
    }

    /// The program has seen everything, and may go away: what it posted must not wait for its next
    /// poll. While there is more, it will poll again.
    #[inline]
    fn release_if_empty(&self) {
        if !self.completions.has_some() {
            self.nic.release();
        }
    }

    /// Lets it note from now on when each completion comes. To be called before it is used.
    pub fn keep_timestamps(&self) {
        self.completions.keep_timestamps();
    }

    /// The device's clock: `CLOCK_MONOTONIC`, nanoseconds.
    #[must_use]
    pub fn timestamp_now_ns() -> u64 {
        clock::monotonic_ns()
    }

    /// Asks for an event at the next completion (of a solicited or failed one only, if so asked).
    /// What came since a poll that found no more counts as next: there are programs that do not
    /// poll again before they wait, though the specification tells them to.
    pub fn arm(&self, solicited_only: bool) {
        self.nic.let_go_and(|| self.completions.arm(solicited_only));
        self.nic.release();
        let is_seen_to = self
            .channel
            .as_ref()
            .is_some_and(|channel| channel.is_waited_in() || channel.look(&self.nic));
        if !is_seen_to {
            // The program is about to wait in a poll() of its own, and the background thread has to
            // watch the sockets.
            self.nic.progress().take_over();
        }
    }

    /// Lets events wait until `moderation.count` completions have come, or `moderation.period_ns`
    /// have passed since the first.
    pub fn moderate(&self, moderation: Moderation) {
        self.completions.moderate(moderation);
    }

    /// Raises no event any more, and takes back those that the program has not read: it is about to
    /// be destroyed. No queue pair may complete here.
    pub fn retire(&self) {
        self.completions.retire();
    }

    /// Whether queue pairs complete here.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.completions.is_busy()
    }

    /// Its channel.
    #[must_use]
    pub const fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tap::Wiring;
    use urxe_proto::{CompletionKind, WcStatus};

    fn completion() -> Completion {
        Completion {
            wr_id: 1,
            status: WcStatus::Success,
            kind: CompletionKind::Send,
            byte_len: 0,
            qp: urxe_wire::Qpn::new(2),
            immediate: None,
            invalidated_rkey: None,
            solicited: false,
            source_qp: None,
            header: urxe_proto::DatagramHeader::Ipv6,
        }
    }

    /// A queue that raises events; none, and says so, where there is no device.
    fn with_events() -> Option<(Arc<Nic>, Arc<CompletionChannel>, Arc<Cq>)> {
        let devices = crate::attach::list::list().unwrap();
        let Some(info) = devices.first() else {
            eprintln!("skipped: no network interface has an address");
            return None;
        };
        let nic = Nic::open_wired(info, &Wiring::default()).unwrap();
        let channel = nic.create_channel().unwrap();
        let cq = nic.create_cq(8, Some(Arc::clone(&channel)), 1).unwrap();
        Some((nic, channel, cq))
    }

    /// The event comes as soon as the first of several completions, and the thread that it wakes
    /// may poll but once.
    #[test]
    fn a_thread_that_is_woken_finds_something() {
        let Some((nic, channel, cq)) = with_events() else {
            return;
        };
        cq.arm(false);
        let mut is_found = None;
        cq.completions
            .push(completion(), || {
                // The event is there by now.
                is_found = Some(cq.completions.has_some());
                None
            })
            .unwrap();
        assert_eq!(is_found, Some(true));
        assert_eq!(channel.wait().unwrap(), 1);
        let polls = || nic.progress().polls();
        let before = polls();
        assert_eq!(cq.poll(0, |_| ()), 0);
        assert_eq!(polls(), before, "a poll for nothing is none");
        assert_eq!(cq.poll(1, |_| ()), 1);
        assert_eq!(polls(), before + 1, "one that finds something is");
        nic.close();
    }

    /// UCX polls, finds nothing, asks for an event, and waits for it.
    #[test]
    fn what_comes_between_a_vain_poll_and_arming_raises_an_event() {
        let Some((nic, channel, cq)) = with_events() else {
            return;
        };
        let come = |solicited| {
            let completion = Completion {
                solicited,
                ..completion()
            };
            cq.completions.push(completion, || None).unwrap();
        };
        // SAFETY: the channel's own descriptor.
        unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let events = || std::iter::from_fn(|| channel.wait().ok()).count();
        // Asked for before the poll, as most programs do: what is there is nothing new.
        come(false);
        cq.arm(false);
        assert_eq!(events(), 0);
        assert_eq!(cq.poll(4, |_| ()), 1);
        // Armed still, and drained: the next raises the event.
        come(false);
        assert_eq!(events(), 1);
        // That one is known.
        cq.arm(false);
        assert_eq!(events(), 0);
        assert_eq!(cq.poll(1, |_| ()), 1);
        assert_eq!(cq.poll(1, |_| ()), 0);
        come(false);
        assert_eq!(events(), 1, "it is armed");
        assert_eq!((cq.poll(4, |_| ()), events()), (1, 0));
        come(false);
        cq.arm(true);
        assert_eq!(events(), 0, "it is not solicited");
        assert_eq!(cq.poll(0, |_| ()), 0);
        cq.arm(false);
        assert_eq!(
            events(),
            1,
            "it came before, and the program has not seen it"
        );
        cq.arm(false);
        assert_eq!(events(), 0, "one event for it is enough");
        nic.close();
    }
}
