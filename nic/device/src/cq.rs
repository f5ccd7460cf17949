//! Completion queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use urxe_proto::{Completion, WcStatus};

use crate::channel::CompletionChannel;
use crate::error::Error;
use crate::events::AsyncEventKind;
use crate::nic::Nic;

/// When the next completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    AnyCompletion,
    SolicitedOnly,
}

#[derive(Debug)]
struct Ring {
    completions: VecDeque<Completion>,
    depth: usize,
    armed: Armed,
    has_overrun: bool,
}

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
            depth,
            armed: Armed::No,
            has_overrun: false,
        };
        Arc::new(Self {
            nic: Arc::clone(nic),
            channel,
            cookie,
            ring: Mutex::new(ring),
            users: AtomicU32::new(0),
            has_some: AtomicBool::new(false),
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
        if depth == 0 || depth < ring.completions.len() {
            let held = ring.completions.len();
            return Err(Error::Invalid(format!(
                "a completion queue of {depth} entries cannot hold the {held} that wait in it"
            )));
        }
        ring.depth = depth;
        Ok(())
    }

    /// Moves completions, oldest first, into `out` by calling it, at most `limit` times; runs the
    /// engine if there are none yet. Returns how many.
    pub fn poll(&self, limit: usize, mut out: impl FnMut(Completion)) -> usize {
        let count = self.take(limit, &mut out);
        if count > 0 || limit == 0 {
            return count;
        }
        self.nic.run_inline();
        self.take(limit, &mut out)
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
        self.has_some
            .store(!ring.completions.is_empty(), Ordering::Release);
        count
    }

    /// Asks for an event at the next completion (of a solicited or failed one only, if so asked).
    pub fn arm(&self, solicited_only: bool) {
        {
            let mut ring = self.ring();
            // "Any completion" stands when both are asked for (IBTA 11.4.2.2).
            if !solicited_only {
                ring.armed = Armed::AnyCompletion;
            } else if ring.armed == Armed::No {
                ring.armed = Armed::SolicitedOnly;
            }
        }
        if !self
            .channel
            .as_ref()
            .is_some_and(|channel| channel.is_waited_in())
        {
            // The program is about to wait in a poll() of its own: somebody has to watch the sockets.
            self.nic.progress().take_over();
        }
    }

    /// Adds a completion, and raises the event that was asked for.
    pub(crate) fn push(&self, completion: Completion) {
        let mut ring = self.ring();
        if ring.completions.len() >= ring.depth {
            if !std::mem::replace(&mut ring.has_overrun, true) {
                self.nic
                    .events()
                    .push(AsyncEventKind::CqOverrun(self.cookie));
            }
            return;
        }
        ring.completions.push_back(completion);
        self.has_some.store(true, Ordering::Release);
        let is_solicited = completion.solicited || completion.status != WcStatus::Success;
        let fires = match ring.armed {
            Armed::No => false,
            Armed::AnyCompletion => true,
            Armed::SolicitedOnly => is_solicited,
        };
        if fires {
            ring.armed = Armed::No;
            if let Some(channel) = &self.channel {
                channel.push(self.cookie);
            }
        }
    }

    /// Drops the completions of a queue pair that is destroyed or reset.
    pub(crate) fn forget_qp(&self, number: urxe_wire::Qpn) {
        let mut ring = self.ring();
        ring.completions
            .retain(|completion| completion.qp != number);
        self.has_some
            .store(!ring.completions.is_empty(), Ordering::Release);
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
