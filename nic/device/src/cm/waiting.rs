//! Requests without a listener, which wait a while for one, and those that waited in vain.

use urxe_cm::{Mad, Path, ServiceId};

/// How long a request without a listener waits for one. A program that tells its peer by another
/// way that it is about to listen (perftest with `-R`, which a refusal ends with a fault) may get
/// no processor for more than 100 ms on a busy machine. Linux asks again after 4.3 s, so that it
/// takes the wait for a slow answer.
const GRACE_NS: u64 = 500_000_000;
/// How long a refusal is remembered. A repetition that crossed it must not wait anew: it would come
/// to a listener when its program has given up, and perhaps asked again.
const REFUSED_NS: u64 = 2 * GRACE_NS;
/// Requests that wait so, at most; others are refused at once. As many refusals are remembered.
const WAITING_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) until_ns: u64,
    pub(super) path: Path,
    pub(super) service_id: ServiceId,
    pub(super) mad: Mad,
}

impl Waiting {
    /// Whether this is that request: two hosts may choose the same numbers.
    fn is(&self, path: &Path, mad: &Mad) -> bool {
        is_same((&self.path, &self.mad), (path, mad))
    }
}

fn is_same((a_path, a): (&Path, &Mad), (b_path, b): (&Path, &Mad)) -> bool {
    (a_path.link, a_path.remote) == (b_path.link, b_path.remote) && a == b
}

#[derive(Debug, Default)]
pub(super) struct WaitingList {
    waiting: Vec<Waiting>,
    /// When it is forgotten, the oldest first.
    refused: Vec<(u64, Path, Mad)>,
}

impl WaitingList {
    /// Lets a request wait. False if there is no room: it is to be refused.
    pub(super) fn keep(
        &mut self,
        now_ns: u64,
        path: Path,
        mad: &Mad,
        service_id: ServiceId,
    ) -> bool {
        if self.waiting.iter().any(|waiting| waiting.is(&path, mad)) {
            return true;
        }
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        self.waiting.push(Waiting {
            until_ns: now_ns.saturating_add(GRACE_NS),
            path,
            service_id,
            mad: mad.clone(),
        });
        true
    }

    /// Takes out all that wait, to be looked at.
    pub(super) fn take(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// One that was taken out waits on.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// A repetition of a request has come to a listener: what waits of it would be a second
    /// request.
    pub(super) fn forget(&mut self, path: &Path, mad: &Mad) {
        self.waiting.retain(|waiting| !waiting.is(path, mad));
    }

    /// A request that had waited was refused.
    pub(super) fn note_refused(&mut self, now_ns: u64, path: Path, mad: Mad) {
        self.refused.retain(|(until_ns, ..)| now_ns < *until_ns);
        if self.refused.len() >= WAITING_MAX {
            self.refused.remove(0);
        }
        let until_ns = now_ns.saturating_add(REFUSED_NS);
        self.refused.push((until_ns, path, mad));
    }

    /// Whether a request is the repetition of one that was refused a short while ago.
    pub(super) fn was_refused(&self, now_ns: u64, path: &Path, mad: &Mad) -> bool {
        self.refused.iter().any(|(until_ns, from, refused)| {
            now_ns < *until_ns && is_same((from, refused), (path, mad))
        })
    }

    /// When one has waited enough.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.until_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use urxe_cm::{PortSpace, Rtu};
    use urxe_wire::Gid;

    use super::*;

    const SERVICE: ServiceId = ServiceId::of(PortSpace::Tcp, 7);
    const PATH: Path = Path {
        link: 1,
        local: Gid([1; 16]),
        remote: Gid([2; 16]),
        port: 4791,
        from: None,
    };

    const OTHER: Path = Path {
        remote: Gid([3; 16]),
        ..PATH
    };

    fn mad(transaction: u64) -> Mad {
        let message = Rtu {
            local_comm_id: 1,
            remote_comm_id: 2,
            private_data: [0; Rtu::PRIVATE_LEN],
        };
        Mad {
            transaction,
            message: message.into(),
        }
    }

    #[test]
    fn a_repetition_does_not_wait_twice_nor_longer() {
        let mut list = WaitingList::default();
        assert!(list.keep(0, PATH, &mad(1), SERVICE));
        assert!(list.keep(9, PATH, &mad(1), SERVICE));
        assert_eq!(list.next_ns(), Some(GRACE_NS));
        assert_eq!(list.take().len(), 1);
        assert_eq!(list.next_ns(), None);
    }

    #[test]
    fn what_came_to_a_listener_waits_no_more() {
        let mut list = WaitingList::default();
        assert!(list.keep(0, PATH, &mad(1), SERVICE) && list.keep(0, PATH, &mad(2), SERVICE));
        list.forget(&OTHER, &mad(2));
        list.forget(&PATH, &mad(1));
        let left: Vec<u64> = list
            .take()
            .iter()
            .map(|each| each.mad.transaction)
            .collect();
        assert_eq!(left, [2]);
    }

    #[test]
    fn a_repetition_that_crosses_its_refusal_is_refused() {
        let mut list = WaitingList::default();
        list.note_refused(5, PATH, mad(1));
        assert!(list.was_refused(5 + REFUSED_NS - 1, &PATH, &mad(1)));
        assert!(!list.was_refused(5 + REFUSED_NS, &PATH, &mad(1)));
        assert!(!list.was_refused(5, &PATH, &mad(2)));
        assert!(!list.was_refused(5, &OTHER, &mad(1)), "another host's");
    }

    #[test]
    fn many_requests_without_a_listener_take_bounded_memory() {
        let mut list = WaitingList::default();
        for transaction in 0..2 * WAITING_MAX as u64 {
            let has_room = transaction < WAITING_MAX as u64;
            assert_eq!(list.keep(0, PATH, &mad(transaction), SERVICE), has_room);
            list.note_refused(0, PATH, mad(transaction));
        }
        assert_eq!(list.refused.len(), WAITING_MAX);
        assert!(list.was_refused(0, &PATH, &mad(2 * WAITING_MAX as u64 - 1)));
    }
}
