//! Completion queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use urxe_proto::{Completion, WcStatus};

use crate::channel::CompletionChannel;
use crate::clock;
use crate::error::Error;
use crate::events::AsyncEventKind;
use crate::moderation::{Moderation, Moderator};
use crate::nic::Nic;

/// When the next completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    AnyCompletion,
    SolicitedOnly,
}

impl Armed {
    /// Whether the event that was asked for is due at a completion.
    fn fires_at(self, completion: &Completion) -> bool {
        match self {
            Self::No => false,
            Self::AnyCompletion => true,
            Self::SolicitedOnly => completion.solicited || completion.status != WcStatus::Success,
        }
    }
}

#[derive(Debug)]
struct Ring {
    completions: VecDeque<Completion>,
    /// When each of them came, for a queue with timestamps.
    stamps: Option<VecDeque<u64>>,
    depth: usize,
    armed: Armed,
    has_overrun: bool,
    /// Set where events wait for company.
    moderator: Option<Moderator>,
}

/// A full queue was given one more completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    nic: Arc<Nic>,
    channel: Option<Arc<CompletionChannel>>,
    cookie: u64,
    ring: Mutex<Ring>,
    /// Queue pairs that complete here.
    users: AtomicU32,
    /// Whether `poll` may find something without running the engine.
    has_some: AtomicBool,
    /// The program has seen all that there was, and no event was raised since. Kept only where there are events.
    is_drained: AtomicBool,
}

impl Cq {
    pub(crate) fn new(
        nic: &Arc<Nic>,
        depth: usize,
        channel: Option<Arc<CompletionChannel>>,
        cookie: u64,
    ) -> Arc<Self> {
        let ring = Ring {
            completions: VecDeque::new(),
            stamps: None,
            depth,
            armed: Armed::No,
            has_overrun: false,
            moderator: None,
        };
        Arc::new(Self {
            nic: Arc::clone(nic),
            channel,
            cookie,
            ring: Mutex::new(ring),
            users: AtomicU32::new(0),
            has_some: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
        })
    }

