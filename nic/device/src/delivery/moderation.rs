//! Completion moderation: an event of a completion queue waits for more completions, or for some
//! time.

use urxe_proto::Instant;

/// When an event is raised after completions came (`ibv_modify_cq`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// After so many.
    pub count: u16,
    /// So long after the first, nanoseconds; 0 waits for the count only.
    pub period_ns: u64,
}

impl Moderation {
    /// Whether every completion raises its event at once.
    pub(crate) const fn is_none(self) -> bool {
        self.count <= 1
    }
}

/// The waiting event of one queue.
#[derive(Debug)]
pub(crate) struct Moderator {
    moderation: Moderation,
    pending: u16,
    due: Option<Instant>,
}

impl Moderator {
    pub(crate) const fn new(moderation: Moderation) -> Self {
        Self {
            moderation,
            pending: 0,
            due: None,
        }
    }

    /// One more completion came that would raise an event. Whether to raise it now.
    pub(crate) fn is_enough(&mut self, now: Instant) -> bool {
        self.pending += 1;
        if self.pending >= self.moderation.count {
            self.pending = 0;
            self.due = None;
            return true;
        }
        if self.pending == 1 && self.moderation.period_ns > 0 {
            self.due = Some(now.after(self.moderation.period_ns));
        }
        false
    }

    /// When the event that waits is due.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether an event waits.
    pub(crate) const fn has_pending(&self) -> bool {
        self.pending > 0
    }

    /// When the event that waits is due; forgets it if that is now.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due?;
        if due <= now {
            self.due = None;
            self.pending = 0;
        }
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn an_event_waits_for_the_count_or_for_its_time() {
        let mut moderator = Moderator::new(Moderation {
            count: 3,
            period_ns: 100,
        });
        assert!(!moderator.is_enough(at(10)));
        assert!(!moderator.is_enough(at(20)));
        assert_eq!(moderator.due(), Some(at(110)), "counted from the first");
        assert!(moderator.is_enough(at(30)));
        assert_eq!(moderator.due(), None);
        assert!(!moderator.is_enough(at(200)));
        assert_eq!(moderator.expire(at(250)), Some(at(300)));
        assert_eq!(moderator.expire(at(300)), Some(at(300)));
        assert_eq!(moderator.expire(at(400)), None);
        assert!(!moderator.is_enough(at(500)), "the count begins anew");
    }
}
