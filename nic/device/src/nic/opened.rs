//! The devices that the process has opened.

use std::sync::{Arc, Weak};

use crate::attach::kind::DeviceKind;
use crate::attach::list::DeviceInfo;
use crate::attach::tap::{Taps, Wiring};
use crate::nic::Nic;
use crate::process::across_fork::AcrossFork;
use crate::process::error::Error;

/// The devices that the process has opened.
pub(crate) static OPENED: AcrossFork<Vec<Weak<Nic>>> = AcrossFork::new(Vec::new());

/// The opened devices.
pub(crate) fn opened() -> Vec<Arc<Nic>> {
    OPENED.lock().iter().filter_map(Weak::upgrade).collect()
}

impl Nic {
    /// Opens a device of its own, as the process's environment asks for.
    pub(crate) fn open_unshared(info: &DeviceInfo) -> Result<Arc<Self>, Error> {
        DeviceKind::of_process()?;
        remember(Self::new(info, Taps::of_environment(&info.name)?)?)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// When the process has no descriptors left, or a capture file cannot be written.
    pub fn open_wired(info: &DeviceInfo, wiring: &Wiring) -> Result<Arc<Self>, Error> {
        remember(Self::new(info, Arc::new(Taps::new(wiring, &info.name)?))?)
    }
}

fn remember(nic: Arc<Nic>) -> Result<Arc<Nic>, Error> {
    let mut opened = OPENED.lock();
    opened.retain(|nic| nic.strong_count() > 0);
    opened.push(Arc::downgrade(&nic));
    drop(opened);
    Ok(nic)
}

/// What the parent owes its peers is the parent's to send, and its threads are not in the child. A
/// lock that the fork did not get is left.
pub(crate) fn forget() {
    if let Some(mut opened) = OPENED.try_lock() {
        opened.clear();
    }
}
