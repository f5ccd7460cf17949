//! Completions, as the engine delivers them and the program takes them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use urxe_proto::{Completion, Instant, WcStatus};

use crate::delivery::channel_events::ChannelEvents;
use crate::delivery::events::{AsyncEventKind, EventQueue};
use crate::delivery::moderated::{Moderate, Moderated};
use crate::delivery::moderation::{Moderation, Moderator};
use crate::delivery::progress::Progress;
use crate::process::clock;
use crate::process::error::Error;

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

/// What of the device is told of completions.
#[derive(Clone, Debug)]
pub(crate) struct Tells {
    pub(crate) progress: Arc<Progress>,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) moderated: Arc<Moderated>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Completions {
    tells: Tells,
    channel: Option<Arc<ChannelEvents>>,
    cookie: u64,
    ring: Mutex<Ring>,
    /// Queue pairs and shared receive queues that complete here.
    users: AtomicU32,
    /// Whether there may be some.
    has_some: AtomicBool,
    /// The program has seen all that there was, and no event was raised since. Kept only where
    /// there are events.
    is_drained: AtomicBool,
}

impl Completions {
    pub(crate) fn new(
        tells: Tells,
        depth: usize,
        channel: Option<Arc<ChannelEvents>>,
        cookie: u64,
    ) -> Self {
        let ring = Ring {
            completions: VecDeque::new(),
            stamps: None,
            depth,
            armed: Armed::No,
            has_overrun: false,
            moderator: None,
        };
        Self {
            tells,
            channel,
            cookie,
            ring: Mutex::new(ring),
            users: AtomicU32::new(0),
            has_some: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No thread adds, takes or asks while what this returns lives.
    #[cfg(test)]
    pub(crate) fn stand_still(&self) -> impl Drop {
        self.ring()
    }

    pub(crate) fn depth(&self) -> usize {
        self.ring().depth
    }

    /// Changes how many it holds at most, of which there may be `max`.
    pub(crate) fn resize(&self, depth: usize, max: usize) -> Result<(), Error> {
        let mut ring = self.ring();
        let held = ring.completions.len();
        if depth == 0 || depth > max || depth < held {
            return Err(Error::Invalid(format!(
                "a completion queue of {depth} entries: it holds {held} now, and may have at most {max}"
            )));
        }
        ring.depth = depth;
        Ok(())
    }

    /// Whether there are some.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Relaxed)
    }

    /// The program has seen all that there was, or has not.
    #[inline]
    pub(crate) fn note_drained(&self, is_drained: bool) {
        if self.channel.is_some() {
            self.is_drained.store(is_drained, Ordering::Relaxed);
        }
    }

    /// The oldest, with the time it came.
    pub(crate) fn take_one(&self) -> Option<(Completion, u64)> {
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

    /// Hands so many at most to `out`, oldest first. How many there were.
    pub(crate) fn take(&self, limit: usize, out: &mut impl FnMut(Completion)) -> usize {
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

    /// Notes from now on when each comes.
    pub(crate) fn keep_timestamps(&self) {
        self.ring().stamps.get_or_insert_default();
    }

    /// Raises an event at the next completion (of a solicited or failed one only, if so asked).
    /// What came since a poll that found no more counts as next.
    pub(crate) fn arm(&self, solicited_only: bool) {
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

    /// Whether a completion raises an event.
    pub(crate) fn is_armed(&self) -> bool {
        self.ring().armed != Armed::No
    }

    /// Adds completions, `first` and those that `more` gives, and raises the event that was asked
    /// for. Those that find the queue full are lost.
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
                let overrun = AsyncEventKind::CqOverrun(self.cookie);
                self.tells.events.push(overrun);
            }
            return Err(Overrun);
        }
        ring.completions.push_back(completion);
        if let Some(stamps) = &mut ring.stamps {
            stamps.push_back(clock::monotonic_ns());
        }
        if ring.armed.fires_at(&completion) {
            // First, for the event may wake a thread that polls once, and then waits for the next
            // event.
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
                if let Some(due) = moderator.due() {
                    self.tells.moderated.note(due);
                    self.tells.progress.note_deadline(Some(due));
                }
                return;
            }
        }
        self.fire(ring);
    }

    fn fire(&self, ring: &mut Ring) {
        ring.armed = Armed::No;
        self.is_drained.store(false, Ordering::Relaxed);
        if let Some(channel) = &self.channel {
            self.tells.progress.note_event();
            channel.push(self.cookie);
        }
    }

    /// Lets events wait so.
    pub(crate) fn moderate(self: &Arc<Self>, moderation: Moderation) {
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
        let this: Weak<Self> = Arc::downgrade(self);
        let this: Weak<dyn Moderate> = this;
        self.tells.moderated.add(&this);
    }

    /// Raises no event any more, and takes back those that the program has not read: it is about to
    /// be destroyed. No queue pair may complete here.
    pub(crate) fn retire(&self) {
        {
            let mut ring = self.ring();
            ring.armed = Armed::No;
            // The event that it lets wait would come later.
            ring.moderator = None;
        }
        if let Some(channel) = &self.channel {
            channel.forget(self.cookie);
        }
        self.tells.events.forget_cq(self.cookie);
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

    pub(crate) fn is_busy(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }
}

impl Moderate for Completions {
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut ring = self.ring();
        let due = ring
            .moderator
            .as_mut()
            .and_then(|moderator| moderator.expire(now));
        match due {
            Some(at) if at > now => Some(at),
            Some(_) => {
                self.fire(&mut ring);
                None
            }
            None => None,
        }
    }
}
