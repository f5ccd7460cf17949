//! The notification point: when a mark is worth a congestion notification packet (CNP; IBTA annex
//! A17.9.3).

use crate::time::Instant;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotificationPoint {
    last: Option<Instant>,
    is_owed: bool,
}

impl NotificationPoint {
    /// A packet arrived with the mark "congestion experienced". A CNP is owed if the last is older
    /// than `interval_ns`.
    pub(crate) fn handle_mark(&mut self, now: Instant, interval_ns: u64) {
        if self.last.is_none_or(|last| now.since(last) >= interval_ns) {
            self.last = Some(now);
            self.is_owed = true;
        }
    }

    /// Whether a CNP is to be sent; it counts as sent.
    pub(crate) fn poll(&mut self) -> bool {
        core::mem::take(&mut self.is_owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notification_in_an_interval() {
        let mut point = NotificationPoint::default();
        assert!(!point.poll(), "nothing was marked");
        let mut sent = 0;
        for micros in 0..100 {
            point.handle_mark(Instant::from_nanos(1_000 * micros), 50_000);
            sent += u32::from(point.poll());
        }
        assert_eq!(sent, 2);
        assert!(!point.poll(), "no mark, no notification");
    }
}
