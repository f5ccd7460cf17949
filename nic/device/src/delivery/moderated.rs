//! The completion queues whose events wait for company.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use urxe_proto::Instant;

/// A queue whose event may wait.
pub(crate) trait Moderate: std::fmt::Debug + Send + Sync {
    /// Raises an event whose time has come. Returns when the one that waits is due.
    fn expire(&self, now: Instant) -> Option<Instant>;
}

/// The moderated queues of an opened device.
#[derive(Debug)]
pub(crate) struct Moderated {
    queues: Mutex<Vec<Weak<dyn Moderate>>>,
    /// The earliest time that an event is due, nanoseconds; `u64::MAX` while none waits.
    due_ns: AtomicU64,
}

impl Default for Moderated {
    fn default() -> Self {
        Self {
            queues: Mutex::default(),
            due_ns: AtomicU64::new(u64::MAX),
        }
    }
}

impl Moderated {
    pub(crate) fn add(&self, queue: &Weak<dyn Moderate>) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|known| known.strong_count() > 0 && !known.ptr_eq(queue));
        queues.push(Weak::clone(queue));
    }

    /// An event is due at `at`.
    pub(crate) fn note(&self, at: Instant) {
        self.due_ns.fetch_min(at.as_nanos(), Ordering::Relaxed);
    }

    /// When the next event is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        (due_ns != u64::MAX).then(|| Instant::from_nanos(due_ns))
    }

    /// Raises the events whose time has come.
    pub(crate) fn expire(&self, now: Instant) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        self.due_ns.store(u64::MAX, Ordering::Relaxed);
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in queues.iter().filter_map(Weak::upgrade) {
            if let Some(at) = queue.expire(now) {
                self.note(at);
            }
        }
    }
}
