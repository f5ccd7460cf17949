//! The doors of communication management: the devices that it has open.

use std::io;

use super::agent::{Inner, errno};
use super::door::Door;
use crate::attach::kind::DeviceKind;
use crate::attach::list::DeviceInfo;
use crate::process::error::Error;

impl Inner {
    /// Opens the door of a device if it is not; returns its slot.
    pub(super) fn open_door(&mut self, info: &DeviceInfo) -> io::Result<u16> {
        if let Some(door) = self.door(info.ifindex) {
            return Ok(door.slot);
        }
        let door = Door::open(info).map_err(|error| match error {
            Error::Io(error) => error,
            other => errno(other.errno()),
        })?;
        let slot = door.slot;
        self.add_door(door);
        Ok(slot)
    }

    /// Opens the doors of all devices.
    pub(super) fn open_doors(&mut self) {
        let devices = self.devices().iter();
        let devices = devices
            .filter(|info| info.kind == DeviceKind::Roce)
            .cloned();
        for info in devices.collect::<Vec<_>>() {
            // A device that just lost its addresses cannot be listened on.
            let _ = self.open_door(&info);
        }
    }

    /// Opens the door of a device that the process has open and that has got a packet: a process
    /// that knows nothing of connections still passes on what is for others.
    pub(super) fn attach_door(&mut self, link: u32) {
        if self.door(link).is_none()
            && let Some(door) = Door::attach(link)
        {
            self.add_door(door);
        }
    }

    pub(super) fn add_door(&mut self, door: Door) {
        if let Some(relay) = &door.relay {
            let _ = self.watch.add_reader(&**relay);
        }
        self.doors.push(door);
    }

    pub(super) fn door(&mut self, link: u32) -> Option<&mut Door> {
        self.doors.iter_mut().find(|door| door.link() == link)
    }
}
