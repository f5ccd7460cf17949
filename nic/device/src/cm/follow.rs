//! What becomes of identifiers when interfaces change: their addresses, and devices that come and
//! go.

use urxe_wire::Gid;

use super::agent::Inner;
use super::id::{CmEventKind, CmParam, Id, State};
use crate::attach::list::{DeviceInfo, current};

impl Id {
    /// Whether its device now is such that the program should know: with another MAC address (which
    /// is what `rdma_get_cm_event(3)` means by a changed address), or without the identifier's own.
    fn notes_change(&mut self, now: &DeviceInfo) -> bool {
        let Some(own) = self.source.map(|source| Gid::from(source.ip())) else {
            return false;
        };
        let Some(device) = self
            .device
            .as_mut()
            .filter(|device| device.info.ifindex == now.ifindex)
        else {
            return false;
        };
        let has_address = now
            .gids
            .iter()
            .any(|entry| entry.is_v2() && entry.gid == own);
        let is_told = device.mac != now.mac || device.has_address && !has_address;
        device.mac = now.mac;
        device.has_address = has_address;
        is_told && self.state != State::Removed
    }

    fn is_on(&self, link: u32) -> bool {
        self.device
            .as_ref()
            .is_some_and(|device| device.info.ifindex == link)
    }
}

impl Inner {
    /// Looks whether interfaces have changed.
    pub(super) fn follow_interfaces(&mut self) {
        if !self.changes.has_changed() {
            return;
        }
        self.forget_devices();
        let bound = self.ids.values().filter_map(|id| id.device.as_ref());
        let mut links: Vec<u32> = bound.map(|device| device.info.ifindex).collect();
        links.extend(self.doors.iter().map(super::door::Door::link));
        links.sort_unstable();
        links.dedup();
        for link in links {
            match current(link) {
                Ok(Some(info)) => self.device_changed(&info),
                Ok(None) => self.device_removed(link),
                Err(error) => log::warn!("cannot look at network interface {link}: {error}"),
            }
        }
        if self.listening().any(|(_, id)| id.device.is_none()) {
            self.open_doors();
        }
    }

    fn device_changed(&mut self, info: &DeviceInfo) {
        if self
            .door(info.ifindex)
            .is_some_and(|door| door.follow(&info.gids))
        {
            self.looks_at_ns = 0;
        }
        let ids = self.ids.iter_mut();
        let told: Vec<u32> = ids
            .filter_map(|(number, id)| id.notes_change(info).then_some(*number))
            .collect();
        for id in told {
            self.push(id, CmEventKind::AddrChange, 0, CmParam::None);
        }
    }

    /// The device of an interface is gone: with it go its connections, listeners, and the requests
    /// that the program has not taken.
    fn device_removed(&mut self, link: u32) {
        let ids = self.ids.iter().filter(|(_, id)| id.is_on(link));
        let (untaken, told): (Vec<u32>, Vec<u32>) = ids
            .map(|(number, _)| *number)
            .partition(|number| self.ids[number].listener.is_some());
        for id in untaken {
            self.remove_id(id);
        }
        for number in told {
            self.exchanges.forget(number);
            let Ok(id) = self.id(number) else { continue };
            if std::mem::replace(&mut id.state, State::Removed) == State::Removed {
                continue;
            }
            id.requests = None;
            (id.reservation, id.tcp) = (None, None);
            if let Some(comm) = id.comm.take() {
                self.by_comm.remove(&comm);
                self.manager.abandon(self.now_ns, comm);
            }
            self.push(number, CmEventKind::DeviceRemoval, 0, CmParam::None);
        }
        if let Some(at) = self.doors.iter().position(|door| door.link() == link) {
            self.doors.swap_remove(at).end();
        }
    }
}
