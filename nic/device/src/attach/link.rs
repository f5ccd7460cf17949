//! The port of an opened device as it is now: its GID table, state and MTU follow the network
//! interface.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use urxe_udp::Changes;

use crate::attach::gid_entry::GidEntry;
use crate::attach::list::{DeviceInfo, current};
use crate::delivery::events::AsyncEventKind;

/// What follows the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub(crate) gids: Arc<[GidEntry]>,
    pub(crate) is_up: bool,
    pub(crate) mtu_bytes: u32,
    /// The interface was removed.
    is_gone: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    ifindex: u32,
    changes: Changes,
    /// Held by the thread that follows, so that an older state never replaces a newer one. A thread
    /// that asks meanwhile waits: it would see addresses that nothing is bound to yet, or none of
    /// the new ones.
    following: Mutex<()>,
    state: Mutex<LinkState>,
}

impl LinkState {
    fn of(info: &DeviceInfo) -> Self {
        Self {
            gids: info.gids.as_slice().into(),
            is_up: info.is_up,
            mtu_bytes: info.netdev_mtu_bytes,
            is_gone: false,
        }
    }

    fn gone(&self) -> Self {
        Self {
            gids: Arc::new([]),
            is_up: false,
            mtu_bytes: self.mtu_bytes,
            is_gone: true,
        }
    }

    /// What a program is told of the change to `self`.
    fn events_since(&self, before: &Self) -> impl Iterator<Item = AsyncEventKind> + use<> {
        let events = [
            (
                self.is_gone && !before.is_gone,
                AsyncEventKind::DeviceRemoved,
            ),
            (!self.is_up && before.is_up, AsyncEventKind::PortDown),
            (self.is_up && !before.is_up, AsyncEventKind::PortActive),
            (self.gids != before.gids, AsyncEventKind::GidsChanged),
        ];
        events
            .into_iter()
            .filter_map(|(has_happened, event)| has_happened.then_some(event))
    }
}

impl Link {
    pub(crate) fn new(info: &DeviceInfo) -> io::Result<Self> {
        Ok(Self {
            ifindex: info.ifindex,
            changes: Changes::listen_to_routes()?,
            following: Mutex::new(()),
            state: Mutex::new(LinkState::of(info)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> LinkState {
        self.lock().clone()
    }

    /// Readable when the interface may have changed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Looks whether anything changed. `apply` gets the new GID table if that did; then `routes` is
    /// called, as routes may have changed as well, and `tell` with the events.
    pub(crate) fn follow(
        &self,
        apply: impl FnOnce(&Arc<[GidEntry]>),
        routes: impl FnOnce(),
        tell: impl FnMut(AsyncEventKind),
    ) {
        let _following = self
            .following
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !self.changes.has_changed() {
            return;
        }
        let now = match current(self.ifindex) {
            Ok(Some(info)) => LinkState::of(&info),
            Ok(None) => self.state().gone(),
            Err(error) => {
                log::warn!("cannot look at network interface {}: {error}", self.ifindex);
                routes();
                return;
            }
        };
        let before = std::mem::replace(&mut *self.lock(), now.clone());
        if before.gids != now.gids {
            apply(&now.gids);
        }
        routes();
        now.events_since(&before).for_each(tell);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use urxe_wire::Gid;

    use super::*;
    use crate::support::device;

    fn state(gids: usize, is_up: bool) -> LinkState {
        let entry = GidEntry {
            gid: Gid([1; 16]),
            scope_id: 0,
            kind: crate::attach::gid_entry::GidType::RoceV2,
        };
        LinkState {
            gids: vec![entry; gids].into(),
            is_up,
            mtu_bytes: 1500,
            is_gone: false,
        }
    }

    fn events(before: &LinkState, now: &LinkState) -> Vec<AsyncEventKind> {
        now.events_since(before).collect()
    }

    #[test]
    fn a_program_is_told_what_changed() {
        use AsyncEventKind::{DeviceRemoved, GidsChanged, PortActive, PortDown};
        assert_eq!(events(&state(1, true), &state(1, true)), []);
        assert_eq!(events(&state(1, true), &state(2, true)), [GidsChanged]);
        assert_eq!(events(&state(1, true), &state(1, false)), [PortDown]);
        assert_eq!(
            events(&state(0, false), &state(1, true)),
            [PortActive, GidsChanged]
        );
        let before = state(1, true);
        assert_eq!(
            events(&before, &before.gone()),
            [DeviceRemoved, PortDown, GidsChanged]
        );
    }

    /// A connection to an address that was just seen was refused.
    #[test]
    fn who_asks_waits_for_who_follows() {
        let link = Link::new(&device("lo")).unwrap();
        let following = link.following.lock().unwrap();
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| link.follow(|_| (), || (), |_| ()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!asks.is_finished());
            drop(following);
        });
    }
}