    fn ring(&self) -> std::sync::MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completions that it holds at most.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ring().depth
    }

    /// Changes how many completions it holds at most.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it holds more than that now.
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        let mut ring = self.ring();
        if depth == 0 || depth > self.nic.limits().max_cqe || depth < ring.completions.len() {
            let held = ring.completions.len();
            return Err(Error::Invalid(format!(
                "a completion queue of {depth} entries: it holds {held} now, and may have at most {}",
                self.nic.limits().max_cqe
            )));
        }
        ring.depth = depth;
        Ok(())
    }

    /// Moves completions, oldest first, into `out` by calling it, at most `limit` times; runs the
    /// engine if there are none yet. Returns how many.
    pub fn poll(&self, limit: usize, mut out: impl FnMut(Completion)) -> usize {
        let seen = self.nic.arrivals();
        let count = self.take(limit, &mut out);
        if count > 0 {
            self.nic.progress().note_found();
            self.note_drained(count < limit);
        }
        if count > 0 || limit == 0 {
            self.release_if_empty();
            return count;
        }
        self.nic.run_inline(seen);
        let count = self.take(limit, &mut out);
        self.note_drained(count < limit);
        count
    }

    /// Takes the oldest completion, with the time it came ([`Self::timestamp_now_ns`]; 0 if the queue has
    /// no timestamps); runs the engine if there is none yet.
    pub fn poll_one(&self) -> Option<(Completion, u64)> {
        let seen = self.nic.arrivals();
        if let Some(taken) = self.take_one() {
            self.nic.progress().note_found();
            self.note_drained(false);
            self.release_if_empty();
            return Some(taken);
        }
        self.nic.run_inline(seen);
        let taken = self.take_one();
        self.note_drained(taken.is_none());
        taken
    }

    #[inline]
    fn note_drained(&self, is_drained: bool) {
        if self.channel.is_some() {
            self.is_drained.store(is_drained, Ordering::Relaxed);
        }
    }

    /// The program has seen everything, and may go away: what it posted must not wait for its next poll. While there
    /// is more, it will poll again.
    #[inline]
    fn release_if_empty(&self) {
        if !self.has_some.load(Ordering::Relaxed) {
            self.nic.release();
        }
    }

    fn take_one(&self) -> Option<(Completion, u64)> {
        if !self.has_some.load(Ordering::Acquire) {
            return None;
        }
        let mut ring = self.ring();
        let completion = ring.completions.pop_front();
        let stamp = ring.stamps.as_mut().and_then(VecDeque::pop_front);
        self.has_some
            .store(!ring.completions.is_empty(), Ordering::Release);
        completion.map(|completion| (completion, stamp.unwrap_or(0)))
    }

    /// Lets it note from now on when each completion comes. To be called before it is used.
    pub fn keep_timestamps(&self) {
        self.ring().stamps.get_or_insert_default();
    }

    /// The device's clock: `CLOCK_MONOTONIC`, nanoseconds.
    #[must_use]
    pub fn timestamp_now_ns() -> u64 {
        clock::monotonic_ns()
    }

    fn take(&self, limit: usize, out: &mut impl FnMut(Completion)) -> usize {
        if !self.has_some.load(Ordering::Acquire) {
            return 0;
        }
        let mut ring = self.ring();
        let count = limit.min(ring.completions.len());
        for completion in ring.completions.drain(..count) {
            out(completion);
        }
        if let Some(stamps) = &mut ring.stamps {
            stamps.drain(..count);
        }
        self.has_some
            .store(!ring.completions.is_empty(), Ordering::Release);
        count
    }

    /// Asks for an event at the next completion (of a solicited or failed one only, if so asked). What came since a poll that
    /// found no more counts as next: there are programs that do not poll again before they wait, though the specification
    /// tells them to.
    pub fn arm(&self, solicited_only: bool) {
        {
            let mut ring = self.ring();
            // "Any completion" stands when both are asked for (IBTA 11.4.2.2).
            if !solicited_only {
                ring.armed = Armed::AnyCompletion;
            } else if ring.armed == Armed::No {
                ring.armed = Armed::SolicitedOnly;
            }
            let is_missed = self.is_drained.load(Ordering::Relaxed)
                && ring
                    .completions
                    .iter()
                    .any(|each| ring.armed.fires_at(each));
            if is_missed {
                self.fire_or_wait(&mut ring);
            }
        }
        self.nic.release();
        let is_seen_to = self
            .channel
            .as_ref()
            .is_some_and(|channel| channel.is_waited_in() || channel.look(&self.nic));
        if !is_seen_to {
            // The program is about to wait in a poll() of its own: somebody has to watch the sockets.
            self.nic.progress().take_over();
        }
    }

    /// Adds completions, `first` and those that `more` gives, and raises the event that was asked for. Those that find
    /// the queue full are lost.
    pub(crate) fn push(
        &self,
        first: Completion,
        mut more: impl FnMut() -> Option<Completion>,
    ) -> Result<(), Overrun> {
        let mut ring = self.ring();
        let mut result = self.push_one(&mut ring, first);
        while let Some(completion) = more() {
            result = self.push_one(&mut ring, completion).and(result);
        }
        self.has_some.store(true, Ordering::Release);
        result
    }

    fn push_one(&self, ring: &mut Ring, completion: Completion) -> Result<(), Overrun> {
        if ring.completions.len() >= ring.depth {
            if !std::mem::replace(&mut ring.has_overrun, true) {
                self.nic
                    .events()
                    .push(AsyncEventKind::CqOverrun(self.cookie));
            }
            return Err(Overrun);
        }
        ring.completions.push_back(completion);
        if let Some(stamps) = &mut ring.stamps {
            stamps.push_back(clock::monotonic_ns());
        }
        if ring.armed.fires_at(&completion) {
            // First, for the event may wake a thread that polls once, and then waits for the next event.
            self.has_some.store(true, Ordering::Release);
            self.fire_or_wait(ring);
        }
        Ok(())
    }

    /// Raises the event now, or lets it wait for more completions.
    fn fire_or_wait(&self, ring: &mut Ring) {
        if let Some(moderator) = &mut ring.moderator {
            let now = clock::now();
            if !moderator.is_enough(now) {
                self.nic.note_moderated(moderator.due());
                return;
            }
        }
        self.fire(ring);
    }

    fn fire(&self, ring: &mut Ring) {
        ring.armed = Armed::No;
        self.is_drained.store(false, Ordering::Relaxed);
        if let Some(channel) = &self.channel {
            self.nic.progress().note_event();
            channel.push(self.cookie);
        }
    }

    /// Lets events wait until `moderation.count` completions have come, or `moderation.period_ns` have
    /// passed since the first.
    pub fn moderate(self: &Arc<Self>, moderation: Moderation) {
        {
            let mut ring = self.ring();
            let old = ring.moderator.take();
            if old.is_some_and(|old| old.has_pending()) {
                self.fire(&mut ring);
            }
            if moderation.is_none() {
                return;
            }
            ring.moderator = Some(Moderator::new(moderation));
        }
        self.nic.moderated().add(self);
    }

    /// Raises an event whose time has come. Returns when the one that waits is due.
    pub(crate) fn expire_moderation(
        &self,
        now: urxe_proto::Instant,
    ) -> Option<urxe_proto::Instant> {
        let mut ring = self.ring();
        let due = ring.moderator.as_mut().and_then(|m| m.expire(now));
        match due {
            Some(at) if at > now => Some(at),
            Some(_) => {
                self.fire(&mut ring);
                None
            }
            None => None,
        }
    }

    /// Raises no event any more, and takes back those that the program has not read: it is about to be destroyed. No queue pair may
    /// complete here.
    pub fn retire(&self) {
        {
            let mut ring = self.ring();
            ring.armed = Armed::No;
            // The event that it lets wait would come later.
            ring.moderator = None;
        }
        if let Some(channel) = &self.channel {
            channel.forget(self.cookie);
        }
        self.nic.events().forget_cq(self.cookie);
    }

    /// Drops the completions of a queue pair that is destroyed or reset.
    pub(crate) fn forget_qp(&self, number: urxe_wire::Qpn) {
        let mut ring = self.ring();
        let Ring {
            completions,
            stamps,
            ..
        } = &mut *ring;
        if let Some(stamps) = stamps {
            let mut of_each = completions.iter();
            stamps.retain(|_| of_each.next().is_some_and(|other| other.qp != number));
        }
        completions.retain(|completion| completion.qp != number);
        self.has_some
            .store(!completions.is_empty(), Ordering::Release);
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_user(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether queue pairs complete here.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
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
    use crate::tap::Wiring;
    use urxe_proto::CompletionKind;

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
            is_ipv4: false,
        }
    }

    /// A queue that raises events; none, and says so, where there is no device.
    fn with_events() -> Option<(Arc<Nic>, Arc<CompletionChannel>, Arc<Cq>)> {
        let devices = crate::list::list().unwrap();
        let Some(info) = devices.first() else {
            eprintln!("skipped: no network interface has an address");
            return None;
        };
        let nic = Nic::open_wired(info, &Wiring::default()).unwrap();
        let channel = nic.create_channel().unwrap();
        let cq = nic.create_cq(8, Some(Arc::clone(&channel)), 1).unwrap();
        Some((nic, channel, cq))
    }

    /// The event comes as soon as the first of several completions, and whoever it wakes may poll but once.
    #[test]
    fn who_is_woken_finds_something() {
        let Some((nic, channel, cq)) = with_events() else {
            return;
        };
        cq.arm(false);
        let mut is_found = None;
        cq.push(completion(), || {
            // The event is there by now.
            is_found = Some(cq.has_some.load(Ordering::Acquire));
            None
        })
        .unwrap();
        assert_eq!(is_found, Some(true));
        assert_eq!(channel.wait().unwrap(), 1);
        let polls = || nic.progress().polls();
        let before = polls();
        assert_eq!(cq.poll(0, |_| ()), 0);
        assert_eq!(polls(), before, "who asks for nothing has not polled");
        assert_eq!(cq.poll(1, |_| ()), 1);
        assert_eq!(polls(), before + 1, "who finds something has");
        nic.close();
    }

    /// UCX polls, finds nothing, asks for an event, and waits for it.
    #[test]
    fn what_comes_between_a_poll_in_vain_and_the_wish_for_an_event_raises_it() {
        let Some((nic, channel, cq)) = with_events() else {
            return;
        };
        let come = |solicited| {
            let completion = Completion {
                solicited,
                ..completion()
            };
            cq.push(completion, || None).unwrap();
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
        assert_eq!(events(), 1, "it came before, and nobody has seen it");
        cq.arm(false);
        assert_eq!(events(), 0, "one event for it is enough");
        nic.close();
    }
}
